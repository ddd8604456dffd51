"""The archive in the journal's SQLite file: words in FTS5, vectors as BLOBs that numpy searches."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.chat.encodings import sendable
from perdure.chat.messages import Kind
from perdure.chat.secrets import masked_pieces
from perdure.errors import StoreError
from perdure.memory.passages import Corpus, Passage, Pool, Query
from perdure.memory.words import telling
from perdure.store import indexing
from perdure.store.archive import Scope
from perdure.store.database import Database, now
from perdure.store.scopes import (
    EVERYWHERE,
    Where,
    counting_in,
    held,
    in_sessions,
    sessions_in,
    span,
    where_of,
)
from perdure.store.vectors import Vectors, dimensions, keep_signs, within

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

#: Candidates by words and meaning together, and those among them that are the best by one alone; fewer, where
#: with all that stand beside them they are more passages than these: in a large store they lie far apart.
CANDIDATES, BY_ONE, TOGETHER = 300, 50, 800
#: Passages before and behind a candidate that come with it.
BESIDE = 2
#: The best ones by words, and by meaning, that speak for those around them too, and how much of that each
#: step away takes: an answer stands beside the words of its question.
SPREADING, FADING = 1_000, 0.7
#: Passages that are looked at since they hold a word of a query, beginning with its rarest word. By a word in
#: more than are left these alone are judged, by so many words, if no more than one passage in ``RARE`` holds
#: them: others hardly tell passages apart.
MOST_LOOKED_AT, MOST_JUDGED, RARE = 15_000, 3, 20
#: Passages with a word that are counted, the newest ones: of all words of a query, and of each one at least
#: and at most. Of more, these tell about how many there are.
COUNTED, LEAST_COUNTED, MOST_COUNTED = 40_000, 500, 5_000
#: Passages before and behind one in which a secret that reaches into it is looked for: longer than any key,
#: but for one that says what it is.
AS_FAR, PRIVATE_KEY = 12, "PRIVATE KEY"
#: Kinds by their names: looking one up in a dictionary is much faster.
KINDS = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class _Ids:
    """Passages by their ids, and a score for each."""

    ids: NDArray[int64]
    scores: NDArray[Any]


class SqliteArchive:
    """`Archive` in the file of a `SqliteJournal`, on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, durable=False)
        # What a search in few passages needs is soon read; what one in all needs isn't given up for it.
        self._vectors, self._all_vectors = Vectors(), Vectors()
        with suppress(StoreError):  # a file that can only be read is searched as it stands
            indexing.take_form(self._database)

    @indexing.mending
    def pool(self, query: Query, scope: Scope) -> Pool:
        import numpy

        self._catch_up(scope)
        with self._database.reading() as cursor:
            where = where_of(self._database, cursor, scope)
            vectors_in = self._all_vectors if where.spans == EVERYWHERE else self._vectors
            by_words, holding = self._by_words(cursor, query.words, where)
            ways, likeness = [by_words], (0.0, 1.0)
            if query.vector is not None:
                vectors_in.load(cursor, query.embedder, where.spans, len(query.vector))
                counting = partial(counting_in, where=where)
                found = vectors_in.nearest(cursor, query.vector, where.spans, counting)
                likeness = found.likeness
                ways.append(_spread(found.ids, found.cosines - found.lowest, where))
            chosen = _best(ways)
            passages = self._passages(cursor, numpy.unique(_beside(chosen)))
            ids = numpy.array([each.id for each in passages], numpy.int64)
            vectors = vectors_in.of(cursor, ids, len(query.vector) if query.vector is not None else 0)
        length = where.words / max(where.passages, 1)
        corpus = Corpus(where.passages, length, holding, likeness)
        return Pool(passages, vectors, numpy.isin(ids, chosen), corpus)

    def reaches(self, scope: Scope, session: str) -> bool:
        if sendable(session) != session:  # a model may write what is no text
            return False
        with self._database.reading() as cursor:
            row = cursor.execute("SELECT id FROM session WHERE name = ?", (session,)).fetchone()
            return row is not None and row[0] in sessions_in(self._database, cursor, scope)

    def holds(self, session: str, entry: int) -> bool:
        self._catch_up(Scope(session))
        with self._database.reading() as cursor:
            return 0 < entry == held(cursor, self._database.session(cursor, session), entry)

    def behind(self, scope: Scope) -> int:
        with self._database.reading() as cursor:
            rows = cursor.execute("SELECT id, entries - indexed FROM session WHERE indexed < entries")
            waiting = dict(rows.fetchall())
            return sum(waiting[id] for id in waiting.keys() & sessions_in(self._database, cursor, scope))

    def without_vector(
        self, embedder: str, limit: int, scope: Scope | None = None, masked: bool = False
    ) -> list[tuple[int, str]]:
        with suppress(StoreError):
            indexing.catch_up(self._database, self._behind(scope))
        with self._database.reading() as cursor:
            spans: Sequence[tuple[int, int]] = EVERYWHERE
            if scope is not None and scope.reach != "all":
                spans = tuple(map(indexing.ids_of, sorted(sessions_in(self._database, cursor, scope))))
            row = cursor.execute("SELECT id FROM embedder WHERE name = ?", (embedder,)).fetchone()
            known = row[0] if row else -1
            others = [0, *(each[0] for each in cursor.execute("SELECT id FROM embedder").fetchall())]
            # One by one, so that the index gives them in order and none is read that isn't wanted.
            query = (
                "SELECT id, text FROM passage WHERE embedder = ? AND id BETWEEN ? AND ?"
                " ORDER BY id DESC LIMIT ?"
            )
            rows = [
                row
                for other in others
                if other != known
                for span in spans
                for row in cursor.execute(query, (other, *span, limit)).fetchall()
            ]
            newest = sorted(rows, key=lambda row: -row[0])[:limit]
            return self._masked(cursor, newest) if masked else newest

    def keep_vectors(self, embedder: str, vectors: Mapping[int, NDArray[float32]]) -> None:
        with self._database.transaction() as cursor:
            for vector in [*vectors.values()][:1]:
                _part_with(cursor, embedder, len(vector))
            cursor.execute("INSERT INTO embedder (name) VALUES (?) ON CONFLICT DO NOTHING", (embedder,))
            (known,) = cursor.execute("SELECT id FROM embedder WHERE name = ?", (embedder,)).fetchone()
            kept: list[tuple[int, int, bytes]] = []
            for id, vector in vectors.items():
                row = cursor.execute("SELECT embedder FROM passage WHERE id = ?", (id,)).fetchone()
                if row is None or row[0] == known:
                    continue
                if row[0]:
                    # Another embedder's: who has read it must begin anew.
                    cursor.execute("DELETE FROM vector WHERE passage = ?", (id,))
                    cursor.execute("UPDATE archive SET dropped = dropped + 1")
                body = vector.astype("<f2").tobytes()
                cursor.execute(
                    "INSERT INTO vector (passage, embedder, body) VALUES (?, ?, ?)", (id, known, body)
                )
                kept.append((cursor.lastrowid or 0, id, body))
                cursor.execute("UPDATE passage SET embedder = ? WHERE id = ?", (known, id))
            keep_signs(cursor, known, kept)

    def close(self) -> None:
        self._database.close()

    def _catch_up(self, scope: Scope) -> None:
        with suppress(StoreError):  # who can't write, or must wait too long, finds what is there
            indexing.catch_up(self._database, self._behind(scope))

    def _behind(self, scope: Scope | None) -> list[int]:
        with self._database.reading() as cursor:
            rows = cursor.execute("SELECT id FROM session WHERE indexed < entries").fetchall()
            ids = {int(row[0]) for row in rows}
            return sorted(ids & sessions_in(self._database, cursor, scope) if scope and ids else ids)

    def _by_words(
        self, cursor: sqlite3.Cursor, words: Sequence[str], where: Where
    ) -> tuple[_Ids, dict[str, int]]:
        """The passages that hold the rarest of the words and the most of them; and how many hold each."""
        import numpy

        asked = telling(words)
        most = min(max(COUNTED // max(len(asked), 1), LEAST_COUNTED), MOST_COUNTED)
        holding = {word: self._holding(cursor, word, where, most) for word in asked}
        rarest = sorted((word for word in asked if holding[word]), key=holding.__getitem__)
        looked_at: list[NDArray[int64]] = []
        weights: list[float] = []
        whole: list[str] = []
        for word in rarest:
            room = MOST_LOOKED_AT - sum(map(len, looked_at))
            if whole and holding[word] > room:
                break
            looked_at.append(self._with(cursor, _quoted(word), where, room))
            weights.append(log(1 + where.passages / holding[word]))
            whole.append(word)
        either = " OR ".join(map(_quoted, whole))
        judged = [word for word in rarest[len(whole) :] if holding[word] * RARE <= where.passages]
        for word in judged[:MOST_JUDGED]:
            looked_at.append(
                self._with(cursor, f"{_quoted(word)} AND ({either})", where, MOST_LOOKED_AT // 2)
            )
            weights.append(log(1 + where.passages / holding[word]))
        if not looked_at:
            return _Ids(numpy.empty(0, numpy.int64), numpy.empty(0)), holding
        ids, places = numpy.unique(numpy.concatenate(looked_at), return_inverse=True)
        scores = numpy.bincount(places, numpy.repeat(weights, list(map(len, looked_at))))
        counting = counting_in(ids, where)
        return _spread(ids[counting], scores[counting], where), holding

    def _holding(self, cursor: sqlite3.Cursor, word: str, where: Where, most: int) -> int:
        """How many passages hold a word, estimated by the newest where there are many."""
        holding, searched = 0, sum(where.sizes.values())
        for first, last in where.spans:
            count, oldest = cursor.execute(
                "SELECT count(*), min(rowid) FROM (SELECT rowid FROM passage_words"
                " WHERE passage_words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)",
                (_quoted(word), first, last, most),
            ).fetchone()
            if count == most:
                among = max(where.since(oldest) - where.since(last + 1), count)
                within = min(where.since(first) - where.since(last + 1), searched)
                count = count * max(within, among) // among
            holding += count
        if where.sessions is None or not holding:
            return holding
        return max(holding * where.passages // max(searched, 1), 1)

    def _with(self, cursor: sqlite3.Cursor, match: str, where: Where, limit: int) -> NDArray[int64]:
        """The newest passages that match, as far as their sessions count. One text of numbers is read much
        faster than a row for each."""
        import numpy

        found = [numpy.empty(0, numpy.int64)]
        for first, last in where.spans:
            (ids,) = cursor.execute(
                "SELECT json_group_array(rowid) FROM (SELECT rowid FROM passage_words"
                " WHERE passage_words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)",
                (match, first, last, limit),
            ).fetchone()
            found.append(numpy.array(json.loads(ids), numpy.int64))
        ids = numpy.concatenate(found)
        return ids[in_sessions(ids, where)]

    def _masked(self, cursor: sqlite3.Cursor, passages: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """Passages' texts without secrets, looked for in what stands around each in its entry."""
        entries: dict[tuple[int, int], dict[int, str]] = {}
        texts: list[tuple[int, str]] = []
        for id, _ in passages:
            (number,) = cursor.execute("SELECT seq FROM passage WHERE id = ?", (id,)).fetchone()
            entry = (id >> indexing.NUMBER, number)
            if entry not in entries:
                entries[entry] = self._without_private_keys(cursor, *entry)
            around = {
                near: entries[entry][near]
                for near in range(id - AS_FAR, id + AS_FAR + 1)
                if near in entries[entry]
            }
            texts.append((id, dict(zip(around, masked_pieces([*around.values()]), strict=True))[id]))
        return texts

    def _without_private_keys(self, cursor: sqlite3.Cursor, session: int, number: int) -> dict[int, str]:
        """The passages of an entry, by their ids; without any secret where it holds a private key, since a
        block of these may be of any length."""
        query = "SELECT id, text FROM passage WHERE id BETWEEN ? AND ? ORDER BY id"
        ids = span(cursor, session, number, number)
        texts = dict(cursor.execute(query, ids).fetchall())
        if PRIVATE_KEY not in "".join(texts.values()):
            return texts
        return dict(zip(texts, masked_pieces([*texts.values()]), strict=True))

    def _passages(self, cursor: sqlite3.Cursor, ids: NDArray[int64]) -> list[Passage]:
        rows = cursor.execute(
            "SELECT id, seq, part, kind, time, text, words FROM passage"
            " WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
            (json.dumps(ids.tolist()),),
        ).fetchall()
        names: dict[int, str] = {}
        for session in {row[0] >> indexing.NUMBER for row in rows}:
            query = "SELECT name FROM session WHERE id = ?"
            names[session] = cursor.execute(query, (session,)).fetchone()[0]
        return [
            Passage(
                id, names[id >> indexing.NUMBER], seq, part, KINDS[kind], time, text, tuple(words.split())
            )
            for id, seq, part, kind, time, text, words in rows
        ]


def _part_with(cursor: sqlite3.Cursor, embedder: str, length: int) -> None:
    """Let an embedder's vectors of another length be another embedder's, of a name that nobody asks for."""
    row = cursor.execute("SELECT id FROM embedder WHERE name = ?", (embedder,)).fetchone()
    kept = dimensions(cursor, row[0]) if row else None
    if kept is None:
        # The centre is that of vectors which are gone, perhaps of another length.
        cursor.execute("UPDATE embedder SET centre = NULL WHERE name = ?", (embedder,))
    elif kept != length:
        renamed = f"{embedder} of {kept} numbers, until {now()}"
        cursor.execute("UPDATE embedder SET name = ? WHERE id = ?", (renamed, row[0]))


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _spread(ids: NDArray[int64], scores: NDArray[Any], where: Where) -> _Ids:
    """Passages with their scores, sorted by ids: each of the best counts for its neighbours as well."""
    import numpy

    best = _first(_Ids(ids, scores), SPREADING)
    steps = range(-BESIDE, BESIDE + 1)
    near = numpy.concatenate([ids[best] + step for step in steps])
    weights = numpy.concatenate([scores[best] * FADING ** abs(step) for step in steps])
    near, places = numpy.unique(near, return_inverse=True)
    sums = numpy.bincount(places, weights)
    counting = within(near, where.spans) & counting_in(near, where)
    return _Ids(near[counting], sums[counting])


def _best(ways: Sequence[_Ids]) -> NDArray[int64]:
    """The candidates, sorted: the best of all ways to find them together, in shares of each one's best."""
    import numpy

    ids, places = numpy.unique(numpy.concatenate([way.ids for way in ways]), return_inverse=True)
    shares = [way.scores / max(float(way.scores.max(initial=0.0)), 1e-9) for way in ways]
    together = _Ids(ids, numpy.bincount(places, numpy.concatenate(shares), len(ids)))
    first = [way.ids[_first(way, BY_ONE)] for way in ways]
    chosen = numpy.concatenate([*first, ids[_first(together, CANDIDATES)]])
    # In which place each comes first, and how many passages all up to there are.
    places = numpy.unique(_beside(chosen), return_index=True)[1] // (2 * BESIDE + 1)
    fitting = numpy.searchsorted(numpy.bincount(places, minlength=len(chosen)).cumsum(), TOGETHER, "right")
    return numpy.unique(chosen[:fitting])


def _beside(ids: NDArray[int64]) -> NDArray[int64]:
    """The ids with those around them, one after the other."""
    import numpy

    return (ids[:, None] + numpy.arange(-BESIDE, BESIDE + 1)).ravel()


def _first(found: _Ids, count: int) -> NDArray[int64]:
    """Places of the highest scores; of two that are alike, the newer one's."""
    import numpy

    return numpy.lexsort((-found.ids, -found.scores))[:count]
