"""What happens to a memory, as values: a compaction, a summary, an answer to a summariser.

Each holds enough to be done again on the same entries, so that a session's journal gives the same
prompts, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Literal

from perdure.memory.gist import Line, SummaryRequest, lines_as_json, lines_from_json
from perdure.memory.judging import Refusal
from perdure.memory.notes import Shares
from perdure.memory.ranges import Ranges
from perdure.memory.record import Record
from perdure.memory.window import Compaction


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one compaction does: the window's part, the notes as they stand afterwards with the tokens
    that their parts had, tokens of the whole prompt before and after. ``request``: the summary that is
    due, where one is. Notes of None are to be made anew: something in them was forgotten."""

    window: Compaction
    notes: str | None
    shares: Shares
    tokens_before: int
    tokens_after: int
    record: Record | None = None
    request: SummaryRequest | None = None

    def as_json(self) -> dict[str, Any]:
        """For the journal; `from_json` gives it back."""
        return {
            "left": list(self.window.left),
            "shortened": {str(seq): kept for seq, kept in self.window.shortened.items()},
            "notes": self.notes,
            "shares": astuple(self.shares),
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Trimmed:
        shortened = {int(seq): int(kept) for seq, kept in body["shortened"].items()}
        window = Compaction(tuple(body["left"]), shortened, 0, 0)
        shares = Shares(*body["shares"])
        return cls(window, body.get("notes", ""), shares, body["tokens_before"], body["tokens_after"])


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary that was taken: its lines, the numbers of the entries that it stands for besides those of
    the summary before, and the notes as they stand afterwards."""

    lines: tuple[Line, ...]
    covered: Ranges
    notes: str
    record: Record | None = None

    def as_json(self) -> dict[str, Any]:
        """For the journal; `from_json` gives it back."""
        return {"lines": lines_as_json(self.lines), "covered": self.covered, "notes": self.notes}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Summary:
        covered = tuple((first, last) for first, last in body["covered"])
        return cls(lines_from_json(body["lines"]), covered, body["notes"])


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a summariser's reply: the summary, or why it was refused; and the request to send
    next, where there is one (the same but shorter, or the next piece of what left)."""

    summary: Summary | None = None
    refusal: Refusal | Literal["too_long"] | None = None
    request: SummaryRequest | None = None
