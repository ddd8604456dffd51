"""Which of the two languages to speak: English or Chinese."""

from __future__ import annotations

import re
from typing import Literal

from perdure.errors import Words

Language = Literal["en", "zh"]

_HAN = re.compile(r"[\u3400-\u9fff\U00020000-\U0003134f]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]+")


def language_of(text: str) -> Language:
    """``zh`` where at least a third of the words are Chinese (a character counts as half a word),
    so that an English name or a path in a Chinese sentence doesn't turn it. Japanese and Korean
    are not Chinese although they use its characters."""
    chinese = len(_HAN.findall(text))
    if not chinese or len(_KANA_OR_HANGUL.findall(text)) * 4 > chinese:
        return "en"
    return "zh" if chinese / 2 >= len(_WORD.findall(text)) / 2 else "en"


def say(words: Words, lang: Language, /, **facts: object) -> str:
    """The words in one language, with the facts filled in. A number chooses between a word for one and a word
    for any other: ``{entries:entry|entries}``."""
    chosen = words[1 if lang == "zh" else 0]
    return chosen.format(**{name: _counting(fact) for name, fact in facts.items()}) if facts else chosen


class _Count(int):
    """A number that is also asked for its word."""

    def __format__(self, form: str) -> str:
        one, bar, other = form.partition("|")
        return (one if self == 1 else other) if bar else int(self).__format__(form)


def _counting(fact: object) -> object:
    return _Count(fact) if type(fact) is int else fact
