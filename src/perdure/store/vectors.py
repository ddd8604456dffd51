"""Vectors in memory: which passages are nearest to a query.

Few are compared exactly. Of many, the signs of their numbers are compared first (one bit each, 64
bytes for 512 numbers), and the nearest of these exactly, so that a million fit in memory and are
searched without an index that must be built.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32, int64, uint8, uint64
    from numpy.typing import NDArray

#: Vectors that are kept as they are and compared exactly.
EXACT = 50_000
#: Of more, those that are compared exactly after their signs.
RESCORED = 2_000
#: Of more, those whose cosines tell mean and deviation.
SAMPLED = 2_000
#: Vectors whose signs are compared at once, so that they stay in the processor's cache.
AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class Nearest:
    """Passages and their cosines with a query, and mean and deviation of all cosines."""

    ids: NDArray[int64]
    cosines: NDArray[float32]
    likeness: tuple[float, float]

    def top(self, count: int) -> NDArray[int64]:
        """Ids of the nearest ones, sorted."""
        import numpy

        order = numpy.argsort(-self.cosines, kind="stable")[:count]
        return numpy.sort(self.ids[order])


class Vectors:
    """The vectors of one embedder in spans of passage ids; read once, then only what came since."""

    def __init__(self) -> None:
        self._of: tuple[int, int, tuple[tuple[int, int], ...]] | None = None
        self._newest = 0
        self._begin()

    def load(self, cursor: sqlite3.Cursor, embedder: str, spans: Sequence[tuple[int, int]]) -> None:
        """Read what has come; all of it, where something else is asked for or vectors were removed."""
        row = cursor.execute("SELECT id FROM embedder WHERE name = ?", (embedder,)).fetchone()
        known = row[0] if row else -1
        (dropped,) = cursor.execute("SELECT dropped FROM archive").fetchone()
        wanted = (known, dropped, tuple(spans))
        if wanted != self._of:
            self._of = wanted
            self._begin()
        (newest,) = cursor.execute("SELECT coalesce(max(id), 0) FROM vector").fetchone()
        if newest == self._newest:
            return
        # The plus signs choose the index: by passage at first, by arrival afterwards.
        query = (
            "SELECT passage, body FROM vector WHERE +id > ? AND +id <= ? AND passage BETWEEN ? AND ?"
            if self._newest == 0
            else "SELECT passage, body FROM vector WHERE id > ? AND id <= ? AND +passage BETWEEN ? AND ?"
        )
        for first, last in spans:
            arguments = (self._newest, newest, first, last, known)
            rows = cursor.execute(f"{query} AND embedder = ?", arguments)
            while chunk := rows.fetchmany(AT_ONCE):
                self._take(chunk)
        self._newest = newest

    def nearest(
        self,
        cursor: sqlite3.Cursor,
        vector: NDArray[float32],
        which: Callable[[NDArray[int64]], NDArray[int64]],
    ) -> Nearest:
        """The nearest ones of those that ``which`` chooses by their places among the ids."""
        import numpy

        if not len(self._ids):
            return Nearest(self._ids, numpy.empty(0, numpy.float32), (0.0, 1.0))
        compared = self._exact if self._exact is not None else self._sample
        cosines = compared @ vector
        likeness = (float(cosines.mean()), max(float(cosines.std()), 1e-6))
        places = which(self._ids)
        if self._exact is not None:
            return Nearest(self._ids[places], cosines[places], likeness)
        distances = self._distances(vector)[places]
        if len(places) > RESCORED:
            places = places[numpy.argpartition(distances, RESCORED)[:RESCORED]]
        ids = numpy.sort(self._ids[places])
        return Nearest(ids, self.of(cursor, ids, len(vector)) @ vector, likeness)

    def of(self, cursor: sqlite3.Cursor, ids: NDArray[int64], dimensions: int) -> NDArray[float32]:
        """The vectors of these passages, a row each; zeros where there is none."""
        import numpy

        rows = numpy.zeros((len(ids), dimensions), numpy.float32)
        if dimensions == 0:
            return rows
        if self._exact is not None:
            if len(self._ids):
                places = numpy.searchsorted(self._ids, ids, sorter=self._order)
                there = self._order[numpy.minimum(places, len(self._ids) - 1)]
                known = self._ids[there] == ids
                rows[known] = self._exact[there[known]]
            return rows
        embedder = self._of[0] if self._of else -1
        query = "SELECT body FROM vector WHERE passage = ? AND embedder = ?"
        for place, id in enumerate(map(int, ids)):
            if row := cursor.execute(query, (id, embedder)).fetchone():
                rows[place] = numpy.frombuffer(row[0], "<f2")
        return rows

    def _begin(self) -> None:
        import numpy

        self._newest = 0  # of all that were read or passed over
        self._ids: NDArray[int64] = numpy.empty(0, numpy.int64)
        self._order: NDArray[int64] = numpy.empty(0, numpy.int64)
        self._exact: NDArray[float32] | None = numpy.empty((0, 0), numpy.float32)
        self._signs: NDArray[uint64] = numpy.empty((0, 0), numpy.uint64)
        self._sample: NDArray[float32] = numpy.empty((0, 0), numpy.float32)

    def _take(self, rows: Sequence[tuple[int, bytes]]) -> None:
        import numpy

        ids = numpy.array([row[0] for row in rows], numpy.int64)
        vectors = numpy.frombuffer(b"".join(row[1] for row in rows), "<f2").astype(numpy.float32)
        vectors = vectors.reshape(len(rows), -1)
        before = len(self._ids)
        self._ids = numpy.concatenate([self._ids, ids])
        if self._exact is not None:
            self._exact = numpy.concatenate([self._exact, vectors]) if before else vectors
            if len(self._ids) <= EXACT:
                self._order = numpy.argsort(self._ids)
                return
            vectors, self._exact = self._exact, None
            self._sample = vectors[:: max(len(vectors) // SAMPLED, 1)]
        signs = numpy.packbits(vectors > self._sample.mean(axis=0), axis=1)
        packed = signs.view(numpy.uint64) if signs.shape[1] % 8 == 0 else _padded(signs)
        self._signs = numpy.concatenate([self._signs, packed]) if len(self._signs) else packed

    def _distances(self, vector: NDArray[float32]) -> NDArray[int64]:
        """In how many signs each vector differs from this one."""
        import numpy

        signs = numpy.packbits(vector > self._sample.mean(axis=0))[None, :]
        packed = signs.view(numpy.uint64) if signs.shape[1] % 8 == 0 else _padded(signs)
        distances = numpy.empty(len(self._signs), numpy.int64)
        for start in range(0, len(self._signs), AT_ONCE):
            part = self._signs[start : start + AT_ONCE]
            distances[start : start + AT_ONCE] = numpy.bitwise_count(part ^ packed).sum(axis=1)
        return distances


def _padded(signs: NDArray[uint8]) -> NDArray[uint64]:
    import numpy

    return numpy.pad(signs, ((0, 0), (0, -signs.shape[1] % 8))).view(numpy.uint64)
