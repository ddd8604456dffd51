"""The archive in the journal's SQLite file: words in FTS5, vectors as BLOBs that numpy searches."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.chat.messages import Kind
from perdure.errors import StoreError
from perdure.memory.passages import Corpus, Passage, Pool, Query
from perdure.memory.words import STOP_WORDS
from perdure.store import indexing
from perdure.store.archive import Scope
from perdure.store.database import Database
from perdure.store.vectors import Vectors

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

#: Candidates by words, and as many by meaning.
CANDIDATES = 300
#: Passages before and behind a candidate that come with it.
BESIDE = 2
#: The best ones by words, and by meaning, that speak for those around them too, and how much of that each
#: step away takes: an answer stands beside the words of its question.
SPREADING, FADING = 1_000, 0.7
#: Passages with a word that are looked at, the newest ones, and of all words of a query.
MOST_HOLDING, MOST_LOOKED_AT = 20_000, 100_000
#: Sessions in a scope that are searched one by one; of more, all are searched and the others left out.
FEW_SESSIONS = 8


@dataclass(frozen=True, slots=True)
class _Where:
    """Spans of passage ids to search, and of these the sessions that count (None: all), and spans that
    don't count."""

    spans: Sequence[tuple[int, int]]
    sessions: frozenset[int] | None
    hidden: Sequence[tuple[int, int]]
    passages: int
    words: int


class SqliteArchive:
    """`Archive` in the file of a `SqliteJournal`, on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, durable=False)
        self._vectors = Vectors()
        with suppress(StoreError):  # a file that can only be read is searched as it stands
            indexing.take_form(self._database)

    def pool(self, query: Query, scope: Scope) -> Pool:
        import numpy

        self._catch_up(scope)
        with self._database.reading() as cursor:
            where = self._where(cursor, scope)
            by_words, holding = self._by_words(cursor, query.words, where)
            chosen, likeness = by_words, (0.0, 1.0)
            if query.vector is not None:
                self._vectors.load(cursor, query.embedder, where.spans)
                found = self._vectors.nearest(cursor, query.vector, partial(_count, where=where))
                likeness = found.likeness
                lowest = found.cosines.min() if len(found.cosines) else 0.0
                by_meaning = _spread(found.ids, found.cosines - lowest, where)
                chosen = numpy.union1d(chosen, by_meaning)
            beside = numpy.unique(numpy.concatenate([chosen + step for step in range(-BESIDE, BESIDE + 1)]))
            passages = self._passages(cursor, beside)
            ids = numpy.array([each.id for each in passages], numpy.int64)
            vectors = self._vectors.of(cursor, ids, len(query.vector) if query.vector is not None else 0)
        length = where.words / max(where.passages, 1)
        corpus = Corpus(where.passages, length, holding, likeness)
        return Pool(passages, vectors, numpy.isin(ids, chosen), corpus)

    def without_vector(self, embedder: str, limit: int) -> list[tuple[int, str]]:
        with suppress(StoreError):
            indexing.catch_up(self._database, self._behind(None))
        with self._database.reading() as cursor:
            row = cursor.execute("SELECT id FROM embedder WHERE name = ?", (embedder,)).fetchone()
            known = row[0] if row else -1
            rows = cursor.execute(
                "SELECT id, text FROM"
                " (SELECT id, text FROM passage WHERE embedder < ? ORDER BY id DESC LIMIT ?)"
                " UNION ALL SELECT id, text FROM (SELECT id, text FROM passage WHERE embedder > ?"
                " ORDER BY id DESC LIMIT ?) LIMIT ?",
                (known, limit, known, limit, limit),
            )
            return [(int(id), str(text)) for id, text in rows]

    def keep_vectors(self, embedder: str, vectors: Mapping[int, NDArray[float32]]) -> None:
        with self._database.transaction() as cursor:
            cursor.execute("INSERT INTO embedder (name) VALUES (?) ON CONFLICT DO NOTHING", (embedder,))
            (known,) = cursor.execute("SELECT id FROM embedder WHERE name = ?", (embedder,)).fetchone()
            for id, vector in vectors.items():
                row = cursor.execute("SELECT embedder FROM passage WHERE id = ?", (id,)).fetchone()
                if row is None or row[0] == known:
                    continue
                if row[0]:
                    # Another embedder's: who has read it must begin anew.
                    cursor.execute("DELETE FROM vector WHERE passage = ?", (id,))
                    cursor.execute("UPDATE archive SET dropped = dropped + 1")
                cursor.execute(
                    "INSERT INTO vector (passage, embedder, body) VALUES (?, ?, ?)",
                    (id, known, vector.astype("<f2").tobytes()),
                )
                cursor.execute("UPDATE passage SET embedder = ? WHERE id = ?", (known, id))

    def close(self) -> None:
        self._database.close()

    def _catch_up(self, scope: Scope) -> None:
        with suppress(StoreError):  # who can't write, or must wait too long, finds what is there
            indexing.catch_up(self._database, self._behind(scope))

    def _behind(self, scope: Scope | None) -> list[int]:
        with self._database.reading() as cursor:
            rows = cursor.execute("SELECT id FROM session WHERE indexed < entries").fetchall()
            ids = {int(row[0]) for row in rows}
            return sorted(ids & self._sessions(cursor, scope) if scope and ids else ids)

    def _sessions(self, cursor: sqlite3.Cursor, scope: Scope) -> set[int]:
        own = self._database.session(cursor, scope.session)
        if scope.reach == "session":
            return {own}
        every = scope.reach == "all"
        rows = cursor.execute(
            "SELECT id FROM session WHERE ? OR workspace = (SELECT workspace FROM session WHERE id = ?)",
            (every, own),
        )
        return {int(row[0]) for row in rows}

    def _where(self, cursor: sqlite3.Cursor, scope: Scope) -> _Where:
        sessions = self._sessions(cursor, scope)
        own = self._database.session(cursor, scope.session)
        if scope.between:
            sessions = {own}
        rows = cursor.execute("SELECT id, passages, words FROM session").fetchall()
        counts = [sum(row[which] for row in rows if row[0] in sessions) for which in (1, 2)]
        hidden = [self._span(cursor, own, first, last) for first, last in scope.hidden]
        if scope.between:
            return _Where([self._span(cursor, own, *scope.between)], None, hidden, counts[0], counts[1])
        if len(sessions) <= FEW_SESSIONS:
            spans = [indexing.ids_of(id) for id in sorted(sessions)]
            return _Where(spans, None, hidden, counts[0], counts[1])
        every = None if len(sessions) == len(rows) else frozenset(sessions)
        last = indexing.ids_of(max(sessions))[1]
        return _Where([(0, last)], every, hidden, counts[0], counts[1])

    def _span(self, cursor: sqlite3.Cursor, session: int, first: int, last: int) -> tuple[int, int]:
        """The ids of the passages of these entries: found by halving, since both count up."""
        return self._first(cursor, session, first), self._first(cursor, session, last + 1) - 1

    def _first(self, cursor: sqlite3.Cursor, session: int, seq: int) -> int:
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

    def _by_words(
        self, cursor: sqlite3.Cursor, words: Sequence[str], where: _Where
    ) -> tuple[NDArray[int64], dict[str, int]]:
        """The passages that hold the rarest of the words and the most of them; and how many hold each."""
        import numpy

        postings: dict[str, NDArray[int64]] = {}
        for word in dict.fromkeys(word for word in words if word not in STOP_WORDS):
            parts = []
            for first, last in where.spans:
                rows = cursor.execute(
                    "SELECT rowid FROM passage_words WHERE passage_words MATCH ? AND rowid BETWEEN ? AND ?"
                    " ORDER BY rowid DESC LIMIT ?",
                    (_quoted(word), first, last, MOST_HOLDING),
                ).fetchall()
                parts.append(numpy.array(rows, numpy.int64).reshape(-1))
            ids = numpy.concatenate(parts) if parts else numpy.empty(0, numpy.int64)
            postings[word] = ids[_in_sessions(ids, where)]
        holding = {word: len(ids) for word, ids in postings.items()}
        looked_at, weights = [], []
        room = MOST_LOOKED_AT
        for word in sorted((word for word in postings if holding[word]), key=holding.__getitem__):
            if room <= 0:
                break
            ids = postings[word]
            ids = ids[_count(ids, where)]
            room -= len(ids)
            looked_at.append(ids)
            weights.append(numpy.full(len(ids), log(1 + where.passages / holding[word])))
        if not looked_at:
            return numpy.empty(0, numpy.int64), holding
        ids, places = numpy.unique(numpy.concatenate(looked_at), return_inverse=True)
        scores = numpy.bincount(places, numpy.concatenate(weights))
        return _spread(ids, scores, where), holding

    def _passages(self, cursor: sqlite3.Cursor, ids: NDArray[int64]) -> list[Passage]:
        found: list[Passage] = []
        names: dict[int, str] = {}
        for id in map(int, ids):
            row = cursor.execute(
                "SELECT seq, part, kind, time, text, words FROM passage WHERE id = ?", (id,)
            ).fetchone()
            if row is None:
                continue
            session = id >> indexing.NUMBER
            if session not in names:
                query = "SELECT name FROM session WHERE id = ?"
                names[session] = cursor.execute(query, (session,)).fetchone()[0]
            seq, part, kind, time, text, words = row
            found.append(Passage(id, names[session], seq, part, Kind(kind), time, text, tuple(words.split())))
        return found


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _spread(ids: NDArray[int64], scores: NDArray[Any], where: _Where) -> NDArray[int64]:
    """The candidates, sorted, of passages with their scores: each counts for its neighbours as well."""
    import numpy

    best = numpy.lexsort((-ids, -scores))[:SPREADING]
    steps = range(-BESIDE, BESIDE + 1)
    near = numpy.concatenate([ids[best] + step for step in steps])
    weights = numpy.concatenate([scores[best] * FADING ** abs(step) for step in steps])
    near, places = numpy.unique(near, return_inverse=True)
    sums = numpy.bincount(places, weights)
    inside = numpy.zeros(len(near), bool)
    for first, last in where.spans:
        inside |= (near >= first) & (near <= last)
    counting = numpy.intersect1d(numpy.flatnonzero(inside), _count(near, where))
    # Of two that are alike, the newer one.
    order = numpy.lexsort((-near[counting], -sums[counting]))[:CANDIDATES]
    return numpy.sort(near[counting[order]])


def _in_sessions(ids: NDArray[int64], where: _Where) -> NDArray[int64]:
    """Which of the ids are of sessions that count."""
    import numpy

    if where.sessions is None:
        return numpy.arange(len(ids))
    return numpy.flatnonzero(numpy.isin(ids >> indexing.NUMBER, list(where.sessions)))


def _count(ids: NDArray[int64], where: _Where) -> NDArray[int64]:
    """Places of the ids that count as candidates."""
    import numpy

    counts = numpy.zeros(len(ids), bool)
    counts[_in_sessions(ids, where)] = True
    for first, last in where.hidden:
        counts &= (ids < first) | (ids > last)
    return numpy.flatnonzero(counts)
