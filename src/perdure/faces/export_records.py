"""What an export shows of a session: its records without secrets, each with the words for a reader."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from perdure.agent.undone import undone_entries
from perdure.chat.language import Language, say
from perdure.chat.messages import Entry, Kind, Message, text_of
from perdure.chat.plans import step_of
from perdure.chat.secrets import MARK, masked
from perdure.errors import Words
from perdure.faces.cli.terminal import one_line, printable
from perdure.store.journal import Recorded

#: Who speaks.
WHO: Mapping[Kind, Words] = {
    Kind.USER: ("Person", "用户"),
    Kind.ASSISTANT: ("Assistant", "助手"),
    Kind.TOOL_CALL: ("Assistant, calling tools", "助手（调用工具）"),
    Kind.TOOL_RESULT: ("Result of {tool}", "{tool} 的结果"),
    Kind.FEEDBACK: ("Feedback of the Judge", "评审意见"),
    Kind.NOTICE: ("Notice", "通知"),
    Kind.RECALL: ("Recalled", "召回的摘录"),
    Kind.PLAN: ("Plan", "计划"),
}
STEP: Words = ("step {step}", "步骤 {step}")
TOOL: Words = ("a tool", "工具")
TURN: Words = ("Turn {turn}", "第 {turn} 轮")
COLON: Words = (": ", "：")
UNDONE: Words = ("taken back", "已撤回")
IMAGE: Words = ("image", "图片")
COMPACTED: Words = (
    "The window was compacted: {before} tokens became {after}; entries that left it: {left}.",
    "窗口已压缩：{before} 个 token 变为 {after} 个，离开 {left} 条记录。",
)
SUMMARISED: Words = ("Summary of what left the window", "离开窗口的内容摘要")
FORKED: Words = ("Forked from {session} at entry {at}.", "从会话 {session} 的第 {at} 条分出。")
FORGOTTEN: Words = ("Entries forgotten: {count}.", "已遗忘 {count} 条记录。")

#: Characters of a request that stand in its turn's heading.
TITLE = 80
#: What ties messages together, or is no text: never masked.
_NO_TEXT = frozenset({"id", "tool_call_id", "role", "type"})
_DATA = re.compile(r"data:(?:image|audio|video)/[\w+.-]{1,80};base64,[\w+/=-]*")


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EntryShown:
    """``turn``: the number of the turn that it begins, 0 where it begins none; ``request``: how that turn's
    request begins, on one line; ``images``: addresses."""

    number: int
    kind: Kind
    who: str
    time: str
    tokens: int
    text: str
    calls: Sequence[Call]
    images: Sequence[str]
    turn: int = 0
    request: str = ""
    undone: bool = False

    def title(self, lang: Language) -> str:
        """The heading of the turn that it begins."""
        turn = say(TURN, lang, turn=self.turn)
        return f"{turn}{say(COLON, lang)}{self.request}" if self.request else turn


@dataclass(frozen=True, slots=True)
class EventShown:
    """Something that happened, in a sentence; ``text``: what came of it."""

    what: str
    text: str = ""


def shown(
    records: Sequence[Entry | Recorded], *, raw: bool, lang: Language
) -> Iterator[EntryShown | EventShown]:
    """The records for a reader, in order. Events that say nothing to a reader are left out; text has no
    characters that would steer a terminal."""
    undone = undone_entries(records)
    requests = _requests(records)
    names: dict[str, str] = {}
    turn = 0
    for record in records:
        if isinstance(record, Recorded):
            if event := _event(record, raw, lang):
                yield event
            continue
        message = record.message if raw else masked_message(record.message)
        request = requests.get(record.seq)
        turn += request is not None
        calls = tuple(_calls(message))
        names |= {
            call["id"]: shown.name for call, shown in zip(message.get("tool_calls") or (), calls, strict=True)
        }
        tool = names.get(message.get("tool_call_id", ""), "") or say(TOOL, lang)
        yield EntryShown(
            number=record.seq,
            kind=record.kind,
            who=_who(record, tool, lang),
            time=readable_time(record.time),
            tokens=record.tokens,
            text=printable(text_of(message)),
            calls=calls,
            images=tuple(_images(message)),
            turn=turn if request is not None else 0,
            request=_title(request, raw) if request is not None else "",
            undone=record.seq in undone,
        )


def _who(entry: Entry, tool: str, lang: Language) -> str:
    """Who speaks, and in which step of a plan."""
    who = say(WHO[entry.kind], lang, tool=tool)
    return f"{who} ({say(STEP, lang, step=step_of(entry.lane))})" if entry.lane else who


def _requests(records: Sequence[Entry | Recorded]) -> dict[int, Message]:
    """The request of each turn, by the number of its first entry: what was recalled for a request stands
    before it and belongs to its turn."""
    entries = [record for record in records if isinstance(record, Entry)]
    return {
        (before.seq if before is not None and before.kind is Kind.RECALL else entry.seq): entry.message
        for before, entry in zip([None, *entries], entries, strict=False)
        if entry.kind is Kind.USER
    }


def _title(request: Message, raw: bool) -> str:
    return one_line(text_of(request if raw else masked_message(request)), TITLE)


def readable_time(time: str) -> str:
    """`2026-01-02 03:04:05 UTC` of a time as the journal writes it."""
    return printable(f"{time[:10]} {time[11:19]} UTC") if time else ""


def as_json_text(value: Any) -> str:
    """JSON for reading."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _calls(message: Message) -> Iterator[Call]:
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = function["arguments"]
        with suppress(ValueError, RecursionError):  # else as the model wrote it
            arguments = as_json_text(json.loads(arguments))
        yield Call(printable(function["name"]), printable(arguments))


def _images(message: Message) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "image_url":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, dict) else image
            yield printable(str(url or ""))


def _event(record: Recorded, raw: bool, lang: Language) -> EventShown | None:
    body = record.body if raw else masked_event(record)
    if record.type == "compaction":
        before, after = body.get("tokens_before"), body.get("tokens_after")
        left = len(body.get("left") or ())
        return EventShown(say(COMPACTED, lang, left=left, before=before, after=after))
    if record.type == "summary" and isinstance(body.get("gist"), str):
        return EventShown(say(SUMMARISED, lang), printable(body["gist"]))
    if record.type == "session.forked":
        return EventShown(say(FORKED, lang, session=printable(str(body.get("from"))), at=body.get("at")))
    if record.type == "forgotten":
        return EventShown(say(FORGOTTEN, lang, count=len(body.get("entries") or ())))
    return None


# --- secrets


def masked_message(message: Message) -> Message:
    """The message without secrets. Arguments of calls that are JSON stay JSON; ids stay, as they tie
    results to calls."""
    fields: Message = {name: _masked_part(name, value) for name, value in message.items()}
    return fields


def masked_event(event: Recorded) -> dict[str, Any]:
    """The event's fields without secrets. Nobody can tell what stands in bytes that were damaged, so these
    are left out."""
    fields: dict[str, Any] = masked_value(event.body)
    if event.type == "import.damage":
        fields.pop("bytes", None)
    return fields


def masked_value(value: Any, name: str = "") -> Any:
    """A JSON value without secrets: also where only the name of a field tells that there is one."""
    if isinstance(value, Mapping):
        return {key: masked_value(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked_value(inner, name) for inner in value]
    if value is None or isinstance(value, bool):
        return value
    text = _masked_text(value) if isinstance(value, str) else value
    if name and text == value:
        said = f'"{name}": {json.dumps(value, default=str)}'
        if masked(said) != said:
            return MARK
    return text


def _masked_part(name: str, value: Any) -> Any:
    """A part of a message, where names of fields are the wire's own and tell nothing."""
    if isinstance(value, str):
        if name in _NO_TEXT:
            return value
        return _masked_arguments(value) if name == "arguments" else _masked_text(value)
    if isinstance(value, Mapping):
        return {key: _masked_part(key, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked_part(name, inner) for inner in value]
    return value


def _masked_text(text: str) -> str:
    # What a picture is made of only looks like keys.
    return text if _DATA.fullmatch(text) else masked(text)


def _masked_arguments(text: str) -> str:
    try:
        value = json.loads(text)
        safe = masked_value(value)
        if safe == value:
            return text if masked(text) == text else _masked_whole(text)
        written = json.dumps(safe, ensure_ascii=False)
    except (ValueError, RecursionError):
        return masked(text)
    return written if masked(written) == written else _masked_whole(written)


def _masked_whole(text: str) -> str:
    """The JSON masked as one text: secrets that show only beside other fields. Where that breaks it, the
    text stands in an object of its own."""
    safe = masked(text)
    try:
        json.loads(safe)
    except (ValueError, RecursionError):
        return json.dumps({"masked": safe}, ensure_ascii=False)
    return safe
