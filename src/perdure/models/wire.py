"""Shape a request to what an endpoint accepts, and learn from what it refuses.

The standard form is sent first. Where an endpoint refuses a field by name, or the order of the
roles, the request is sent again without that field, or in another form, and that is remembered as
long as the client lives. Each thing can be learnt once, so asking again always ends.

Refusals of the roles come from chat templates more often than from checks, and then with whatever
status the server gives a template's error (llama.cpp 500, vLLM 400, TGI 422, LM Studio 200 and an
event): so they are known by their words alone, and these are narrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.chat.calls import Schema
from perdure.chat.forms import Form, formed
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
    schema_beside_tools: bool = True
    silent: SilentForm = "null"
    system: Literal["system", "developer", "in_user"] = "system"
    reasoning: bool = False
    alternate: bool = False
    user_first: bool = False

    @property
    def form(self) -> Form:
        """The form of the messages that this endpoint demands."""
        return Form(self.alternate, self.system != "in_user", self.user_first)


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
    if request.schema is not None and (dialect.schema_beside_tools or not request.tools):
        body |= _response_format(request.schema, dialect)
    return {**body, **request.extra}


def wire_messages(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    """The messages as this endpoint takes them: nothing empty, reasoning only where it is wanted."""
    said = [message for message in messages if not _is_empty_answer(message)]
    return [_shaped(message, dialect) for message in formed(said, dialect.form)]


def learn(dialect: Dialect, said: str, body: Mapping[str, Any], *, form_only: bool = False) -> Dialect | None:
    """What a refusal in these words teaches about a request with this body; None where nothing.
    ``form_only``: where the status says that the server failed, only the order of the roles is
    believed to be the reason."""
    for lesson in _FORMS if form_only else _FORMS + _LESSONS:
        if lesson.words.search(said) and lesson.applies(dialect, body):
            return lesson.learnt(dialect)
    return None


def _response_format(schema: Schema, dialect: Dialect) -> dict[str, Any]:
    if dialect.schema == "json_schema":
        form = {"name": "reply", "schema": dict(schema), "strict": _is_closed(schema)}
        return {"response_format": {"type": "json_schema", "json_schema": form}}
    if dialect.schema == "json_object" and schema.get("type") == "object":
        return {"response_format": {"type": "json_object"}}
    return {}


def _is_closed(schema: Any) -> bool:
    """Every object in the schema has all that it may have: the only ones that OpenAI takes for strict
    (https://platform.openai.com/docs/guides/structured-outputs)."""
    if isinstance(schema, Mapping):
        is_object = schema.get("type") == "object" or "properties" in schema
        closed = schema.get("additionalProperties") is False
        complete = set(schema.get("properties") or ()) == set(schema.get("required") or ())
        return (not is_object or (closed and complete)) and all(map(_is_closed, schema.values()))
    return not isinstance(schema, list) or all(map(_is_closed, schema))


def _is_empty_answer(message: Message) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls") and not text_of(message).strip()


def _shaped(message: Message, dialect: Dialect) -> Message:
    shaped = {name: value for name, value in message.items() if name != "reasoning_content"}
    if message["role"] == "assistant":
        calls = message.get("tool_calls")
        if dialect.reasoning and calls and message.get("reasoning_content"):
            shaped["reasoning_content"] = message["reasoning_content"]
        if not text_of(message).strip():
            shaped["content"] = {"null": None, "empty": "", "words": SILENT_WORDS}[dialect.silent]
    elif message["role"] == "system" and dialect.system == "developer":
        shaped["role"] = "developer"
    return shaped


@dataclass(frozen=True, slots=True)
class _Lesson:
    words: re.Pattern[str]
    applies: Callable[[Dialect, Mapping[str, Any]], bool]
    learnt: Callable[[Dialect], Dialect]


def _when(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _has_system(dialect: Dialect, body: Mapping[str, Any]) -> bool:
    return dialect.system == "system" and any(each["role"] == "system" for each in body["messages"])


def _changes(**flags: bool) -> Callable[[Dialect, Mapping[str, Any]], bool]:
    """The form would make another request of this one."""
    return lambda dialect, body: formed(body["messages"], Form(**flags)) != body["messages"]


_NOT_ALTERNATING = _when(
    r"roles? (?:must|should) alternate|must (?:strictly )?alternate between|should alternate with assistant"
    r"|alternate between ['\"`]?user['\"`]? and|alternating ['\"`]?user['\"`]?(?:/| and |, )['\"`]?\w"
    r"|multi-?turn requests alternate|unexpected role ['\"`]?\w+['\"`]? after role"
    r"|successive user or assistant messages|function call turn comes immediately after"
    r"|multiple ['\"`]?(?:user|assistant)['\"`]? roles in a row"
)
_NOT_USER_FIRST = _when(
    r"first (?:non-system )?(?:message|turn|role|content)\b.{0,60}\buser\b|no user query found"
    r"|(?:conversation|messages?|chat)\b.{0,30}\b(?:start|begin)s? with (?:a |the )?['\"`]?user"
)
#: Templates from before there was a system role say of one that the roles don't alternate.
_FORMS = (
    _Lesson(_NOT_ALTERNATING, _changes(alternate=True), lambda dialect: replace(dialect, alternate=True)),
    _Lesson(_NOT_USER_FIRST, _changes(user_first=True), lambda dialect: replace(dialect, user_first=True)),
    _Lesson(
        _when(
            rf"{_NOT_ALTERNATING.pattern}|{_NOT_USER_FIRST.pattern}"
            r"|system (?:role|messages?|prompts?) (?:is |are )?(?:not|un)[ -]?(?:supported|allowed)"
            r"|(?:doesn't|does not|don't) support (?:the |a )?['\"`]?system"
            r"|system message must be (?:at the beginning|the first)"
            r"|only ['\"`]?user['\"`]?(?:,| and) .{0,40}roles? (?:is|are) (?:supported|allowed)"
        ),
        _has_system,
        lambda dialect: replace(dialect, system="in_user"),
    ),
)
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
        _when(
            r"(?:tool|function)s?\b.{0,80}(?:json|grammar|response|structured)"
            r"|(?:json|grammar|response|structured).{0,80}\b(?:tool|function)s?\b"
        ),
        lambda dialect, body: "response_format" in body and "tools" in body,
        lambda dialect: replace(dialect, schema_beside_tools=False),
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
