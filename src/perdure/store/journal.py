"""The journal: the append-only record of a session. The session *is* its journal.

A record is either an entry (a message, with its number) or an event (a compaction, a setting,
usage, ...). Everything else about a session is derived by reading its records in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.chat.messages import Entry, Kind, Message


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session at a glance. ``entries`` is how many it holds; times are UTC, ISO 8601."""

    name: str
    created: str
    changed: str
    entries: int
    turns: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """Something that happened in a session and is no message. ``after`` is the number of the
    last entry before it, 0 at the beginning."""

    type: str
    after: int
    body: Mapping[str, Any]
    time: str


#: What is about to be written: kind, message, tokens.
NewEntry = tuple[Kind, Message, int]


class Journal(Protocol):
    """Every write is durable when the call returns, and whole or not at all. All calls may raise
    `perdure.errors.StoreError`; those that name a session raise `SessionUnknown` where it isn't."""

    def create(self, session: str, settings: Mapping[str, Any]) -> None:
        """Begin a session. ``settings`` are kept as its first event, `session.created`; where it exists
        already (another process was faster), nothing changes."""
        ...

    def exists(self, session: str) -> bool: ...

    def append(self, session: str, entries: Sequence[NewEntry]) -> list[Entry]:
        """Write entries, all or none, and hand them back with their numbers and times."""
        ...

    def record(self, session: str, type: str, body: Mapping[str, Any]) -> None:
        """Write an event."""
        ...

    def records(self, session: str) -> Iterator[Entry | Recorded]:
        """Everything, in the order in which it was written."""
        ...

    def entries(self, session: str, numbers: Sequence[int]) -> list[Entry]:
        """The entries with these numbers, in order; those that don't exist are left out."""
        ...

    def checkpoint(self, session: str, body: Mapping[str, Any]) -> None:
        """Keep what is derived from all records so far; it takes the place of the one before. Losing it
        loses nothing."""
        ...

    def since_checkpoint(self, session: str) -> tuple[Mapping[str, Any] | None, Iterator[Entry | Recorded]]:
        """The checkpoint, or None, and the records that were written after it."""
        ...

    def learn(self, model: str, body: Mapping[str, Any]) -> None:
        """Keep what was learnt of a model, for all sessions; it takes the place of what was known."""
        ...

    def learnt(self, model: str) -> Mapping[str, Any]:
        """What was learnt of a model; empty where nothing was."""
        ...

    def sessions(self) -> list[SessionSummary]:
        """All sessions, the one that changed last first."""
        ...

    def close(self) -> None: ...
