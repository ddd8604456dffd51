"""Put back what a small model garbled while it copied. Pure.

A tiny model drops a bracket of an expression or a folder of a path. Where the request holds
exactly one literal of the same kind as the argument that the model wrote, that literal is meant.
The model still decides that there is such an argument and of which kind it is; an argument that
the request doesn't hold in letters ("add 19, 23 and 58") stays the model's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

#: Arithmetic that could be computed as it stands: two numbers at least, with operators between.
_ARITHMETIC = re.compile(r"[-(\d.][-\d\s.+*/%^()×÷]*[+\-*/%^×÷][-\d\s.+*/%^()×÷]*[\d)!]")
#: A path: something with a slash in it, or a name with an ending.
_PATH = re.compile(
    r"(?<![\w/.~-])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*|(?<![\w/.-])[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}(?![\w/])",
    re.ASCII,
)
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"|“([^”]+)”")
#: Likeness beyond which two literals are the same one, miscopied.
ALIKE = 0.6


def grounded(arguments: Mapping[str, Any], request: str, copied: Sequence[str]) -> dict[str, Any]:
    """The arguments, with miscopied literals as the request has them. ``copied`` names arguments
    that the tool's own examples always copy from the request."""
    return {
        name: _as_in(request, value, name in copied) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


def _as_in(request: str, value: str, copied: bool) -> str:
    written = value.strip().rstrip("}").strip()
    quoted = ["".join(found) for found in _QUOTED.findall(request)]
    for literals, kind in ((_arithmetic(request), _ARITHMETIC), (_paths(request), _PATH)):
        if written in literals or (copied and written in request.split()):
            return written
        if kind.fullmatch(written) or (copied and kind is _PATH):
            if len(literals) == 1:
                return literals[0]
            if alike := _most_alike(written, literals or (request.split() if copied else ())):
                return alike
    return _most_alike(written, quoted) or written or value


def _arithmetic(request: str) -> list[str]:
    found = (match.group().strip() for match in _ARITHMETIC.finditer(request))
    return [
        each for each in found if each.count("(") == each.count(")") and len(re.findall(r"\d+", each)) > 1
    ]


def _paths(request: str) -> list[str]:
    found = (match.group().rstrip(".") for match in _PATH.finditer(request))
    return [each for each in found if each and not re.fullmatch(r"[\d./]+", each)]


def _most_alike(written: str, literals: Sequence[str]) -> str | None:
    def likeness(literal: str) -> float:
        return SequenceMatcher(None, written.replace(" ", ""), literal.replace(" ", "")).ratio()

    best = max(literals, key=likeness, default=None)
    return best if best is not None and likeness(best) >= ALIKE else None
