"""Which records of a journal no longer count: those of compactions and turns that were taken back.

A journal is append-only, so what is taken back stays in it, with an event that says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from perdure.chat.messages import Entry, Kind
from perdure.store.journal import LEFT, Recorded

#: Events that say something was taken back.
UNDOING = frozenset({"compaction.undone", "turn.undone"})
#: Events that change what stands in the prompt, and so go with their turn.
OF_A_TURN = frozenset({"compaction", "summary", "summary.failed", "plan", "plan.over", LEFT})


@dataclass
class Standing:
    """``dropped``: places, among all records, of what no longer counts; ``compaction``: of what the last
    compaction that stands left behind; ``turn``: first and last entry of the last turn that stands."""

    dropped: set[int] = field(default_factory=set)
    compaction: set[int] = field(default_factory=set)
    turn: tuple[int, int] | None = None


@dataclass
class _Turn:
    """``places``: of what it left behind in the journal."""

    first: int
    last: int = 0
    places: list[int] = field(default_factory=list)


def standing(records: Iterable[Entry | Recorded]) -> Standing:
    """What stands after all these records."""
    dropped: set[int] = set()
    compactions: list[list[int]] = []
    turns: list[_Turn] = []
    excerpt: tuple[int, int] | None = None
    for index, record in enumerate(records):
        if record.lane:
            _take_step(turns[-1:], record)
            continue
        if isinstance(record, Entry):
            if record.kind is Kind.USER:
                turns.append(_Turn(record.seq))
                if excerpt and turns[:-1]:
                    # What was recalled for a request stands right before it.
                    turns[-2].places.remove(excerpt[1])
                    turns[-2].last = excerpt[0] - 1
                if excerpt:
                    turns[-1].first = excerpt[0]
                    turns[-1].places.append(excerpt[1])
            excerpt = (record.seq, index) if record.kind is Kind.RECALL else None
            if turns:
                turns[-1].last = record.seq
                turns[-1].places.append(index)
            continue
        if record.type == "compaction":
            compactions.append([index])
        elif record.type in {"summary", "notes"} and compactions:
            compactions[-1].append(index)
        elif record.type == "compaction.undone" and compactions:
            dropped.update(compactions.pop())
        elif record.type == "turn.undone" and turns:
            dropped.update(turns.pop().places)
            excerpt = None
            # Notes that were made anew since are of their compaction, too.
            dropped.update([at for each in compactions if each[0] in dropped for at in each])
            compactions = [kept for each in compactions if (kept := [at for at in each if at not in dropped])]
        if record.type in OF_A_TURN and turns:
            turns[-1].places.append(index)
    last = (turns[-1].first, turns[-1].last) if turns else None
    return Standing(dropped, set(compactions[-1]) if compactions else set(), last)


def _take_step(turn: list[_Turn], record: Entry | Recorded) -> None:
    """What a step did goes with the turn of its plan."""
    if turn and isinstance(record, Entry):
        turn[0].last = record.seq


def undone_entries(records: Iterable[Entry | Recorded]) -> frozenset[int]:
    """Numbers of the entries of turns that were taken back."""
    spans = (each.body for each in records if isinstance(each, Recorded) and each.type == "turn.undone")
    return frozenset(number for span in spans for number in range(span["first"], span["last"] + 1))
