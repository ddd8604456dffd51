"""How long a text is, in tokens.

One ruler for everything: what triggers a compaction, what it cuts and what is checked afterwards
are the same count. A counter is exact for its model or counts high; it never guesses low.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from perdure.chat.calls import ToolSpec
from perdure.chat.estimate import estimated_tokens
from perdure.chat.messages import Message

#: Encodings whose vocabularies come with the tokenizer package, by our name for them.
ENCODINGS = (
    "o200k_base",
    "cl100k_base",
    "gpt-oss",
    "llama3",
    "llama2",
    "qwen3",
    "deepseek_v3",
    "mistral_v1",
    "mistral_v3",
    "glm4",
    "kimi_k2",
    "phi4",
)

# Tokens around what is said. OpenAI's published count (cookbook, "How to count tokens with tiktoken")
# is 3 a message, 1 a name, 3 for the reply's priming, and for tools 7 to 12 a function plus 3 a
# property; ChatML and Llama templates measure 4 to 6 a message. The larger is taken.
PER_MESSAGE = 6
PER_NAME = 2
PER_CALL = 8
PER_TOOL = 12
WITH_TOOLS = 16

# Images by OpenAI's published formula ("Images and vision"): 85 at low detail; at high detail the
# image is fitted into 2048 x 2048, then to 768 on the short side: at most 8 tiles of 170, and 85.
IMAGE_LOW = 85
IMAGE_HIGH = 85 + 8 * 170


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
class TextCounter:
    """A `TokenCounter` on top of anything that counts a text. ``reasoning``: the endpoint wants
    `reasoning_content` back, so it is sent and counted."""

    name: str
    count: Callable[[str], int]
    reasoning: bool = False

    def text(self, text: str) -> int:
        return self.count(text)

    def message(self, message: Message) -> int:
        tokens = PER_MESSAGE + self._content(message.get("content"))
        if name := message.get("name"):
            tokens += PER_NAME + self.count(name)
        for call in message.get("tool_calls") or ():
            tokens += PER_CALL + self.count(_json(call))
        if id := message.get("tool_call_id"):
            tokens += self.count(id)
        if self.reasoning and message.get("tool_calls"):
            tokens += self.count(message.get("reasoning_content") or "")
        return tokens

    def tools(self, tools: Sequence[ToolSpec]) -> int:
        schemas = sum(PER_TOOL + self.count(_json(tool.on_the_wire())) for tool in tools)
        return WITH_TOOLS + schemas if tools else 0

    def _content(self, content: Any) -> int:
        if content is None or isinstance(content, str):
            return self.count(content or "")
        return sum(self._part(part) for part in content)

    def _part(self, part: Any) -> int:
        if not isinstance(part, dict):
            return self.count(str(part))
        if part.get("type") == "text":
            return self.count(part.get("text") or "")
        if part.get("type") == "image_url":
            low = (part.get("image_url") or {}).get("detail") == "low"
            return IMAGE_LOW if low else IMAGE_HIGH
        # Audio and files have no published formula: a token a byte of what is sent bounds them.
        return len(_json(part))


def counter_for(encoding: str | None, *, reasoning: bool = False) -> TextCounter:
    """The counter of an encoding in `ENCODINGS`; for None, or one that isn't known, the estimate
    for unknown models. The tokenizer is loaded at the first count; nothing is ever fetched."""
    if encoding not in ENCODINGS:
        return TextCounter("estimate", estimated_tokens, reasoning)
    return TextCounter(encoding, lambda text: _encoded_length(encoding, text), reasoning)


def most_tokens(text: str) -> int:
    """A proven bound for any byte-level tokenizer: at most one token a byte of UTF-8."""
    return len(sendable(text).encode())


def sendable(text: str) -> str:
    """The text as it can be sent: a lone surrogate, which is no text, as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _encoded_length(encoding: str, text: str) -> int:
    try:
        return len(_tokenizer(encoding).encode_ordinary(text))
    except UnicodeEncodeError:
        return len(_tokenizer(encoding).encode_ordinary(sendable(text)))


@cache
def _tokenizer(encoding: str) -> Any:
    from splintr import Tokenizer

    return Tokenizer.from_pretrained(encoding)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
