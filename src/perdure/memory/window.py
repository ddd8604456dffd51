"""The window: the newest blocks, verbatim, and what leaves when they no longer fit.

Pure and synchronous. The prompt always fits, because what leaves is decided by the same counts
that decide that something must; a call never parts from its results, because only whole blocks
leave; the current turn's request and its plan stay, because they are no candidates. Between two compactions
nothing in the window changes, so each prompt begins with the previous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.chat.messages import Block, Entry, Kind, Message, blocks, text_of
from perdure.chat.tokens import TokenCounter
from perdure.memory.shortening import kept_within, shortened

#: Characters from which an old result of a tool is long, and those that stay of it.
LONG, KEPT = 2_400, 800
#: Newest rounds of tools whose results are not old.
STEPS = 3
#: The part of what a compaction leaves that the newest rounds may have to stay in any case.
SHARE_OF_STEPS = 3


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one compaction does; enough to do it again on the same entries.

    ``left``: numbers of the entries that are no longer in the window; ``shortened``: entry number
    to the characters of its text that stay; tokens of the window before and after.
    """

    left: tuple[int, ...]
    shortened: Mapping[int, int]
    tokens_before: int
    tokens_after: int


class Window:
    """The blocks that are sent verbatim, and the sum of their tokens.

    Each entry brings its own count, so nothing recounts the history.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self.tokens = 0
        #: Number of the newest entry that the model has answered, whether it still stands or not.
        self.answered = 0
        self._entries: list[Entry] = []
        #: The whole of each entry that stands in the window as head and tail, and the characters kept.
        self._whole: dict[int, Entry] = {}
        self._kept: dict[int, int] = {}

    @property
    def entries(self) -> Sequence[Entry]:
        return tuple(self._entries)

    def messages(self) -> list[Message]:
        return [entry.message for entry in self._entries]

    @property
    def kept(self) -> Mapping[int, int]:
        """Entry number to characters kept, of those that stand as head and tail."""
        return self._kept

    @property
    def anchored(self) -> list[Entry]:
        """The current turn's request and its plan, where these stand."""
        every = list(blocks(self._entries))
        request = _request(every)
        if request is None:
            return []
        anchors = {request, _plan(every, request)}
        return [entry for entry in self._entries if entry.seq in anchors]

    def whole(self) -> list[Entry]:
        """The entries as they came, the shortened ones too."""
        return [self._whole.get(entry.seq, entry) for entry in self._entries]

    def after(self, compaction: Compaction) -> Window:
        """The window as it would be after a compaction; this one stays as it is."""
        twin = Window(self.counter)
        twin.tokens, twin.answered, twin._entries = self.tokens, self.answered, list(self._entries)
        twin._whole, twin._kept = dict(self._whole), dict(self._kept)
        twin.apply(compaction)
        return twin

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.tokens += entry.tokens
        if entry.kind is Kind.ASSISTANT:
            self.answered = entry.seq
        elif entry.kind is Kind.TOOL_CALL:
            self.answered = entry.seq - 1

    def plan(self, room: int, low: int, *, force: bool = False) -> Compaction | None:
        """What must happen so that the window fits ``room`` tokens; None where it does already.

        Cheapest first: long results of old rounds become head and tail, then the oldest blocks that
        the model has answered leave, until ``low`` tokens stay; the newest steps only where they are
        large themselves. Where what stays is still more than the room, its longest texts are
        shortened; where even that doesn't do, further blocks leave, all but the current request, its plan
        and the newest. The result is larger than ``room`` only where the shortest form of these is.
        ``force``: down to ``low`` although it fits the room; None where nothing can leave.
        """
        if self.tokens <= (low if force else room):
            return None
        every = list(blocks(self._entries))
        request = _request(every) or every[-1].first
        plan = _plan(every, request)
        # What came before the current request belongs to turns that are over.
        seen = [block for block in every if block.first <= self.answered or block.last < request]
        staying_put = {_newest(every), request, plan}
        kept = self._old_results(seen, staying_put)
        tokens = {entry.seq: self._as_kept(entry, kept).tokens for entry in self._entries}
        left: set[int] = set()
        steps = _steps([block for block in seen if block.first > request], low // SHARE_OF_STEPS)
        old = [block for block in seen if block.first not in steps]
        for candidates, target in ((old, low), (seen, room), (every, room)):
            removable = [block for block in candidates if block.first not in staying_put | left]
            left |= _oldest(removable, tokens, target)
            staying = [entry for entry in self._entries if entry.seq not in left]
            cut = self._cut_to(room, staying, {seq: kept[seq] for seq in kept if seq not in left})
            after = sum(self._as_kept(entry, cut).tokens for entry in staying)
            if after <= room:
                break
        if force and not left and all(self._kept.get(seq) == characters for seq, characters in cut.items()):
            return None
        return Compaction(tuple(sorted(left)), cut, self.tokens, after)

    def apply(self, compaction: Compaction) -> None:
        """Do what a compaction says: one just planned, or one that the journal remembers."""
        left = frozenset(compaction.left)
        self._whole = {seq: entry for seq, entry in self._whole.items() if seq not in left}
        self._kept = {seq: kept for seq, kept in self._kept.items() if seq not in left}
        staying: list[Entry] = []
        for entry in self._entries:
            if entry.seq in left:
                continue
            shown = self._as_kept(entry, compaction.shortened)
            if shown is not entry:
                self._whole.setdefault(entry.seq, entry)
                self._kept[entry.seq] = compaction.shortened[entry.seq]
            staying.append(shown)
        self._entries = staying
        self.tokens = sum(entry.tokens for entry in staying)

    def _old_results(self, seen: Sequence[Block], staying_put: set[int]) -> dict[int, int]:
        """Entry number to characters kept, of the long results of all but the newest rounds."""
        rounds = [block for block in seen if block.kind is Kind.TOOL_CALL and block.first not in staying_put]
        return {
            entry.seq: KEPT
            for block in rounds[: max(0, len(rounds) - STEPS)]
            for entry in block.entries[1:]
            if entry.seq not in self._whole and len(text_of(entry.message)) > LONG
        }

    def _cut_to(self, room: int, staying: Sequence[Entry], kept: Mapping[int, int]) -> dict[int, int]:
        """``kept`` (entry number to characters kept), with the fewest and longest texts added that must
        give way so that what stays fits the room.

        Texts share the room evenly from the top: all that are longer than a common level are cut
        to it, so that short ones stay whole. The person's words and the plan give way last.
        """
        kept = dict(kept)
        for yielding in (_shown_by_tools(staying), _said_besides(staying), staying):
            now = {entry.seq: self._as_kept(entry, kept).tokens for entry in staying}
            total = sum(now.values())
            if total <= room:
                break
            sizes = {entry.seq: self._as_kept(entry, {entry.seq: 0}).tokens for entry in yielding}
            least = {seq: min(size, now[seq]) for seq, size in sizes.items()}
            others = total - sum(now[seq] for seq in least)
            level = _level([(least[seq], now[seq]) for seq in least], room - others)
            for entry in yielding:
                if now[entry.seq] > level:
                    kept[entry.seq] = kept_within(self._whole.get(entry.seq, entry), level, self.counter)
        return kept

    def _as_kept(self, entry: Entry, kept: Mapping[int, int]) -> Entry:
        """The entry as head and tail, where that is shorter than it stands."""
        if entry.seq not in kept:
            return entry
        message = shortened(self._whole.get(entry.seq, entry), kept[entry.seq])
        tokens = self.counter.message(message)
        return replace(entry, message=message, tokens=tokens) if tokens < entry.tokens else entry


def _oldest(removable: Sequence[Block], tokens: dict[int, int], target: int) -> set[int]:
    """Numbers of the entries to leave, oldest block first, until ``target`` tokens stay; these are
    taken out of ``tokens``, which is entry number to tokens."""
    standing, leaving = sum(tokens.values()), set[int]()
    for block in removable:
        if standing <= target:
            break
        standing -= sum(tokens.pop(entry.seq) for entry in block.entries)
        leaving.update(entry.seq for entry in block.entries)
    return leaving


def _newest(every: Sequence[Block]) -> int:
    """Number of the newest block that isn't the agent's own bookkeeping."""
    own = {Kind.NOTICE, Kind.FEEDBACK, Kind.RECALL, Kind.PLAN}
    return next((block.first for block in reversed(every) if block.kind not in own), every[-1].first)


def _steps(turn: Sequence[Block], room: int) -> set[int]:
    """Numbers of a turn's newest rounds of tools, as many as count as new and have ``room`` tokens."""
    steps: set[int] = set()
    for block in [block for block in reversed(turn) if block.kind is Kind.TOOL_CALL][:STEPS]:
        room -= block.tokens
        if room < 0:
            break
        steps.add(block.first)
    return steps


def _request(every: Sequence[Block]) -> int | None:
    """Number of the current turn's request; in the window of a step, whose task is of its plan, of that."""
    newest = {block.kind: block.first for block in every if block.kind in {Kind.USER, Kind.PLAN}}
    return newest.get(Kind.USER, newest.get(Kind.PLAN))


def _plan(every: Sequence[Block], request: int) -> int:
    """Number of the plan as it stands in the current turn; of its request, where it has none."""
    plans = (block.first for block in reversed(every) if block.kind is Kind.PLAN)
    return max(next(plans, request), request)


def _shown_by_tools(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.kind is Kind.TOOL_RESULT]


def _said_besides(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.kind not in {Kind.USER, Kind.PLAN}]


def _level(sizes: Sequence[tuple[int, int]], room: int) -> int:
    """The height to which the longest of ``sizes`` must be cut so that all together fit ``room``.
    Each is (its shortest form, its size now); 0 where even the shortest forms don't fit."""
    fits, too_high = 0, max((now for _, now in sizes), default=0) + 1
    while too_high - fits > 1:
        level = (fits + too_high) // 2
        if sum(max(least, min(now, level)) for least, now in sizes) <= room:
            fits = level
        else:
            too_high = level
    return fits
