"""The ledger: exact literals of what left the window, kept by code and not by a model.

Summaries lose them first (in one published measurement paths survived to 9.8%, numbers to 1.9%,
commands to 0.2%), and an agent needs them to make its next call. A literal is worth what its shape
is worth, more where the person said it or a call used it, less as the conversation goes on; what is
said again gains. What the window still shows isn't listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.chat.messages import Entry, Kind
from perdure.memory.literals import Shape, literals_of

#: Worth of a literal by its shape.
WORTH: Mapping[Shape, float] = {
    "url": 3.0,
    "path": 3.0,
    "identifier": 3.0,
    "date": 2.0,
    "name": 1.5,
    "word": 1.0,
    "code": 0.6,
    "quantity": 0.6,
    "number": 0.15,
    "time": 0.02,
}
#: Worth by who brought it: the person, a call of the model, what a tool showed.
FROM_PERSON, FROM_MODEL, FROM_TOOL = 3.0, 2.0, 1.0
#: Entries after which a literal is worth half, and the share that an earlier mention adds.
HALF_LIFE, AGAIN = 12, 0.35
#: Literals that are remembered, listed or not.
MOST = 800


@dataclass(frozen=True, slots=True)
class Noted:
    """A literal's worth at the entry where it was seen last."""

    worth: float
    seq: int

    def at(self, seq: int) -> float:
        """Its worth at a later entry."""
        return float(self.worth * 0.5 ** ((seq - self.seq) / HALF_LIFE))


class Ledger:
    """Literals of the entries that left, each with its worth."""

    def __init__(self, noted: Mapping[str, Noted] | None = None) -> None:
        self._noted: dict[str, Noted] = dict(noted or {})

    def take(self, entries: Iterable[Entry]) -> None:
        """Note the literals of entries that leave, oldest first."""
        for entry in entries:
            for literal, shape in literals_of(entry):
                worth = WORTH[shape] * _weight(entry.kind)
                before = self._noted.pop(literal, None)
                if before:
                    old = before.at(entry.seq)
                    worth = max(worth, old) + AGAIN * min(worth, old)
                self._noted[literal] = Noted(worth, entry.seq)
        if len(self._noted) > MOST:
            now = max(noted.seq for noted in self._noted.values())
            best = sorted(self._noted, key=lambda literal: -self._noted[literal].at(now))[:MOST]
            keep = frozenset(best)
            self._noted = {literal: noted for literal, noted in self._noted.items() if literal in keep}

    def within(self, limit: int, count: Callable[[str], int], shown: str, now: int) -> tuple[str, ...]:
        """The literals worth most at entry ``now`` that fit ``limit`` tokens, without those that
        ``shown`` holds, in the order in which they were last seen."""
        by_worth = sorted(self._noted.items(), key=lambda item: (-item[1].at(now), -item[1].seq, item[0]))
        listed: list[str] = []
        room = limit
        for literal, _ in by_worth:
            if literal in shown:
                continue
            cost = count(f", {literal}")
            if cost <= room:
                room -= cost
                listed.append(literal)
            elif room < SMALLEST:
                break
        order = {literal: at for at, literal in enumerate(self._noted)}
        return tuple(sorted(listed, key=order.__getitem__))

    def as_json(self) -> dict[str, list[Any]]:
        """For the journal; `from_json` gives it back."""
        return {literal: [round(noted.worth, 6), noted.seq] for literal, noted in self._noted.items()}

    @classmethod
    def from_json(cls, body: Mapping[str, list[Any]]) -> Ledger:
        return cls({literal: Noted(float(worth), int(seq)) for literal, (worth, seq) in body.items()})

    def __len__(self) -> int:
        return len(self._noted)


#: Tokens that the shortest literal costs; with less room, nothing more is tried.
SMALLEST = 2


def _weight(kind: Kind) -> float:
    if kind is Kind.USER:
        return FROM_PERSON
    return FROM_TOOL if kind is Kind.TOOL_RESULT else FROM_MODEL
