"""The window: the newest blocks, verbatim, and what leaves when they no longer fit.

Pure and synchronous. The prompt always fits, because what leaves is decided by the same counts
that decide that something must; a call never parts from its results, because only whole blocks
leave; the current turn's request stays, because it is no candidate. Between two compactions
nothing in the window changes, so each prompt begins with the previous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.chat.messages import Block, Entry, Kind, Message, blocks
from perdure.chat.tokens import TokenCounter
from perdure.memory.shortening import kept_within, shortened

#: What one compaction leaves standing, as a share of the room: rarely, and a good deal at once.
LOW_WATER = 0.6


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

    def __init__(self, counter: TokenCounter, low_water: float = LOW_WATER) -> None:
        self.counter = counter
        self.low_water = low_water
        self.tokens = 0
        self._entries: list[Entry] = []
        #: The whole of each entry that stands in the window as head and tail.
        self._whole: dict[int, Entry] = {}

    @property
    def entries(self) -> Sequence[Entry]:
        return tuple(self._entries)

    def messages(self) -> list[Message]:
        return [entry.message for entry in self._entries]

    def whole(self) -> list[Entry]:
        """The entries as they came, the shortened ones too."""
        return [self._whole.get(entry.seq, entry) for entry in self._entries]

    def after(self, compaction: Compaction) -> Window:
        """The window as it would be after a compaction; this one stays as it is."""
        twin = Window(self.counter, self.low_water)
        twin.tokens, twin._entries, twin._whole = self.tokens, list(self._entries), dict(self._whole)
        twin.apply(compaction)
        return twin

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.tokens += entry.tokens

    def plan(self, room: int) -> Compaction | None:
        """What must happen so that the window fits ``room`` tokens; None where it does already.

        The oldest blocks that the model has answered leave until the low water mark. Where what
        stays is more than the room, its longest texts are shortened; where even that doesn't do,
        further blocks leave, all but the current request and the newest. The result is larger
        than ``room`` only where the shortest form of these two is.
        """
        if self.tokens <= room:
            return None
        every = list(blocks(self._entries))
        seen, staying_put = every[: _first_unseen(every)], {every[-1].first, _request(every)}
        left: frozenset[int] = frozenset()
        for candidates, target in ((seen, int(room * self.low_water)), (every, room)):
            removable = [block for block in candidates if block.first not in staying_put]
            left |= self._oldest(removable, left, target)
            staying = [entry for entry in self._entries if entry.seq not in left]
            kept = self._kept_lengths(staying, room)
            after = sum(self._as_kept(entry, kept).tokens for entry in staying)
            if after <= room:
                break
        return Compaction(tuple(sorted(left)), kept, self.tokens, after)

    def apply(self, compaction: Compaction) -> None:
        """Do what a compaction says: one just planned, or one that the journal remembers."""
        left = frozenset(compaction.left)
        self._whole = {seq: entry for seq, entry in self._whole.items() if seq not in left}
        staying = [entry for entry in self._entries if entry.seq not in left]
        for entry in staying:
            if entry.seq in compaction.shortened:
                self._whole.setdefault(entry.seq, entry)
        self._entries = [self._as_kept(entry, compaction.shortened) for entry in staying]
        self.tokens = sum(entry.tokens for entry in self._entries)

    def _oldest(self, removable: Sequence[Block], gone: frozenset[int], target: int) -> frozenset[int]:
        """Numbers of the entries to leave, oldest block first, until ``target`` tokens stay."""
        tokens = sum(entry.tokens for entry in self._entries if entry.seq not in gone)
        leaving: set[int] = set()
        for block in removable:
            if tokens <= target:
                break
            if block.first not in gone:
                tokens -= block.tokens
                leaving.update(entry.seq for entry in block.entries)
        return frozenset(leaving)

    def _kept_lengths(self, staying: Sequence[Entry], room: int) -> dict[int, int]:
        """Entry number to characters kept, for the fewest and longest texts that must give way.

        Texts share the room evenly from the top: all that are longer than a common level are cut
        to it, so that short ones stay whole. The person's words give way last.
        """
        kept: dict[int, int] = {}
        for yielding in (_shown_by_tools(staying), _not_the_persons(staying), staying):
            now = {entry.seq: self._as_kept(entry, kept).tokens for entry in staying}
            if sum(now.values()) <= room:
                break
            fixed = sum(now.values()) - sum(now[entry.seq] for entry in yielding)
            level = _level([now[entry.seq] for entry in yielding], room - fixed)
            for entry in yielding:
                if now[entry.seq] > level:
                    kept[entry.seq] = kept_within(self._whole.get(entry.seq, entry), level, self.counter)
        return kept

    def _as_kept(self, entry: Entry, kept: Mapping[int, int]) -> Entry:
        if entry.seq not in kept:
            return entry
        whole = self._whole.get(entry.seq, entry)
        message = shortened(whole, kept[entry.seq])
        return replace(entry, message=message, tokens=self.counter.message(message))


def _request(every: Sequence[Block]) -> int | None:
    """Number of the current turn's request."""
    return next((block.first for block in reversed(every) if block.kind is Kind.USER), None)


def _first_unseen(every: Sequence[Block]) -> int:
    """Index of the first block whose newest entries the model has not answered yet."""
    for index in range(len(every) - 1, -1, -1):
        if every[index].kind is Kind.ASSISTANT:
            return index + 1
        if every[index].kind is Kind.TOOL_CALL:
            return index
    return len(every) - 1


def _shown_by_tools(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.kind is Kind.TOOL_RESULT]


def _not_the_persons(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.kind is not Kind.USER]


def _level(sizes: Sequence[int], room: int) -> int:
    """The height to which the longest ``sizes`` must be cut so that all together fit ``room``."""
    remaining, count = room, len(sizes)
    for size in sorted(sizes):
        if size * count > remaining:
            return max(remaining // count, 0)
        remaining -= size
        count -= 1
    return max(sizes, default=0)
