"""Vectors in memory: which passages are nearest to a query.

Few are compared exactly. Of many, only the signs of their numbers are read and kept (one bit each, 64 bytes
for 512 numbers): these are compared first, the nearest of them once more with the query's own numbers, and
the nearest of these exactly, so that a million fit in memory, are read in a second, and are searched
without an index that must be built.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import bool_, float32, int64, uint8
    from numpy.typing import NDArray

#: Vectors that are kept as they are and compared exactly.
EXACT = 50_000
#: An embedder's vectors when the centre is chosen that their signs are taken from, and those that are looked
#: at for it. Fewer than `EXACT`, so that all have signs when they are needed.
CENTRED, LOOKED_AT = 5_000, 2_000
#: Of many: columns of 64 signs that all are compared by (three times 64 still fit into a byte); those that
#: are compared by all their signs then; of these, by the query's own numbers; and of these exactly.
GLANCED, KEPT, SHORTLISTED, RESCORED = 3, 12_000, 2_048, 600
#: Of many, those whose cosines tell mean and deviation.
SAMPLED = 1_000
#: Rows that are read at once, and vectors whose signs are compared at once.
AT_ONCE = 32_768

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
        self._kept: _Exact | _Signs | None = None
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
        if isinstance(self._kept, _Exact) and len(self._kept) + newest - self._newest > EXACT:
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
        if isinstance(kept, _Exact):
            cosines = kept.vectors @ vector
            mine = counts(kept.ids)
            return Nearest(kept.ids[mine], cosines[mine], _likeness(cosines), float(cosines.min()))
        if not len(kept.sample):
            kept.learn(self._sample(cursor, kept, len(vector)))
        sample = kept.sample @ vector
        ids = numpy.sort(kept.nearest(vector, counts))
        cosines = self._vectors(cursor, ids, len(vector)) @ vector
        return Nearest(ids, cosines, _likeness(sample), float(sample.min()))

    def of(self, cursor: sqlite3.Cursor, ids: NDArray[int64], dimensions: int) -> NDArray[float32]:
        """The vectors of these passages, a row each; zeros where there is none."""
        import numpy

        kept = self._kept
        if dimensions == 0 or kept is None or not len(kept):
            return numpy.zeros((len(ids), dimensions), numpy.float32)
        if not isinstance(kept, _Exact):
            return self._vectors(cursor, ids, dimensions)
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
        self._kept = _Signs(numpy.frombuffer(row[0], "<f4")) if many else _Exact()
        self._newest = 0

    def _read(self, cursor: sqlite3.Cursor, first: int, last: int, newest: int) -> None:
        import numpy

        if isinstance(self._kept, _Signs):
            query = (
                "SELECT passage, bits FROM sign WHERE vector > ? AND vector <= ? AND passage BETWEEN ? AND ?"
            )
        elif self._newest == 0:
            # The plus signs choose the index: by passage at first, by arrival afterwards.
            query = "SELECT passage, body FROM vector WHERE +id > ? AND +id <= ? AND passage BETWEEN ? AND ?"
        else:
            query = "SELECT passage, body FROM vector WHERE id > ? AND id <= ? AND +passage BETWEEN ? AND ?"
        arguments = (self._newest, newest, first, last, self._of[0])
        rows = cursor.execute(f"{query} AND embedder = ?", arguments)
        while (chunk := rows.fetchmany(AT_ONCE)) and self._kept is not None:
            ids = numpy.fromiter((row[0] for row in chunk), numpy.int64, len(chunk))
            self._kept.take(ids, b"".join([row[1] for row in chunk]))

    def _sample(self, cursor: sqlite3.Cursor, kept: _Signs, dimensions: int) -> NDArray[float32]:
        import numpy

        places = numpy.linspace(0, len(kept) - 1, min(len(kept), SAMPLED)).astype(numpy.int64)
        return self._vectors(cursor, numpy.unique(kept.ids[places]), dimensions)

    def _vectors(self, cursor: sqlite3.Cursor, ids: NDArray[int64], dimensions: int) -> NDArray[float32]:
        import numpy

        query = (
            "SELECT passage, body FROM vector WHERE embedder = ?"
            " AND passage IN (SELECT value FROM json_each(?))"
        )
        found = cursor.execute(query, (self._of[0], json.dumps(ids.tolist()))).fetchall()
        rows = numpy.zeros((len(ids), dimensions), numpy.float32)
        if found:
            places = numpy.searchsorted(ids, [row[0] for row in found])
            bodies = numpy.frombuffer(b"".join([row[1] for row in found]), "<f2")
            rows[places] = bodies.reshape(len(found), -1)
        return rows


@dataclass(slots=True)
class _Exact:
    """Vectors as they are."""

    ids: NDArray[int64] = field(default_factory=lambda: _empty("int64"))
    order: NDArray[int64] = field(default_factory=lambda: _empty("int64"))
    vectors: NDArray[float32] = field(default_factory=lambda: _empty("float32"))

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, ids: NDArray[int64], bodies: bytes) -> None:
        import numpy

        vectors = numpy.frombuffer(bodies, "<f2").astype(numpy.float32).reshape(len(ids), -1)
        self.vectors = numpy.concatenate([self.vectors, vectors]) if len(self) else vectors
        self.ids = numpy.concatenate([self.ids, ids])
        self.order = numpy.argsort(self.ids)


class _Signs:
    """Signs alone, in blocks: a column for each eight bytes, so that whole columns are compared at once."""

    def __init__(self, centre: NDArray[float32]) -> None:
        self.centre = centre
        self.sample: NDArray[float32] = _empty("float32")
        #: How far each number usually is from the centre.
        self.usual: NDArray[float32] = _empty("float32")
        self._ids: NDArray[int64] = _empty("int64")
        self._count = 0
        self._blocks: list[NDArray[Any]] = []

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> NDArray[int64]:
        return self._ids[: self._count]

    def learn(self, sample: NDArray[float32]) -> None:
        """What some of the vectors tell of all."""
        import numpy

        self.sample = sample
        self.usual = numpy.abs(sample - self.centre).mean(axis=0)

    def take(self, ids: NDArray[int64], bits: bytes) -> None:
        import numpy

        rows = numpy.frombuffer(bits, numpy.uint8).reshape(len(ids), -1)
        rows = numpy.pad(rows, ((0, 0), (0, -rows.shape[1] % 8))).view(numpy.uint64)
        if self._count + len(ids) > len(self._ids):
            more = max(len(ids), len(self._ids) // 8, AT_ONCE)
            self._ids = numpy.concatenate([self.ids, numpy.empty(more, numpy.int64)])
        self._ids[self._count : self._count + len(ids)] = ids
        taken = 0
        while taken < len(rows):
            at = self._count % AT_ONCE
            if at == 0:
                self._blocks.append(numpy.empty((rows.shape[1], AT_ONCE), numpy.uint64))
            part = rows[taken : taken + AT_ONCE - at]
            self._blocks[-1][:, at : at + len(part)] = part.T
            self._count += len(part)
            taken += len(part)

    def nearest(
        self, vector: NDArray[float32], counts: Callable[[NDArray[int64]], NDArray[bool_]]
    ) -> NDArray[int64]:
        """Ids of the nearest ones that count, as far as signs can tell."""
        import numpy

        asked = numpy.packbits(vector > self.centre)
        asked = numpy.pad(asked, (0, -len(asked) % 8)).view(numpy.uint64)
        mine = self._first(self._glanced(asked), counts)
        rows = self._rows(mine)
        if len(mine) > SHORTLISTED:
            distances = numpy.bitwise_count(rows ^ asked).sum(axis=1, dtype=numpy.uint16)
            nearest = numpy.argpartition(distances, SHORTLISTED)[:SHORTLISTED]
            mine, rows = mine[nearest], rows[nearest]
        if len(mine) > RESCORED:
            likeness = self._likeness(vector, rows)
            mine = mine[numpy.argpartition(-likeness, RESCORED)[:RESCORED]]
        return self.ids[mine]

    def _glanced(self, asked: NDArray[Any]) -> NDArray[uint8]:
        """In how many of the signs of the first columns each differs from what is asked."""
        import numpy

        distances = numpy.empty(len(self._blocks) * AT_ONCE, numpy.uint8)
        differing, count = numpy.empty(AT_ONCE, numpy.uint64), numpy.empty(AT_ONCE, numpy.uint8)
        for number, block in enumerate(self._blocks):
            sums = distances[number * AT_ONCE : (number + 1) * AT_ONCE]
            numpy.bitwise_count(numpy.bitwise_xor(block[0], asked[0], out=differing), out=sums)
            for column in range(1, min(GLANCED, len(asked))):
                numpy.bitwise_count(numpy.bitwise_xor(block[column], asked[column], out=differing), out=count)
                numpy.add(sums, count, out=sums)
        return distances[: self._count]

    def _first(
        self, distances: NDArray[uint8], counts: Callable[[NDArray[int64]], NDArray[bool_]]
    ) -> NDArray[int64]:
        """Places of the nearest ones that count, in order: some more than `KEPT`, as many are equal."""
        import numpy

        reached = numpy.bincount(distances).cumsum()
        wanted = KEPT
        while True:
            farthest = int(numpy.searchsorted(reached, min(wanted, self._count)))
            places = numpy.flatnonzero(distances <= farthest)
            mine = places[counts(self.ids[places])]
            if len(mine) >= KEPT // 2 or len(places) == self._count:
                return mine
            wanted *= 8

    def _rows(self, places: NDArray[int64]) -> NDArray[Any]:
        """The signs at these places, which are in order, a row each."""
        import numpy

        rows = numpy.empty((len(places), len(self._blocks[0])), numpy.uint64)
        borders = numpy.searchsorted(places, numpy.arange(len(self._blocks) + 1) * AT_ONCE)
        for block, first, last in zip(self._blocks, borders[:-1], borders[1:], strict=True):
            rows[first:last] = block[:, places[first:last] % AT_ONCE].T
        return rows

    def _likeness(self, vector: NDArray[float32], rows: NDArray[Any]) -> NDArray[float32]:
        """What the query's own numbers say to these signs, each as much as a sign there tells."""
        import numpy

        bits = numpy.unpackbits(rows.view(numpy.uint8), axis=1, count=len(vector))
        likeness: NDArray[float32] = bits.astype(numpy.float32) @ (vector * self.usual)
        return likeness


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


def _empty(type: str) -> Any:
    import numpy

    return numpy.empty(0, type)
