"""Vectors in memory, compared with a query's: a few as they are, many by their signs.

A sign is one bit for each number, set where it is above the centre of all. Of many vectors signs alone
are kept, 64 bytes for 512 numbers: the first of them are compared for all, the others for the nearest,
and what the query's own numbers say to them for the nearest of these. Which are nearest in truth, their
numbers tell, where they are kept. Products are numpy's `vecdot`, since those of a BLAS wake threads that
take longer than the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import bool_, float32, int64, uint8
    from numpy.typing import NDArray

#: Columns of 64 signs that all are compared by (three times 64 still fit into a byte); those that are
#: compared by all their signs then; of these, by the query's own numbers; and those that are left.
GLANCED, KEPT, SHORTLISTED, LEFT = 3, 12_000, 2_048, 600
#: Vectors whose signs are compared at once.
AT_ONCE = 32_768


@dataclass(slots=True)
class Exact:
    """Vectors as they are."""

    ids: NDArray[int64] = field(default_factory=lambda: _empty("int64"))
    order: NDArray[int64] = field(default_factory=lambda: _empty("int64"))
    vectors: NDArray[float32] = field(default_factory=lambda: _empty("float32"))

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, ids: NDArray[int64], vector_ids: NDArray[int64], bodies: bytes) -> None:
        import numpy

        taken = numpy.frombuffer(bodies, "<f2").astype(numpy.float32).reshape(len(ids), -1)
        self.vectors = numpy.concatenate([self.vectors, taken]) if len(self) else taken
        self.ids = numpy.concatenate([self.ids, ids])
        self.order = numpy.argsort(self.ids)


class Signs:
    """Signs alone, in blocks of 64: the first ones a column each, so that whole columns are compared at once,
    the others a row for each vector, since they are compared for a few."""

    def __init__(self, centre: NDArray[float32]) -> None:
        self.centre = centre
        self.sample: NDArray[float32] = _empty("float32")
        #: How far each number usually is from the centre.
        self.usual: NDArray[float32] = _empty("float32")
        #: Of each vector its passage's id and its own.
        self._ids: NDArray[int64] = _empty("int64").reshape(2, 0)
        self._count = 0
        self._columns: list[NDArray[Any]] = []
        self._rows: list[NDArray[Any]] = []

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> NDArray[int64]:
        """The ids of the passages."""
        return self._ids[0, : self._count]

    @property
    def vector_ids(self) -> NDArray[int64]:
        """The ids of the vectors."""
        return self._ids[1, : self._count]

    def learn(self, sample: NDArray[float32]) -> None:
        """What some of the vectors tell of all."""
        import numpy

        self.sample = sample
        self.usual = numpy.abs(sample - self.centre).mean(axis=0)

    def take(self, ids: NDArray[int64], vector_ids: NDArray[int64], bits: bytes) -> None:
        import numpy

        signs = numpy.frombuffer(bits, numpy.uint8).reshape(len(ids), -1)
        signs = numpy.pad(signs, ((0, 0), (0, -signs.shape[1] % 8))).view(numpy.uint64)
        if self._count + len(ids) > self._ids.shape[1]:
            more = max(len(ids), self._ids.shape[1] // 8, AT_ONCE)
            self._ids = numpy.pad(self._ids, ((0, 0), (0, more)))
        self._ids[:, self._count : self._count + len(ids)] = ids, vector_ids
        taken = 0
        while taken < len(signs):
            at = self._count % AT_ONCE
            if at == 0:
                first = signs[:, :GLANCED].shape[1]
                self._columns.append(numpy.empty((first, AT_ONCE), numpy.uint64))
                self._rows.append(numpy.empty((AT_ONCE, signs.shape[1] - first), numpy.uint64))
            part = signs[taken : taken + AT_ONCE - at]
            self._columns[-1][:, at : at + len(part)] = part[:, :GLANCED].T
            self._rows[-1][at : at + len(part)] = part[:, GLANCED:]
            self._count += len(part)
            taken += len(part)

    def nearest(
        self, vector: NDArray[float32], counts: Callable[[NDArray[int64]], NDArray[bool_]]
    ) -> NDArray[int64]:
        """Places of the nearest ones that count, as far as signs can tell."""
        import numpy

        asked = numpy.packbits(vector > self.centre)
        asked = numpy.pad(asked, (0, -len(asked) % 8)).view(numpy.uint64)
        glanced = self._glanced(asked)
        mine = self._first(glanced, counts)
        if len(mine) > SHORTLISTED:
            others = self._at(mine, self._rows) ^ asked[GLANCED:]
            distances = glanced[mine] + numpy.bitwise_count(others).sum(axis=1, dtype=numpy.uint16)
            mine = numpy.sort(mine[numpy.argpartition(distances, SHORTLISTED)[:SHORTLISTED]])
        if len(mine) > LEFT:
            first = self._at(mine, [columns.T for columns in self._columns])
            likeness = self._likeness(vector, numpy.hstack([first, self._at(mine, self._rows)]))
            mine = mine[numpy.argpartition(-likeness, LEFT)[:LEFT]]
        return mine

    def _glanced(self, asked: NDArray[Any]) -> NDArray[uint8]:
        """In how many of the signs of the first columns each differs from what is asked."""
        import numpy

        distances = numpy.empty(len(self._columns) * AT_ONCE, numpy.uint8)
        differing, count = numpy.empty(AT_ONCE, numpy.uint64), numpy.empty(AT_ONCE, numpy.uint8)
        for number, columns in enumerate(self._columns):
            sums = distances[number * AT_ONCE : (number + 1) * AT_ONCE]
            numpy.bitwise_count(numpy.bitwise_xor(columns[0], asked[0], out=differing), out=sums)
            for column in range(1, len(columns)):
                numpy.bitwise_xor(columns[column], asked[column], out=differing)
                numpy.add(sums, numpy.bitwise_count(differing, out=count), out=sums)
        return distances[: self._count]

    def _first(
        self, distances: NDArray[uint8], counts: Callable[[NDArray[int64]], NDArray[bool_]]
    ) -> NDArray[int64]:
        """Places of the nearest ones that count, in order: about `KEPT`, as many are equal."""
        import numpy

        # Some tell about how far these reach.
        every = 1 + self._count // AT_ONCE
        reached = numpy.bincount(distances[::every]).cumsum() * every
        wanted = KEPT
        while True:
            farthest = numpy.searchsorted(reached, wanted) if wanted < self._count else 255
            places = numpy.flatnonzero(distances <= farthest)
            mine = places[counts(self.ids[places])]
            if len(mine) >= KEPT // 2 or len(places) == self._count:
                return mine
            wanted *= 8

    def _at(self, places: NDArray[int64], blocks: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The rows at these places, which are in order."""
        import numpy

        rows = numpy.empty((len(places), blocks[0].shape[1]), numpy.uint64)
        borders = numpy.searchsorted(places, numpy.arange(len(blocks) + 1) * AT_ONCE)
        for block, first, last in zip(blocks, borders[:-1], borders[1:], strict=True):
            rows[first:last] = block[places[first:last] % AT_ONCE]
        return rows

    def _likeness(self, vector: NDArray[float32], signs: NDArray[Any]) -> NDArray[float32]:
        """What the query's own numbers say to these signs, each as much as a sign there tells."""
        import numpy

        # What each byte of signs is worth at each place, so that eight are looked up at once.
        bits = numpy.unpackbits(numpy.arange(256, dtype=numpy.uint8)[:, None], axis=1)
        weights = numpy.pad(vector * self.usual, (0, -len(vector) % 64)).reshape(-1, 8)
        worth = numpy.vecdot(weights[:, None], bits.astype(numpy.float32))
        likeness: NDArray[float32] = worth[numpy.arange(len(worth)), signs.view(numpy.uint8)].sum(axis=1)
        return likeness


def _empty(type: str) -> Any:
    import numpy

    return numpy.empty(0, type)
