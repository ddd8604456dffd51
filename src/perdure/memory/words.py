"""A text's words, as they are stored for searching and as queries are asked. Pure.

Both sides go through the same segmentation, so that any store can index plain words without knowing
languages. English is stemmed; scripts that are written without spaces become pairs of characters, since
a pair finds what a dictionary of words doesn't know; a name with inner structure (a path, a URL, an
identifier, an error code) stands whole and in its parts.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from typing import Any

#: What a word may hold beside letters, digits and ``_``: what stands within paths, addresses and the like.
INNER = "./\\:@#&?=+~%-"
#: Characters of a word, and of a passage.
LONGEST, PASSAGE = 64, 800
_STOPPING = """
a about am an and are as at be been but by can could d did do doe done for from had has have he her here him
his how i if in is it ll m may me might mine must my no nor not of on or our re s shall she should so t than
that the their them then there these they this those to us ve was we were what when where which who whom
whose whi will with would you your
dont doesnt didnt isnt wasnt arent werent cant couldnt wont wouldnt shouldnt havent hasnt hadnt im ive your
youv theyr weve
的 了 是 在 我 你 他 她 它 们 我们 你们 他们 和 与 也 都 就 吗 呢 吧 啊 这 那 这个 那个 有 没 不
什 么 什么 怎 怎么 哪 谁 把 被 请 一 个 一个
"""
#: Words that say nothing about what a text is about, as `words_of` gives them.
STOP_WORDS = frozenset(_STOPPING.split())

_TOKEN = re.compile(rf"\w+(?:[{re.escape(INNER)}'’]+\w+)*(?:\+\+|#)?")
_ACCENTS = re.compile("[\u0300-\u036f]")
_APOSTROPHE = re.compile("['’](?:[sS]\\b)?")
#: Runs of scripts that are written without spaces (and Hangul, whose words carry particles).
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_SENTENCE_END = re.compile(r"[.!?;][\"')\]]?\s|[。！？；…]")
_RUN = re.compile(r"[^\W_]+")
_PART = re.compile(r"[^\W\d_a-z]+(?![a-z])|[^\W\d_][^\W\d_A-Z]*|\d+")


def words_of(text: str) -> list[str]:
    """All words in order, repeated as often as they stand there. Letters, digits and `INNER` alone are in
    them. Never raises."""
    if not text.isascii():
        bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
        text = unicodedata.normalize("NFC", bare)
    words: list[str] = []
    for token in _TOKEN.findall(text):
        words += _words(token) if len(token) <= LONGEST else _segmented(token)
    return words


def passages_of(text: str) -> list[tuple[int, int]]:
    """Where the pieces of a text begin and end: up to `PASSAGE` characters, cut behind a paragraph, a line, a
    sentence or a word, wherever the best of these lies in the second half. Together they are the text."""
    pieces: list[tuple[int, int]] = []
    start = 0
    while len(text) - start > PASSAGE:
        end = _border(text, start + PASSAGE // 2, start + PASSAGE)
        pieces.append((start, end))
        start = end
    return [*pieces, (start, len(text))] if len(text) > start else pieces


def _border(text: str, first: int, last: int) -> int:
    """The best place to cut at, from ``first`` to ``last``."""
    for border in ("\n\n", "\n"):
        at = text.rfind(border, first, last)
        if at >= 0:
            return at + len(border)
    ends = [match.end() for match in _SENTENCE_END.finditer(text, first, last)]
    at = ends[-1] if ends else text.rfind(" ", first, last) + 1
    return at or last


@lru_cache(1 << 16)
def _words(token: str) -> tuple[str, ...]:
    return _segmented(token)


def _segmented(token: str) -> tuple[str, ...]:
    """The words of what stands between spaces: itself and its parts."""
    token = _APOSTROPHE.sub("", token)
    words: list[str] = []
    runs = _RUN.findall(token)
    if len(runs) > 1 or token[-1:] in "+#":
        words.append(_cut(token.lower()))
    for run in runs:
        at = 0
        for unspaced in _UNSPACED.finditer(run):
            words += _of_run(run[at : unspaced.start()])
            words += _pairs(unspaced[0])
            at = unspaced.end()
        words += _of_run(run[at:])
    return tuple(words)


def _of_run(run: str) -> list[str]:
    """A run of letters and digits, and its parts where it has some by case or digits."""
    if not run:
        return []
    words = [_cut(_stem(run.lower()))]
    parts = _PART.findall(run) if len(run) <= LONGEST and not (run.isalpha() and run.islower()) else []
    if len(parts) > 1:
        words += (_stem(part.lower()) for part in parts)
    return words


def _pairs(run: str) -> list[str]:
    """Each character that is a word by itself, and each two neighbours."""
    words = [each for each in run if each >= "\u3400" and not "\uac00" <= each <= "\ud7af"]
    if not words or len(run) == 1:
        words = [run] if len(run) == 1 else []
    return words + [run[at : at + 2] for at in range(len(run) - 1)]


def _cut(word: str) -> str:
    """Of what is too long, both ends, where long names differ."""
    half = LONGEST // 2
    return word if len(word) <= LONGEST else word[:half] + word[-half:]


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    if not (word.isascii() and word.isalpha()) or len(word) > LONGEST:
        return word
    with _stemming:
        stem: str = _stemmer().stemWord(word)
    return stem


#: A stemmer keeps what it works on, so threads take turns.
_stemming = threading.Lock()


@lru_cache(1)
def _stemmer() -> Any:
    from Stemmer import Stemmer

    return Stemmer("english")
