"""The journal: the append-only record of a session. The session *is* its journal.

A record is either an entry (a message, with its number) or an event (a compaction, a setting,
usage, ...). Everything else about a session is derived by reading its records in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.chat.messages import Entry, Kind, Message
from perdure.chat.tokens import Usage


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session at a glance. ``entries`` is how many it holds; times are UTC, ISO 8601; ``turns`` those that
    stand, and ``request`` the beginning of the last one's; ``size`` in bytes of what is kept of it, the
    archive not counted; ``usage`` and ``cost`` (US dollars, None where a part isn't known): of all that
    models were asked in it, of a fork also what came before."""

    name: str
    created: str
    changed: str
    entries: int
    turns: int
    size: int = 0
    request: str = ""
    workspace: str = ""
    usage: Usage = Usage()
    cost: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Something that happened in a session and is no message. ``after`` is the number of the
    last entry before it, 0 at the beginning; ``lane``: in whose window, as of an `Entry`."""

    type: str
    after: int
    body: Mapping[str, Any]
    time: str
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was removed for good: session names to numbers of entries, the one that was asked for first, then
    its forks and those whose excerpts quoted it; and how many summaries were made from them. ``lingers``:
    the file still holds the words, since somebody else is reading it or there is no room to write it anew;
    who opens it next tries again."""

    entries: Mapping[str, Sequence[int]]
    summaries: int
    lingers: bool = False


#: Events behind a tool's result, in the same write: the ``text`` of which it is a part, with its ``name``;
#: and what the ``tool`` has ``left`` for its next call. They are forgotten with it.
WHOLE, LEFT = "tool.whole", "tool.left"
#: What is about to be written: kind, message, tokens; where it comes from elsewhere, its time and lane too.
NewEntry = tuple[Kind, Message, int] | tuple[Kind, Message, int, str] | tuple[Kind, Message, int, str, str]
#: An event that is about to be written: type and body.
NewEvent = tuple[str, Mapping[str, Any]]
#: What takes the place of an entry that is forgotten: message and tokens.
Instead = Callable[[Entry], tuple[Message, int]]


class Journal(Protocol):
    """Every write is durable when the call returns, and whole or not at all. All calls may raise
    `perdure.errors.StoreError`; those that name a session raise `SessionUnknown` where it isn't, and
    those that write to it `SessionHeld` where another process has it.

    Append-only, but for `forget` and `remove`, which a person asks for."""

    def create(
        self,
        session: str,
        settings: Mapping[str, Any],
        entries: Sequence[NewEntry] = (),
        events: Sequence[NewEvent] = (),
    ) -> bool:
        """Begin a session, with what is known of it already, all or none. ``settings`` are kept as its first
        event, `session.created`. Where it exists (another process was faster), nothing changes, and False is
        handed back."""
        ...

    def exists(self, session: str) -> bool: ...

    def hold(self, session: str) -> None:
        """Have the session, so that nobody else writes it, until `release`. Of a holder that is dead it is
        taken over. Raises `SessionHeld` where another has it, another user of this object too."""
        ...

    def beat(self, session: str) -> None:
        """Show that the holder is alive: at least every `perdure.store.leases.BEAT` seconds. Raises
        `SessionHeld` where it was taken over all the same."""
        ...

    def release(self, session: str) -> None:
        """Give it back; nothing where it isn't held. Must not raise."""
        ...

    def append(
        self,
        session: str,
        entries: Sequence[NewEntry],
        events: Sequence[NewEvent] = (),
        *,
        lane: str = "",
    ) -> list[Entry]:
        """Write entries, and events behind them, all or none, and hand the entries back with their numbers
        and times. Numbers are the session's, whatever the ``lane``."""
        ...

    def record(self, session: str, type: str, body: Mapping[str, Any], *, lane: str = "") -> None:
        """Write an event."""
        ...

    def records(self, session: str, lane: str | None = None) -> Iterator[Entry | Recorded]:
        """Everything, or what is of one lane, in the order in which it was written."""
        ...

    def entries(self, session: str, numbers: Sequence[int]) -> list[Entry]:
        """The entries with these numbers, in order; those that don't exist are left out."""
        ...

    def whole(self, session: str, number: int) -> str | None:
        """All that a tool said, where the result that is this entry holds only part of it: of an event
        `WHOLE`."""
        ...

    def entry_of(self, session: str, name: str) -> int | None:
        """The entry whose whole is called so; None where none is."""
        ...

    def checkpoint(self, session: str, body: Mapping[str, Any]) -> None:
        """Keep what is derived from all records of the conversation's own lane so far; it takes the place of
        the one before. Losing it loses nothing."""
        ...

    def since_checkpoint(self, session: str) -> tuple[Mapping[str, Any] | None, Iterator[Entry | Recorded]]:
        """The checkpoint, or None, and the records of the conversation's own lane that were written after
        it."""
        ...

    def learn(self, model: str, body: Mapping[str, Any]) -> None:
        """Keep what was learnt of a model, for all sessions; it takes the place of what was known."""
        ...

    def learnt(self, model: str) -> Mapping[str, Any]:
        """What was learnt of a model; empty where nothing was."""
        ...

    def fork(self, session: str, new: str, at: int) -> None:
        """Begin ``new`` with everything of ``session`` up to entry ``at``, and an event `session.forked`.
        Raises `SessionExists`, and `ValueError` where there is no such entry."""
        ...

    def reached(
        self, session: str, numbers: Sequence[int], *, forks: bool = True
    ) -> Mapping[str, Sequence[int]]:
        """Where these entries stand, in the session itself first, then the same ones in its forks and in what
        it was forked from, and excerpts of all of them in any session: what `forget` replaces. Without
        ``forks`` only excerpts: what `remove` replaces in other sessions."""
        ...

    def forget(self, session: str, numbers: Sequence[int], instead: Instead) -> Forgotten:
        """Replace entries for good, in its forks too, and remove what was derived from them: words, vectors,
        summaries, notes, checkpoints, and excerpts that quoted them in any session. An event says that it
        was done."""
        ...

    def remove(self, session: str, instead: Instead) -> Forgotten:
        """Remove a session with all that is kept of it; what other sessions quoted is forgotten there."""
        ...

    def sessions(self) -> list[SessionSummary]:
        """All sessions, the one that changed last first."""
        ...

    def close(self) -> None: ...
