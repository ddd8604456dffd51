"""Messages of other wire forms as chat-completions messages.

Three forms are told apart by their fields, never by their text: chat messages themselves, Anthropic's
messages of content blocks, and the items of OpenAI's Responses. What has no place in chat completions
(reasoning that is signed for its provider, tools that ran at the provider) is left out and counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from perdure.chat.foreign_lines import Damage
from perdure.chat.messages import Kind, Message, text_of
from perdure.errors import Words

REASONING: Words = ("{count} {count:piece|pieces} of the model's reasoning", "{count} 段模型的推理")
HOSTED: Words = (
    "{count} {count:call or result|calls or results} of tools that ran at the provider",
    "{count} 条在服务商处运行的工具的调用或结果",
)
UNKNOWN: Words = ("{count} {count:part|parts} of a kind that is not read", "{count} 个无法读取的部分")

#: What a chat message may carry; anything else a strict endpoint would refuse.
_FIELDS = (
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal"),
    "reasoning_content",
)
#: Parts that stand in a chat message as they are.
_CHAT_PARTS = frozenset({"text", "image_url", "input_audio", "file", "refusal"})
_TEXTS = frozenset({"text", "input_text", "output_text"})
_REASONING = frozenset({"thinking", "redacted_thinking", "reasoning"})
#: Parts that only Anthropic's messages have.
BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})
#: Items of the Responses form, other than messages, that become a call or a result.
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
ITEMS = _CALLS | _RESULTS | {"reasoning"}
_HOSTED = re.compile(r"\w+_(?:call|call_output|tool_use|tool_result)\Z|tool_search_output\Z|mcp_\w+\Z")
#: A timestamp beyond this is in milliseconds.
_SECONDS = 1e11


@dataclass(frozen=True, slots=True)
class Said:
    """A message as it was read, with its kind, its time (UTC, ISO 8601) and its lane where the file
    tells them."""

    message: Message
    kind: Kind | None = None
    time: str = ""
    lane: str = ""


@dataclass
class Reading:
    """What has been read of a file so far. ``left_out``: what was not taken over, and how often;
    ``conversations``: those that stand in it, one after the other."""

    said: list[Said] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    left_out: Counter[Words] = field(default_factory=Counter)
    conversations: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    #: Wire forms that were seen, other than chat completions.
    forms: set[str] = field(default_factory=set)

    def add(self, message: Message, kind: Kind | None = None, time: str = "") -> None:
        self.said.append(Said(message, kind, time))

    def add_system(self, text: str, time: str = "") -> None:
        """The system prompt; in mid-conversation a notice, as `Memory.append` has it."""
        if self.said:
            self.add({"role": "user", "content": text}, Kind.NOTICE, time)
        elif text.strip():
            known = self.settings.get("system")
            self.settings["system"] = f"{known}\n\n{text}" if known else text


def add_message(
    reading: Reading,
    message: Mapping[str, Any],
    *,
    kind: Kind | None = None,
    time: str = "",
    as_found: bool = False,
) -> None:
    """A chat message, or one of Anthropic's: the results in it first, as they answer what came before.
    ``as_found``: a content that a chat message may have stays as it is."""
    content = message.get("content")
    fields = {name: message[name] for name in _FIELDS if name in message}
    if message.get("role") in ("system", "developer"):
        reading.add_system(text_of({"content": _parts(reading, content).content()}), time)
        return
    if isinstance(content, list) and not (as_found and all(_stands(part) for part in content)):
        parts = _parts(reading, content)
        for result in parts.results:
            reading.add(result, None, time)
        fields["content"] = parts.content()
        if parts.calls:
            fields["tool_calls"] = parts.calls
        if not fields["content"]:
            if not fields.get("tool_calls"):
                return
            fields["content"] = None
    reading.add(fields, kind, time)


def add_item(reading: Reading, item: Mapping[str, Any], *, kind: Kind | None = None, time: str = "") -> None:
    """An item of the Responses form. Calls that follow each other were made at once, and stand in one
    message with the text before them."""
    type = type_of(item)
    if type in _CALLS:
        last = reading.said[-1].message if reading.said else {}
        if last.get("role") != "assistant" or not isinstance(last.get("tool_calls", []), list):
            last = {"role": "assistant", "content": None}
            reading.add(last, None, time)
        last.setdefault("tool_calls", []).append(_call_of(item))
    elif type in _RESULTS:
        id = item.get("call_id") or item.get("id")
        reading.add(_result(id, _output(reading, item.get("output"))), None, time)
    elif type == "reasoning":
        reading.left_out[REASONING] += 1
    elif "role" in item:
        add_message(reading, item, kind=kind, time=time, as_found=True)
    elif _HOSTED.match(type):
        reading.left_out[HOSTED] += 1
    else:
        reading.left_out[UNKNOWN] += 1


def type_of(value: Mapping[str, Any]) -> str:
    type = value.get("type")
    return type if isinstance(type, str) else ""


def utc(value: Any) -> str:
    """A time as files write it (ISO 8601, or seconds or milliseconds since 1970) in UTC, as the journal
    writes it; empty for anything else."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = datetime.fromtimestamp(value / 1000 if value > _SECONDS else value, UTC)
        else:
            return ""
    except (ValueError, OverflowError, OSError):
        return ""
    return time.isoformat(timespec="milliseconds")


def call(id: Any, name: Any, arguments: Any) -> Message:
    """A call in a chat message; ``arguments`` as text, or as the value itself."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def image(url: Any) -> Message:
    return {"type": "image_url", "image_url": {"url": url if isinstance(url, str) else ""}}


# --- content


@dataclass
class _Parts:
    """A content, sorted: what stands in the message, the calls it makes, the results it brings."""

    shown: list[Message] = field(default_factory=list)
    calls: list[Message] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)

    def content(self) -> Any:
        if all(part["type"] == "text" for part in self.shown):
            return "\n".join(part["text"] for part in self.shown)
        return self.shown


def _stands(part: Any) -> bool:
    return isinstance(part, dict) and type_of(part) in _CHAT_PARTS


def _parts(reading: Reading, content: Any) -> _Parts:
    parts = _Parts()
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            parts.shown.append(_text(part))
        elif isinstance(part, dict):
            _sort(reading, parts, part)
    return parts


def _sort(reading: Reading, parts: _Parts, part: Mapping[str, Any]) -> None:
    type = type_of(part)
    if type in _TEXTS:
        if isinstance(part.get("text"), str):
            parts.shown.append(_text(part["text"]))
    elif type == "tool_use":
        parts.calls.append(call(part.get("id"), part.get("name"), part.get("input")))
    elif type == "tool_result":
        parts.results.append(_result(part.get("tool_use_id"), _output(reading, part.get("content"))))
    elif type in _REASONING:
        reading.left_out[REASONING] += 1
    elif type == "refusal":
        parts.shown.append(_text(str(part.get("refusal") or "")))
    elif (shown := _media(part)) is not None:
        parts.shown.append(shown)
    elif _HOSTED.match(type):
        reading.left_out[HOSTED] += 1
    else:
        reading.left_out[UNKNOWN] += 1


def _media(part: Mapping[str, Any]) -> Message | None:
    """An image or a document as a chat message can have it; None for anything else."""
    type = type_of(part)
    if type in _CHAT_PARTS:
        return dict(part)
    if type == "input_image":
        return image(part.get("image_url"))
    if type == "image":
        return _image_of(part)
    if type in ("document", "input_file"):
        return _text(_document_of(part))
    return None


def _image_of(part: Mapping[str, Any]) -> Message:
    source = part.get("source")
    if not isinstance(source, dict):
        return image(f"data:{part.get('mimeType')};base64,{part.get('data')}")
    if source.get("type") == "base64":
        return image(f"data:{source.get('media_type')};base64,{source.get('data')}")
    return image(source.get("url"))


def _document_of(part: Mapping[str, Any]) -> str:
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "text":
        return str(source.get("data") or "")
    return f"[{part.get('title') or part.get('filename') or 'document'}]"


def _output(reading: Reading, output: Any) -> str:
    """What a tool showed, as text: a result has no place for an image."""
    if isinstance(output, dict) and "content" in output:
        output = output["content"]
    if isinstance(output, str) or output is None:
        return output or ""
    if not isinstance(output, list):
        return json.dumps(output, ensure_ascii=False)
    shown = _parts(reading, output).shown
    return "\n".join(
        part["text"] if part["type"] == "text" else f"[{part['type'].removesuffix('_url')}]" for part in shown
    )


def _result(id: Any, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _call_of(item: Mapping[str, Any]) -> Message:
    id = item.get("call_id") or item.get("id")
    if item["type"] == "custom_tool_call":
        return call(id, item.get("name"), {"input": item.get("input")})
    if item["type"] == "local_shell_call":
        action = item.get("action")
        command = action.get("command") if isinstance(action, dict) else None
        return call(id, "local_shell", {"command": command})
    return call(id, item.get("name"), item.get("arguments"))


def texts_of(content: Any) -> Sequence[str]:
    """The texts in a content, one for each part."""
    if isinstance(content, str):
        return (content,)
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return tuple(text for text in texts if isinstance(text, str))
