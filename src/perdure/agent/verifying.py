"""Replay a session's journal, and see whether it gives the prompts that were sent, byte for byte.

Each call of the model is journaled with a digest of its prompt. What was taken back later stood when
it was sent, so what comes before an undoing is replayed without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from perdure.agent.conversation import Conversation, digest
from perdure.agent.overview import counter_of_session, last_opened
from perdure.agent.undone import UNDOING
from perdure.chat.messages import Entry
from perdure.memory.budget import Budget
from perdure.store.journal import Journal, Recorded


@dataclass(frozen=True, slots=True)
class Verified:
    """``same``: prompts that came out as they were sent; ``different``: the last entry before each that
    didn't; ``unknown``: calls whose prompt can't be compared, since it is of an older perdure or
    something in it was forgotten."""

    same: int
    different: Sequence[int]
    unknown: int


def verified(journal: Journal, session: str) -> Verified:
    """Replay a session. Changes nothing. Raises `SessionUnknown` where it doesn't exist."""
    records = list(journal.records(session))
    undone = [at for at, each in enumerate(records) if isinstance(each, Recorded) and each.type in UNDOING]
    counter = counter_of_session(last_opened(records))
    same, different, unknown = 0, list[int](), 0
    parts = [("", begin, end) for begin, end in pairwise((0, *undone, len(records)))]
    lanes = dict.fromkeys(each.lane for each in records if each.lane)
    for lane, begin, end in (*parts, *((lane, 0, len(records)) for lane in lanes)):
        prompts = _Prompts(records[begin:end])
        part = cast(Journal, _Part(records[:end]))
        Conversation(part, session, counter, Budget.of(8192), looking=True, watch=prompts.compare, lane=lane)
        same, unknown = same + prompts.same, unknown + prompts.unknown
        different += prompts.different
    return Verified(same, sorted(different), unknown)


class _Prompts:
    """Compares the prompts of the calls that are among some records."""

    def __init__(self, records: Sequence[Entry | Recorded]) -> None:
        self._of = {id(each) for each in records}
        self.same, self.unknown, self.different = 0, 0, list[int]()

    def compare(self, conversation: Conversation, usage: Recorded) -> None:
        if id(usage) not in self._of or usage.body["purpose"] != "think":
            return
        sent = usage.body.get("prompt")
        if sent is None:
            self.unknown += 1
        elif sent == digest(conversation.memory):
            self.same += 1
        else:
            self.different.append(usage.after)


class _Part:
    """A journal that has only some of its records, and no checkpoint."""

    def __init__(self, records: Sequence[Entry | Recorded]) -> None:
        self._records = records

    def records(self, session: str, lane: str | None = None) -> Iterator[Entry | Recorded]:
        return (each for each in self._records if lane is None or each.lane == lane)

    def since_checkpoint(self, session: str) -> tuple[None, Iterator[Entry | Recorded]]:
        return None, self.records(session, "")

    def learnt(self, model: str) -> Mapping[str, Any]:
        return {}
