"""Which passages matter to a query. Pure.

A passage is looked at by itself and with those around it, by words (BM25) and by meaning (cosines),
since an answer often shares nothing with its question but the sentence before it. A few signs beside
these: who is asked about, when it was, whether something is asked or told. One linear table of weights
puts them together; `bench/locomo_fit.py` fits it, and without vectors there is another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from perdure.chat.messages import Kind
from perdure.memory.passages import Passage, Pool, Query, moment
from perdure.memory.words import STOP_WORDS, words_of

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

    Signs = NDArray[float64]

#: Words of a query that are looked at: of a long one, the rarest.
MOST_WORDS = 64
#: BM25: how soon a word's repetition counts no more, and how much a long passage is held against it.
SATURATION, LENGTH = 1.2, 0.75
#: How many passages before and behind are looked at.
AROUND = 3
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
#: Words from which a passage's length counts no more for it.
LONG = 40

#: When a passage is about a request: it holds this share of what its words tell, and so much or so many of
#: them; or its vector is as near as this to the request's, by the beginning of the embedder's name (of
#: another one nobody has measured it, so words decide).
SHARED, TELLING, SEVERAL = 0.4, 7.0, 3
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
_PLAIN_PHRASES = re.compile(
    "继续|接着|接下来|下一步|往下|好的?|可以|行|没问题|是的?|对的?|不对|不是|谢谢|多谢|再来?试?一[次遍下]|做|吧|呢|为什么|怎么样"
)

_NAMES_OF_MONTHS = "january february march april may june july august september october november december"
_MONTHS = _NAMES_OF_MONTHS.split()
_NAMED = "|".join(_MONTHS)
_SPEAKER = re.compile(r"(?:\[[^\]\n]{0,40}\] ?)?([^\W\d_a-z][\w.'-]{1,30})[:：]\s")
_DAY = re.compile(
    rf"\b(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?,? (?:of )?(?P<month>{_NAMED})\b"
    rf"|\b(?P<month2>{_NAMED}) (?P<day2>[0-9]{{1,2}})(?:st|nd|rd|th)?\b"
    r"|\b[0-9]{4}-(?P<month3>[0-9]{2})-(?P<day3>[0-9]{2})\b|(?P<month4>[0-9]{1,2})月(?P<day4>[0-9]{1,2})[日号]"
)
#: A month by its name; May only where it is no verb.
_MONTH = re.compile(
    rf"\b(?:{_NAMED.replace('|may|', '|(?:in|of|on|by|since|last) may|')})\b|(?<![0-9])([0-9]{{1,2}})月"
)
_WHEN = re.compile(
    r"^\s*(?:when|how long|how often|(?:what|which) (?:date|day|month|year))\b"
    "|什么时候|何时|哪天|哪一天|几点|多久"
)
#: Words that tell a time, as `perdure.memory.words` gives them.
_OF_TIME = """
yesterday today tonight tomorrow ago last next morn weekend week month year day monday tuesday wednesday
thursday friday saturday sunday recent sinc just soon januari februari march april may june juli august
septemb octob novemb decemb 昨天 今天 明天 上周 下周 去年 今年 明年 最近
"""
_TIMES = frozenset([*_OF_TIME.split(), *map(str, range(1, 32)), *map(str, range(1900, 2100))])


@dataclass(frozen=True, slots=True)
class Scored:
    passage: Passage
    score: float


def ranked(query: Query, pool: Pool) -> list[Scored]:
    """The candidates, best first."""
    import numpy

    if not pool.passages:
        return []
    which = 0 if _has_vectors(query, pool) else 1
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
    scored = [each for each in scored if not _echoes(query, each.passage)]
    about = [each.score for each in scored[:LOOKED_AT] if _is_about(query, pool, each.passage)]
    return _close_to(max(about), scored) if about else []


def found(query: Query, pool: Pool, scored: Sequence[Scored]) -> list[Scored]:
    """Those that have anything to do with what somebody looks for: a word, or a meaning that is not far. Less
    is asked of them than of what comes by itself."""
    return [each for each in scored if query.words and _has_to_do(query, pool, each.passage)]


def foremost(scored: Sequence[Scored]) -> list[Scored]:
    """The best few, however far apart, since who looks for a thing wants to see what became of it too; and
    what else stands close behind the best one."""
    close = _close_to(scored[0].score, scored) if scored else []
    return [*scored[: max(LOOKED_AT, len(close))]]


def _close_to(best: float, scored: Sequence[Scored]) -> list[Scored]:
    return [each for each in scored if each.score >= best - BEHIND]


def _has_to_do(query: Query, pool: Pool, passage: Passage) -> bool:
    if any(word in passage.words for word in query.words if word not in STOP_WORDS):
        return True
    if not passage.words:
        return False  # ";)" is like much that nobody understands
    near = _alike(query)
    if near is None:
        return query.vector is not None  # how far is far, nobody has measured
    return _cosine(query, pool, passage) >= near * NOT_FAR


def _echoes(query: Query, passage: Passage) -> bool:
    """Whether it asks what is asked, and tells nothing else."""
    if not _ends_asking(passage):
        return False
    told = _telling(passage.words)
    return bool(told) and told <= _telling(query.words)


def _telling(words: Iterable[str]) -> set[str]:
    return {word for word in words if word not in STOP_WORDS}


def _ends_asking(passage: Passage) -> bool:
    return passage.text.rstrip().endswith(("?", "？"))


def _alike(query: Query) -> float | None:
    """The cosine from which two texts are about the same; None where nobody has measured it."""
    return next((each for name, each in ALIKE.items() if query.embedder.startswith(name)), None)


def _cosine(query: Query, pool: Pool, passage: Passage) -> float:
    if query.vector is None or not pool.vectors.size:
        return 0.0
    place = next(at for at, each in enumerate(pool.passages) if each.id == passage.id)
    return float(pool.vectors[place] @ query.vector)


def _says_nothing(query: Query) -> bool:
    """Whether a request only goes on with what is there."""
    words = words_of(_PLAIN_PHRASES.sub(" ", query.text))
    return all(word in STOP_WORDS or word in _PLAIN for word in words)


def _is_about(query: Query, pool: Pool, passage: Passage) -> bool:
    weights = _weights(query, pool)
    held = [weight for word, weight in weights.items() if word in passage.words]
    known = [weight for word, weight in weights.items() if pool.corpus.holding.get(word)]
    # What stands nowhere tells no more than the others: a small archive knows few words.
    unknown = (len(weights) - len(known)) * sum(known) / max(len(known), 1)
    shares = bool(held) and sum(held) >= SHARED * (sum(known) + unknown)
    if shares and (sum(held) >= TELLING or len(held) >= SEVERAL):
        return True
    near = _alike(query)
    return near is not None and _cosine(query, pool, passage) >= near


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


def signs(query: Query, pool: Pool) -> dict[str, Signs]:
    """What speaks for and against each passage of a pool, by name: a number a passage."""
    around = _Around(pool)
    found = _by_words(query, pool, around)
    if _has_vectors(query, pool):
        found |= _by_meaning(query, pool, around)
    best = found["words 3"] + found.get("meaning 5", 0.0)
    found["day"] = _highest(best, [(each.session, each.time[:10]) for each in pool.passages])
    found |= _by_speaker(query, pool, around) | _by_time(query, pool)
    return found | _by_manner(pool, around) | _by_wording(query, pool)


class _Around:
    """The passages before and behind each one of a pool, where they are in it."""

    def __init__(self, pool: Pool) -> None:
        import numpy

        ids = numpy.array([each.id for each in pool.passages], numpy.int64)
        self._places: dict[int, tuple[NDArray[int64], NDArray[int64]]] = {}
        for step in (step for step in range(-AROUND, AROUND + 1) if step):
            at = numpy.minimum(numpy.searchsorted(ids, ids + step), len(ids) - 1)
            there = numpy.flatnonzero(ids[at] == ids + step)
            self._places[step] = (there, at[there])

    def of(self, values: Signs, step: int) -> Signs:
        """Each passage's neighbour's value, 0 where there is none."""
        import numpy

        moved = numpy.zeros_like(values)
        there, at = self._places[step]
        moved[there] = values[at]
        return moved

    def sum(self, values: Any, steps: Iterable[int]) -> Any:
        """Each passage's value with its neighbours'."""
        total = values.copy()
        for step in steps:
            there, at = self._places[step]
            total[there] += values[at]
        return total


def _by_words(query: Query, pool: Pool, around: _Around) -> dict[str, Signs]:
    import numpy

    weights = _weights(query, pool)
    column = {word: number for number, word in enumerate(weights)}
    asked = frozenset(weights)
    held = numpy.zeros((len(pool.passages), len(weights)))
    for row, passage in enumerate(pool.passages):
        for word in asked.intersection(passage.words):
            held[row, column[word]] = passage.words.count(word)
    rarity = numpy.array(list(weights.values()))
    total = max(float(rarity.sum()), 1e-9)
    lengths = numpy.array([float(len(each.words)) for each in pool.passages])

    def bm25(*steps: int) -> Signs:
        times, length = around.sum(held, steps), around.sum(lengths, steps)
        usual = max(pool.corpus.length, 1.0) * (len(steps) + 1)
        slowed = SATURATION * (1 - LENGTH + LENGTH * length / usual)
        scores: Signs = (times * (SATURATION + 1) / (times + slowed[:, None])) @ rarity / total
        return scores

    own = bm25()
    return {
        "words": own,
        "words -1": around.of(own, -1),
        "words 3": bm25(-1, 1),
        "words 7": bm25(-3, -2, -1, 1, 2, 3),
        "share": (held > 0) @ rarity / total,
        "share 3": (around.sum(held, (-1, 1)) > 0) @ rarity / total,
    }


def _weights(query: Query, pool: Pool) -> dict[str, float]:
    """How much each word of a query tells: the rarer the more."""
    corpus = pool.corpus
    weights: dict[str, float] = {}
    for word in dict.fromkeys(query.words):
        if word not in STOP_WORDS:
            holding = min(corpus.holding.get(word, 0), corpus.passages)
            weights[word] = log(1 + (corpus.passages - holding + 0.5) / (holding + 0.5))
    return {word: weights[word] for word in sorted(weights, key=lambda word: -weights[word])[:MOST_WORDS]}


def _has_vectors(query: Query, pool: Pool) -> bool:
    return query.vector is not None and pool.vectors.size > 0 and bool(pool.vectors.any())


def _by_meaning(query: Query, pool: Pool, around: _Around) -> dict[str, Signs]:
    import numpy

    mean, deviation = pool.corpus.likeness
    asked: Any = query.vector

    def cosine(*steps: int) -> Signs:
        together = around.sum(pool.vectors, steps)
        length = numpy.sqrt(numpy.einsum("ij,ij->i", together, together))
        likeness = (together @ asked / numpy.maximum(length, 1e-9) - mean) / deviation / 4
        return numpy.where(length > 0, likeness, 0.0).astype(numpy.float64)

    return {
        "meaning": cosine(),
        "meaning 5": cosine(-2, -1, 1, 2),
    }


def _highest(values: Signs, groups: Sequence[object]) -> Signs:
    """The highest value of each passage's group."""
    import numpy

    highest: dict[object, float] = {}
    for value, group in zip(values.tolist(), groups, strict=True):
        highest[group] = max(value, highest.get(group, value))
    return numpy.array([highest[group] for group in groups])


def _by_speaker(query: Query, pool: Pool, around: _Around) -> dict[str, Signs]:
    """Who is asked about, where passages begin with a name."""
    import numpy

    begun = (_SPEAKER.match(each.text) for each in pool.passages)
    speakers = [match[1] if match else "" for match in begun]
    asked = {name for name in {*speakers} - {""} if re.search(rf"\b{re.escape(name)}\b", query.text)}
    speaks = numpy.array([float(name in asked) for name in speakers])
    another = numpy.array([float(bool(asked and name) and name not in asked) for name in speakers])
    near = numpy.maximum.reduce([around.of(speaks, step) for step in (-2, -1, 1, 2)])
    return {"speaks": speaks, "another speaks": another, "spoke near": near * another}


def _by_time(query: Query, pool: Pool) -> dict[str, Signs]:
    """When it was said, where the query says when; and whether a time stands in it, where it asks when."""
    import numpy

    asked = query.text.lower()
    days = {date for match in _DAY.finditer(asked) if (date := _date(match))}
    months = {_month(match[1] or match[0].split()[-1]) for match in _MONTH.finditer(asked)}
    months |= {month for month, _ in days}
    dates = [_date_of(each.time) for each in pool.passages]
    when = bool(_WHEN.search(asked))
    times = (min(len(_TIMES.intersection(each.words)), 3) if when else 0 for each in pool.passages)
    return {
        "month": numpy.array([float(month in months) for month, _ in dates]),
        "another month": numpy.array([float(bool(months) and month not in months) for month, _ in dates]),
        "date": numpy.array([float(date in days) for date in dates]),
        "time": numpy.array([float(each) for each in times]),
    }


def _date(match: re.Match[str]) -> tuple[int, int]:
    """Month and day."""
    named = {name.rstrip("234"): text for name, text in match.groupdict().items() if text}
    return _month(named["month"]), int(named["day"])


def _month(text: str) -> int:
    return int(text) if text.isdecimal() else _MONTHS.index(text) + 1


def _date_of(time: str) -> tuple[int, int]:
    month, day = time[5:7], time[8:10]
    return (int(month), int(day)) if month.isdecimal() and day.isdecimal() else (0, 0)


def _by_manner(pool: Pool, around: _Around) -> dict[str, Signs]:
    """Whether a passage asks or answers, and how long it is."""
    import numpy

    asks = numpy.array([float("?" in each.text or "？" in each.text) for each in pool.passages])
    ends = numpy.array([float(_ends_asking(each)) for each in pool.passages])
    lengths = numpy.array([log(1 + min(len(each.words), LONG)) / 3 for each in pool.passages])
    return {"ends asking": ends, "answers": around.of(asks, -1), "length": lengths}


def _by_wording(query: Query, pool: Pool) -> dict[str, Signs]:
    """Whether a passage holds the very words, one behind the other, or only asks the same once more."""
    import numpy

    asked = " ".join(query.text.casefold().split()).rstrip("?？. ")
    echo = numpy.array([float(_echoes(query, each)) for each in pool.passages])
    holds = numpy.array([float(bool(asked) and asked in each.text.casefold()) for each in pool.passages])
    return {"verbatim": holds * (1 - echo), "echo": echo}
