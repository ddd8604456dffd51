"""Sets of entry numbers as ranges: a long session's receipt stays a few numbers."""

from __future__ import annotations

from collections.abc import Iterable

#: First and last number of each range, in order, never touching.
Ranges = tuple[tuple[int, int], ...]


def joined(ranges: Ranges, numbers: Iterable[int]) -> Ranges:
    """The ranges with further numbers in them."""
    return merged((*ranges, *((number, number) for number in numbers)))


def merged(spans: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges of any order, overlapping or not, as such that never touch."""
    apart: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = (apart[-1][0], max(apart[-1][1], last))
        else:
            apart.append((first, last))
    return tuple(apart)


def covers(ranges: Ranges, numbers: Iterable[int]) -> bool:
    """All the numbers are in the ranges."""
    return all(any(first <= number <= last for first, last in ranges) for number in numbers)
