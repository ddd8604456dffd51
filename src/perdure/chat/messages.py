"""What a conversation is made of: messages, entries, blocks.

A message is what goes over the wire and nothing else. What perdure knows about it (its number,
kind, tokens, time) stands beside it in an entry, so a kind is never guessed from the text: a
person may well begin a message with ``[``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: One chat-completions message, exactly as it goes over the wire.
Message = dict[str, Any]


class Kind(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    FEEDBACK = "feedback"
    NOTICE = "notice"
    RECALL = "recall"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in a session. ``seq`` from 1 without gaps; ``tokens`` as counted when it was
    written, overhead of the message included; ``time`` UTC, ISO 8601."""

    seq: int
    kind: Kind
    message: Message
    tokens: int
    time: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """The smallest thing that can leave the window: one message, or a `tool_call` together with
    all its results."""

    entries: tuple[Entry, ...]

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries)

    @property
    def first(self) -> int:
        return self.entries[0].seq

    @property
    def last(self) -> int:
        return self.entries[-1].seq

    @property
    def kind(self) -> Kind:
        return self.entries[0].kind


def call_ids(message: Message) -> tuple[str, ...]:
    """The ids of the calls an assistant message makes, in order; empty for other messages."""
    return tuple(call["id"] for call in message.get("tool_calls") or ())


def kind_of(message: Message) -> Kind:
    """The kind of a message that comes from outside, by its role and fields, never by its text."""
    if message["role"] == "assistant":
        return Kind.TOOL_CALL if message.get("tool_calls") else Kind.ASSISTANT
    return Kind.TOOL_RESULT if message["role"] == "tool" else Kind.USER


def blocks(entries: Iterable[Entry]) -> Iterator[Block]:
    """Group entries into blocks, in order. A result without its call is a block of its own."""
    held: list[Entry] = []
    for entry in entries:
        if held and not (entry.kind is Kind.TOOL_RESULT and held[0].kind is Kind.TOOL_CALL):
            yield Block(tuple(held))
            held = []
        held.append(entry)
    if held:
        yield Block(tuple(held))


def text_of(message: Message) -> str:
    """The readable text of a message: its content, with the parts of a multi-part one joined. Must not
    raise, whatever stands there."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))
