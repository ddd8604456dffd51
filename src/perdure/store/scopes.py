"""Where a search looks: the sessions in scope, as spans of ids, and what in them doesn't count."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from perdure.errors import SessionUnknown
from perdure.store import forks, indexing
from perdure.store.archive import Scope
from perdure.store.database import Database

if TYPE_CHECKING:
    from numpy import bool_, int64
    from numpy.typing import NDArray

#: All ids there can be.
EVERYWHERE = ((0, (1 << 63) - 1),)
#: Sessions in a scope that are searched one by one; of more, all are searched and the others left out.
FEW_SESSIONS = 8


@dataclass(frozen=True, slots=True)
class Where:
    """Spans of passage ids to search, and of these the sessions that count (None: all), and spans that
    don't count. ``sizes``: passages of each session that is searched."""

    spans: Sequence[tuple[int, int]]
    sessions: frozenset[int] | None
    hidden: Sequence[tuple[int, int]]
    passages: int
    words: int
    sizes: Mapping[int, int]

    def since(self, id: int) -> int:
        """About how many passages that are searched have this id or a higher one."""
        session, number = id >> indexing.NUMBER, id & ((1 << indexing.NUMBER) - 1)
        newer = sum(size for each, size in self.sizes.items() if each > session)
        return newer + max(self.sizes.get(session, 0) - number + 1, 0)


def sessions_in(database: Database, cursor: sqlite3.Cursor, scope: Scope) -> set[int]:
    """The ids of the sessions in scope. Raises `SessionUnknown`."""
    own = database.session(cursor, scope.session)
    if scope.reach == "session":
        return {own}
    every = scope.reach == "all"
    rows = cursor.execute(
        "SELECT id FROM session WHERE ?"
        " OR workspace <> '' AND workspace = (SELECT workspace FROM session WHERE id = ?)",
        (every, own),
    )
    return {own, *(int(row[0]) for row in rows)}


def where_of(database: Database, cursor: sqlite3.Cursor, scope: Scope) -> Where:
    """Where a search in scope looks. Raises `SessionUnknown`."""
    sessions = sessions_in(database, cursor, scope)
    own = database.session(cursor, scope.session)
    only = database.session(cursor, scope.only) if scope.only else own
    if scope.only:
        if only not in sessions:
            raise SessionUnknown(name=scope.only, path=database.path)
        sessions = {only}
    elif scope.between:
        sessions = {own}
    rows = cursor.execute("SELECT id, passages, words FROM session").fetchall()
    counts = [sum(row[which] for row in rows if row[0] in sessions) for which in (1, 2)]
    sizes = {row[0]: row[1] for row in rows}
    hidden = [span(cursor, own, first, last) for first, last in scope.hidden]
    if scope.between:
        found = span(cursor, only, *scope.between)
        return Where((found,), None, hidden, counts[0], counts[1], sizes)
    copies = _copies(cursor, sessions, own)
    every = len(sessions) == len(rows) and scope.reach == "all"
    if len(sessions) <= FEW_SESSIONS and (copies or not every):
        spans = tuple(
            (copies[id][1] + 1 if id in copies else indexing.ids_of(id)[0], indexing.ids_of(id)[1])
            for id in sorted(sessions)
        )
        return Where(spans, None, hidden, counts[0], counts[1], sizes)
    hidden += copies.values()
    return Where(EVERYWHERE, None if every else frozenset(sessions), hidden, counts[0], counts[1], sizes)


def _copies(cursor: sqlite3.Cursor, sessions: set[int], own: int) -> dict[int, tuple[int, int]]:
    """The ids of the passages of each session that another one holds as well."""
    if len(sessions) < 2:
        return {}
    copied = forks.copied(cursor, sessions, own, partial(held, cursor))
    return {id: span(cursor, id, 1, last) for id, last in copied.items()}


def held(cursor: sqlite3.Cursor, session: int, number: int) -> int:
    """The last entry of a session up to this number that has passages."""
    found = span(cursor, session, 1, number)
    query = "SELECT seq FROM passage WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1"
    row = cursor.execute(query, found).fetchone()
    return int(row[0]) if row else 0


def span(cursor: sqlite3.Cursor, session: int, first: int, last: int) -> tuple[int, int]:
    """The ids of the passages of these entries: found by halving, since both count up."""
    return _first(cursor, session, first), _first(cursor, session, last + 1) - 1


def _first(cursor: sqlite3.Cursor, session: int, seq: int) -> int:
    below, end = indexing.ids_of(session)
    query = "SELECT coalesce(max(id), ?) FROM passage WHERE id BETWEEN ? AND ?"
    above = cursor.execute(query, (below, below, end)).fetchone()[0] + 1
    while above - below > 1:
        middle = (below + above) // 2
        row = cursor.execute(
            "SELECT id, seq FROM passage WHERE id <= ? AND id > ? ORDER BY id DESC LIMIT 1",
            (middle, below),
        ).fetchone()
        if row is None:
            below = middle
        elif row[1] >= seq:
            above = row[0]
        else:
            below = middle
    return int(above)


def in_sessions(ids: NDArray[int64], where: Where) -> NDArray[bool_]:
    """Which of the ids are of sessions that count."""
    import numpy

    if where.sessions is None:
        return numpy.ones(len(ids), bool)
    return numpy.isin(ids >> indexing.NUMBER, list(where.sessions))


def counting_in(ids: NDArray[int64], where: Where) -> NDArray[bool_]:
    """Which of the ids count as candidates."""
    counts = in_sessions(ids, where)
    for first, last in where.hidden:
        counts &= (ids < first) | (ids > last)
    return counts
