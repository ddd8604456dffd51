"""Read a history that is over: only its end and its beginning, whatever its length. Pure.

What fits stands in the window; as much again, just before, goes through the ledger and the gist; of all
else only the first request, with its answer, is read. Numbers are places in the history, so that what
an archive has of it can be found again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.chat.messages import Message, text_of
from perdure.chat.repair import Repair, repair
from perdure.chat.tokens import TokenCounter

#: Messages that are searched for a request or an answer, from where it may be.
FAR = 2_000


@dataclass(frozen=True, slots=True)
class Loading:
    """A history in its parts, mended, without its system messages. ``gone``: what is looked at and leaves;
    ``standing``: what fits; ``before``: how many numbers come before these. ``said``: number and message
    of requests and an answer among the numbers before. ``repairs``: of the system messages and of what
    stands, by place in the history."""

    said: Sequence[tuple[int, Message]]
    before: int
    gone: Sequence[Message]
    standing: Sequence[Message]
    repairs: list[Repair]


def beginning_of(history: Sequence[Message]) -> int:
    """Index of the first message that isn't system's."""
    index = 0
    while index < len(history) and _role(history[index]) in {"system", "developer"}:
        index += 1
    return index


def loading(history: Sequence[Message], room: int, back: int, counter: TokenCounter) -> Loading:
    """The parts of a history of which ``room`` tokens are to stand, and ``back`` more to be looked at."""
    beginning = beginning_of(history)
    start = _reaching_back(history, len(history), beginning, room, counter)
    since = _reaching_back(history, start, beginning, back, counter)
    _, repairs = repair(history[:beginning])
    gone, _ = repair(history[since:start])
    standing, found = repair(history[start:])
    return Loading(
        [(index - beginning + 1, _mended(history[index])) for index in _asked(history, beginning, since)],
        # A repair may have made more messages of what is looked at.
        max(start - beginning - len(gone), 0),
        gone,
        standing,
        [*repairs, *(replace(each, at=each.at + start) for each in found)],
    )


def _reaching_back(
    history: Sequence[Message], end: int, beginning: int, room: int, counter: TokenCounter
) -> int:
    """Where the last messages before ``end`` begin that have ``room`` tokens and no result without its
    call."""
    start, tokens = end, 0
    while start > beginning and tokens < room:
        start -= 1
        tokens += counter.message(history[start]) if isinstance(history[start], dict) else 0
    at_least = max(beginning, start - FAR)
    while at_least < start < end and _role(history[start]) == "tool":
        start -= 1
    return start


def _asked(history: Sequence[Message], beginning: int, since: int) -> list[int]:
    """Where, before ``since``, the first request stands, its answer, and the request of a turn that is
    longer than all that is looked at."""
    first = _first(history, range(beginning, min(since, beginning + FAR)), _is_request)
    if first is None:
        return []
    found = {first, _first(history, range(first + 1, min(since, first + FAR)), _is_answer)}
    if not any(map(_is_request, history[since:])):
        found.add(_first(history, range(since - 1, max(first, since - FAR), -1), _is_request))
    return sorted(index for index in found if index is not None)


def _first(history: Sequence[Message], places: range, holds: Callable[[Any], bool]) -> int | None:
    return next((index for index in places if holds(history[index])), None)


def _is_request(message: Any) -> bool:
    return bool(_role(message) == "user")


def _is_answer(message: Any) -> bool:
    return bool(_role(message) == "assistant" and not message.get("tool_calls"))


def _mended(message: Any) -> Message:
    """The message as a text, whatever stands in it."""
    mended, _ = repair([message])
    return {"role": _role(message), "content": "\n".join(map(text_of, mended))}


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None
