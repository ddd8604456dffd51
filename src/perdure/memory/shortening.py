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
#: Characters of a token at most, in texts that are worth keeping; nobody counts five megabytes twenty times.
WIDEST = 16
#: Characters that arguments may have beyond twice those that are kept of a text, for names and gaps.
FEW = 400


def shortened(entry: Entry, kept: int) -> Message:
    """The entry's message with at most ``kept`` characters of its text, and of each text in the
    arguments of its calls: the head, a gap, the tail."""
    message = entry.message
    content = _content_within(message, kept, entry.seq)
    if content is not message.get("content"):
        message = {**message, "content": content}
    if isinstance(thoughts := message.get("reasoning_content"), str):
        message = {**message, "reasoning_content": _with_gap(thoughts, kept, entry.seq)}
    if calls := message.get("tool_calls"):
        message = {**message, "tool_calls": [_call_within(call, kept, entry.seq) for call in calls]}
    return message


def kept_within(entry: Entry, limit: int, counter: TokenCounter) -> int:
    """How many characters can stay so that the message has at most ``limit`` tokens; 0 where not
    even the gap alone is that small. Found by halving: some twenty counts."""
    fits, too_many = 0, min(len(_json(entry.message)), limit * WIDEST)
    while too_many - fits > max(1, too_many // 50):
        kept = (fits + too_many) // 2
        if counter.message(shortened(entry, kept)) <= limit:
            fits = kept
        else:
            too_many = kept
    return fits


def _content_within(message: Message, kept: int, seq: int) -> Any:
    """The content with its text cut. Images and the like give way first, and it is said that they do."""
    text, content = text_of(message), message.get("content")
    if isinstance(content, list) and (others := sum(part.get("type") != "text" for part in content)):
        gone = f"[{others} attachments left out; entry {seq} holds them]"
        return "\n".join(part for part in (_with_gap(text, kept, seq), gone) if part)
    short = _with_gap(text, kept, seq)
    return content if short is text else short


def _with_gap(text: str, kept: int, seq: int) -> str:
    """Head, gap and tail of a text; the text itself where that is no longer."""
    if len(text) <= kept:
        return text
    gap = f"[... {len(text) - kept} characters left out; entry {seq} holds the whole ...]"
    if kept == 0:
        gap = f"[... entry {seq} holds the whole ...]"
    head = int(kept * HEAD)
    tail = kept - head
    short = "\n".join(part for part in (text[:head], gap, text[len(text) - tail :]) if part)
    return min(text, short, key=len)


def _call_within(call: dict[str, Any], kept: int, seq: int) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if len(arguments) <= kept:
        return call
    return {**call, "function": {**function, "arguments": _arguments_within(arguments, kept, seq)}}


def _arguments_within(arguments: str, kept: int, seq: int) -> str:
    """A JSON object of the same names with each text in it cut; where its values are no texts, or too
    many, with each value, and then all of them, as a cut text."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = {}
    if isinstance(values, dict):
        texts = _json({name: _texts_within(each, kept, seq) for name, each in values.items()})
        whole = _json({name: _as_text_within(each, kept, seq) for name, each in values.items()})
        shorter = min(texts, whole, key=len) if len(texts) > 2 * kept + FEW else texts
        if len(shorter) <= 2 * kept + FEW:
            return shorter
    at_once = _json({"arguments": _with_gap(arguments, kept, seq)})
    return min(arguments, at_once, key=len)


def _texts_within(value: Any, kept: int, seq: int) -> Any:
    """The JSON value with each text in it cut to ``kept`` characters."""
    if isinstance(value, str):
        return _with_gap(value, kept, seq)
    if isinstance(value, list):
        return [_texts_within(each, kept, seq) for each in value]
    if isinstance(value, dict):
        return {name: _texts_within(each, kept, seq) for name, each in value.items()}
    return value


def _as_text_within(value: Any, kept: int, seq: int) -> Any:
    """The value, where its JSON has at most ``kept`` characters, else that as a cut text."""
    if isinstance(value, str):
        return _with_gap(value, kept, seq)
    printed = _json(value)
    return value if len(printed) <= kept else min(_with_gap(printed, kept, seq), printed, key=len)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
