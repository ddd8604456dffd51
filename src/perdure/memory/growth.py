"""How far down a compaction trims: so far that the next one is some thirty model calls away.

A fixed low water mark buys eighty calls in a window of 128k and six in one of 8k. What a session grows
by per call is known from its entries, so the mark follows it, within bounds: below them a compaction
would take away too much that is still in use, above them it would come too often.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.chat.messages import Entry, Kind

#: The mark while a session's growth isn't known, and its bounds, as shares of the window's room.
LOW_WATER, LOWEST, HIGHEST = 0.6, 0.45, 0.7
#: Model calls that a compaction should buy, and those after which the growth counts as known.
CALLS, KNOWN = 30, 8


@dataclass(frozen=True, slots=True)
class Growth:
    """Tokens that came, and model calls among them, with the older half weighing less."""

    tokens: int = 0
    calls: int = 0

    def after(self, entry: Entry) -> Growth:
        """With one more entry."""
        called = entry.kind in {Kind.ASSISTANT, Kind.TOOL_CALL}
        grown = Growth(self.tokens + entry.tokens, self.calls + called)
        return grown if grown.calls < 2 * CALLS else Growth(grown.tokens // 2, grown.calls // 2)

    def low_water(self, room: int) -> float:
        """The share of ``room`` tokens that a compaction leaves standing."""
        if self.calls < KNOWN or room <= 0:
            return LOW_WATER
        return min(max(1 - CALLS * self.tokens / self.calls / room, LOWEST), HIGHEST)
