"""Memory: a conversation of any length, and a prompt that always fits.

    memory = Memory(context_window=8192)
    memory.append({"role": "user", "content": "..."})
    prompt = memory.prompt()

The prompt is the system prompt, the notes on what left, and the window. Each message is counted
once, when it comes; what leaves is decided by those counts; the room of the notes is reserved before
anything is trimmed, so a compaction never causes the next one. Pure: no I/O, no clock, no await.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.chat.calls import ToolSpec
from perdure.chat.language import Language, language_of
from perdure.chat.messages import Entry, Kind, Message, call_ids, kind_of, text_of
from perdure.chat.repair import INTERRUPTED, Repair, repair
from perdure.chat.tokens import TokenCounter, counter_for
from perdure.errors import PromptOverflow
from perdure.memory.budget import Budget
from perdure.memory.ledger import Ledger
from perdure.memory.notes import Request, Shares, requests_within, written
from perdure.memory.window import LOW_WATER, Compaction, Window


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one compaction does, and enough to do it again: the window's part, the notes as they
    stand afterwards, and the ledger behind them; tokens of the whole prompt before and after."""

    window: Compaction
    notes: str
    ledger: Mapping[str, list[Any]]
    tokens_before: int
    tokens_after: int

    def as_json(self) -> dict[str, Any]:
        """For the journal; `from_json` gives it back."""
        shortened = {str(seq): kept for seq, kept in self.window.shortened.items()}
        return {
            "left": list(self.window.left),
            "shortened": shortened,
            "notes": self.notes,
            "ledger": dict(self.ledger),
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Trimmed:
        shortened = {int(seq): int(kept) for seq, kept in body["shortened"].items()}
        before, after = body["tokens_before"], body["tokens_after"]
        window = Compaction(tuple(body["left"]), shortened, 0, 0)
        return cls(window, body.get("notes", ""), body.get("ledger", {}), before, after)


class Memory:
    """``context_window`` and ``max_output_tokens`` in tokens. ``counter`` counts them (by default the
    estimate for unknown models); ``system`` is the system prompt, and ``tools`` are those whose schemas
    each request carries; ``lang`` is that of the notes (by default the first request's)."""

    def __init__(
        self,
        context_window: int = 8192,
        *,
        max_output_tokens: int | None = None,
        counter: TokenCounter | None = None,
        system: str = "",
        tools: Sequence[ToolSpec] = (),
        lang: Language | None = None,
        low_water: float = LOW_WATER,
    ) -> None:
        self.budget = Budget.of(context_window, max_output_tokens)
        self.counter = counter or counter_for(None)
        self.lang = lang
        self._window = Window(self.counter, low_water)
        self._tools = tuple(tools)
        self._notes, self._notes_tokens = "", 0
        self._ledger = Ledger()
        self._requests: dict[int, Request] = {}
        self._left: set[int] = set()
        self._last = 0
        self._open: list[str] = []
        self._system, self._fixed = "", 0
        self.be_told(system)

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt: system prompt, tools, notes and window."""
        return self._fixed + self._notes_tokens + self._window.tokens

    @property
    def fixed(self) -> int:
        """Tokens that every prompt carries: the system prompt and the tools."""
        return self._fixed

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries that stand in the window, oldest first; shortened ones as they stand there."""
        return self._window.entries

    @property
    def open_calls(self) -> Sequence[str]:
        """Ids of calls whose results have not come, in the order of the calls."""
        return tuple(self._open)

    def be_told(self, system: str) -> None:
        """Set the system prompt."""
        self._system = system
        told = self.counter.message(_system(system)) if system else 0
        self._fixed = told + self.counter.tools(self._tools)

    def append(self, message: Message, kind: Kind | None = None) -> list[Entry]:
        """Take a message; the entries that came of it.

        A system message becomes the system prompt. A message that comes while calls are open, and is
        no result of theirs, closes them first, since no result can come any more. Raises
        `ValueError` for a result that answers no open call (see `extend` for foreign histories).
        """
        kind = kind or kind_of(message)
        if message["role"] in {"system", "developer"}:
            self.be_told("\n\n".join(part for part in (self._system, text_of(message)) if part))
            return []
        if kind is Kind.TOOL_RESULT:
            if message.get("tool_call_id") not in self._open:
                raise ValueError(f"no open call has the id {message.get('tool_call_id')!r}")
            return [self.take(self._numbered(kind, message))]
        closing = [self.take(self._numbered(Kind.TOOL_RESULT, each)) for each in self.closing()]
        return [*closing, self.take(self._numbered(kind, message))]

    def extend(self, messages: Iterable[Message]) -> list[Repair]:
        """Take a history from elsewhere, repaired where it must be; what was repaired."""
        mended, repairs = repair(list(messages))
        for message in mended:
            self.append(message)
        return repairs

    def take(self, entry: Entry) -> Entry:
        """Take an entry that has its number and count already, as a journal gives it."""
        self._window.append(entry)
        self._last = entry.seq
        if entry.kind is Kind.TOOL_RESULT:
            self._open.remove(entry.message["tool_call_id"])
        elif entry.kind is Kind.TOOL_CALL:
            self._open = list(call_ids(entry.message))
        elif entry.kind is Kind.USER:
            self._requests[entry.seq] = Request(entry.seq, text_of(entry.message))
            self.lang = self.lang or language_of(text_of(entry.message))
        elif entry.kind is Kind.ASSISTANT:
            self._answered(entry.seq)
        return entry

    def closing(self) -> list[Message]:
        """Results for the calls that are open, for when no others can come."""
        return [{"role": "tool", "tool_call_id": id, "content": INTERRUPTED} for id in self._open]

    def prompt(self) -> list[Message]:
        """The messages to send: always paired, always within the budget.

        Compacts where it must. Calls that are still open are answered for this prompt alone. Raises
        `PromptOverflow` where the system prompt, the tools and the shortest form of the current
        request and the newest messages are more than the budget.
        """
        self.compact()
        return self.messages()

    def messages(self) -> list[Message]:
        """The prompt as it stands now, whether it fits or not; changes nothing."""
        return [*self._beginning(), *self._window.messages(), *self.closing()]

    def compact(self) -> Trimmed | None:
        """Make the next prompt fit; None where it does. Raises `PromptOverflow` as `prompt` does."""
        if trimmed := self.plan():
            self.apply(trimmed)
        return trimmed

    def plan(self) -> Trimmed | None:
        """What a compaction would do now; None where nothing must be done. Changes nothing."""
        waiting = sum(map(self.counter.message, self.closing()))
        if self.tokens + waiting <= self.budget.tokens:
            return None
        room = self.budget.tokens - self._fixed - waiting
        shares = Shares.of(max(room, 0))
        compaction = self._window.plan(max(room - shares.tokens, 0))
        if compaction is None:
            # The window fits beside the largest notes; only these must be written anew.
            compaction = Compaction((), {}, self._window.tokens, self._window.tokens)
        after = self._window.after(compaction)
        notes, ledger = self._notes_after(compaction, after, shares)
        tokens = self.counter.message(_notes(notes)) if notes else 0
        if self._fixed + tokens + after.tokens + waiting > self.budget.tokens:
            # Notes are worth less than the request: without them it may still fit.
            notes, tokens = "", 0
            compaction = self._window.plan(max(room, 0)) or compaction
            after = self._window.after(compaction)
        total = self._fixed + tokens + after.tokens
        if total + waiting > self.budget.tokens:
            raise PromptOverflow(needed=total + waiting, budget=self.budget.tokens)
        return Trimmed(compaction, notes, ledger.as_json(), self.tokens, total)

    def apply(self, trimmed: Trimmed) -> None:
        """Do what a compaction says: one just planned, or one that the journal remembers."""
        self._left.update(trimmed.window.left)
        self._window.apply(trimmed.window)
        self._ledger = Ledger.from_json(trimmed.ledger)
        self._notes = trimmed.notes
        self._notes_tokens = self.counter.message(_notes(self._notes)) if self._notes else 0

    def _notes_after(self, compaction: Compaction, after: Window, shares: Shares) -> tuple[str, Ledger]:
        leaving = frozenset(compaction.left)
        ledger = Ledger.from_json(self._ledger.as_json())
        ledger.take(entry for entry in self._window.whole() if entry.seq in leaving)
        ledger.take(entry for entry in self._window.whole() if entry.seq in compaction.shortened)
        left = self._left | leaving
        if not left and not compaction.shortened:
            return "", ledger
        lang = self.lang or "en"
        count = self.counter.text
        gone = [request for seq, request in self._requests.items() if seq in left]
        requests = requests_within(gone, shares.requests, count, lang)
        shown = "\n".join(_shown(message) for message in after.messages()) + requests
        values = ledger.within(shares.values, count, shown, self._last)
        return written(left=sorted(left), requests=requests, values=values, lang=lang), ledger

    def _beginning(self) -> list[Message]:
        system = [_system(self._system)] if self._system else []
        return [*system, _notes(self._notes)] if self._notes else system

    def _numbered(self, kind: Kind, message: Message) -> Entry:
        return Entry(self._last + 1, kind, message, self.counter.message(message))

    def _answered(self, seq: int) -> None:
        for asked, request in reversed(self._requests.items()):
            if request.answer is not None:
                return
            self._requests[asked] = replace(request, answer=seq)


def _shown(message: Message) -> str:
    calls = message.get("tool_calls") or ()
    return "\n".join([text_of(message), *(call["function"]["arguments"] for call in calls)])


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _notes(text: str) -> Message:
    return {"role": "user", "content": text}
