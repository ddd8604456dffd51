"""How many tokens a prompt may have: context window - output reserve - safety margin."""

from __future__ import annotations

from dataclasses import dataclass

#: Tokens kept free for the answer where nobody says otherwise, at most an eighth of the window.
OUTPUT_RESERVE = 4096
#: Tokens kept free in any case: the priming of the reply, and a few for a template's own words.
LEAST_MARGIN = 16


@dataclass(frozen=True, slots=True)
class Budget:
    """All in tokens. ``margin`` covers what no counter sees (an endpoint's own template words)."""

    window: int
    output: int
    margin: int

    @classmethod
    def of(cls, window: int, output: int | None = None) -> Budget:
        """The budget of a context window; ``output`` is the limit asked of the model, if one is."""
        reserve = min(OUTPUT_RESERVE, window // 8) if output is None else min(output, window // 2)
        return cls(window, reserve, max(LEAST_MARGIN, window // 100))

    @property
    def tokens(self) -> int:
        return max(self.window - self.output - self.margin, 0)
