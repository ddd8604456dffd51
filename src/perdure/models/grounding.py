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
from types import MappingProxyType
from typing import Any

#: What arithmetic is written with. Found as a run and trimmed in code: one pattern for the whole of
#: it needs the cube of the time on a ruled line.
_RUN = re.compile(r"[-\d\s.+*/%^()×÷]+!?")
_OPERATOR = re.compile(r"[+\-*/%^×÷]")
#: A path: something with a slash in it, or a name with an ending. In ASCII first, because Chinese
#: puts no space between a path and the words around it.
_PATH_PATTERN = (
    r"(?<![\w/.~-])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*"
    r"|(?<![\w/.~-])(?:~|\.{1,2})?/[\w.@+-]+"
    r"|(?<![\w/.-])[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w/])"
)
_PATH, _ANY_PATH = re.compile(_PATH_PATTERN, re.ASCII), re.compile(_PATH_PATTERN)
_ENDING = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}$", re.ASCII)
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']+)'(?!\w)")
#: Likeness beyond which two literals are the same one, miscopied.
ALIKE = 0.6


def grounded(
    arguments: Mapping[str, Any],
    request: str,
    copied: Sequence[str],
    endings: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """The arguments, with miscopied literals as the request has them. ``copied`` names arguments
    that the tool's own examples always copy from the request; ``endings`` are ends of the request
    that an argument may be, if it begins with the same word."""
    return {
        name: _as_in(request, value, name in copied, endings.get(name, ()))
        if isinstance(value, str)
        else value
        for name, value in arguments.items()
    }


def occurs(value: Any, request: str) -> bool:
    """The value, as letters, stands in the request."""
    return str(value).strip().casefold() in request.casefold()


def _as_in(request: str, value: str, copied: bool, endings: Sequence[str]) -> str:
    written = value.strip().rstrip("}").strip()
    if copied and request.rstrip().endswith(written):
        # The mark that ends the request is no part of its last word.
        written = written.rstrip("?!。？！") or written
    quoted = ["".join(found) for found in _QUOTED.findall(request)]
    # A name with a space in it is found by its quotation marks.
    whole = _most_alike(written, quoted) if copied else None
    if whole and not occurs(written, _QUOTED.sub(" ", request)):
        return whole
    paths = _paths(request)
    sums = _arithmetic(request)
    for literals, of_that_kind in (
        (sums, _trimmed(written) == written or _is_part(written, sums, request)),
        (paths, copied or _PATH.fullmatch(written) is not None),
    ):
        if written in literals or (copied and written in _words(request)):
            return written
        if of_that_kind:
            if len(literals) == 1:
                return literals[0]
            if alike := _most_alike(written, literals or (_words(request) if copied else ())):
                return alike
    if occurs(written, request):
        return written or value
    begun = [ending for ending in endings if ending.split()[:1] == written.split()[:1]]
    return _most_alike(written, [*quoted, *begun]) or written


def _is_part(written: str, sums: Sequence[str], request: str) -> bool:
    """What was written is a piece of the request's only sum, and stands nowhere else in it."""
    if len(sums) != 1 or not _RUN.fullmatch(written) or not re.search(r"\d", written):
        return False
    is_in_it = "".join(written.split()) in "".join(sums[0].split())
    return is_in_it and not occurs(written, request.replace(sums[0], " "))


def _words(request: str) -> list[str]:
    return [word.rstrip("?!。？！,;，；") for word in request.split()]


def _trimmed(run: str) -> str | None:
    """The run from its first number or bracket to its last; None where no operator stands between."""
    begin = re.search(r"[-(\d.]", run)
    end = max((run.rfind(each) for each in ")!"), default=-1)
    end = max(end, max((at for at, each in enumerate(run) if each.isdecimal()), default=-1))
    if begin is None or not _RUN.fullmatch(run) or not _OPERATOR.search(run, begin.start() + 1, max(end, 0)):
        return None
    return run[begin.start() : end + 1]


def _arithmetic(request: str) -> list[str]:
    found = (_trimmed(match.group()) for match in _RUN.finditer(request))
    return [
        each
        for each in found
        if each and each.count("(") == each.count(")") and len(re.findall(r"\d+", each)) > 1
    ]


def _paths(request: str) -> list[str]:
    found = [_whole_path(request, match) for match in _PATH.finditer(request)]
    if not found:
        found = [each for each in _ANY_PATH.findall(request) if _ENDING.search(each)]
    return [
        each for each in (path.rstrip(".") for path in found) if each and not re.fullmatch(r"[\d./]+", each)
    ]


def _whole_path(request: str, match: re.Match[str]) -> str:
    """The path that begins there, with a name in another script (`data/用户.csv`)."""
    longer = _ANY_PATH.match(request[match.start() :])
    return longer.group() if longer and _ENDING.search(longer.group()) else match.group()


def _most_alike(written: str, literals: Sequence[str]) -> str | None:
    def likeness(literal: str) -> float:
        return SequenceMatcher(None, written.replace(" ", ""), literal.replace(" ", "")).ratio()

    best = max(literals, key=likeness, default=None)
    return best if best is not None and likeness(best) >= ALIKE else None
