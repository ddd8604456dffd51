"""Read a session's records in an order in which each result stands behind its call.

A journal is append-only, and a process may end, or its disk fail, between a call and its result; two
processes may write one session. So a result may come late, or twice. What stands in the prompt is
paired all the same: whatever was written between a call and its results waits for these, and of two
results for one call the first counts. The journal stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.agent.prompts import RESULT_LATE, RESULT_LEFT_OUT
from perdure.chat.messages import Entry, Kind, call_ids
from perdure.errors import Words
from perdure.store.journal import Recorded


class Pairing:
    """Says of each record whether it is read now. ``mended``: what was out of order, and the entry."""

    def __init__(self) -> None:
        self.held: list[Entry | Recorded] = []
        self.mended: list[tuple[Words, int]] = []

    def is_due(self, record: Entry | Recorded, open_calls: Sequence[str]) -> bool:
        """It is read now; else it waits for `released`, or is left out. ``open_calls``: the ids of those
        that were read and wait for a result."""
        if not isinstance(record, Entry) or record.kind is not Kind.TOOL_RESULT:
            waits = bool(self.held) or (isinstance(record, Entry) and bool(open_calls))
            if waits:
                self.held.append(record)
            return not waits
        id = record.message.get("tool_call_id")
        if id in open_calls:
            if self.held:
                self.mended.append((RESULT_LATE, record.seq))
            return True
        if any(isinstance(each, Entry) and id in call_ids(each.message) for each in self.held):
            self.held.append(record)
        else:
            self.mended.append((RESULT_LEFT_OUT, record.seq))
        return False

    def released(self) -> list[Entry | Recorded]:
        """What has waited, for when no call is open any more."""
        held, self.held = self.held, []
        return held
