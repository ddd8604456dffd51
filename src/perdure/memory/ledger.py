"""The ledger: exact literals of what left the window, kept by code and not by a model.

Summaries lose them first (in one published measurement paths survived to 9.8%, numbers to 1.9%,
commands to 0.2%), and an agent needs them to make its next call. A literal is worth what its shape
is worth, more where the person said it or a call used it, less as the conversation goes on; what is
said again gains. What the window still shows isn't listed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.chat.messages import Kind
from perdure.memory.literals import EXACT, Shape

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
#: What an exact one of the person's is worth for good, and one of the model's: nobody else knows the
#: first, and all that a tool shows, fresh from the press, is worth less.
PERSONS_FLOOR, MODELS_FLOOR = 3.2, 1.6
#: Share of the list that old ones may take which only their floor holds up: a person may paste a log.
HELD_UP = 2 / 3
#: Literals that are remembered, listed or not, and how many more before the least are forgotten.
MOST, SLACK = 800, 200


@dataclass(frozen=True, slots=True)
class Noted:
    """A literal's worth at the entry where it was seen last, and the least that it is ever worth."""

    worth: float
    seq: int
    floor: float = 0.0

    def at(self, seq: int) -> float:
        """Its worth at a later entry."""
        return max(self._decayed(seq), self.floor)

    def held_up(self, seq: int) -> bool:
        """Only its floor keeps it up."""
        return self._decayed(seq) < self.floor

    def _decayed(self, seq: int) -> float:
        return float(self.worth * 0.5 ** ((seq - self.seq) / HALF_LIFE))


class Ledger:
    """Literals of the entries that left, each with its worth."""

    def __init__(self, noted: Mapping[str, Noted] | None = None) -> None:
        self._noted: dict[str, Noted] = dict(noted or {})

    def copy(self) -> Ledger:
        return Ledger(self._noted)

    def take(self, seq: int, kind: Kind, literals: Iterable[tuple[str, Shape]]) -> None:
        """Note the literals of an entry that leaves; of several entries the oldest first."""
        weight = _weight(kind)
        for literal, shape in literals:
            worth = WORTH[shape] * weight
            floor = _floor(kind, shape)
            before = self._noted.pop(literal, None)
            if before:
                old = before.at(seq)
                worth = max(worth, old) + AGAIN * min(worth, old)
                floor = max(floor, before.floor)
            self._noted[literal] = Noted(worth, seq, floor)
        if len(self._noted) > MOST + SLACK:
            best = sorted(self._noted, key=lambda literal: -self._noted[literal].at(seq))[:MOST]
            keep = frozenset(best)
            self._noted = {literal: noted for literal, noted in self._noted.items() if literal in keep}

    def worthiest(self, now: int) -> list[str]:
        """All literals, those worth most at entry ``now`` first."""
        by_worth = sorted(self._noted.items(), key=lambda item: (-item[1].at(now), -item[1].seq, item[0]))
        return [literal for literal, _ in by_worth]

    def within(
        self, limit: int, count: Callable[[str], int], shown: Container[str], notes: str, now: int
    ) -> tuple[str, ...]:
        """The literals worth most at entry ``now`` that fit ``limit`` tokens, in the order in which they
        were last seen. Those that the window shows (``shown``: its literals) or that stand in the other
        ``notes`` are left out."""
        listed: list[str] = []
        room, room_held_up = limit, int(limit * HELD_UP)
        for literal in self.worthiest(now):
            if literal in shown or literal in notes:
                continue
            cost = count(f", {literal}")
            held_up = self._noted[literal].held_up(now)
            if held_up and cost > room_held_up:
                continue
            if cost <= room:
                room -= cost
                room_held_up -= cost if held_up else 0
                listed.append(literal)
            elif room < SMALLEST:
                break
        order = {literal: at for at, literal in enumerate(self._noted)}
        return tuple(sorted(listed, key=order.__getitem__))

    def as_json(self) -> dict[str, list[Any]]:
        """For a checkpoint; `from_json` gives it back."""
        return {literal: [each.worth, each.seq, each.floor] for literal, each in self._noted.items()}

    @classmethod
    def from_json(cls, body: Mapping[str, list[Any]]) -> Ledger:
        return cls({literal: Noted(*noted) for literal, noted in body.items()})

    def __len__(self) -> int:
        return len(self._noted)


#: Tokens that the shortest literal costs; with less room, nothing more is tried.
SMALLEST = 2


def _weight(kind: Kind) -> float:
    if kind is Kind.USER:
        return FROM_PERSON
    return FROM_TOOL if kind is Kind.TOOL_RESULT else FROM_MODEL


def _floor(kind: Kind, shape: Shape) -> float:
    if shape not in EXACT or kind is Kind.TOOL_RESULT:
        return 0.0
    return PERSONS_FLOOR if kind is Kind.USER else MODELS_FLOOR
