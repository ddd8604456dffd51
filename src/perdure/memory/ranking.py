"""Which passages matter to a query. Pure.

One linear table of weights puts the signs of `perdure.memory.signs` together; `bench/locomo_fit.py` fits it,
and without vectors there is another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from perdure.chat.messages import Kind
from perdure.memory.passages import Passage, Pool, Query, moment
from perdure.memory.signs import echoes, has_vectors, signs, weights_of
from perdure.memory.words import STOP_WORDS, is_sign, telling, words_of

#: Where nothing else tells two passages apart, the newer one: what the newest of a pool has over the oldest.
NEWER = 0.1

#: How much better a passage must be for e times its tokens, and tokens that are added to all.
PER_TOKEN, SHORTEST = 0.3, 8

#: Each sign's weight: with vectors, and by words alone. Fitted on four conversations of LoCoMo (Maharana et
#: al. 2024), each alone and all four in one memory. So that it holds elsewhere too, no likeness counts
#: against a passage, its own words count for more than its neighbours', and its length for little.
WEIGHTS: dict[str, tuple[float, float]] = {
    "words 7": (3.17, 3.83),
    "share": (3.0, 3.24),
    "share 3": (1.48, 2.16),
    "words -1": (1.5, 1.5),
    "meaning": (2.5, 0.0),
    "meaning 5": (1.96, 0.0),
    "day": (1.05, 2.51),
    "speaks": (1.1, 1.66),
    "another speaks": (-1.1, -1.67),
    "spoke near": (1.62, 2.25),
    "month": (4.16, 4.15),
    "another month": (-0.71, -0.75),
    "date": (4.07, 3.77),
    "time": (1.12, 1.07),
    "ends asking": (-1.57, -0.83),
    "answers": (1.09, 1.04),
    "length": (1.0, 1.0),
    # Not fitted, for no question of LoCoMo stands there itself.
    "verbatim": (4.0, 4.0),
    "echo": (-6.0, -6.0),
}
#: When a passage is about a request: it holds this share of what its words tell, and so much or so many of
#: them, or all of it and one word as rare as this (of a hundred passages some eight hold it); or its vector
#: is as near as this to the request's, by the beginning of the embedder's name (of another one nobody has
#: measured it, so words decide).
SHARED, TELLING, SEVERAL, RARE = 0.4, 7.0, 3, 2.5
ALIKE = {"universal-sentence-encoder-multilingual-3": 0.45, "multilingual-e5-small": 0.84}
#: The part of that which is enough for what somebody looks for.
NOT_FAR = 0.6
#: How many of the best passages are looked at for that, and how far behind the best one of these others may
#: be, in the ranking's log-odds.
LOOKED_AT, BEHIND = 10, 3.0
#: Words, and phrases of Chinese, of which a request may consist that is about nothing but what is in view.
_GOING_ON = """
again ahead alright continu correct done els fine go good great keep let look more next nice noth now ok okay
onward perfect pleas proceed right step sound stop sure thank thx tri wait want well ye yeah yep yes
"""
_PLAIN = frozenset(_GOING_ON.split())
#: What is asked for: the answer needn't hold it.
_ASKED_FOR = frozenset(
    {"time", "date", "day", "kind", "sort", "much", "mani", "place", "name", "number", "reason"}
)
_PLAIN_PHRASES = re.compile(
    "继续|接着|接下来|下一步|往下|好的?|可以|行|没问题|是的?|对的?|不对|不是|谢谢|多谢|再来?试?一[次遍下]|做|吧|呢|为什么|怎么样"
)


@dataclass(frozen=True, slots=True)
class Scored:
    passage: Passage
    score: float


def ranked(query: Query, pool: Pool) -> list[Scored]:
    """The candidates, best first."""
    import numpy

    if not pool.passages:
        return []
    which = 0 if has_vectors(query, pool) else 1
    found = signs(query, pool)
    scores = numpy.linspace(0, NEWER, len(pool.passages))
    for name, weights in WEIGHTS.items():
        if name in found:
            scores = scores + weights[which] * found[name]
    candidates = [
        Scored(passage, score)
        for passage, score, candidate in zip(pool.passages, scores.tolist(), pool.candidate, strict=True)
        if candidate
    ]
    return sorted(candidates, key=lambda each: (-each.score, -each.passage.id))


def relevant(query: Query, pool: Pool, scored: Sequence[Scored]) -> list[Scored]:
    """Those that are about what is asked: none, where the best of them aren't; else the best, and what stands
    close behind them, since an answer may share less with a request than the question before it."""
    if _says_nothing(query):
        return []
    scored = [each for each in scored if not echoes(query, each.passage)]
    weights, likeness = weights_of(query, pool), _likeness(query, pool)
    about = [
        each.score
        for each in scored[:LOOKED_AT]
        if _shares(weights, pool, each.passage) or _is_alike(query, likeness, each.passage)
    ]
    return _close_to(max(about), scored) if about else []


def found(query: Query, pool: Pool, scored: Sequence[Scored]) -> list[Scored]:
    """Those that have anything to do with what somebody looks for: a word, or a meaning that is not far. Less
    is asked of them than of what comes by itself."""
    asked, likeness = telling(query.words), _likeness(query, pool)
    return [each for each in scored if asked and _has_to_do(query, asked, likeness, each.passage)]


def foremost(scored: Sequence[Scored]) -> list[Scored]:
    """The best few, however far apart, since who looks for a thing wants to see what became of it too; and
    what else stands close behind the best one."""
    close = _close_to(scored[0].score, scored) if scored else []
    return [*scored[: max(LOOKED_AT, len(close))]]


def _close_to(best: float, scored: Sequence[Scored]) -> list[Scored]:
    return [each for each in scored if each.score >= best - BEHIND]


def _has_to_do(query: Query, asked: Sequence[str], likeness: Mapping[int, float], passage: Passage) -> bool:
    if any(word in passage.words for word in asked):
        return True
    if all(map(is_sign, passage.words)):
        return False  # ";)" is like much that nobody understands
    if _alike(query) is None:
        return query.vector is not None  # how far is far, nobody has measured
    return _is_alike(query, likeness, passage, NOT_FAR)


def _is_alike(query: Query, likeness: Mapping[int, float], passage: Passage, part: float = 1.0) -> bool:
    near = _alike(query)
    return near is not None and likeness.get(passage.id, 0.0) >= near * part


def _alike(query: Query) -> float | None:
    """The cosine from which two texts are about the same; None where nobody has measured it."""
    return next((each for name, each in ALIKE.items() if query.embedder.startswith(name)), None)


def _likeness(query: Query, pool: Pool) -> dict[int, float]:
    """The query's cosine with each passage, by its id."""
    if query.vector is None or not pool.vectors.size:
        return {}
    import numpy

    cosines = numpy.vecdot(pool.vectors, query.vector).tolist()
    return {passage.id: cosine for passage, cosine in zip(pool.passages, cosines, strict=True)}


def _says_nothing(query: Query) -> bool:
    """Whether a request only goes on with what is there."""
    words = words_of(_PLAIN_PHRASES.sub(" ", query.text))
    return all(word in STOP_WORDS or word in _PLAIN or is_sign(word) for word in words)


def _shares(weights: Mapping[str, float], pool: Pool, passage: Passage) -> bool:
    """Whether it holds enough of what a query's words tell."""
    held = [weight for word, weight in weights.items() if word in passage.words]
    known = [weight for word, weight in weights.items() if pool.corpus.holding.get(word)]
    # What stands nowhere tells no more than the others: a small archive knows few words.
    unknown = (len(weights) - len(known)) * sum(known) / max(len(known), 1)
    if not held or sum(held) < SHARED * (sum(known) + unknown):
        return False
    # A short request may tell but one thing: where few speak of that, those are about it.
    is_all = all(word in passage.words for word in weights if word not in _ASKED_FOR)
    return (is_all and max(held) >= RARE) or sum(held) >= TELLING or len(held) >= SEVERAL


def within(
    scored: Sequence[Scored],
    limit: int,
    count: Callable[[Passage], int],
    again: Callable[[Passage], int] | None = None,
) -> list[Passage]:
    """The best ones that fit ``limit`` tokens, in the order in which they happened. ``count`` is what a
    passage takes, ``again`` what it takes behind another one of its `moment`. A short one is preferred to
    a long one that is hardly better, since there is room for more of them. What was said several times in
    the same words stands there once, as it was said last."""
    again = again or count
    worth = [
        (each.score - PER_TOKEN * log(SHORTEST + _size(each.passage)), each.passage)
        for each in _said_last(scored)
    ]
    first: dict[tuple[str, str], Passage] = {}
    chosen: list[Passage] = []
    left = limit
    for _, passage in sorted(worth, key=lambda each: (-each[0], -each[1].id)):
        if left < SHORTEST:
            break
        tokens = count(passage)
        if (earliest := first.get(moment(passage))) is not None:
            before = passage.id < earliest.id
            tokens = tokens + again(earliest) - count(earliest) if before else again(passage)
        if tokens <= left:
            left -= tokens
            chosen.append(passage)
            if earliest is None or passage.id < earliest.id:
                first[moment(passage)] = passage
    # Where a clock was turned back, what is of one moment doesn't stand together.
    while chosen and _tokens(chosen, count, again) > limit:
        chosen.pop()
    return sorted(chosen, key=lambda passage: passage.id)


def _said_last(scored: Sequence[Scored]) -> list[Scored]:
    """Of passages that say the same, the newest one with the score of the best."""
    same: dict[tuple[Kind, str], list[Scored]] = {}
    for each in scored:
        said = " ".join(each.passage.text.casefold().split())
        same.setdefault((each.passage.kind, said), []).append(each)
    return [
        Scored(
            max((each.passage for each in group), key=lambda said: said.id), max(each.score for each in group)
        )
        for group in same.values()
    ]


def _tokens(
    chosen: Sequence[Passage], count: Callable[[Passage], int], again: Callable[[Passage], int]
) -> int:
    """What passages take in the order in which they happened."""
    ordered = sorted(chosen, key=lambda passage: passage.id)
    moments = [None, *map(moment, ordered)]
    return sum(
        again(each) if moment(each) == last else count(each)
        for each, last in zip(ordered, moments, strict=False)
    )


def _size(passage: Passage) -> float:
    """About its tokens: counting them for each would take longer than ranking."""
    return len(passage.text.encode(errors="replace")) / 4
