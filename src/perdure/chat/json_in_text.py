"""JSON that stands somewhere in a text, as models write it: between words, in fences, several in a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def json_in(text: str, opening: str = "{[") -> Iterator[Any]:
    """The objects and lists in a text, in order, each as a whole; with ``opening`` only what begins so."""
    decoder, at = json.JSONDecoder(), 0
    while starts := [found for each in opening if (found := text.find(each, at)) >= 0]:
        try:
            value, at = decoder.raw_decode(text, min(starts))
        except RecursionError:
            return  # nobody nests so deep, and to look at each of so many beginnings takes seconds
        except ValueError:
            at = min(starts) + 1
            continue
        yield value
