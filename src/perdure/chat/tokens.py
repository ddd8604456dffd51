"""How long a message is, in tokens.

One ruler for everything: what triggers a compaction, what it cuts and what is checked afterwards
are the same count. A counter is exact for its model's text, or counts high; what stands around the
text (a template's own words) is taken from the published templates, the larger where they differ.
Nothing is cached: an entry keeps its count, so each text is encoded once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from perdure.chat.calls import ToolSpec
from perdure.chat.encodings import ENCODINGS, most_tokens, sendable, tokens_in
from perdure.chat.estimate import estimated_tokens
from perdure.chat.images import Dearest, ImageFormula, image_tokens
from perdure.chat.messages import Message

__all__ = [
    "ENCODINGS",
    "ScaledCounter",
    "Template",
    "TextCounter",
    "TokenCounter",
    "Usage",
    "counter_for",
    "most_tokens",
    "sendable",
]

#: Bytes of sound that make one token at most: 32 tokens a second (Gemini; OpenAI's are 10) of
#: speech packed at 8 kbit/s.
BYTES_PER_SOUND_TOKEN = 30


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint reported them. ``cached`` of ``prompt`` were served from a cache."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt, self.completion + other.completion, self.cached + other.cached
        )


class TokenCounter(Protocol):
    """Counts tokens, exactly or high. Must not raise, whatever the text: special tokens such as
    ``<|endoftext|>`` count as ordinary text, a lone surrogate as the U+FFFD it is sent as."""

    @property
    def name(self) -> str:
        """What counts: the encoding's name, or that it is an estimate."""
        ...

    def text(self, text: str) -> int:
        """Tokens of a text alone."""
        ...

    def message(self, message: Message) -> int:
        """Tokens a message adds to a prompt: content, name, calls and their JSON, overhead."""
        ...

    def tools(self, tools: Sequence[ToolSpec]) -> int:
        """Tokens the tools' schemas add to a prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Template:
    """Tokens that a model's chat template puts around what is said.

    ``message`` around each message, ``result`` more around a tool's, ``call`` around each call;
    ``prompt`` once, counted with the system message (a date, the reply's priming); ``tools`` once
    where there are tools (how to call them); ``tool`` around each schema, whose JSON the template
    prints as ``schemas`` says.
    """

    message: int = 6
    result: int = 8
    call: int = 10
    prompt: int = 32
    tools: int = 160
    tool: int = 6
    schemas: Literal["compact", "line", "indented"] = "line"


#: OpenAI's are its cookbook's ("How to count tokens with tiktoken": 3 a message and 1 for its role,
#: 3 for the reply's priming; 12 after the functions, 7 to 10 for each, less than the JSON that is
#: counted here). The others were counted on the templates published with the models.
_TEMPLATES = {
    "o200k_base": Template(message=4, result=2, call=4, prompt=3, tools=16, schemas="compact"),
    "cl100k_base": Template(message=4, result=2, call=4, prompt=3, tools=16, schemas="compact"),
    "gpt-oss": Template(message=7, prompt=80, tools=40),
    "llama3": Template(prompt=36, tools=80, schemas="indented"),
    "qwen3": Template(prompt=16, tools=100),
}


_SCHEMAS: dict[str, Callable[[Any], str]] = {
    "compact": partial(json.dumps, ensure_ascii=False, default=str, separators=(",", ":")),
    "line": partial(json.dumps, ensure_ascii=False, default=str),
    "indented": partial(json.dumps, ensure_ascii=False, default=str, indent=4),
}


@dataclass(frozen=True, slots=True)
class TextCounter:
    """A `TokenCounter` on top of anything that counts a text (``TextCounter("bytes", most_tokens)``
    bounds a message without a tokenizer). ``reasoning``: the endpoint wants `reasoning_content`
    back with calls, so it is sent and counted."""

    name: str
    count: Callable[[str], int]
    reasoning: bool = False
    template: Template = Template()
    images: ImageFormula = Dearest()

    def text(self, text: str) -> int:
        return self.count(text)

    def message(self, message: Message) -> int:
        template, role = self.template, message.get("role")
        tokens = template.message + self._content(message.get("content"))
        if role in {"system", "developer"}:
            tokens += template.prompt
        elif role == "tool":
            tokens += template.result
        for name in ("name", "tool_call_id", "refusal"):
            if message.get(name):
                tokens += 1 + self.count(_words(message[name]))
        if message.get("function_call"):
            tokens += template.call + self.count(_json(message["function_call"]))
        calls = message.get("tool_calls") or ()
        tokens += sum(template.call + self.count(_json(call)) for call in calls)
        if self.reasoning and calls and message.get("reasoning_content"):
            tokens += self.count(_words(message["reasoning_content"]))
        return tokens

    def tools(self, tools: Sequence[ToolSpec]) -> int:
        if not tools:
            return 0
        printed = (_SCHEMAS[self.template.schemas](tool.on_the_wire()) for tool in tools)
        return self.template.tools + sum(self.template.tool + self.count(schema) for schema in printed)

    def _content(self, content: Any) -> int:
        if isinstance(content, list | tuple):
            return sum(self._part(part) for part in content)
        return self.count(_words(content)) if content is not None else 0

    def _part(self, part: Any) -> int:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in {"text", "refusal"}:
            return self.count(_words(part.get(kind) or ""))
        if kind == "image_url":
            return image_tokens(part.get("image_url"), self.images)
        if kind == "input_audio":
            sound = part.get("input_audio")
            data = sound.get("data") if isinstance(sound, dict) else sound
            return math.ceil(len(str(data or "")) * 3 / 4 / BYTES_PER_SOUND_TOKEN)
        # A file, or a part that isn't known: nobody says what it costs, but it is no more than its bytes.
        return most_tokens(_json(part))


@dataclass(frozen=True, slots=True)
class ScaledCounter:
    """A counter times a factor, rounded up: for families whose tokenizer isn't published but was
    measured against ours, and for what an endpoint's own reports teach."""

    inner: TokenCounter
    factor: float

    @property
    def name(self) -> str:
        return f"{self.inner.name} x {self.factor:g}"

    def text(self, text: str) -> int:
        return self._scaled(self.inner.text(text))

    def message(self, message: Message) -> int:
        return self._scaled(self.inner.message(message))

    def tools(self, tools: Sequence[ToolSpec]) -> int:
        return self._scaled(self.inner.tools(tools))

    def _scaled(self, tokens: int) -> int:
        return math.ceil(tokens * self.factor)


def counter_for(
    encoding: str | None, *, reasoning: bool = False, images: ImageFormula | None = None
) -> TextCounter:
    """The counter of an encoding in `ENCODINGS`; for None, or one that isn't known, the estimate
    for unknown models. The tokenizer is loaded at the first count; nothing is ever fetched."""
    formula = images or Dearest()
    if encoding not in ENCODINGS:
        return TextCounter("estimate", estimated_tokens, reasoning, images=formula)
    count = partial(tokens_in, encoding=encoding)
    return TextCounter(encoding, count, reasoning, _TEMPLATES.get(encoding, Template()), formula)


def _words(value: Any) -> str:
    """The text itself; anything else that stands where a text should, as its JSON."""
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
