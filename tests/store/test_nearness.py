"""Vectors that are compared by their signs: whom a query reaches, and what may not be lost."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.store.nearness import AT_ONCE, LEFT, SHORTLISTED, Exact, Signs


def units(count: int, dimensions: int, seed: int = 1) -> Any:
    rows = numpy.random.default_rng(seed).standard_normal((count, dimensions), numpy.float32)
    rows = (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).astype("<f2")
    return rows.astype(numpy.float32)


def signs_of(rows: Any, *, at_once: int = 1_000) -> Signs:
    """Kept as they come, some at a time; passage and vector ids tell the row."""
    centre = rows.mean(axis=0)
    kept = Signs(centre)
    bits = numpy.packbits(rows > centre, axis=1)
    for first in range(0, len(rows), at_once):
        part = numpy.arange(first, min(first + at_once, len(rows)), dtype=numpy.int64)
        kept.take(part * 3, part * 2, bits[part].tobytes())
    kept.learn(rows[:: max(len(rows) // 500, 1)])
    return kept


def every(ids: Any) -> Any:
    return numpy.ones(len(ids), bool)


@pytest.mark.parametrize("dimensions", [64, 96, 192, 200, 512])
def test_of_many_the_nearest_are_among_those_that_are_left(dimensions: int) -> None:
    rows = units(AT_ONCE + 5_000, dimensions)
    kept = signs_of(rows)
    assert len(kept) == len(rows)
    assert kept.ids.tolist() == (numpy.arange(len(rows)) * 3).tolist()
    assert kept.vector_ids.tolist() == (numpy.arange(len(rows)) * 2).tolist()
    found = 0
    for asked in rows[:: len(rows) // 20]:
        near = 0.8 * asked + 0.2 * units(1, dimensions, 9)[0]
        places = kept.nearest(near / numpy.linalg.norm(near), every)
        assert len(places) == len(set(places.tolist())) == LEFT
        found += int(numpy.argmax(rows @ near)) in places
    assert found >= 20


@lru_cache
def many(dimensions: int) -> Signs:
    return signs_of(units(40_000, dimensions))


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 39_999), max_size=40), st.integers(0, 99), st.sampled_from([64, 130, 512]))
def test_however_few_count_among_many_all_of_them_are_found(
    few: set[int], seed: int, dimensions: int
) -> None:
    asked, counted = units(1, dimensions, seed)[0], [number * 3 for number in few]
    places = many(dimensions).nearest(asked, lambda ids: numpy.isin(ids, counted))
    assert set(places.tolist()) == few


@pytest.mark.parametrize("count", [1, LEFT, LEFT + 1, SHORTLISTED, SHORTLISTED + 1, AT_ONCE, AT_ONCE + 1])
def test_at_every_border_as_many_are_left_as_there_is_room_for(count: int) -> None:
    kept = signs_of(units(count, 64))
    assert len(kept.nearest(units(1, 64, 5)[0], every)) == min(count, LEFT)


def test_a_few_are_kept_as_they_are() -> None:
    rows = units(10, 32)
    kept = Exact()
    for first in (0, 4):
        part = numpy.arange(first, first + (4 if first == 0 else 6), dtype=numpy.int64)
        kept.take(part[::-1] * 3, part, rows[part[::-1]].astype("<f2").tobytes())
    assert len(kept) == 10
    assert kept.ids[kept.order].tolist() == [number * 3 for number in range(10)]
    assert numpy.allclose(kept.vectors[kept.order], rows)
