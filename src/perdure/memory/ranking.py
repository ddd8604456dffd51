"""Which passages matter to a query. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from perdure.memory.passages import Passage, Pool, Query


@dataclass(frozen=True, slots=True)
class Scored:
    passage: Passage
    score: float


def ranked(query: Query, pool: Pool) -> list[Scored]:
    """The candidates, best first."""
    import numpy

    if not pool.passages:
        return []
    words = numpy.array([_words(query, each, pool) for each in pool.passages])
    scores = words / (words.std() or 1.0)
    if query.vector is not None:
        mean, deviation = pool.corpus.likeness
        there = numpy.any(pool.vectors != 0, axis=1)
        scores = scores + numpy.where(there, (pool.vectors @ query.vector - mean) / deviation, 0.0)
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], -pool.passages[at].id))
    return [Scored(pool.passages[at], float(scores[at])) for at in order if pool.candidate[at]]


def relevant(query: Query, pool: Pool, scored: Sequence[Scored]) -> list[Scored]:
    """Those of them that are about what is asked."""
    return [each for each in scored if _words(query, each.passage, pool) > 4]


def within(scored: Sequence[Scored], limit: int, count: Callable[[Passage], int]) -> list[Passage]:
    """The best ones that fit ``limit`` tokens, in the order in which they happened."""
    chosen: list[Passage] = []
    for each in scored:
        tokens = count(each.passage)
        if tokens <= limit:
            limit -= tokens
            chosen.append(each.passage)
    return sorted(chosen, key=lambda passage: passage.id)


def _words(query: Query, passage: Passage, pool: Pool) -> float:
    held = set(passage.words)
    return sum(
        log(1 + pool.corpus.passages / max(pool.corpus.holding.get(word, 1), 1))
        for word in dict.fromkeys(query.words)
        if word in held
    )
