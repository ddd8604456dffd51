"""What a conversation is made of: messages, entries, blocks.

A message is what goes over the wire and nothing else. What perdure knows about it (its number,
kind, tokens, time) stands beside it in an entry, so a kind is never guessed from the text: a
person may well begin a message with ``[``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: One chat-completions message, exactly as it goes over the wire.
Message = dict[str, Any]


_THOUGHTS = re.compile(r"<(think|thinking|reasoning|thought)>.*?(?:</\1>|\Z)", re.S | re.I)

#: Who may speak.
ROLES = ("system", "developer", "user", "assistant", "tool")


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
    written, overhead of the message included; ``time`` UTC, ISO 8601; ``lane``: whose window it stands
    in, the conversation's own (empty) or that of a step of a plan."""

    seq: int
    kind: Kind
    message: Message
    tokens: int
    time: str = ""
    lane: str = ""


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


def without_thoughts(text: str) -> str:
    """A text without what a model thought aloud before it spoke, between the tags that such models use; of
    thoughts that never end, nothing stays."""
    return _THOUGHTS.sub("", text)


def call_ids(message: Message) -> tuple[str, ...]:
    """The ids of the calls an assistant message makes, in order; empty for other messages."""
    return tuple(call["id"] for call in message.get("tool_calls") or ())


def kind_of(message: Message) -> Kind:
    """The kind of a message that comes from outside, by its role and fields, never by its text."""
    if message["role"] == "assistant":
        return Kind.TOOL_CALL if message.get("tool_calls") else Kind.ASSISTANT
    return Kind.TOOL_RESULT if message["role"] == "tool" else Kind.USER


def what_is_wrong(message: Any) -> str:
    """Why no endpoint would accept the message; empty where nothing is wrong with its form."""
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        return f"a message is an object with one of the roles {', '.join(ROLES)}, not {message!r:.80}"
    role, calls = message["role"], message.get("tool_calls")
    if calls and (role != "assistant" or not isinstance(calls, list) or not all(map(_is_call, calls))):
        return "tool_calls stand in an assistant's message: each with an id, a function's name and arguments"
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        return "a tool's message names the call that it answers"
    return _wrong_content(message.get("content"), needed=not calls)


def _wrong_content(content: Any, *, needed: bool) -> str:
    if content is None:
        return "a message says something, or calls a tool" if needed else ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return ""
    shown = f"{content!r:.80}"
    return "" if isinstance(content, str) else f"content is a text, a list of parts or null, not {shown}"


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    fields = (
        (call.get("id"), function.get("name"), function.get("arguments"))
        if isinstance(function, dict)
        else ()
    )
    return bool(fields) and all(isinstance(field, str) for field in fields)


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
