"""What an endpoint's own count says about ours. Pure.

An estimate counts high, so a window stands half empty; an exact count can still miss a template's own
words. Each reply reports how many tokens its prompt really had. The highest ratio of the reported to
our count is kept, over all sessions with the model: an upper bound, never an average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Tokens from which a prompt says something about the ratio, and reports until a lower one is believed.
TELLING, BELIEVED = 500, 3
#: How much is added to the highest ratio seen, and the lowest that is ever used.
MARGIN, LOWEST = 1.03, 0.5


@dataclass(frozen=True, slots=True)
class Calibration:
    """``highest``: the highest ratio of reported to counted tokens in ``reports`` telling reports."""

    highest: float = 0.0
    reports: int = 0

    def after(self, counted: int, reported: int) -> Calibration:
        """With one more report of the whole prompt's tokens."""
        if counted < TELLING or reported <= 0:
            return self
        return Calibration(max(self.highest, reported / counted), self.reports + 1)

    def scale(self, *, exact: bool) -> float:
        """What the endpoint counts, at most, for one token of ours. An exact count is only ever scaled
        up."""
        if self.highest > 1:
            return round(self.highest * MARGIN, 3)
        if exact or self.reports < BELIEVED:
            return 1.0
        return round(min(max(self.highest * MARGIN, LOWEST), 1.0), 3)

    def as_json(self) -> dict[str, Any]:
        return {"highest": self.highest, "reports": self.reports}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Calibration:
        return cls(float(body.get("highest", 0.0)), int(body.get("reports", 0)))
