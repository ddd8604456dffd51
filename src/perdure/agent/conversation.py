"""A session while it is open: every message is journaled first, then stands in the window.

What the journal holds is all there is: opening a session reads its records in order, and gives
the window it had, whatever ended the last run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perdure.chat.calls import ToolSpec
from perdure.chat.language import Language
from perdure.chat.messages import Block, Entry, Kind, Message, blocks
from perdure.chat.repair import INTERRUPTED
from perdure.chat.tokens import TokenCounter
from perdure.errors import PromptOverflow
from perdure.memory.budget import Budget
from perdure.memory.window import Compaction, Window
from perdure.store.journal import Journal, NewEntry


class Conversation:
    """The one writer of a session's journal. ``tools`` are those whose schemas each prompt carries."""

    def __init__(
        self,
        journal: Journal,
        session: str,
        counter: TokenCounter,
        budget: Budget,
        tools: Sequence[ToolSpec] = (),
    ) -> None:
        self.journal = journal
        self.session = session
        self.counter = counter
        self.budget = budget
        self.tools = tuple(tools)
        self.system = ""
        self.lang: Language = "en"
        self.window = Window(counter)
        self._read()

    def add(self, kind: Kind, message: Message) -> Entry:
        """Journal a message, durably, and put it in the window."""
        return self.add_all([(kind, message)])[0]

    def add_all(self, messages: Sequence[tuple[Kind, Message]]) -> list[Entry]:
        """Journal messages, all or none, and put them in the window."""
        counted: list[NewEntry] = [
            (kind, message, self.counter.message(message)) for kind, message in messages
        ]
        entries = self.journal.append(self.session, counted)
        for entry in entries:
            self.window.append(entry)
        return entries

    def compact(self) -> Compaction | None:
        """Make the next prompt fit the budget; None where it does already.

        Raises `PromptOverflow` where the system prompt, the tools and the current request alone
        are larger than the budget.
        """
        room = self.budget.tokens - self.fixed
        compaction = self.window.plan(max(room, 0))
        if compaction is None:
            return None
        if compaction.tokens_after > room:
            needed = self.fixed + compaction.tokens_after
            raise PromptOverflow(needed=needed, budget=self.budget.tokens)
        body = {
            "left": list(compaction.left),
            "shortened": {str(seq): kept for seq, kept in compaction.shortened.items()},
            "tokens_before": compaction.tokens_before,
            "tokens_after": compaction.tokens_after,
        }
        self.journal.record(self.session, "compaction", body)
        self.window.apply(compaction)
        return compaction

    def prompt(self) -> list[Message]:
        """What is sent: the system prompt, then the window."""
        return [self._system_message, *self.window.messages()]

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt, tools and system prompt included."""
        return self.fixed + self.window.tokens

    @property
    def fixed(self) -> int:
        """Tokens that every prompt of this session carries."""
        return self.counter.message(self._system_message) + self.counter.tools(self.tools)

    def learn_window(self, limit: int | None, requested: int | None) -> int:
        """The endpoint refused the prompt as too long: from now on its window, in our count.

        ``limit`` and ``requested`` are its own figures, where it gave them. Where it counts more
        than we do, its limit is scaled down by as much; without figures, a quarter is given up.
        The new budget is smaller than the refused prompt in any case.
        """
        sent = self.tokens
        window = limit or self.budget.window
        if requested and requested > sent:
            window = window * sent // requested
        budget = Budget.of(window, min(self.budget.output, window // 2))
        if budget.tokens >= sent:
            budget = Budget.of(window * sent * 3 // (budget.tokens * 4), budget.output)
        self.budget = budget
        self.journal.record(self.session, "window.learnt", {"window": budget.window})
        return budget.window

    def close_open_calls(self) -> list[str]:
        """Answer the calls that no result can answer any more; the ids of those."""
        every = list(blocks(self.window.entries))
        open_ids = _open_in_order(every[-1]) if every else []
        self.add_all([(Kind.TOOL_RESULT, result_message(id, INTERRUPTED)) for id in open_ids])
        return open_ids

    @property
    def _system_message(self) -> Message:
        return {"role": "system", "content": self.system}

    def _read(self) -> None:
        counted_by = ""
        for record in self.journal.records(self.session):
            if isinstance(record, Entry):
                same = counted_by == self.counter.name
                tokens = record.tokens if same else self.counter.message(record.message)
                self.window.append(replace(record, tokens=tokens))
            elif record.type == "session.created":
                self.system, self.lang = record.body["system"], record.body["lang"]
            elif record.type == "session.opened":
                counted_by = record.body["counter"]
            elif record.type == "compaction":
                shortened = {int(seq): kept for seq, kept in record.body["shortened"].items()}
                left, before, after = (
                    record.body[name] for name in ("left", "tokens_before", "tokens_after")
                )
                self.window.apply(Compaction(tuple(left), shortened, before, after))
            elif record.type == "window.learnt" and record.body["window"] < self.budget.window:
                self.budget = Budget.of(record.body["window"], self.budget.output)
        if counted_by != self.counter.name:
            self.journal.record(self.session, "session.opened", {"counter": self.counter.name})
        self.close_open_calls()


def result_message(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


def _open_in_order(block: Block) -> list[str]:
    calls = block.entries[0].message.get("tool_calls") or ()
    return [call["id"] for call in calls if call["id"] in block.open_ids]
