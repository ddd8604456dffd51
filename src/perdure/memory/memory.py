"""Memory: a conversation of any length, and a prompt that always fits.

    memory = Memory(context_window=8192)
    memory.append({"role": "user", "content": "..."})
    prompt = memory.prompt()

The prompt is the system prompt, the notes on what left, and the window. Each message is counted
once, when it comes; what leaves is decided by those counts; the room of the notes is reserved before
anything is trimmed, so a compaction never causes the next one. Trimming is certain; the summary that
follows is best effort, and costs nothing but itself where it fails. Pure: no I/O, no clock, no await.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from perdure.chat.calls import ToolSpec
from perdure.chat.forms import Form, formed, most_added
from perdure.chat.language import Language, language_of
from perdure.chat.messages import Entry, Kind, Message, call_ids, kind_of, text_of, what_is_wrong
from perdure.chat.repair import INTERRUPTED, Repair, repair
from perdure.chat.tokens import TokenCounter, counter_for
from perdure.errors import PromptOverflow
from perdure.memory.asking import Before, request_for, summary_in
from perdure.memory.budget import Budget
from perdure.memory.compactions import Accepted, Summary, Trimmed
from perdure.memory.faithful import popped
from perdure.memory.gist import Line, SummaryRequest
from perdure.memory.growth import LOW_WATER, Growth
from perdure.memory.literals import Shape, literals_of
from perdure.memory.loading import beginning_of, loading
from perdure.memory.notes import Shares, as_request, frame_tokens, gist_alone
from perdure.memory.ranges import Ranges, joined, merged
from perdure.memory.record import Record
from perdure.memory.window import Compaction, Window

#: The form of prompts for endpoints that demand nothing of the order of roles.
ANY_ORDER = Form()
#: Requests to a summariser after one compaction: pieces that are folded in, and second tries.
MOST_SUMMARIES = 16
#: Shares of the room that the notes are given in turn, until the current request stays whole.
NOTES_GIVE_WAY = (1.0, 0.4, 0.0)
#: The part of the room that is enough for a request that must be cut.
REQUEST_PART = 3
#: Short texts whose counts are remembered.
COUNTS = 8_192
NO_NOTES = Shares(0, 0, 0, 0, 0)


class Memory:
    """``context_window`` and ``max_output_tokens`` in tokens. ``counter`` counts them (by default the
    estimate for unknown models); ``system`` is the system prompt, and ``tools`` are those whose schemas
    each request carries; ``lang`` is that of the notes (by default the first request's); ``low_water``
    the share of the window's room that a compaction leaves (by default as the session grows).

    ``form``: what the endpoint's template demands of the order of roles. ``summarised``: a model writes
    the gist in the end, so what left waits for it; else code alone does.
    ``faithful``: the published algorithm's order and removal, for comparison; then a prompt may exceed
    the budget and lose the request, as it does there.
    """

    def __init__(
        self,
        context_window: int = 8192,
        *,
        max_output_tokens: int | None = None,
        counter: TokenCounter | None = None,
        system: str = "",
        tools: Sequence[ToolSpec] = (),
        lang: Language | None = None,
        low_water: float | None = None,
        form: Form = ANY_ORDER,
        summarised: bool = True,
        faithful: bool = False,
    ) -> None:
        self.budget = Budget.of(context_window, max_output_tokens)
        self.counter = counter or counter_for(None)
        # The same lines, literals and requests are counted at each compaction.
        self._count = lru_cache(maxsize=COUNTS)(self.counter.text)
        self.lang = lang
        self.low_water = low_water
        self.summarised = summarised
        self.faithful = faithful
        #: What the endpoint counts, at most, for one token of ours (see `Calibration`).
        self.scale = 1.0
        self._fresh = 0
        self._window = Window(self.counter)
        self._record = Record()
        self._growth = Growth()
        self._tools = tuple(tools)
        self._notes, self._notes_tokens = "", 0
        self._shares = NO_NOTES
        self._frames: dict[Language, int] = {}
        self._before = Before()
        self._asked: SummaryRequest | None = None
        self._literals: dict[int, Sequence[tuple[str, Shape]]] = {}
        self._last = 0
        self._open: list[str] = []
        self._system, self._fixed = "", 0
        self.be_told(system)
        self.take_form(form)

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt: system prompt, tools, notes, window, and what its form adds."""
        return self._fixed + self._notes_tokens + self._window.tokens + self._shaping(self._window)

    @property
    def fixed(self) -> int:
        """Tokens that every prompt carries: the system prompt and the tools."""
        return self._fixed

    @property
    def limit(self) -> int:
        """Tokens, in our count, that a prompt may have: the budget, by what the endpoint has taught.

        Where it counts less than we do, that holds for what it has reported on; what came since counts
        as we count it.
        """
        budget = self.budget.tokens
        if self.scale >= 1:
            return int(budget / self.scale)
        return max(int((budget - (1 - self.scale) * self._fresh) / self.scale), budget)

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries that stand in the window, oldest first; shortened ones as they stand there."""
        return self._window.entries

    @property
    def anchored(self) -> Sequence[Entry]:
        """The current turn's request and its plan, whole, where they stand."""
        stays = {entry.seq for entry in self._window.anchored}
        return [entry for entry in self._window.whole() if entry.seq in stays]

    @property
    def shown(self) -> Ranges:
        """The entries that the window shows whole."""
        return joined((), (entry.seq for entry in self._window.entries if entry.seq not in self._window.kept))

    @property
    def hides(self) -> bool:
        """Something has left the window, or stands shortened in it."""
        return bool(self._record.left or self._window.kept)

    @property
    def newest(self) -> int:
        """Number of the newest entry, 0 where there is none."""
        return self._last

    @property
    def record(self) -> Record:
        """What is known of the entries that left."""
        return self._record

    @property
    def notes(self) -> str:
        """The notes as they stand in the prompt; empty where nothing has left."""
        return self._notes

    @property
    def open_calls(self) -> Sequence[str]:
        """Ids of calls whose results have not come, in the order of the calls."""
        return tuple(self._open)

    def be_told(self, system: str) -> None:
        """Set the system prompt."""
        self._system = system
        told = self.counter.message(_system(system)) if system else 0
        self._fixed = told + self.counter.tools(self._tools)

    def take_form(self, form: Form) -> None:
        """Set the form of the prompts, as an endpoint's refusals have taught it."""
        self.form = form
        self._added = most_added(form, self.counter)

    def append(self, message: Message, kind: Kind | None = None) -> list[Entry]:
        """Take a message; the entries that came of it.

        A system message becomes the system prompt, and one in mid-conversation a notice: a system prompt
        that grows would leave no room in the end. A message that comes while calls are open, and is no
        result of theirs, closes them first, since no result can come any more. Raises `ValueError`
        for what no endpoint accepts, and for a result that answers no open call; then nothing was taken
        (see `extend` for foreign histories).
        """
        if wrong := what_is_wrong(message):
            raise ValueError(wrong)
        if message["role"] in {"system", "developer"}:
            if not self._last:
                self.be_told("\n\n".join(part for part in (self._system, text_of(message)) if part))
                return []
            kind, message = Kind.NOTICE, {**message, "role": "user"}
        kind = kind or kind_of(message)
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

    def load(self, history: Sequence[Message]) -> list[Repair]:
        """Take a history that is over, into a memory that is still empty: what fits at low water stands in
        the window, and the rest has left. Reads only as much as the window and the notes can hold,
        whatever the length; the repairs are those of the part that stands, by their place in ``history``.
        """
        for message in repair(history[: beginning_of(history)])[0]:
            self.append(message)
        room = max(self.limit - self._fixed, 0)
        back = int(room * LOW_WATER)
        parts = loading(history, back, back, self.counter)
        if parts.before or parts.gone:
            room = max(room - self._shares_of(self.limit, room).tokens, 0)
            parts = loading(history, int(room * LOW_WATER), back, self.counter)
        for number, message in parts.said:
            self._remember(number, kind_of(message), text_of(message))
        self._last = parts.before
        for message in parts.gone:
            self.append(message)
        last_gone = self._last
        for message in parts.standing:
            self.append(message)
        if last_gone:
            # Behind all of it, so that the notes know what was answered by what stands.
            left = tuple(entry.seq for entry in self._window.entries if entry.seq <= last_gone)
            shares = self._shares_of(self.limit, self.limit - self._fixed)
            gone = Compaction(left, {}, self._window.tokens, 0)
            record = self._record_after(gone, shares.remembered)
            record = replace(record, left=merged((*record.left, (1, last_gone))))
            notes = self._notes_on(record, self._window.after(gone), shares)
            self.apply(Trimmed(gone, notes, shares, 0, 0, record=record))
        return parts.repairs

    def take(self, entry: Entry) -> Entry:
        """Take an entry that has its number and count already, as a journal gives it."""
        self._window.append(entry)
        self._last = max(self._last, entry.seq)
        # A reply comes after a prompt that the endpoint has counted; what follows it has not been.
        spoken = entry.kind in {Kind.ASSISTANT, Kind.TOOL_CALL}
        self._fresh = entry.tokens if spoken else self._fresh + entry.tokens
        self._growth = self._growth.after(entry)
        if entry.kind is Kind.TOOL_RESULT and entry.message.get("tool_call_id") in self._open:
            self._open.remove(entry.message["tool_call_id"])
        elif entry.kind is Kind.TOOL_CALL:
            self._open = list(call_ids(entry.message))
        self._remember(entry.seq, entry.kind, text_of(entry.message))
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
        if trimmed := self.plan():
            self.apply(trimmed)
        return self.messages()

    def messages(self) -> list[Message]:
        """The prompt as it stands now, whether it fits or not; changes nothing."""
        return formed(self.unformed(), self.form)

    def unformed(self) -> list[Message]:
        """The same, before it takes the form that an endpoint demands."""
        return [*self._beginning(), *self._window.messages(), *self.closing()]

    def compact(
        self, summarize: Callable[[SummaryRequest], str | Message] | None = None, *, force: bool = False
    ) -> Trimmed | None:
        """Make the next prompt fit; None where it does. Raises `PromptOverflow` as `prompt` does.

        What is handed back carries what left and the request for a summary of it (None where none is
        due); send it and give the reply to `accept`. With ``summarize``, which gets such requests and
        returns the reply, both are done here; what it raises costs nothing but the summary. ``force``:
        trim to the low water mark although the prompt fits.
        """
        trimmed = self.plan(force=force)
        if trimmed is None:
            return None
        self.apply(trimmed)
        trimmed = replace(trimmed, request=self.summary_request())
        request, tries = trimmed.request, 0
        while summarize and request and tries < MOST_SUMMARIES:
            tries += 1
            try:
                reply = summarize(request)
            except Exception:  # whatever a summariser does, the conversation goes on
                break
            request = self.accept(reply, request).request
        return trimmed

    def accept(
        self, reply: str | Message | None, request: SummaryRequest | None = None, *, cut: bool = False
    ) -> Accepted:
        """Take a summariser's reply, or say why not. ``request``: the one that it answers (by default the
        last that was handed out); ``cut``: the output limit ended it. Where `Accepted.request` is not
        None, it is the next one to send: the same but shorter, or the next piece of what left."""
        accepted = self.consider(reply, request, cut=cut)
        if accepted.summary:
            self.apply(accepted.summary)
            accepted = replace(accepted, request=self.summary_request())
        return accepted

    def consider(
        self,
        reply: str | Message | None,
        request: SummaryRequest | None = None,
        *,
        cut: bool = False,
        later: bool = False,
    ) -> Accepted:
        """What `accept` would do; changes nothing. ``later``: the notes stay as they are until the next
        compaction, so that the prompt's beginning does."""
        request = request or self._asked
        waiting = self._record.pending
        if request is None or request.base != self._record.summary or not {*request.sources} <= {*waiting}:
            return Accepted(refusal="stale")
        found = summary_in(reply, request, self.counter, cut=cut)
        if isinstance(found, str):
            return Accepted(refusal=found)
        if isinstance(found, SummaryRequest):
            return Accepted(refusal="too_long", request=found)
        record = self._summarised(found, request.covered)
        if later:
            return Accepted(Summary(found, request.covered, self._notes, record))
        notes = self._notes_on(record, self._window, self._shares)
        if self.tokens - self._notes_tokens + self.counter.message(_notes(notes)) > self.limit:
            # The window needs the room; the summary is kept and stands in the next notes.
            notes = self._notes
        return Accepted(Summary(found, request.covered, notes, record))

    def summary_request(self, *, room: int | None = None, cached: bool = False) -> SummaryRequest | None:
        """The request for a summary of what left and has none yet; None where nothing waits.

        ``room``: tokens of prompt and answer together, by default those of our own window. ``cached``: the
        endpoint caches prefixes, so ask with the prompt as it stood before the last compaction, where
        that fits.
        """
        self._asked = request_for(
            self._record,
            limit=self._shares.remembered,
            room=room or self.limit + self.budget.output,
            window=self.budget.window,
            now=self._last,
            before=self._before if cached else None,
            counter=self.counter,
            lang=self.lang or "en",
        )
        return self._asked

    def plan(self, *, force: bool = False, ahead: int = 0) -> Trimmed | None:
        """What a compaction would do now; None where nothing must be done. Changes nothing.
        ``force``: down to the low water mark although the prompt fits; ``ahead``: tokens that are to fit
        besides, since they come at once."""
        waiting = ahead + sum(map(self.counter.message, self.closing()))
        limit = self.limit
        over = self.tokens + waiting > limit
        if not over and not force:
            return None
        room = limit - self._fixed - waiting - self._shaping(self._window)
        tried: list[Trimmed] = []

        def fits(trimmed: Trimmed) -> bool:
            return trimmed.tokens_after + waiting <= limit

        for part in NOTES_GIVE_WAY:
            shares = self._shares_of(limit, room, part)
            trimmed = self._trimmed(shares, room - (self._notes_tokens if self.faithful else shares.tokens))
            if not over and not _does_something(trimmed.window):
                return None
            tried.append(trimmed)
            if self.faithful or (fits(trimmed) and not self._cuts_a_request(trimmed.window)):
                return trimmed
        # Where nothing else helps, even the receipt gives way.
        bare = replace(NO_NOTES, remembered=self._shares_of(limit, room).remembered)
        tried.append(self._trimmed(bare, room))
        fitting = list(filter(fits, tried))
        if not fitting:
            raise PromptOverflow(needed=min(each.tokens_after for each in tried) + waiting, budget=limit)
        # Words larger than the window are cut in any case; then the notes needn't give way altogether.
        stays = [self._request_tokens(each.window) for each in fitting]
        enough = min(room // REQUEST_PART, max(stays))
        return next(each for each, tokens in zip(fitting, stays, strict=True) if tokens >= enough)

    def apply(self, change: Trimmed | Summary) -> None:
        """Do what a compaction or a summary says: one just planned, or one that the journal remembers."""
        if isinstance(change, Trimmed):
            ahead = self._fixed + self._notes_tokens
            self._before = Before(self._beginning(), ahead, self._window.entries)
            self._record = change.record or self._record_after(change.window, change.shares.remembered)
            self._window.apply(change.window)
            self._shares = change.shares
            for seq in change.window.left:
                self._literals.pop(seq, None)
        else:
            self._record = change.record or self._summarised(change.lines, change.covered)
        notes = change.notes
        self.take_notes(self._notes_on(self._record, self._window, self._shares) if notes is None else notes)

    def take_notes(self, notes: str) -> None:
        """Set the notes as they stood, where they were made anew after something was forgotten."""
        self._notes = notes
        self._notes_tokens = self.counter.message(_notes(notes)) if notes else 0

    def as_json(self) -> dict[str, Any]:
        """The state as a checkpoint; with the entries that stand in the window, `restore` gives it back."""
        shares, kept = self._shares, self._window.kept
        return {
            "system": self._system,
            "lang": self.lang,
            "last": self._last,
            "standing": [[entry.seq, kept.get(entry.seq)] for entry in self._window.entries],
            "record": self._record.as_json(),
            "notes": self._notes,
            "shares": astuple(shares),
            "growth": [self._growth.tokens, self._growth.calls],
            "fresh": self._fresh,
            "answered": self._window.answered,
        }

    def restore(self, state: Mapping[str, Any], entries: Iterable[Entry]) -> None:
        """Stand as a checkpoint says. ``entries``: those that it names as standing, whole, in order."""
        self.be_told(state["system"])
        self.lang = state["lang"]
        for entry in entries:
            self.take(entry)
        kept = {seq: kept for seq, kept in state["standing"] if kept is not None}
        self._window.apply(Compaction((), kept, 0, 0))
        self._last, self._record = state["last"], Record.from_json(state["record"])
        self._shares, self._growth = Shares(*state["shares"]), Growth(*state["growth"])
        self._fresh, self._window.answered = state["fresh"], state["answered"]
        self.take_notes(state["notes"])

    def _remember(self, number: int, kind: Kind, text: str) -> None:
        """Who asked for what, and which answer there was."""
        if kind is Kind.USER:
            self._record = self._record.asked(as_request(number, text))
            self.lang = self.lang or language_of(text)
        elif kind is Kind.ASSISTANT:
            self._record = self._record.answered(number, text)

    def _shares_of(self, limit: int, room: int, part: float = 1.0) -> Shares:
        lang = self.lang or "en"
        if lang not in self._frames:
            self._frames[lang] = frame_tokens(self.counter, lang)
        return Shares.of(limit, room, self._frames[lang], part)

    def _trimmed(self, shares: Shares, space: int) -> Trimmed:
        """The compaction that leaves the window ``space`` tokens beside notes of these shares."""
        compaction = self._left_by(max(space, 0))
        after = self._window.after(compaction)
        record = self._record_after(compaction, shares.remembered)
        something = shares.tokens and (record.left or compaction.shortened)
        notes = self._notes_on(record, after, shares) if something else ""
        tokens = self.counter.message(_notes(notes)) if notes else 0
        total = self._fixed + tokens + after.tokens + self._shaping(after)
        return Trimmed(compaction, notes, shares, self.tokens, total, record=record)

    def _cuts_a_request(self, compaction: Compaction) -> bool:
        """The current request, or its plan, would not stay whole."""
        kept = ((entry, compaction.shortened.get(entry.seq)) for entry in self._window.anchored)
        return any(kept is not None and kept < len(text_of(entry.message)) for entry, kept in kept)

    def _request_tokens(self, compaction: Compaction) -> int:
        """What stays of the current request."""
        after = self._window.after(compaction).entries
        return next((entry.tokens for entry in reversed(after) if entry.kind is Kind.USER), 0)

    def _left_by(self, space: int) -> Compaction:
        """Down to low water; where the window stands there already, only the notes are written anew."""
        if self.faithful:
            left = popped(self._window.entries, space)
            gone = sum(entry.tokens for entry in self._window.entries[: len(left)])
            return Compaction(left, {}, self._window.tokens, self._window.tokens - gone)
        share = self._growth.low_water(space) if self.low_water is None else self.low_water
        planned = self._window.plan(space, int(space * share), force=True)
        return planned or Compaction((), {}, self._window.tokens, self._window.tokens)

    def _record_after(self, compaction: Compaction, limit: int) -> Record:
        left = frozenset(compaction.left)
        whole = self._window.whole()
        leaving = [entry for entry in whole if entry.seq in left]
        shortened = [entry for entry in whole if entry.seq in compaction.shortened]
        for entry in whole:
            if entry.seq not in self._literals:
                self._literals[entry.seq] = tuple(literals_of(entry))
        return self._record.after(
            leaving,
            shortened,
            self._literals,
            limit=limit,
            count=self._count,
            lang=self.lang or "en",
            summarised=self.summarised,
        )

    def _summarised(self, lines: tuple[Line, ...], covered: Ranges) -> Record:
        limit, count = self._shares.remembered, self._count
        return self._record.summarised(lines, covered, limit=limit, count=count, lang=self.lang or "en")

    def _notes_on(self, record: Record, window: Window, shares: Shares) -> str:
        lang, count = self.lang or "en", self._count
        if self.faithful:
            return gist_alone(record.gist, lang)
        standing = {entry.seq: entry for entry in window.entries}
        shown: set[str] = set()
        for whole in window.whole():
            entry = standing[whole.seq]
            known = self._literals.get(entry.seq) if entry is whole else None
            shown.update(literal for literal, _ in known or literals_of(entry))
        recall = any(tool.name == "recall" for tool in self._tools)
        return record.notes(shares, standing, shown, now=self._last, recall=recall, count=count, lang=lang)

    def _shaping(self, window: Window) -> int:
        """Tokens that the form adds at most to a prompt with this window."""
        if not self._added.behind_results:
            return self._added.once
        kinds = [entry.kind for entry in window.entries]
        behind = sum(
            before is Kind.TOOL_RESULT and after not in {Kind.TOOL_RESULT, Kind.TOOL_CALL, Kind.ASSISTANT}
            for before, after in pairwise(kinds)
        )
        return self._added.once + behind * self._added.behind_results

    def _beginning(self) -> list[Message]:
        system = [_system(self._system)] if self._system else []
        return [*system, _notes(self._notes)] if self._notes else system

    def _numbered(self, kind: Kind, message: Message) -> Entry:
        return Entry(self._last + 1, kind, message, self.counter.message(message))


def _does_something(compaction: Compaction) -> bool:
    return bool(compaction.left or compaction.shortened)


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _notes(text: str) -> Message:
    return {"role": "user", "content": text}
