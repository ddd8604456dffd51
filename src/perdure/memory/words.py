"""A text's words, as they are stored for searching and as queries are asked. Pure.

Both sides go through the same segmentation, so that any store can index plain words without knowing
languages. English is stemmed; scripts that are written without spaces become pairs of characters, since
a pair finds what a dictionary of words doesn't know; a name with inner structure (a path, a URL, an
identifier, an error code) stands whole and in its parts. A pictured sign, an emoji, is a word too.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable
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

#: Flags, which are two characters, emoji and other pictures; what only colours them or draws lines isn't.
_SIGN = (
    "[\U0001f1e6-\U0001f1ff]{2}|[\u00a9\u00ae\u203c\u2049\u231a-\u23ff\u2600-\u27bf\u2b00-\u2bff\u3030\u303d"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff]"
)
_TOKEN = re.compile(rf"\w+(?:[{re.escape(INNER)}'’]+\w+)*(?:\+\+|#)?|{_SIGN}")
#: Accents, and what stands within words without a width: joiners, soft hyphens, marks of direction, variants.
_PASSED_OVER = re.compile(
    "[\u0300-\u036f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0020-\U000e007f\U000e0100-\U000e01ef]"
)
_APOSTROPHE = re.compile("['’](?:[sS]\\b)?")
#: Runs of scripts that are written without spaces (and Hangul, whose words carry particles).
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_SENTENCE_END = re.compile(r"[.!?;][\"')\]]?\s|[。！？；…]")
_RUN = re.compile(r"[^\W_]+")
_PART = re.compile(r"[^\W\d_a-z]+(?![a-z])|[^\W\d_][^\W\d_A-Z]*|\d+")


def words_of(text: str, *, asking: bool = False) -> list[str]:
    """All words in order, repeated as often as they stand there: of letters, digits and `INNER`, or one sign.
    ``asking``: of a query, in which a kana or a Hangul syllable is a word only where it stands by itself:
    each stands in half of all sentences. Never raises."""
    if not text.isascii():
        bare = _PASSED_OVER.sub("", unicodedata.normalize("NFKD", text))
        text = unicodedata.normalize("NFC", bare)
    words: list[str] = []
    for token in _TOKEN.findall(text):
        words += _words(token, asking) if len(token) <= LONGEST else _segmented(token, asking)
    return words


def is_sign(word: str) -> bool:
    """Whether it is a pictured sign rather than a word that can be read."""
    return not (word[0].isalnum() or word[0] == "_")


def telling(words: Iterable[str]) -> list[str]:
    """The words that tell what a query is about, each once: of one that has no others its signs, and of one
    that has no sign either all there are."""
    every = list(dict.fromkeys(words))
    told = [word for word in every if word not in STOP_WORDS and not is_sign(word)]
    return told or [word for word in every if is_sign(word)] or every


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
def _words(token: str, asking: bool) -> tuple[str, ...]:
    return _segmented(token, asking)


def _segmented(token: str, asking: bool) -> tuple[str, ...]:
    """The words of what stands between spaces: itself and its parts."""
    if is_sign(token):
        return (token,)
    token = _APOSTROPHE.sub("", token)
    words: list[str] = []
    runs = _RUN.findall(token)
    if len(runs) > 1 or token[-1:] in "+#":
        words.append(_cut(token.casefold()))
    for run in runs:
        at = 0
        for unspaced in _UNSPACED.finditer(run):
            words += _of_run(run[at : unspaced.start()])
            words += _pairs(unspaced[0], asking)
            at = unspaced.end()
        words += _of_run(run[at:])
    return tuple(words)


def _of_run(run: str) -> list[str]:
    """A run of letters and digits, and its parts where it has some by case or digits."""
    if not run:
        return []
    words = [_cut(_stem(run.casefold()))]
    parts = _PART.findall(run) if len(run) <= LONGEST and not (run.isalpha() and run.islower()) else []
    if len(parts) > 1:
        words += (_cut(_stem(part.casefold())) for part in parts)
    return words


def _pairs(run: str, asking: bool) -> list[str]:
    """Each character that is a word by itself, and each two neighbours."""
    if len(run) == 1:
        return [run]
    alone = [each for each in run if _stands_alone(each, asking)]
    return alone + [run[at : at + 2] for at in range(len(run) - 1)]


def _stands_alone(character: str, asking: bool) -> bool:
    """Chinese characters do, kana and Hangul syllables as far as somebody may ask for a single one."""
    if asking:
        return character >= "\u3400" and not "\uac00" <= character <= "\ud7af"
    return character >= "\u3005"


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
