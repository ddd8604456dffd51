"""Which tool a request wants: that of the nearest example request, by meaning.

A model of a hundred million parameters can copy an argument but can't choose: asked for a choice
under a schema it was right in 5 of 15, asked for a tool's name in 14 of 30; the nearest example by
multilingual embedding was right in 30 of 30. "No tool" is a choice like the others, with examples
of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.chat.calls import Example, ToolSpec
from perdure.models.embedder import Embedder

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

#: Requests that no tool is for.
TALK = (
    "Hello!",
    "How are you today?",
    "Thank you very much",
    "Who made you?",
    "What can you help me with?",
    "Tell me a story",
    "Write a haiku about autumn",
    "What is the capital of Spain?",
    "Explain how rain forms",
    "Why do cats purr?",
    "Translate this sentence into French",
    "你好！",
    "你叫什么名字？",
    "谢谢",
    "给我讲个笑话",
    "什么是人工智能？",
)

#: Likeness below which a request is like nothing that the tools are for.
UNLIKE = 0.22
#: Characters at the beginning and the end of a long request that say what it wants.
END = 160
#: What naming the tool adds to the likeness.
NAMED = 0.25

_PARTS = re.compile(
    r"\s*(?:[,;.]?\s*\b(?:and then|then|and also|after that,?)\b|;"
    r"|[，；。]?\s*(?:然后|接着|并且)|[，；。]\s*再)\s*",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|(?<!\w)'[^']*'(?!\w)")


@dataclass(frozen=True, slots=True)
class Wish:
    """A part of a request, and the tool that it wants with its examples, the nearest last."""

    request: str
    tool: ToolSpec
    examples: tuple[Example, ...]


@dataclass
class Chooser:
    """Chooses among tools; keeps the vectors of their examples."""

    embedder: Embedder
    _vectors: dict[tuple[str, ...], NDArray[float32]] = field(default_factory=dict)

    def wishes(self, request: str, tools: Sequence[ToolSpec]) -> list[Wish]:
        """The tools that a request wants, in its order; none where it only wants an answer.

        A request in several parts wants several tools only where every part wants one.
        """
        parts = [part for part in _parts(request) if part.strip()]
        several = [wish for part in parts if (wish := self.wish(part, tools))] if len(parts) > 1 else []
        if len(several) == len(parts) > 1:
            return several
        whole = self.wish(request, tools)
        return [whole] if whole else []

    def wish(self, request: str, tools: Sequence[ToolSpec]) -> Wish | None:
        """The tool that a request in one part wants."""
        wanted = self.embedder.embed(_telling(request)).T
        best, chosen = max(float((self._of(TALK) @ wanted).max()), UNLIKE), None
        for tool in tools:
            alike = (self._of(_requests(tool)) @ wanted).max(axis=1)
            likeness = float(alike.max()) + (NAMED if _names(request, tool) else 0.0)
            if likeness > best:
                order = alike.argsort()
                examples = tuple(tool.examples[index] for index in order) if tool.examples else ()
                best, chosen = likeness, Wish(request, tool, examples)
        return chosen

    def _of(self, texts: tuple[str, ...]) -> NDArray[float32]:
        if texts not in self._vectors:
            self._vectors[texts] = self.embedder.embed(texts)
        return self._vectors[texts]


def _parts(request: str) -> list[str]:
    """The parts of a request; what stands in quotation marks is one piece."""
    inside = [range(*match.span()) for match in _QUOTED.finditer(request)]
    parts, begin = [], 0
    for match in _PARTS.finditer(request):
        if not any(match.start() in quoted for quoted in inside):
            parts.append(request[begin : match.start()])
            begin = match.end()
    return [*parts, request[begin:]]


def _telling(request: str) -> list[str]:
    """The parts of a request that tell what it wants: all of a short one, the ends of a long one."""
    if len(request) <= 2 * END:
        return [request]
    return [request[:END], request[-END:]]


def _requests(tool: ToolSpec) -> tuple[str, ...]:
    """What the tool is likened to: its examples, or where it has none, what it says of itself."""
    described = (f"{tool.name.replace('_', ' ')}: {tool.description}",)
    return tuple(example.request for example in tool.examples) or described


def _names(request: str, tool: ToolSpec) -> bool:
    return (
        re.search(rf"(?<![A-Za-z0-9_]){re.escape(tool.name)}(?![A-Za-z0-9_])", request, re.IGNORECASE)
        is not None
    )
