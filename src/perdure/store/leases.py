"""Who has a session: one process at a time writes it, the others may read.

A lease names the process that has it. It ends when it is given back, or when its holder is dead: on
the same machine that is seen at once, of another one its heartbeat tells.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from perdure.store.database import now

#: Seconds between two heartbeats, and after which a silent holder on another machine counts as dead.
BEAT, DEAD = 10.0, 60.0


@dataclass(frozen=True, slots=True)
class Lease:
    """Who has a session: a process of a machine, since when (UTC, ISO 8601)."""

    token: str
    machine: str
    process: int
    started: str
    since: str
    beat: float

    @property
    def alive(self) -> bool:
        if self.machine == machine() and self.started:
            return started(self.process) == self.started
        # A beat far ahead says as little as one far back: some clock was wrong, and until ours gets there
        # the session would be kept for a dead one. A living holder's clock differs by less, and its next beat
        # comes soon; should it lose the session all the same, its next write is refused.
        return abs(time.time() - self.beat) < DEAD


def lease_of(cursor: sqlite3.Cursor, session: int) -> Lease | None:
    """The lease that somebody has, alive or dead."""
    row = cursor.execute(
        "SELECT token, machine, process, started, since, beat FROM lease WHERE session = ?", (session,)
    ).fetchone()
    return Lease(*row) if row else None


def take(cursor: sqlite3.Cursor, session: int, token: str) -> None:
    """Write the lease as this process's."""
    process = os.getpid()
    row = (session, token, machine(), process, started(process), now(), time.time())
    cursor.execute(
        "INSERT INTO lease VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session) DO UPDATE SET"
        " token = excluded.token, machine = excluded.machine, process = excluded.process,"
        " started = excluded.started, beat = excluded.beat,"
        " since = CASE token WHEN excluded.token THEN since ELSE excluded.since END",
        row,
    )


def give_back(cursor: sqlite3.Cursor, session: str, token: str) -> None:
    """End a lease. It stays as that of a dead holder, so that who had the session before still sees that
    somebody else has had it."""
    cursor.execute(
        "UPDATE lease SET started = '', beat = 0"
        " WHERE token = ? AND session = (SELECT id FROM session WHERE name = ?)",
        (token, session),
    )


@lru_cache
def machine() -> str:
    """The name of this machine; in a container, of the container, whose processes have other numbers."""
    try:
        inside = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        inside = ""
    return f"{platform.node()} {inside}".strip()


def started(process: int) -> str:
    """When a process of this machine began, in its system's own count; empty where there is none or it has
    ended, or where that can't be told (on Windows, where to ask would be to end it)."""
    if sys.platform == "win32":
        return ""
    try:
        # man 5 proc: the 22nd field; the second, the name in brackets, may hold anything. One that has ended
        # stays there until its parent asks for it, which in a container may be never.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in {"Z", "X"} else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return ""
    except (OSError, IndexError):
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "running"
