"""What a summary is made from: each entry that left, said shortly. Pure.

A call stands together with what it showed, so that a failure stays the failure of that call and
doesn't become a rule about the tool. Feedback, notices, recalls and plans are the agent's own
bookkeeping and are left out, by their kind and never by their text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perdure.chat.messages import Block, Entry, Kind, blocks, text_of
from perdure.chat.secrets import masked

#: Characters that stay of what the person said, of what the model said, of the arguments of a call
#: and of its result.
PERSON_KEPT, MODEL_KEPT, ARGUMENTS_KEPT, RESULT_KEPT = 1_200, 600, 200, 300


@dataclass(frozen=True, slots=True)
class Source:
    """What one message, or one call with its result, says. ``entries``: the numbers of the entries it
    stands for; ``kind``: `user`, `assistant`, or `tool_result` for a call with its result."""

    entries: tuple[int, ...]
    kind: Kind
    text: str


def sources_of(entries: Iterable[Entry]) -> Iterator[Source]:
    """The sources of entries that leave, in order; secrets are masked."""
    for block in blocks(entries):
        if block.kind in {Kind.USER, Kind.ASSISTANT}:
            kept = PERSON_KEPT if block.kind is Kind.USER else MODEL_KEPT
            yield from _said(block, block.kind, kept)
        elif block.kind is Kind.TOOL_CALL:
            yield from _said(block, Kind.ASSISTANT, MODEL_KEPT)
            yield from _done(block)


def _said(block: Block, kind: Kind, kept: int) -> Iterator[Source]:
    if text := text_of(block.entries[0].message).strip():
        yield Source((block.first,), kind, _short(text, kept))


def _done(block: Block) -> Iterator[Source]:
    results = {entry.message["tool_call_id"]: entry for entry in block.entries[1:]}
    for call in block.entries[0].message["tool_calls"]:
        function, result = call["function"], results.get(call["id"])
        asked = f"{function['name']}({_short(function['arguments'], ARGUMENTS_KEPT)})"
        showed = _short(text_of(result.message), RESULT_KEPT) if result else ""
        numbers = (block.first, result.seq) if result else (block.first,)
        yield Source(numbers, Kind.TOOL_RESULT, f"{asked} -> {showed}")


def _short(text: str, kept: int) -> str:
    """The text on one line, secrets masked, its middle left out where it is longer than ``kept``."""
    flat = " ".join(masked(text).split())
    if len(flat) <= kept:
        return flat
    tail = kept // 3
    return f"{flat[: kept - tail]} [...] {flat[len(flat) - tail :]}"
