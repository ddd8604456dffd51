"""What speaks for and against a passage that may matter to a query: a number for each sign. Pure.

A passage is looked at by itself and with those around it, by words (BM25) and by meaning (cosines),
since an answer often shares nothing with its question but the sentence before it. A few signs beside
these: who is asked about, when it was, whether something is asked or told, and in which words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from perdure.memory.passages import Passage, Pool, Query
from perdure.memory.words import STOP_WORDS, is_sign, telling

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
#: Words from which a passage's length counts no more for it.
LONG = 40

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


def signs(query: Query, pool: Pool) -> dict[str, Signs]:
    """What speaks for and against each passage of a pool, by name: a number a passage."""
    around = _Around(pool)
    found = _by_words(query, pool, around)
    if has_vectors(query, pool):
        found |= _by_meaning(query, pool, around)
    best = found["words 3"] + found.get("meaning 5", 0.0)
    found["day"] = _highest(best, [(each.session, each.time[:10]) for each in pool.passages])
    found |= _by_speaker(query, pool, around) | _by_time(query, pool)
    return found | _by_manner(pool, around) | _by_wording(query, pool)


def weights_of(query: Query, pool: Pool) -> dict[str, float]:
    """How much each word of a query tells: the rarer the more."""
    corpus = pool.corpus
    weights: dict[str, float] = {}
    for word in telling(query.words):
        holding = min(corpus.holding.get(word, 0), corpus.passages)
        weights[word] = log(1 + (corpus.passages - holding + 0.5) / (holding + 0.5))
    return {word: weights[word] for word in sorted(weights, key=lambda word: -weights[word])[:MOST_WORDS]}


def has_vectors(query: Query, pool: Pool) -> bool:
    """Whether meaning can be compared."""
    return query.vector is not None and pool.vectors.size > 0 and bool(pool.vectors.any())


def echoes(query: Query, passage: Passage) -> bool:
    """Whether it asks what is asked, and tells nothing else."""
    if not _ends_asking(passage):
        return False
    told = _telling(passage.words)
    return bool(told) and told <= _telling(query.words)


def _telling(words: Iterable[str]) -> set[str]:
    return {word for word in words if word not in STOP_WORDS and not is_sign(word)}


def _ends_asking(passage: Passage) -> bool:
    return passage.text.rstrip().endswith(("?", "？"))


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

    weights = weights_of(query, pool)
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
        scores: Signs = numpy.vecdot(times * (SATURATION + 1) / (times + slowed[:, None]), rarity)
        return scores / total

    own = bm25()
    return {
        "words": own,
        "words -1": around.of(own, -1),
        "words 3": bm25(-1, 1),
        "words 7": bm25(-3, -2, -1, 1, 2, 3),
        "share": numpy.vecdot(held > 0, rarity) / total,
        "share 3": numpy.vecdot(around.sum(held, (-1, 1)) > 0, rarity) / total,
    }


def _by_meaning(query: Query, pool: Pool, around: _Around) -> dict[str, Signs]:
    import numpy

    mean, deviation = pool.corpus.likeness
    asked: Any = query.vector

    def cosine(*steps: int) -> Signs:
        together = around.sum(pool.vectors, steps)
        length = numpy.sqrt(numpy.vecdot(together, together))
        likeness = (numpy.vecdot(together, asked) / numpy.maximum(length, 1e-9) - mean) / deviation / 4
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
    echo = numpy.array([float(echoes(query, each)) for each in pool.passages])
    holds = numpy.array([float(bool(asked) and asked in each.text.casefold()) for each in pool.passages])
    return {"verbatim": holds * (1 - echo), "echo": echo}
