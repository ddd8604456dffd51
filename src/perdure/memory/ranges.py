"""Sets of entry numbers as ranges: a long session's receipt stays a few numbers."""

from __future__ import annotations

from collections.abc import Iterable

#: First and last number of each range, in order, never touching.
Ranges = tuple[tuple[int, int], ...]


def joined(ranges: Ranges, numbers: Iterable[int]) -> Ranges:
    """The ranges with further numbers in them."""
    spans = sorted([*ranges, *((number, number) for number in numbers)])
    merged: list[tuple[int, int]] = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
