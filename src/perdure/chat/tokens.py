"""How long a text is, in tokens.

One ruler for everything: what triggers a compaction, what it cuts and what is checked afterwards
are the same count. A counter is exact for its model or a proven upper bound; it never guesses low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from perdure.chat.calls import ToolSpec
from perdure.chat.messages import Message


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
    """Counts tokens, exactly or as an upper bound. Must not raise, whatever the text: special
    tokens such as ``<|endoftext|>`` count as ordinary text, a lone surrogate as what it is sent as."""

    @property
    def name(self) -> str:
        """What counts: the encoding's name, or that it is an upper bound."""
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
