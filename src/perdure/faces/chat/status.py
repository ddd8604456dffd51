"""The line below the input: how full the window is, what it cost, who answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: The parts of a window as they are drawn, with the letter that stands for each where there is no colour.
PARTS = (("system", "s"), ("gist", "g"), ("history", "h"), ("free", "·"))
#: Which of an overview's parts is which of these.
SYSTEM = frozenset({"system", "tools"})
GIST = frozenset({"notes", "gist"})
CELLS = 12


@dataclass(frozen=True, slots=True)
class Glance:
    """What is known of a session's window: tokens by part, of ``window``; ``cost`` in US dollars, None where
    it isn't known."""

    model: str = ""
    session: str = ""
    window: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = 0.0
    modes: Sequence[str] = ()

    @property
    def used(self) -> int:
        return sum(tokens for name, tokens in self.parts.items() if name != "free")


def grouped(parts: Mapping[str, int], free: int) -> dict[str, int]:
    """An overview's parts as the bar has them."""
    found = {"system": 0, "gist": 0, "history": 0, "free": max(free, 0)}
    for name, tokens in parts.items():
        found["system" if name in SYSTEM else "gist" if name in GIST else "history"] += tokens
    return found


def bar(parts: Mapping[str, int], cells: int = CELLS) -> list[tuple[str, int]]:
    """How many cells each part gets: all of them together, one at least for what is there."""
    total = sum(parts.values())
    if not total:
        return [("free", cells)]
    shares = {name: parts.get(name, 0) * cells / total for name, _ in PARTS}
    given = {name: max(int(share), 1 if parts.get(name) else 0) for name, share in shares.items()}
    while sum(given.values()) > cells:
        given[max(given, key=lambda name: given[name])] -= 1
    by_rest = sorted(shares, key=lambda name: given[name] - shares[name])
    for name in by_rest * cells:
        if sum(given.values()) >= cells:
            break
        if parts.get(name):
            given[name] += 1
    return [(name, given[name]) for name, _ in PARTS if given[name]]


def short(tokens: int) -> str:
    """Tokens as people read them: 950, 3.1k, 128k."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 10_000 else f"{tokens / 1000:.0f}k"


def pieces(glance: Glance, width: int, *, colours: bool, cost: str = "") -> list[tuple[str, str]]:
    """The line in styled pieces, at most ``width`` cells wide: what matters least is left out first."""
    letters = dict(PARTS)
    drawn = [
        (f"class:bar.{name}", (" " if colours else letters[name]) * count)
        for name, count in bar(glance.parts)
    ]
    figures = f" {short(glance.used)}/{short(glance.window)}" if glance.window else ""
    line = [*drawn, ("", figures)]
    used = CELLS + len(figures)
    for text in (cost, glance.model, " ".join(glance.modes), glance.session):
        shown = f" · {text}" if text else ""
        if shown and used + cells_of(shown) <= width:
            line.append(("", shown))
            used += cells_of(shown)
    return line


def cells_of(text: str) -> int:
    """How many cells of a terminal a text takes."""
    from prompt_toolkit.utils import get_cwidth

    return get_cwidth(text)
