"""A session while it is open: every message is journaled first, then stands in memory.

What the journal holds is all there is: opening a session reads its records in order, and gives
the prompt it had, whatever ended the last run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perdure.chat.calls import ToolSpec
from perdure.chat.language import Language
from perdure.chat.messages import Entry, Kind, Message
from perdure.chat.tokens import TokenCounter
from perdure.memory.budget import Budget
from perdure.memory.memory import Memory, Trimmed
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
        self.tools = tuple(tools)
        self.lang: Language = "en"
        self._counter = counter
        self._memory = Memory(counter=counter, tools=tools)
        self._memory.budget = budget
        self._read()

    @property
    def budget(self) -> Budget:
        return self._memory.budget

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt, tools and system prompt included."""
        return self._memory.tokens

    @property
    def counts_exactly(self) -> bool:
        """The counter is that of the model's own tokenizer, not an estimate."""
        return "estimate" not in self._counter.name

    def add(self, kind: Kind, message: Message) -> Entry:
        """Journal a message, durably, and take it into memory."""
        return self.add_all([(kind, message)])[0]

    def add_all(self, messages: Sequence[tuple[Kind, Message]]) -> list[Entry]:
        """Journal messages, all or none, and take them into memory."""
        counted: list[NewEntry] = [
            (kind, message, self._counter.message(message)) for kind, message in messages
        ]
        return [self._memory.take(entry) for entry in self.journal.append(self.session, counted)]

    def compact(self) -> Trimmed | None:
        """Make the next prompt fit the budget; None where it does already.

        Raises `PromptOverflow` where the system prompt, the tools and the current request alone
        are larger than the budget.
        """
        trimmed = self._memory.plan()
        if trimmed is not None:
            self.journal.record(self.session, "compaction", trimmed.as_json())
            self._memory.apply(trimmed)
        return trimmed

    def prompt(self) -> list[Message]:
        """What is sent: the system prompt, the notes on what left, the window. Fits after `compact`,
        which alone makes it so: nothing leaves that the journal doesn't know of."""
        return self._memory.messages()

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
        self._memory.budget = budget
        self.journal.record(self.session, "window.learnt", {"window": budget.window})
        return budget.window

    def close_open_calls(self) -> None:
        """Answer the calls that no result can answer any more."""
        self.add_all([(Kind.TOOL_RESULT, message) for message in self._memory.closing()])

    def _read(self) -> None:
        counted_by = ""
        for record in self.journal.records(self.session):
            if isinstance(record, Entry):
                same = counted_by == self._counter.name
                tokens = record.tokens if same else self._counter.message(record.message)
                self._memory.take(replace(record, tokens=tokens))
            elif record.type == "session.created":
                self.lang = self._memory.lang = record.body["lang"]
                self._memory.be_told(record.body["system"])
            elif record.type == "session.opened":
                counted_by = record.body["counter"]
            elif record.type == "compaction":
                self._memory.apply(Trimmed.from_json(record.body))
            elif record.type == "window.learnt" and record.body["window"] < self.budget.window:
                self._memory.budget = Budget.of(record.body["window"], self.budget.output)
        if counted_by != self._counter.name:
            self.journal.record(self.session, "session.opened", {"counter": self._counter.name})
        self.close_open_calls()


def result_message(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}
