"""What an endpoint's own figures say about ours. Pure.

An estimate counts high, so a window stands half empty; an exact count can still miss a template's own
words. Each reply reports how many tokens its prompt really had. The highest ratio of the reported to
our count is kept, over all sessions with the model: an upper bound, never an average. A refusal as too
long says how large the window is, or at least that it is smaller than was thought.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perdure.memory.budget import Budget

#: Tokens from which a prompt says something about the ratio, and reports until a lower one is believed.
TELLING, BELIEVED = 500, 3
#: How much is added to the highest ratio seen, and the lowest that is ever used.
MARGIN, LOWEST = 1.03, 0.5
#: What a refusal without its window's size takes of the prompt, and where that ends: in tokens, and as a
#: share of the window where that is named.
STEP, LEAST_WINDOW, LEAST_SHARE = 0.75, 1_024, 0.25


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


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a model has taught in one session, where it has: the ``scale`` of our count, its ``window`` in
    tokens; ``answers``: they must be limited to the room that the budget keeps for them."""

    scale: float | None = None
    window: int | None = None
    answers: bool = False

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Learnt:
        """As `dataclasses.asdict` gave it."""
        return cls(body.get("scale"), body.get("window"), bool(body.get("answers")))

    def within(self, budget: Budget) -> Budget:
        """The budget, in a window that is no larger than the learnt one."""
        smaller = self.window is not None and self.window < budget.window
        return Budget.of(self.window or 0, budget.output) if smaller else budget

    def refused(
        self, prompt: int, budget: Budget, limit: int | None, requested: int | None, *, read: int = 0
    ) -> Learnt:
        """With a refusal as too long of a ``prompt`` that has at most so many tokens by what is known.

        ``limit`` (the window) and ``requested`` (the prompt's tokens) are the endpoint's own figures, where
        it gave them. Where it counts more than we do, its limit is scaled down by as much. Where the prompt
        is within the limit, it is the answer that had no room. Else, where our count would let the same
        prompt through again, a quarter of it is given up, but nothing that was ``read`` whole before.
        """
        window = limit or budget.window
        if requested and requested > prompt:
            window = window * prompt // requested
        answers = self.answers
        known = answers and budget.window <= window
        if limit and (requested or prompt) < limit and not known:
            answers = True
        elif (allowed := Budget.of(window, budget.output).tokens) >= prompt > 0:
            least = max(LEAST_WINDOW, read, int((limit or 0) * LEAST_SHARE))
            window = min(window, max(int(window * prompt * STEP / allowed), least))
        return replace(self, window=window if window < budget.window else self.window, answers=answers)
