"""What sessions share, since one was forked from another: a fork's first entries are its origin's, under the
same numbers, so that what is found in one of them is found in all."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection

#: Sessions to those with which they share entries, and the number of the last one.
Shared = dict[int, dict[int, int]]


def copied(
    cursor: sqlite3.Cursor, sessions: Collection[int], first: int, held: Callable[[int, int], int]
) -> dict[int, int]:
    """The sessions that hold what another one of them holds: for each the entry up to which all is a copy.
    What several share is left to one of them, to the session ``first`` where it is among these. ``held``: the
    last entry of a session that can be found, up to a number: of a turn that was taken back none can."""
    shared = _shared(cursor, sessions)
    copies: dict[int, int] = {}
    #: Of each session, those of its family that are placed, with what it has in common with them.
    common: dict[int, dict[int, int]] = {}
    for root in sorted(shared, key=lambda id: (id != first, id)):
        # From each to the one that shares the most with those before.
        waiting = [(0, root, root)]
        while waiting:
            last, session, nearest = heapq.heappop(waiting)
            if session in common:
                continue
            others = {} if session == nearest else {nearest: -last}
            others |= {other: min(number, -last) for other, number in common.get(nearest, {}).items()}
            for other, number in others.items():
                common[other][session] = number
            common[session] = others
            if others:
                copies[session] = _held_by_one(others, session, held)
            for other, number in shared[session].items():
                heapq.heappush(waiting, (-number, other, session))
    return copies


def _held_by_one(others: dict[int, int], session: int, held: Callable[[int, int], int]) -> int:
    """Up to which entry others hold what they have in common with a session: as far as one of them does. What
    the nearest took back, another one may still hold."""
    nearest = sorted(others.items(), key=lambda other: -other[1])
    wanted, most = held(session, nearest[0][1]), 0
    for other, number in nearest:
        if most >= min(wanted, number):
            break
        most = max(most, held(other, number))
    return most


def _shared(cursor: sqlite3.Cursor, sessions: Collection[int]) -> Shared:
    rows = cursor.execute("SELECT session, body FROM record WHERE type = 'session.forked'").fetchall()
    names = dict(cursor.execute("SELECT name, id FROM session").fetchall()) if rows else {}
    shared: Shared = defaultdict(dict)
    for id, body in rows:
        fork = json.loads(body)
        origin: int | None = names.get(fork["from"])
        if origin is not None and origin in sessions and id in sessions:
            last = max(fork["at"], shared[id].get(origin, 0))
            shared[id][origin] = shared[origin][id] = last
    return shared
