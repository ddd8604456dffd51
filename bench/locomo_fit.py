"""The weights of `perdure.memory.ranking`, fitted on four conversations of LoCoMo.

    python bench/locomo_fit.py LOCOMO10.json

Prints the table `WEIGHTS` to put there: with vectors, and by words alone. Of each question of the first
four conversations, once in its own conversation and once with all four in one memory, every passage that is
evidence is set against all candidates that aren't: log-odds that are linear in the signs, with a
small penalty for large weights (`locomo.py` says what the data are).

What people say to each other isn't what an agent does, so bounds keep the table from learning what holds
there alone: no likeness speaks against a passage, its own words and meaning count for more than its
neighbours', and its length for little. On the four, each left out in turn, this costs nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from locomo import FITTED, Conversation, Memory, Question, memory, read
from perdure.memory.ranking import WEIGHTS
from perdure.memory.signs import signs
from perdure.models.embedder import SentenceEncoder

#: Signs that must not speak against a passage, and the least and the most that some may weigh.
LIKENESSES = ("words", "share", "meaning", "day")
LEAST = {"share": 3.0, "meaning": 2.5}
MOST = {"words -1": 1.5, "length": 1.0}
#: Those that are fitted; of the others there is nothing to learn here.
FITTED_SIGNS = [name for name in WEIGHTS if name not in ("verbatim", "echo")]
PENALTY, ROUNDS = 1e-3, 1_500


class Samples:
    """Candidates of all questions below one another: their signs, whether each is evidence, of which
    question it is."""

    def __init__(self, names: Sequence[str], memory: Memory, questions: Sequence[Question], vectors: bool):
        self.names = names
        found = [each for each in self._each(memory, questions, vectors) if each[1].any()]
        self.signs = numpy.concatenate([each for each, _ in found])
        self.evidence = numpy.concatenate([each for _, each in found])
        self.starts = numpy.cumsum([0, *(len(each) for _, each in found)])[:-1]
        self.question = numpy.repeat(numpy.arange(len(found)), [len(each) for _, each in found])

    def _each(
        self, memory: Memory, questions: Sequence[Question], vectors: bool
    ) -> Iterator[tuple[Any, Any]]:
        for lives in (False, True):
            for question in questions:
                query, pool = memory.pool(question, lives, vectors, hidden=False)
                evidence = {(memory.conversations[which].name, turn + 1) for which, turn in question.evidence}
                places = numpy.flatnonzero(pool.candidate)
                passages = [pool.passages[at] for at in places]
                found = signs(query, pool)
                columns = numpy.stack([found[name][places] for name in self.names], 1)
                yield columns, numpy.array([(each.session, each.entry) in evidence for each in passages])

    def loss(self, weights: Any) -> tuple[float, Any]:
        """Of weights, with its gradient: minus the logarithm of the odds of evidence."""
        scores = self.signs @ weights
        highest = numpy.maximum.reduceat(scores, self.starts)
        odds = numpy.exp(scores - highest[self.question])
        others = numpy.add.reduceat(odds * ~self.evidence, self.starts)
        of = self.question[self.evidence]
        total = odds[self.evidence] + others[of]
        share = 1 / numpy.bincount(of)[of] / len(self.starts)
        slope = numpy.bincount(of, share / total)[self.question] * odds
        slope[self.evidence] = share * (odds[self.evidence] / total - 1)
        loss = -(share * numpy.log(numpy.maximum(odds[self.evidence] / total, 1e-300))).sum()
        return float(loss), self.signs.T @ slope


def fitted(samples: Samples) -> dict[str, float]:
    """Accelerated descent within the bounds, over signs of equal spread."""
    names = samples.names
    spread = samples.signs.std(axis=0) + 1e-9
    samples.signs /= spread
    least = [LEAST.get(name, 0.0 if name.startswith(LIKENESSES) else -numpy.inf) for name in names]
    most = [MOST.get(name, numpy.inf) for name in names]
    bounds = numpy.array(least) * spread, numpy.array(most) * spread
    weights = ahead = numpy.clip(numpy.zeros(len(names)), *bounds)
    step = 1.0
    for number in range(ROUNDS):
        loss, slope = _penalised(samples, ahead)
        while True:
            moved = numpy.clip(ahead - step * slope, *bounds)
            change = moved - ahead
            if _penalised(samples, moved)[0] <= loss + slope @ change + change @ change / (2 * step):
                break
            step /= 2
        if numpy.abs(moved - weights).max() < 1e-5:
            break
        ahead = numpy.clip(moved + number / (number + 3) * (moved - weights), *bounds)
        weights = moved
    return dict(zip(names, (weights / spread).tolist(), strict=True))


def _penalised(samples: Samples, weights: Any) -> tuple[float, Any]:
    loss, slope = samples.loss(weights)
    return loss + PENALTY * float(weights @ weights), slope + 2 * PENALTY * weights


def fit(conversations: Sequence[Conversation], questions: Sequence[Question]) -> Iterator[str]:
    """The rows of the table."""
    tables = []
    with memory(conversations, SentenceEncoder()) as made:
        for vectors in (True, False):
            names = [name for name in FITTED_SIGNS if vectors or not name.startswith("meaning")]
            tables.append(fitted(Samples(names, made, questions, vectors)))
    for name in FITTED_SIGNS:
        with_vectors, by_words = (round(table.get(name, 0.0), 2) for table in tables)
        yield f'    "{name}": ({with_vectors}, {by_words}),'


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    conversations, questions = read(parser.parse_args().data)
    chosen = [question for question in questions if question.conversation < FITTED]
    for line in fit(conversations[:FITTED], chosen):
        print(line)


if __name__ == "__main__":
    main()
