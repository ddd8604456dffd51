"""From the chunks of a stream to one reply. Pure: no network, no clock.

Endpoints differ most in how they stream tool calls. A fragment may say to which call it belongs
in three ways (`id`, `index`, `name`), each of which is absent, repeated or wrong somewhere. What
holds everywhere: a fragment with nothing but arguments goes on with a call that is open; a new id
with a name opens a call, even under an index already used; and a call whose arguments are a whole
JSON object is not gone on with by a fragment that begins another object. Where these leave a
choice, `id` wins over `index`, and `index` over order.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.chat.calls import ToolCall
from perdure.chat.tokens import Usage
from perdure.models.client import Reply, Text


@dataclass
class _OpenCall:
    index: int | None
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def whole(self) -> bool:
        return is_object(self.arguments)


@dataclass(frozen=True, slots=True)
class _Fragment:
    index: int | None
    id: str
    name: str
    arguments: str

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> _Fragment:
        # Some servers leave the inner object out.
        function = raw["function"] if isinstance(raw.get("function"), Mapping) else raw
        index = raw.get("index")
        return cls(
            index if isinstance(index, int) else None,
            str(raw.get("id") or ""),
            str(function.get("name") or ""),
            _as_text(function.get("arguments")),
        )

    @property
    def begins_an_object(self) -> bool:
        return self.arguments.lstrip().startswith("{")


class Assembly:
    """Takes the chunks of one streamed reply, in order; `reply` is what they come to."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.finish_reason: str | None = None
        self.model = ""
        self.notes: list[str] = []
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._thoughts = _Thoughts()

    @property
    def anything(self) -> bool:
        """Something of an answer has come."""
        return bool(self._content or self._reasoning or self._calls)

    def add(self, chunk: Mapping[str, Any]) -> list[Text]:
        """Take a chunk (or a whole completion); the text in it, as it may be shown."""
        self.model = str(chunk.get("model") or self.model)
        if _says_something(chunk.get("usage")):
            self.usage = read_usage(chunk["usage"])
        shown: list[Text] = []
        for choice in _mappings(chunk.get("choices")):
            if choice.get("index") not in (0, None):
                continue
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            if _says_something(choice.get("usage")):
                self.usage = read_usage(choice["usage"])
            delta = choice.get("delta")
            if not delta and not self.anything:
                # A whole completion; behind deltas, a message would only repeat them.
                delta = choice.get("message")
            delta = delta if isinstance(delta, Mapping) else {}
            shown += self._texts(delta)
            for raw in _mappings(delta.get("tool_calls")):
                self._take(_Fragment.read(raw))
            if isinstance(delta.get("function_call"), Mapping):
                # The field of before 2023, which some servers still send: one call, no id.
                self._take(_Fragment.read({"index": 0, "function": delta["function_call"]}))
        return shown

    def end(self) -> list[Text]:
        """The text that was held back because it might have begun a tag."""
        return self._keep(self._thoughts.end())

    def reply(self) -> Reply:
        """Everything so far as one reply, each call with an id of its own."""
        return Reply(
            content="".join(self._content),
            calls=self._whole_calls(),
            reasoning="".join(self._reasoning),
            finish_reason=self.finish_reason,
            usage=self.usage,
            model=self.model,
            notes=tuple(self.notes),
        )

    def _texts(self, delta: Mapping[str, Any]) -> list[Text]:
        shown = []
        for name in ("reasoning_content", "reasoning", "reasoning_text"):
            if thought := _as_content(delta.get(name)):
                shown += self._keep([Text(thought, reasoning=True)])
                break
        if content := _as_content(delta.get("content")) or _as_content(delta.get("refusal")):
            shown += self._keep(self._thoughts.split(content))
        return shown

    def _keep(self, texts: list[Text]) -> list[Text]:
        for text in texts:
            (self._reasoning if text.reasoning else self._content).append(text.text)
        return texts

    def _take(self, fragment: _Fragment) -> None:
        if any(_repeats(call, fragment) for call in self._calls):
            return
        call = self._goes_on_with(fragment)
        if call is None:
            call = _OpenCall(fragment.index, fragment.id, fragment.name)
            self._calls.append(call)
        elif not call.name or (fragment.name.startswith(call.name) and not call.pieces):
            call.name = fragment.name or call.name
        elif not call.pieces and call.index is not None and call.index == fragment.index:
            call.name += fragment.name
        call.id = call.id or fragment.id
        if fragment.begins_an_object and call.arguments.strip() == "{}":
            call.pieces.clear()
        if fragment.arguments:
            call.pieces.append(fragment.arguments)

    def _goes_on_with(self, fragment: _Fragment) -> _OpenCall | None:  # noqa: PLR0911 -- one for each signal
        """The open call that the fragment belongs to; None where it opens one."""
        if not self._calls:
            return None
        newest = self._calls[-1]
        same_id = self._newest(lambda call: bool(fragment.id) and call.id == fragment.id)
        same_index = self._newest(lambda call: fragment.index is not None and call.index == fragment.index)
        if same_id:
            elsewhere = fragment.index is not None and same_id.index not in {fragment.index, None}
            another = (elsewhere and fragment.name) or _begins_anew(same_id, fragment)
            return None if another else same_id
        if fragment.id:
            running = same_index or (newest if fragment.index is None else None)
            if running is None or (running.whole and fragment.name):
                return None
            return running if not fragment.name or _midway(running, fragment) else None
        if same_index:
            return None if fragment.name and _begins_anew(same_index, fragment) else same_index
        if not fragment.name or _midway(newest, fragment):
            return newest
        if fragment.index is not None or _begins_anew(newest, fragment):
            return None
        return newest if not newest.name or fragment.name == newest.name else None

    def _newest(self, fits: Any) -> _OpenCall | None:
        return next((call for call in reversed(self._calls) if fits(call)), None)

    def _whole_calls(self) -> tuple[ToolCall, ...]:
        used: set[str] = set()
        calls = []
        for open_call in self._calls:
            id = open_call.id or f"call_{secrets.token_hex(8)}"
            if id in used:
                fresh = next(new for n in range(2, 999) if (new := f"{id}-{n}") not in used)
                self.notes.append(f"two calls had the id {id}; the second is now {fresh}")
                id = fresh
            used.add(id)
            arguments = open_call.arguments
            empty = arguments.strip() in {"", "null"}
            calls.append(ToolCall(id, open_call.name, "{}" if empty else arguments))
        return tuple(calls)


def _midway(call: _OpenCall, fragment: _Fragment) -> bool:
    """The fragment can only be the middle of this call: more text for arguments not yet whole."""
    return bool(fragment.arguments and call.pieces and not fragment.begins_an_object and not call.whole)


def _begins_anew(call: _OpenCall, fragment: _Fragment) -> bool:
    """The call is whole, and the fragment begins a further one. Some send ``{}`` ahead of the
    real arguments, so that alone ends nothing."""
    unlike = fragment.id not in {"", call.id} or call.name not in {"", fragment.name}
    another = fragment.name and unlike
    opens = fragment.begins_an_object or (another and not fragment.arguments)
    return bool(opens) and call.whole and (bool(fragment.name) or call.arguments.strip() != "{}")


def _repeats(call: _OpenCall, fragment: _Fragment) -> bool:
    """Some say each call again, whole, once it has been streamed: the same in everything."""
    if not fragment.id or (call.id, call.index, call.name) != (fragment.id, fragment.index, fragment.name):
        return False
    if not call.whole or not is_object(fragment.arguments):
        return False
    return bool(json.loads(call.arguments) == json.loads(fragment.arguments))


class _Thoughts:
    """Some models write their reasoning into the content, between ``<think>`` tags at its start."""

    OPEN, CLOSE = "<think>", "</think>"

    def __init__(self) -> None:
        self._held = ""
        self._state = "start"

    def split(self, content: str) -> list[Text]:
        if self._state == "answer":
            return [Text(content)]
        if self._state == "between":
            return self._answer(content.lstrip())
        self._held += content
        if self._state == "start":
            begun = self._held.lstrip()
            if self.OPEN.startswith(begun[: len(self.OPEN)]) and len(begun) < len(self.OPEN):
                return []
            if not begun.startswith(self.OPEN):
                return self._answer(self._held)
            self._held, self._state = begun[len(self.OPEN) :], "thinking"
        thought, closed, rest = self._held.partition(self.CLOSE)
        if closed:
            return [*_some(thought, reasoning=True), *self._answer(rest.lstrip())]
        # What may be the beginning of the closing tag waits for the next chunk.
        safe = max(0, len(self._held) - len(self.CLOSE) + 1)
        thought, self._held = self._held[:safe], self._held[safe:]
        return _some(thought, reasoning=True)

    def end(self) -> list[Text]:
        held, self._held = self._held, ""
        return _some(held, reasoning=self._state == "thinking")

    def _answer(self, content: str) -> list[Text]:
        """The answer begins, at its first character that isn't blank behind a thought."""
        self._held = ""
        self._state = "answer" if content or self._state == "start" else "between"
        return _some(content)


def _some(text: str, reasoning: bool = False) -> list[Text]:
    return [Text(text, reasoning)] if text else []


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens as reported; the cached ones under the names of OpenAI, DeepSeek and Anthropic."""
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    cached = (
        details.get("cached_tokens")
        or usage.get("prompt_cache_hit_tokens")
        or usage.get("cache_read_input_tokens")
    )
    prompt = usage.get("prompt_tokens")
    if prompt is None:
        # Anthropic's form counts what it read from or wrote to the cache apart.
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        prompt = sum(_count(usage.get(name)) for name in names)
    completion = usage.get("completion_tokens", usage.get("output_tokens"))
    return Usage(*(_count(value) for value in (prompt, completion, cached)))


def is_object(text: str) -> bool:
    """The text is a whole JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list, or the one that stands where a list should."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, Mapping)]


def _says_something(usage: Any) -> bool:
    return isinstance(usage, Mapping) and any(usage.values())


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value < float("inf") else 0


def _as_text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def _as_content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return ""
