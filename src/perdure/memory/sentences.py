"""Take a text apart: into sentences, clauses, and beginnings that still say something. Pure.

Built for what stands in a conversation: prose in English and Chinese, lists, logs, JSON. A stop ends a
sentence only where one can end; a path, a version or an abbreviation stays whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

#: Bytes of a sentence that is never shortened by a clause.
BRIEF = 40
#: One set of characters first, so that the search passes over the others quickly.
ENDS = re.compile(
    r"[.!?;。！？；\n](?:(?<=[.!?;])[\"')\]*`]*\s+|(?<=[。！？；])[\"'”’』」）]*\s*|(?<=\n)\s*|(?<=[!?])(?=[\u3400-\u9fff]))"
)
#: In what a tool showed, each value of JSON, and each line of a log, stands for itself.
VALUES = re.compile(r",\s*(?=[\"{\[])")
LOG = re.compile(
    ENDS.pattern + r"|\s(?=\d{4}-\d\d-\d\d[T ]\d\d:\d\d|(?:ERROR|WARN|INFO|DEBUG|FATAL|FAILED|Traceback)\b)"
)
_EDGES = " ,\n{}[]*"
_ABBREVIATIONS = frozenset(
    (
        "e.g",
        "i.e",
        "etc",
        "mr",
        "mrs",
        "ms",
        "dr",
        "vs",
        "no",
        "approx",
        "cf",
        "fig",
        "st",
        "prof",
        "a.m",
        "p.m",
    )
)
_CLAUSES = re.compile(
    r"(?<=[，、：；])\s*|(?<=[,:])\s+|\s+(?=(?:and|but|because|so|which)\s)|\s+(?=(?:[-*•]|\d{1,2}\.)\s)"
)
_BREAKS = (", ", "，", "；", "：", ": ", " and ", " but ", " because ", " so ", " which ", " (", "（")
#: What `sources` puts where it leaves something out, and what words are made of that it may cut through.
LEFT_OUT, _TORN = "[...]", "".join(filter(str.isalnum, map(chr, range(128)))) + "_./:@~#%+-"


def sentences(text: str, ends: re.Pattern[str]) -> Iterator[str]:
    """The sentences of a text. A stop inside a number, a version or a path ends none, for no space
    follows it; that of an abbreviation or an initial is passed over."""
    if LEFT_OUT in text:
        whole = text.split(LEFT_OUT)
        for at, part in enumerate(whole):
            begun = part.lstrip().lstrip(_TORN) if at else part
            yield from sentences(begun.rstrip().rstrip(_TORN) if at < len(whole) - 1 else begun, ends)
        return
    start = 0
    for end in ends.finditer(text):
        if text[end.start()] == ".":
            word = text[start : end.start()].rpartition(" ")[2].lstrip("(\"'").lower()
            if (len(word) == 1 and word.isalpha()) or word in _ABBREVIATIONS:
                continue
        if sentence := bare(text[start : end.end()]):
            yield sentence
        start = end.end()
    if sentence := bare(text[start:]):
        yield sentence


def bare(text: str) -> str:
    """Without what is left around it of JSON, emphasis and lists."""
    return text.strip(_EDGES).removeprefix("- ")


def pieces(sentence: str, longest: int) -> Iterator[str]:
    """The sentence, or groups of its clauses where it is too long, each cut where it is still too long."""
    if len(sentence) <= longest:
        yield sentence
        return
    start = 0
    clauses = [0, *(found.end() for found in _CLAUSES.finditer(sentence)), len(sentence)]
    for before, after in pairwise(clauses):
        if after - start > longest and before > start:
            yield cut(bare(sentence[start:before]), longest)
            start = before
    if rest := bare(sentence[start:]):
        yield cut(rest, longest)


def beginning(sentence: str) -> str:
    """The sentence without its last clause, to stand for it where room is short."""
    if len(sentence.encode("utf-8", "replace")) < BRIEF:
        return ""
    kept = sentence[: max(0, *map(sentence.rfind, _BREAKS))].rstrip(" ,，")
    return f"{kept}…" if len(kept) * 4 > len(sentence) else ""


def cut(text: str, kept: int) -> str:
    """The text, its end cut at a word and marked where it is longer than ``kept`` characters."""
    if len(text) <= kept:
        return text
    short = text[: max(kept - 1, 0)]
    space = short.rfind(" ")
    return (short[:space] if space > kept // 2 else short).rstrip() + "…"
