"""Entries as people write them: 12, or 12-15."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perdure.errors import ConfigError, EntryUnknown, Words
from perdure.memory.ranges import joined

NO_SPAN: Words = (
    "entries are a number or a range, as 12 or 12-15, not {text!r}",
    "记录应为编号或范围，如 12 或 12-15，不能是 {text!r}",
)
BACKWARDS: Words = (
    "a range goes from the smaller number to the larger one, not {text!r}",
    "范围应从小到大，不能是 {text!r}",
)
_SPAN = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?")


def span_of(text: str, session: str, count: int) -> tuple[int, int]:
    """First and last entry of what a person wrote, in a session of ``count`` entries. Raises `ConfigError`
    for anything else, and `EntryUnknown`."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(NO_SPAN, text=text)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ConfigError(BACKWARDS, text=text)
    for number in (first, last):
        if not 1 <= number <= count:
            raise EntryUnknown(name=session, number=number, count=count)
    return first, last


def in_spans(numbers: Iterable[int]) -> str:
    """Numbers, sorted, as people read them."""
    return as_spans(joined((), numbers))


def as_spans(ranges: Sequence[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
