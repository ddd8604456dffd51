"""A session while it is open: every message is journaled first, then stands in memory.

What the journal holds is all there is: a session is its records in order, and gives the prompt it
had, whatever ended the last run. A checkpoint beside them, derived and replaceable, lets a session
of any length be opened by reading only what stands in its window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.chat.calls import ToolSpec
from perdure.chat.forms import Form
from perdure.chat.language import Language
from perdure.chat.messages import Entry, Kind, Message
from perdure.chat.tokens import TokenCounter, Usage
from perdure.memory.budget import Budget
from perdure.memory.calibration import Calibration
from perdure.memory.compactions import Accepted, Summary, Trimmed
from perdure.memory.gist import SummaryRequest
from perdure.memory.memory import Memory
from perdure.store.journal import Journal, NewEntry, Recorded

#: The form of a checkpoint; one of another form is not read, but made anew from the records.
CHECKPOINT = 1


class Conversation:
    """The one writer of a session's journal. ``tools`` are those whose schemas each prompt carries;
    ``model`` is whose reports are learnt from; ``summarised``: a model writes the gist, else code does;
    ``looking``: nothing is written, whatever is done."""

    def __init__(
        self,
        journal: Journal,
        session: str,
        counter: TokenCounter,
        budget: Budget,
        tools: Sequence[ToolSpec] = (),
        *,
        model: str = "",
        summarised: bool = True,
        looking: bool = False,
    ) -> None:
        self.journal = journal
        self.session = session
        self.tools = tuple(tools)
        self.model = model
        self.lang: Language = "en"
        #: Summaries that failed since one was taken, and compactions since the last that failed.
        self.failed_summaries, self.compactions_since_failure = 0, 0
        self._counter = counter
        self._summarised = summarised
        self._looking = looking
        self._configured = budget
        learnt = journal.learnt(model) if model else {}
        self._calibration = Calibration.from_json(learnt)
        #: The endpoint has been seen to serve the beginnings of prompts from a cache.
        self.caches = bool(learnt.get("caches"))
        self._memory = self._empty()
        self._open()

    @property
    def budget(self) -> Budget:
        return self._memory.budget

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt, tools and system prompt included."""
        return self._memory.tokens

    @property
    def memory(self) -> Memory:
        """What stands in the prompt, to be looked at; only this object changes it."""
        return self._memory

    @property
    def counts_exactly(self) -> bool:
        """The counter is that of the model's own tokenizer, not an estimate."""
        return "estimate" not in self._counter.name

    def take_form(self, form: Form) -> None:
        """What the client does to the order of roles adds tokens, which must have their room."""
        if form != self._memory.form:
            self._memory.take_form(form)

    def add(self, kind: Kind, message: Message) -> Entry:
        """Journal a message, durably, and take it into memory."""
        return self.add_all([(kind, message)])[0]

    def add_all(self, messages: Sequence[tuple[Kind, Message]]) -> list[Entry]:
        """Journal messages, all or none, and take them into memory."""
        counted: list[NewEntry] = [
            (kind, message, self._counter.message(message)) for kind, message in messages
        ]
        return [self._take(entry) for entry in self.journal.append(self.session, counted)]

    def compact(self, *, force: bool = False) -> Trimmed | None:
        """Make the next prompt fit the budget; None where it does already. ``force``: down to the low
        water mark all the same.

        Raises `PromptOverflow` where the system prompt, the tools and the current request alone
        are larger than the budget.
        """
        trimmed = self._memory.plan(force=force)
        if trimmed is not None:
            self._record("compaction", trimmed.as_json())
            self._memory.apply(trimmed)
            self.compactions_since_failure += 1
            self._keep_checkpoint()
        return trimmed

    def summary_request(self, *, room: int | None = None, cached: bool = False) -> SummaryRequest | None:
        """As `Memory.summary_request`."""
        return self._memory.summary_request(room=room, cached=cached)

    def accept(
        self,
        reply: Message,
        request: SummaryRequest,
        *,
        cut: bool,
        about: Mapping[str, Any],
        later: bool = False,
    ) -> Accepted:
        """Take a summariser's reply, or say why not, and journal which. ``about``: what the journal keeps
        beside it (model, usage, seconds); ``later``: the prompt stays as it is until the next compaction."""
        accepted = self._memory.consider(reply, request, cut=cut, later=later)
        if accepted.summary:
            self._record("summary", {**accepted.summary.as_json(), **about})
            self._memory.apply(accepted.summary)
            self.failed_summaries = 0
            self._keep_checkpoint()
        return accepted

    def summary_failed(self, why: str, about: Mapping[str, Any]) -> None:
        """Journal that no summary came of it; what left stays pending."""
        self._record("summary.failed", {"why": why, **about})
        self.failed_summaries += 1
        self.compactions_since_failure = 0

    def undo_compaction(self) -> Sequence[int] | None:
        """Take the last compaction back, with its summary; the numbers of the entries that stand again,
        or None where there is none to take back."""
        if not self._taken_back(last=True):
            return None
        standing = {entry.seq for entry in self._memory.entries}
        self._record("compaction.undone", {})
        form = self._memory.form
        self._memory = self._empty()
        self._memory.take_form(form)
        self._fold(self.journal.records(self.session))
        self._keep_checkpoint()
        return [entry.seq for entry in self._memory.entries if entry.seq not in standing]

    def prompt(self) -> list[Message]:
        """What is sent: the system prompt, the notes on what left, the window. Fits after `compact`,
        which alone makes it so: nothing leaves that the journal doesn't know of."""
        return self._memory.messages()

    def learn_usage(self, counted: int, usage: Usage) -> None:
        """The endpoint read a whole prompt that we ``counted``, and reported its own count."""
        before = self._calibration, self.caches
        self._calibration = self._calibration.after(counted, usage.prompt)
        self.caches = self.caches or usage.cached > 0
        scale = self._calibration.scale(exact=self.counts_exactly)
        if scale != self._memory.scale:
            self._memory.scale = scale
            self._record("count.learnt", {"scale": scale})
        higher = self._calibration.highest > before[0].highest or scale != before[0].scale(
            exact=self.counts_exactly
        )
        if self.model and not self._looking and (higher or self.caches != before[1]):
            self.journal.learn(self.model, {**self._calibration.as_json(), "caches": self.caches})

    def learn_window(self, limit: int | None, requested: int | None) -> int:
        """The endpoint refused the prompt as too long: from now on its window, in our count.

        ``limit`` and ``requested`` are its own figures, where it gave them. Where it counts more
        than we do, its limit is scaled down by as much; without figures, a quarter is given up.
        The new budget is smaller than the refused prompt in any case.
        """
        sent = self.tokens
        self._memory.scale = max(self._memory.scale, 1.0)
        window = limit or self.budget.window
        if requested and requested > sent:
            window = window * sent // requested
        budget = Budget.of(window, min(self.budget.output, window // 2))
        if budget.tokens >= sent:
            budget = Budget.of(window * sent * 3 // (budget.tokens * 4), budget.output)
        self._memory.budget = budget
        self._record("window.learnt", {"window": budget.window})
        return budget.window

    def close_open_calls(self) -> None:
        """Answer the calls that no result can answer any more."""
        self.add_all([(Kind.TOOL_RESULT, message) for message in self._memory.closing()])

    def _empty(self) -> Memory:
        memory = Memory(counter=self._counter, tools=self.tools, summarised=self._summarised)
        memory.budget = self._configured
        memory.scale = self._calibration.scale(exact=self.counts_exactly)
        self._opened: Mapping[str, Any] = {}
        self._read_to, self._gaps = 0, False
        return memory

    def _open(self) -> None:
        state, since = self.journal.since_checkpoint(self.session)
        records = list(since)
        undone = any(isinstance(each, Recorded) and each.type == "compaction.undone" for each in records)
        if state is None or state.get("form") != CHECKPOINT or undone:
            self._fold(self.journal.records(self.session) if state else iter(records))
        else:
            self._restore(state)
            for record in records:
                self._read(record)
        opened = {
            "counter": self._counter.name,
            "model": self.model,
            "window": self._configured.window,
            "output": self._configured.output,
            "tools": self._counter.tools(self.tools),
        }
        if opened != self._opened:
            self._record("session.opened", opened)
        self._opened = opened
        if not self._looking:
            self.close_open_calls()

    def _fold(self, records: Iterator[Entry | Recorded]) -> None:
        """Read all records, but for the compactions that were taken back and what was said of them."""
        dropped = self._taken_back()
        for index, record in enumerate(records):
            if index not in dropped:
                self._read(record)

    def _taken_back(self, *, last: bool = False) -> set[int]:
        """Places, among all records, of what undone compactions left behind; ``last``: of what the last
        one that stands did."""
        open_ones: list[list[int]] = []
        dropped: set[int] = set()
        for index, record in enumerate(self.journal.records(self.session)):
            if not isinstance(record, Recorded):
                continue
            if record.type == "compaction":
                open_ones.append([index])
            elif record.type == "summary" and open_ones:
                open_ones[-1].append(index)
            elif record.type == "compaction.undone" and open_ones:
                dropped.update(open_ones.pop())
        if last:
            return set(open_ones[-1]) if open_ones else set()
        return dropped

    def _read(self, record: Entry | Recorded) -> None:
        if isinstance(record, Entry):
            same = self._opened.get("counter") == self._counter.name
            tokens = record.tokens if same else self._counter.message(record.message)
            self._take(replace(record, tokens=tokens))
            return
        match record.type:
            case "session.created":
                self.lang = self._memory.lang = record.body["lang"]
                self._memory.be_told(record.body["system"])
            case "session.opened":
                self._opened = record.body
            case "compaction":
                self._memory.apply(Trimmed.from_json(record.body))
                self.compactions_since_failure += 1
            case "summary":
                self._memory.apply(Summary.from_json(record.body))
                self.failed_summaries = 0
            case "summary.failed":
                self.failed_summaries += 1
                self.compactions_since_failure = 0
            case "count.learnt":
                self._memory.scale = record.body["scale"]
            case "window.learnt" if record.body["window"] < self.budget.window:
                self._memory.budget = Budget.of(record.body["window"], self.budget.output)

    def _take(self, entry: Entry) -> Entry:
        # Another process may have written in between; then what is known here is not the whole.
        self._gaps = self._gaps or entry.seq != self._read_to + 1
        self._read_to = entry.seq
        return self._memory.take(entry)

    def _record(self, type: str, body: Mapping[str, Any]) -> None:
        if not self._looking:
            self.journal.record(self.session, type, body)

    def _keep_checkpoint(self) -> None:
        if self._gaps or self._looking:
            return
        learnt = self.budget.window if self.budget.window < self._configured.window else None
        self.journal.checkpoint(
            self.session,
            {
                "form": CHECKPOINT,
                "lang": self.lang,
                "opened": self._opened,
                "window": learnt,
                "scale": self._memory.scale,
                "failed": [self.failed_summaries, self.compactions_since_failure],
                "memory": self._memory.as_json(),
            },
        )

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.lang = state["lang"]
        self._opened = state["opened"]
        self.failed_summaries, self.compactions_since_failure = state["failed"]
        self._memory.scale = state["scale"]
        if state["window"] is not None and state["window"] < self.budget.window:
            self._memory.budget = Budget.of(state["window"], self.budget.output)
        memory = state["memory"]
        entries = self.journal.entries(self.session, [seq for seq, _ in memory["standing"]])
        if self._opened["counter"] != self._counter.name:
            entries = [replace(each, tokens=self._counter.message(each.message)) for each in entries]
        self._memory.restore(memory, entries)
        self._read_to = memory["last"]


def result_message(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}
