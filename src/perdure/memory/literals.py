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

#: Characters of the longest literal; what is longer is prose or data.
LONGEST = 120

_SHAPES = re.compile(
    r"(?P<url>https?://[^\s\"'<>)\]}，。]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<date>\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?)"
    r"|(?P<time>\d{1,2}:\d\d(?::\d\d)?)"
    r"|(?P<path>(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*[\w@+-]|[A-Za-z_][\w-]*\.[A-Za-z][A-Za-z0-9]{0,4}\b(?!\())"
    r"|(?P<quantity>[$€£¥]\s?\d[\d,]*(?:\.\d+)?"
    r"|\d[\d,]*(?:\.\d+)?\s?(?:%|ms|min|[kKMGT]i?B|kg|km|tokens?)(?![A-Za-z]))"
    r"|(?P<identifier>v?\d+(?:\.\d+){2,}[\w.-]*|[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+|[A-Z_]+_[A-Z0-9_]+"
    r"|[A-Za-z_]+\d[\w-]*|\d+[A-Za-z][\w-]*|#\d+)"
    r"|(?P<number>\d[\d,]*(?:\.\d+)?)"
    r"|(?P<code>\b[A-Z]{2,}\b)"
    r"|(?P<name>\b[A-Z][a-z]+\b)",
    re.ASCII,
)


def literals_of(entry: Entry) -> Iterator[tuple[str, Shape]]:
    """The literals of an entry with their shapes, in order, repetitions included; secrets are none."""
    text = masked(text_of(entry.message))
    if entry.kind is Kind.TOOL_RESULT and (value := _json(text)) is not None:
        yield from _of_values(value)
    else:
        yield from _of_text(text, names=entry.kind is Kind.USER)
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


def _of_text(text: str, *, names: bool) -> Iterator[tuple[str, Shape]]:
    """``names``: a capitalised word may be a name; outside the person's words too many are none."""
    for found in _SHAPES.finditer(text):
        literal = found.group().rstrip(".,;:!?")
        shape = shape_of(literal)
        if 2 <= len(literal) <= LONGEST and (names or shape != "name"):
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
            yield from _of_text(value, names=False)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value), "number"


def _json(text: str) -> Any | None:
    if text[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
