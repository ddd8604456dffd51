"""Shorten a message to head and tail, with the number of the entry that holds the whole.

What is cut is the middle: the head of a text says what it is, the tail how it ended (an exit
code, an error, the last line of a log). The arguments of a call stay a JSON object: only the
long texts inside it are cut.
"""

from __future__ import annotations

import json
from typing import Any

from perdure.chat.messages import Entry, Message, text_of
from perdure.chat.tokens import TokenCounter

#: Share of the kept characters that stands before the gap.
HEAD = 0.6


def shortened(entry: Entry, kept: int) -> Message:
    """The entry's message with at most ``kept`` characters of its text, and of each text in the
    arguments of its calls: the head, a gap, the tail."""
    message = entry.message
    text = text_of(message)
    if len(text) > kept:
        message = {**message, "content": _with_gap(text, kept, entry.seq)}
    if calls := message.get("tool_calls"):
        message = {**message, "tool_calls": [_call_within(call, kept, entry.seq) for call in calls]}
    return message


def kept_within(entry: Entry, limit: int, counter: TokenCounter) -> int:
    """How many characters can stay so that the message has at most ``limit`` tokens; 0 where not
    even the gap alone is that small. Found by halving: some twenty counts."""
    fits, too_many = 0, len(json.dumps(entry.message, ensure_ascii=False))
    while too_many - fits > max(1, too_many // 50):
        kept = (fits + too_many) // 2
        if counter.message(shortened(entry, kept)) <= limit:
            fits = kept
        else:
            too_many = kept
    return fits


def _with_gap(text: str, kept: int, seq: int) -> str:
    head = int(kept * HEAD)
    tail = kept - head
    gap = f"[... {len(text) - kept} characters left out; entry {seq} holds the whole ...]"
    return "\n".join(part for part in (text[:head], gap, text[len(text) - tail :]) if part)


def _call_within(call: dict[str, Any], kept: int, seq: int) -> dict[str, Any]:
    function = call["function"]
    if len(function["arguments"]) <= kept:
        return call
    arguments = _texts_within(json.loads(function["arguments"]), kept, seq)
    return {**call, "function": {**function, "arguments": json.dumps(arguments, ensure_ascii=False)}}


def _texts_within(value: Any, kept: int, seq: int) -> Any:
    """The JSON value with each text in it cut to ``kept`` characters, where that makes it shorter."""
    if isinstance(value, str):
        cut = _with_gap(value, kept, seq)
        return min(value, cut, key=len) if len(value) > kept else value
    if isinstance(value, list):
        return [_texts_within(each, kept, seq) for each in value]
    if isinstance(value, dict):
        return {name: _texts_within(each, kept, seq) for name, each in value.items()}
    return value
