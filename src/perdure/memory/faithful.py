"""The published algorithm's own order of removal, for those who want to compare or to change over.

It pops the oldest block until the history and the summary fit; a tool block is the assistant message
with the results that follow it; a result without its call is a block of its own. There is no low water
mark, nothing is anchored, nothing shortened, nothing kept beside the summary.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.chat.messages import Entry, blocks


def popped(entries: Sequence[Entry], room: int) -> tuple[int, ...]:
    """Numbers of the entries that leave so that the rest has at most ``room`` tokens."""
    standing, leaving = sum(entry.tokens for entry in entries), list[int]()
    for block in blocks(entries):
        if standing <= room:
            break
        standing -= block.tokens
        leaving += [entry.seq for entry in block.entries]
    return tuple(leaving)
