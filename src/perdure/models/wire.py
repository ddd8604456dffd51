"""Shape a request to what an endpoint accepts, and learn from what it refuses.

The standard form is sent first. Where an endpoint refuses a field by name, the request is sent
again without it, and that is remembered as long as the client lives. Each thing can be learnt
once, so asking again always ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.chat.messages import Message, text_of
from perdure.models.client import ModelRequest

#: What stands for an assistant's content where it made calls and said nothing.
SilentForm = Literal["null", "empty", "words"]
#: Said in place of nothing, for endpoints that accept neither null nor an empty text.
SILENT_WORDS = "(calls tools)"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an endpoint accepts, as far as is known. The defaults are the standard."""

    stream: bool = True
    usage_in_stream: bool = True
    output_limit_field: str = "max_tokens"
    temperature: bool = True
    schema: Literal["json_schema", "json_object", "none"] = "json_schema"
    silent: SilentForm = "null"
    system: Literal["system", "developer", "in_user"] = "system"
    reasoning: bool = False


def body_of(request: ModelRequest, model: str, dialect: Dialect) -> dict[str, Any]:
    """The JSON body of a chat-completions request."""
    body: dict[str, Any] = {"model": model, "messages": wire_messages(request.messages, dialect)}
    if dialect.stream:
        body["stream"] = True
        if dialect.usage_in_stream:
            body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [tool.on_the_wire() for tool in request.tools]
    if request.max_output_tokens is not None:
        body[dialect.output_limit_field] = request.max_output_tokens
    if request.temperature is not None and dialect.temperature:
        body["temperature"] = request.temperature
    if request.schema is not None and dialect.schema == "json_schema":
        form = {"name": "reply", "schema": dict(request.schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    elif request.schema is not None and dialect.schema == "json_object":
        body["response_format"] = {"type": "json_object"}
    return {**body, **request.extra}


def wire_messages(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    """The messages as this endpoint takes them: nothing empty, reasoning only where it is wanted."""
    shaped = [shape for message in messages if (shape := _shaped(message, dialect))]
    if dialect.system == "in_user" and shaped and shaped[0]["role"] == "system":
        return _system_in_user(shaped)
    return shaped


def learn(dialect: Dialect, said: str, body: Mapping[str, Any]) -> Dialect | None:
    """What a refusal in these words teaches about a request with this body; None where nothing."""
    for lesson in _LESSONS:
        if lesson.applies(dialect, body) and lesson.words.search(said):
            return lesson.learnt(dialect)
    return None


def _shaped(message: Message, dialect: Dialect) -> Message | None:
    shaped = {name: value for name, value in message.items() if name != "reasoning_content"}
    if message["role"] == "assistant":
        calls = message.get("tool_calls")
        if dialect.reasoning and calls and message.get("reasoning_content"):
            shaped["reasoning_content"] = message["reasoning_content"]
        if not text_of(message).strip():
            if not calls:
                return None
            shaped["content"] = {"null": None, "empty": "", "words": SILENT_WORDS}[dialect.silent]
    elif message["role"] == "system" and dialect.system == "developer":
        shaped["role"] = "developer"
    return shaped


def _system_in_user(messages: list[Message]) -> list[Message]:
    system, *rest = messages
    text = text_of(system)
    if rest and rest[0]["role"] == "user" and isinstance(rest[0]["content"], str):
        return [{**rest[0], "content": f"{text}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{"role": "user", "content": text}, *rest]


@dataclass(frozen=True, slots=True)
class _Lesson:
    words: re.Pattern[str]
    applies: Callable[[Dialect, Mapping[str, Any]], bool]
    learnt: Callable[[Dialect], Dialect]


def _when(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_LESSONS = (
    _Lesson(
        _when(r"\bstream(?:ing)?\b[^.]{0,30}(?:not |un)support|not support[^.]{0,30}\bstream(?:ing)?\b"),
        lambda dialect, body: "stream" in body,
        lambda dialect: replace(dialect, stream=False),
    ),
    _Lesson(
        _when(r"stream_options|include_usage"),
        lambda dialect, body: "stream_options" in body,
        lambda dialect: replace(dialect, usage_in_stream=False),
    ),
    _Lesson(
        _when(r"max_completion_tokens"),
        lambda dialect, body: "max_tokens" in body,
        lambda dialect: replace(dialect, output_limit_field="max_completion_tokens"),
    ),
    _Lesson(
        _when(r"temperature"),
        lambda dialect, body: "temperature" in body,
        lambda dialect: replace(dialect, temperature=False),
    ),
    _Lesson(
        _when(r"response_format|json_schema|json_object|structured output"),
        lambda dialect, body: "response_format" in body,
        lambda dialect: replace(dialect, schema="json_object" if dialect.schema == "json_schema" else "none"),
    ),
    _Lesson(
        _when(r"system (?:role|message|prompt)|roles?\b.{0,40}\bsystem\b|['\"`]system['\"`]"),
        lambda dialect, body: dialect.system == "system" and body["messages"][0]["role"] == "system",
        lambda dialect: replace(dialect, system="in_user"),
    ),
    _Lesson(
        _when(r"reasoning_content"),
        lambda dialect, body: not dialect.reasoning,
        lambda dialect: replace(dialect, reasoning=True),
    ),
    _Lesson(
        _when(r"content"),
        lambda dialect, body: dialect.silent != "words" and _has_silent_calls(body),
        lambda dialect: replace(dialect, silent="empty" if dialect.silent == "null" else "words"),
    ),
)


def _has_silent_calls(body: Mapping[str, Any]) -> bool:
    return any(message.get("tool_calls") and not message.get("content") for message in body["messages"])
