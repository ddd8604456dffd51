"""Which passages are nearest to a query: vectors that stand in the file, read into memory and searched.

Few are compared exactly. Of many, only the signs of their numbers are read and kept
(`perdure.store.nearness`), and the nearest by these are compared exactly, so that a million fit in memory,
are read in a second, and are searched without an index that must be built.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.store.nearness import Exact, Signs

if TYPE_CHECKING:
    from numpy import bool_, float32, int64
    from numpy.typing import NDArray

#: Vectors that are kept as they are and compared exactly.
EXACT = 50_000
#: An embedder's vectors when the centre is chosen that their signs are taken from, and those that are looked
#: at for it. Fewer than `EXACT`, so that all have signs when they are needed.
CENTRED, LOOKED_AT = 5_000, 2_000
#: Of many, those whose cosines tell mean and deviation.
SAMPLED = 1_000
#: Rows that are read at once.
AT_ONCE = 32_768

#: How vectors are read: by their own ids, sooner than by their passages'.
VECTORS_BY = {
    "id": "SELECT id, body FROM vector WHERE embedder = ? AND id IN (SELECT value FROM json_each(?))",
    "passage": "SELECT passage, body FROM vector"
    " WHERE embedder = ? AND passage IN (SELECT value FROM json_each(?))",
}

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Nearest:
    """Passages and their cosines with a query; of all of them mean and deviation, and about the lowest."""

    ids: NDArray[int64]
    cosines: NDArray[float32]
    likeness: tuple[float, float]
    lowest: float


class Vectors:
    """The vectors of one embedder in spans of passage ids; read once, then only what came since."""

    def __init__(self) -> None:
        self._of = (-1, -1)
        self._spans: Spans = ()
        self._kept: Exact | Signs | None = None
        self._newest = 0  # of all that were read or passed over

    def load(self, cursor: sqlite3.Cursor, embedder: str, spans: Spans, length: int) -> None:
        """Read what has come; all of it, where something else is asked for or vectors were removed. Nothing,
        where the embedder's vectors aren't of the query's length."""
        row = cursor.execute("SELECT id FROM embedder WHERE name = ?", (embedder,)).fetchone()
        known = row[0] if row and dimensions(cursor, row[0]) in {None, length} else -1
        (dropped,) = cursor.execute("SELECT dropped FROM archive").fetchone()
        if (known, dropped) != self._of or not _within(spans, self._spans):
            self._of, self._spans = (known, dropped), tuple(spans)
            self._begin(cursor)
        (newest,) = cursor.execute("SELECT coalesce(max(id), 0) FROM vector").fetchone()
        if newest == self._newest:
            return
        if isinstance(self._kept, Exact) and len(self._kept) + newest - self._newest > EXACT:
            self._begin(cursor)
        for first, last in self._spans:
            self._read(cursor, first, last, newest)
        self._newest = newest

    def nearest(
        self,
        cursor: sqlite3.Cursor,
        vector: NDArray[float32],
        spans: Spans,
        counting: Callable[[NDArray[int64]], NDArray[bool_]],
    ) -> Nearest:
        """The nearest ones of those in the spans that ``counting`` tells by their ids; mean, deviation and
        the lowest of all that were loaded."""
        import numpy

        def counts(ids: NDArray[int64]) -> NDArray[bool_]:
            return counting(ids) if tuple(spans) == self._spans else counting(ids) & within(ids, spans)

        kept = self._kept
        if kept is None or not len(kept):
            return Nearest(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.float32), (0.0, 1.0), 0.0)
        if isinstance(kept, Exact):
            cosines = numpy.vecdot(kept.vectors, vector)
            mine = counts(kept.ids)
            return Nearest(kept.ids[mine], cosines[mine], _likeness(cosines), float(cosines.min()))
        if not len(kept.sample):
            kept.learn(self._sample(cursor, kept, len(vector)))
        sample = numpy.vecdot(kept.sample, vector)
        places = kept.nearest(vector, counts)
        cosines = numpy.vecdot(self._vectors_at(cursor, kept, places, len(vector)), vector)
        return Nearest(kept.ids[places], cosines, _likeness(sample), float(sample.min()))

    def of(self, cursor: sqlite3.Cursor, ids: NDArray[int64], dimensions: int) -> NDArray[float32]:
        """The vectors of these passages, a row each; zeros where there is none."""
        import numpy

        kept = self._kept
        if dimensions == 0 or kept is None or not len(kept):
            return numpy.zeros((len(ids), dimensions), numpy.float32)
        if not isinstance(kept, Exact):
            return self._vectors(cursor, "passage", ids, dimensions)
        rows = numpy.zeros((len(ids), dimensions), numpy.float32)
        there = kept.order[numpy.minimum(numpy.searchsorted(kept.ids, ids, sorter=kept.order), len(kept) - 1)]
        known = kept.ids[there] == ids
        rows[known] = kept.vectors[there[known]]
        return rows

    def _begin(self, cursor: sqlite3.Cursor) -> None:
        import numpy

        row = cursor.execute("SELECT centre FROM embedder WHERE id = ?", (self._of[0],)).fetchone()
        query = "SELECT count(*) FROM (SELECT 1 FROM vector WHERE passage BETWEEN ? AND ? LIMIT ?)"
        held = (cursor.execute(query, (*span, EXACT + 1)).fetchone()[0] for span in self._spans)
        many = row is not None and row[0] is not None and sum(held) > EXACT
        self._kept = Signs(numpy.frombuffer(row[0], "<f4")) if many else Exact()
        self._newest = 0

    def _read(self, cursor: sqlite3.Cursor, first: int, last: int, newest: int) -> None:
        import numpy

        if isinstance(self._kept, Signs):
            query = (
                "SELECT passage, vector, bits FROM sign"
                " WHERE vector > ? AND vector <= ? AND passage BETWEEN ? AND ?"
            )
        elif self._newest == 0:
            # The plus signs choose the index: by passage at first, by arrival afterwards.
            query = (
                "SELECT passage, id, body FROM vector WHERE +id > ? AND +id <= ? AND passage BETWEEN ? AND ?"
            )
        else:
            query = (
                "SELECT passage, id, body FROM vector WHERE id > ? AND id <= ? AND +passage BETWEEN ? AND ?"
            )
        arguments = (self._newest, newest, first, last, self._of[0])
        rows = cursor.execute(f"{query} AND embedder = ?", arguments)
        while (chunk := rows.fetchmany(AT_ONCE)) and self._kept is not None:
            ids, vector_ids = (
                numpy.fromiter((row[which] for row in chunk), numpy.int64, len(chunk)) for which in (0, 1)
            )
            self._kept.take(ids, vector_ids, b"".join([row[2] for row in chunk]))

    def _sample(self, cursor: sqlite3.Cursor, kept: Signs, dimensions: int) -> NDArray[float32]:
        import numpy

        places = numpy.linspace(0, len(kept) - 1, min(len(kept), SAMPLED)).astype(numpy.int64)
        return self._vectors_at(cursor, kept, numpy.unique(places), dimensions)

    def _vectors_at(
        self, cursor: sqlite3.Cursor, kept: Signs, places: NDArray[int64], dimensions: int
    ) -> NDArray[float32]:
        """The vectors at these places, a row each."""
        import numpy

        ids = kept.vector_ids[places]
        order = numpy.argsort(ids)
        rows = numpy.empty((len(ids), dimensions), numpy.float32)
        rows[order] = self._vectors(cursor, "id", ids[order], dimensions)
        return rows

    def _vectors(
        self, cursor: sqlite3.Cursor, by: str, ids: NDArray[int64], dimensions: int
    ) -> NDArray[float32]:
        """The vectors with these ids in the column ``by``, which are in order; zeros where there is none."""
        import numpy

        found = cursor.execute(VECTORS_BY[by], (self._of[0], json.dumps(ids.tolist()))).fetchall()
        rows = numpy.zeros((len(ids), dimensions), numpy.float32)
        if found:
            places = numpy.searchsorted(ids, [row[0] for row in found])
            bodies = numpy.frombuffer(b"".join([row[1] for row in found]), "<f2")
            rows[places] = bodies.reshape(len(found), -1)
        return rows


def dimensions(cursor: sqlite3.Cursor, embedder: int) -> int | None:
    """How many numbers the vectors of an embedder have; None where there is none."""
    row = cursor.execute(
        "SELECT length(body) / 2 FROM vector"
        " WHERE passage = (SELECT id FROM passage WHERE embedder = ? LIMIT 1)",
        (embedder,),
    ).fetchone()
    return int(row[0]) if row else None


def keep_signs(cursor: sqlite3.Cursor, embedder: int, vectors: Sequence[tuple[int, int, bytes]]) -> None:
    """Keep the signs of vectors: ids, passages and bodies. Once there are enough to tell the centre,
    from which signs are taken, those of all before them too."""
    import numpy

    (centre,) = cursor.execute("SELECT centre FROM embedder WHERE id = ?", (embedder,)).fetchone()
    if centre is None:
        centre = _centre(cursor, embedder)
        if centre is None:
            return
        cursor.execute("UPDATE embedder SET centre = ? WHERE id = ?", (centre, embedder))
        query = "SELECT id, passage, body FROM vector WHERE embedder = ?"
        vectors = cursor.execute(query, (embedder,)).fetchall()
    if not vectors:
        return
    bodies = numpy.frombuffer(b"".join(body for *_, body in vectors), "<f2").reshape(len(vectors), -1)
    signs = numpy.packbits(bodies > numpy.frombuffer(centre, "<f4"), axis=1)
    cursor.executemany(
        "INSERT INTO sign (vector, passage, embedder, bits) VALUES (?, ?, ?, ?)",
        (
            (id, passage, embedder, bits.tobytes())
            for (id, passage, _), bits in zip(vectors, signs, strict=True)
        ),
    )


def _centre(cursor: sqlite3.Cursor, embedder: int) -> bytes | None:
    import numpy

    query = "SELECT count(*) FROM (SELECT 1 FROM passage WHERE embedder = ? LIMIT ?)"
    if cursor.execute(query, (embedder, CENTRED)).fetchone()[0] < CENTRED:
        return None
    query = "SELECT body FROM vector WHERE embedder = ? AND id IN (SELECT value FROM json_each(?))"
    ids = [row[0] for row in cursor.execute("SELECT id FROM vector WHERE embedder = ?", (embedder,))]
    sampled = json.dumps(ids[:: max(len(ids) // LOOKED_AT, 1)])
    rows = cursor.execute(query, (embedder, sampled))
    bodies = [numpy.frombuffer(row[0], "<f2").astype(numpy.float32) for row in rows]
    return bytes(numpy.mean(bodies, axis=0, dtype=numpy.float32).astype("<f4").tobytes())


def within(ids: NDArray[int64], spans: Spans) -> NDArray[bool_]:
    """Which ids lie in one of the spans."""
    import numpy

    inside = numpy.zeros(len(ids), bool)
    for first, last in spans:
        inside |= (ids >= first) & (ids <= last)
    return inside


def _within(spans: Spans, wider: Spans) -> bool:
    return all(any(low <= first and last <= high for low, high in wider) for first, last in spans)


def _likeness(cosines: NDArray[float32]) -> tuple[float, float]:
    return float(cosines.mean()), max(float(cosines.std()), 1e-6)
