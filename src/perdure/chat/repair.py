"""Mend a foreign or broken history so that every endpoint accepts it, and name what was mended.

Histories come from other programs, from files cut in the middle, from runs that were killed.
What a tool showed stays a tool's words: an orphan result gets a stand-in call rather than a
place among the person's messages, so that text from a tool can't turn into an instruction.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.chat.language import Language, say
from perdure.chat.messages import Message, text_of
from perdure.errors import Words

#: The result that stands in for one that never came.
INTERRUPTED = "interrupted, result unknown"

FIELDS: Words = (
    "fields that had an old form or the wrong type were put right",
    "旧格式或类型错误的字段已改正",
)
ROLE: Words = ("a message with the role {role!r} was left out", "角色为 {role!r} 的消息已略去")
EMPTY: Words = ("an empty {role} message was left out", "一条空的 {role} 消息已略去")
NO_CALLS: Words = (
    "a list of calls that is empty or not an assistant's was left out",
    "空的、或不属于助手的调用列表已略去",
)
UNANSWERED: Words = (
    "the call {id} was never answered: '{interrupted}'",
    "调用 {id} 从未得到应答：已补上“{interrupted}”",
)
MOVED: Words = ("the result of {id} was moved behind its call", "{id} 的结果已移到其调用之后")
COMPLETED: Words = ("a result was completed to answer {id}", "一条结果已补全，以应答 {id}")
NO_ID: Words = ("a call without an id is now {id}", "没有 id 的调用现为 {id}")
USED_ID: Words = (
    "the call id {id} was used before; it is now {fresh}",
    "调用 id {id} 此前已用过；现为 {fresh}",
)
ARGUMENTS: Words = (
    "the arguments of {id} were not a JSON object: {text!r}",
    "{id} 的参数不是 JSON 对象：{text!r}",
)
STANDARD: Words = ("the call {id} was completed to the standard form", "调用 {id} 已补全为标准格式")
STAND_IN: Words = (
    "the result {id} had no call: a stand-in call was put before it",
    "结果 {id} 没有对应的调用：已在其前补上一个代替的调用",
)


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was mended. ``at`` is the message's index in the list that came in, from 0; ``what``
    says it in English, `say` in either language."""

    at: int
    words: Words
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def what(self) -> str:
        return self.say("en")

    def say(self, lang: Language) -> str:
        return say(self.words, lang, **self.facts)


def repair(messages: Sequence[Message]) -> tuple[list[Message], list[Repair]]:
    """A valid history from any: every call answered at once, by exactly one result for each id.

    Results are put behind their call, in the call's order; one that never came becomes
    `INTERRUPTED`; an orphan result gets a stand-in call; repeated and missing ids are renamed;
    empty messages are dropped; what has the wrong type is read as it was meant, or left out. A
    valid history comes back equal, with no repairs. What came in is not changed. Must not raise.
    """
    return _Mending(messages).run()


class _Mending:
    def __init__(self, messages: Sequence[Any]) -> None:
        self.repairs: list[Repair] = []
        self.messages = [self._readable(at, message) for at, message in enumerate(messages)]
        self.mended: list[Message] = []
        self.used_ids: set[str] = set()
        self.taken_ids = set(self._all_ids())
        self.next_number: dict[str, int] = {}
        self.claimed: set[int] = set()
        self.results_of = self._results_by_call()

    def _readable(self, at: int, message: Any) -> Message:
        """The message itself where its fields have the types they must have, else a copy in which
        they do; an empty one where nothing can be read."""
        if not isinstance(message, dict):
            return {}
        fields = dict(message)
        if message.get("role") == "function":
            fields |= {"role": "tool", "tool_call_id": None}
        if isinstance(message.get("function_call"), dict):
            # The form of before 2023: one call, no id.
            fields["tool_calls"] = [{"function": fields.pop("function_call")}]
        if "content" in message:
            fields["content"] = _as_content(message["content"])
        if not fields.get("content") and fields.get("refusal") and isinstance(fields["refusal"], str):
            fields["content"] = fields["refusal"]
        if not isinstance(fields.get("name", ""), str | None):
            del fields["name"]
        if fields.get("role") == "tool":
            fields.pop("tool_calls", None)  # a result makes no calls
        if fields.get("tool_calls") is not None:
            calls = fields["tool_calls"]
            fields["tool_calls"] = [
                _as_call(call)
                for call in (calls if isinstance(calls, list) else ())
                if isinstance(call, dict)
            ]
        if fields.get("tool_call_id") is not None:
            fields["tool_call_id"] = _as_id(fields["tool_call_id"])
        if fields == message:
            return message
        self._note(at, FIELDS)
        return fields

    def _all_ids(self) -> Iterator[str]:
        for message in self.messages:
            yield message.get("tool_call_id") or ""
            yield from (call.get("id") or "" for call in message.get("tool_calls") or ())

    def run(self) -> tuple[list[Message], list[Repair]]:
        for at, message in enumerate(self.messages):
            role = message.get("role")
            if role == "tool":
                if at not in self.claimed:
                    self._stand_in(at, message)
            elif role == "assistant" and message.get("tool_calls"):
                self._pair(at, message)
            elif role not in ("system", "developer", "user", "assistant"):
                self._note(at, ROLE, role=role)
            elif not _says_something(message):
                self._note(at, EMPTY, role=role)
            elif "tool_calls" in message:
                self._note(at, NO_CALLS)
                self.mended.append({name: value for name, value in message.items() if name != "tool_calls"})
            else:
                self.mended.append(message)
        return self.mended, sorted(self.repairs, key=lambda repair: repair.at)

    def _results_by_call(self) -> dict[tuple[int, int], int]:
        """(message, call) to the index of the result that answers it. A result answers the oldest
        open call of its id before it; one without an id, the oldest open call of all."""
        found: dict[tuple[int, int], int] = {}
        open_calls: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
        newest: deque[tuple[int, int]] = deque()
        for at, message in enumerate(self.messages):
            if message.get("role") == "assistant" and message.get("tool_calls"):
                newest = deque()
                for nth, call in enumerate(message["tool_calls"]):
                    # A call that reuses an id ends the wait of earlier ones in other messages.
                    waiting = open_calls[call.get("id") or ""]
                    while waiting and waiting[0][0] != at:
                        waiting.popleft()
                    waiting.append((at, nth))
                    newest.append((at, nth))
            elif message.get("role") == "tool":
                id = message.get("tool_call_id")
                waiting = open_calls[id] if id else newest
                while waiting and waiting[0] in found:
                    waiting.popleft()
                if waiting:
                    found[waiting.popleft()] = at
                    self.claimed.add(at)
        return found

    def _pair(self, at: int, message: Message) -> None:
        calls, results = [], []
        expected = at + 1
        for nth, call in enumerate(message["tool_calls"]):
            whole = self._whole_call(at, call)
            calls.append(whole)
            where = self.results_of.get((at, nth))
            if where is None:
                self._note(at, UNANSWERED, id=whole["id"], interrupted=INTERRUPTED)
                results.append({"role": "tool", "tool_call_id": whole["id"], "content": INTERRUPTED})
                continue
            if where != expected:
                self._note(where, MOVED, id=whole["id"])
            expected = where + 1
            result = self.messages[where]
            if result.get("tool_call_id") != whole["id"] or result.get("content") is None:
                self._note(where, COMPLETED, id=whole["id"])
                result = {**result, "tool_call_id": whole["id"], "content": result.get("content") or ""}
            results.append(result)
        same = all(new is old for new, old in zip(calls, message["tool_calls"], strict=True))
        self.mended.append(message if same else {**message, "tool_calls": calls})
        self.mended.extend(results)

    def _whole_call(self, at: int, call: Message) -> Message:
        """The call itself where it is whole, else a mended copy."""
        id = call.get("id")
        if not id:
            id = self._fresh("call")
            self._note(at, NO_ID, id=id)
        elif id in self.used_ids:
            fresh = self._fresh(id)
            self._note(at, USED_ID, id=id, fresh=fresh)
            id = fresh
        self.used_ids.add(id)
        function = call.get("function") or {}
        name, arguments = function.get("name") or "unknown", function.get("arguments")
        text = arguments if isinstance(arguments, str) else _json({} if arguments is None else arguments)
        if not _is_object(text):
            self._note(at, ARGUMENTS, id=id, text=text[:80])
            text = "{}"
        if (id, name, text, "function") == (
            call.get("id"),
            function.get("name"),
            arguments,
            call.get("type"),
        ):
            return call
        self._note(at, STANDARD, id=id)
        return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}

    def _stand_in(self, at: int, result: Message) -> None:
        id = result.get("tool_call_id") or ""
        if not id or id in self.used_ids:
            id = self._fresh(id or "call")
        self.used_ids.add(id)
        self._note(at, STAND_IN, id=id)
        function = {"name": result.get("name") or "unknown", "arguments": "{}"}
        call = {"id": id, "type": "function", "function": function}
        self.mended.append({"role": "assistant", "content": None, "tool_calls": [call]})
        self.mended.append({**result, "tool_call_id": id, "content": result.get("content") or ""})

    def _fresh(self, stem: str) -> str:
        number = self.next_number.get(stem, 2)
        while f"{stem}-{number}" in self.taken_ids:
            number += 1
        self.next_number[stem] = number + 1
        self.taken_ids.add(f"{stem}-{number}")
        return f"{stem}-{number}"

    def _note(self, at: int, words: Words, **facts: object) -> None:
        self.repairs.append(Repair(at, words, facts))


def _says_something(message: Message) -> bool:
    content = message.get("content")
    return bool(text_of(message).strip()) or (isinstance(content, list) and len(content) > 0)


def _as_content(content: Any) -> Any:
    """Text, None, or a list of parts that are objects."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return _json(content)
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return [
        part
        for part in parts
        if isinstance(part, dict) and (part.get("type") != "text" or isinstance(part.get("text"), str))
    ]


def _as_call(call: Message) -> Message:
    function = call.get("function")
    named = {"name": function} if isinstance(function, str) else {}
    function = dict(function) if isinstance(function, dict) else named
    if not isinstance(function.get("name"), str):
        function.pop("name", None)
    return {**call, "id": _as_id(call.get("id")), "function": function}


def _as_id(id: Any) -> str | None:
    return id if isinstance(id, str) else None if id is None else _json(id)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_no_number), dict)
    except (ValueError, RecursionError):
        return False


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
