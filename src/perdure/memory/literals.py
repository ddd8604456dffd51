"""Exact literals in a message: what an agent must be able to repeat to the letter. Pure.

From free text by shape; from what a tool showed as JSON by its leaves, so that a plain word that
is a value (``"cabin": "economy"``) counts and a key doesn't.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from perdure.chat.messages import Entry, Kind, text_of
from perdure.chat.secrets import masked

Shape = Literal["url", "path", "identifier", "date", "name", "word", "code", "quantity", "number", "time"]

#: Shapes that stand for one thing to the letter.
EXACT = frozenset[Shape]({"url", "path", "identifier", "date", "quantity"})
#: Characters of the longest literal; what is longer is prose or data.
LONGEST = 120
#: Characters from which a bare number in what a tool printed is worth noting.
LONG_NUMBER = 4

_SHAPES = re.compile(
    r"(?P<url>https?://[^\s\"'<>)\]}，。]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<date>\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?)"
    r"|(?P<time>\d{1,2}:\d\d(?::\d\d)?)"
    r"|(?P<path>(?<![\w.@+-])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,100}/)+[\w.@+-]*[\w@+-]"
    r"|\b[A-Za-z_][\w-]*\.[A-Za-z][A-Za-z0-9]{0,4}\b(?!\())"
    r"|(?P<quantity>[$€£¥]\s?\d[\d,]*(?:\.\d+)?"
    r"|\d[\d,]*(?:\.\d+)?\s?(?:%|ms|min|[kKMGT]i?B|kg|km|tokens?|EUR|USD|GBP|CNY|RMB|JPY|CHF)(?![A-Za-z]))"
    # KEY=value; 1.2.3; host.internal, module.name, B1.91; words joined by _ or -; camelCase; x1, 1x, #1.
    r"|(?P<identifier>\b(?:[A-Z][A-Z0-9_]+=[\w./:@+-]*\w|v?\d+(?:\.\d+){2,}[\w.-]*"
    r"|[A-Za-z_][\w-]*(?:\.[A-Za-z0-9_][\w-]*)+\b(?!\()"
    r"|_{0,3}[A-Za-z][A-Za-z0-9]*(?:[_-]{1,3}[A-Za-z0-9]+)+|_{1,3}[A-Za-z]\w*"
    r"|[A-Za-z]?[a-z]+[A-Z][a-zA-Z0-9]+|[A-Za-z_]+\d[\w-]*|\d+[A-Za-z_][\w-]*)|#\d+)"
    r"|(?P<number>\d[\d,]*(?:\.\d+)?)"
    r"|(?P<code>\b[A-Z]{2,}\b)"
    r"|(?P<name>\b[A-Z][a-z]+\b)",
    re.ASCII,
)

#: e.g. and the like have the shape of a file or a dotted name.
ABBREVIATION = re.compile(r"(?:[A-Za-z]{1,2}\.)+[A-Za-z]{1,2}")


def literals_of(entry: Entry) -> Iterator[tuple[str, Shape]]:
    """The literals of an entry with their shapes, in order, repetitions included; secrets are none."""
    text = masked(text_of(entry.message))
    if entry.kind is Kind.TOOL_RESULT and (value := _json(text)) is not None:
        yield from _of_values(value)
    else:
        yield from _of_text(text, names=entry.kind is Kind.USER, numbers=entry.kind is not Kind.TOOL_RESULT)
    for call in entry.message.get("tool_calls") or ():
        if (arguments := _json(masked(call["function"]["arguments"]))) is not None:
            yield from _of_values(arguments)


def shape_of(literal: str) -> Shape:
    """The shape of a literal that stands alone."""
    found = _SHAPES.fullmatch(literal)
    if found is None:
        return "word"
    shape: Any = found.lastgroup
    # Five capitals and more are a code somebody gave out (a booking, a ticket), not an abbreviation.
    return "identifier" if shape == "code" and len(literal) >= 5 else shape


def _of_text(text: str, *, names: bool, numbers: bool) -> Iterator[tuple[str, Shape]]:
    """``names``: a capitalised word may be a name; outside the person's words too many are none.
    ``numbers``: short ones too; what tools print is full of them."""
    for found in _SHAPES.finditer(text):
        literal = found.group().rstrip(".,;:!?")
        shape = shape_of(literal)
        if (
            not 2 <= len(literal) <= LONGEST
            or (shape == "name" and not names)
            or ABBREVIATION.fullmatch(literal)
        ):
            continue
        if shape != "number" or numbers or len(literal) >= LONG_NUMBER:
            yield literal, shape


def _of_values(value: Any) -> Iterator[tuple[str, Shape]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            # Keys name fields, but some tables have identifiers as keys.
            if shape_of(key) == "identifier" and any(map(str.isdigit, key)):
                yield key, "identifier"
            yield from _of_values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _of_values(inner)
    elif isinstance(value, str):
        if 2 <= len(value) <= LONGEST and not re.search(r"\s", value):
            yield value, shape_of(value)
        else:
            yield from _of_text(value, names=False, numbers=True)
    elif isinstance(value, int | float) and not isinstance(value, bool) and len(str(value)) >= LONG_NUMBER:
        yield str(value), "number"


def _json(text: str) -> Any | None:
    if text[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
