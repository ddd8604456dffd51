"""The contract of a model, and the values that pass through it.

A client turns one request into a stream of pieces that ends in exactly one `Reply`. Whatever
differs between endpoints (quirks of streaming, refused fields, tool calls that must be spelled
as JSON) stays below this line: the loop sees only these types.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from perdure.chat.calls import Schema, ToolCall, ToolSpec
from perdure.chat.forms import Form
from perdure.chat.messages import Message
from perdure.chat.tokens import TokenCounter, Usage

Purpose = Literal["think", "summarize", "judge", "plan"]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model. ``max_output_tokens`` in tokens; ``schema`` asks for JSON that fits it."""

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    purpose: Purpose = "think"
    session: str = ""
    max_output_tokens: int | None = None
    schema: Schema | None = None
    temperature: float | None = None
    #: Worth waiting and trying again for; a summary isn't, since the next chance comes soon.
    patient: bool = True
    #: Fields an endpoint knows beyond the standard ones (llama.cpp's `grammar`, `cache_prompt`).
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer, or of the model's reasoning, as it arrives."""

    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Retrying:
    """The request is sent again after ``wait`` seconds. ``restart``: text already shown is void."""

    why: str
    wait: float
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. ``finish_reason`` as the endpoint gave it (None when it gave none);
    ``notes`` names what had to be mended in the stream (a duplicate id renamed, ...)."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage = Usage()
    model: str = ""
    notes: tuple[str, ...] = ()
    #: The usage is that of the prompt as it was asked for, so the two counts can be compared.
    of_whole_prompt: bool = True

    @property
    def cut(self) -> bool:
        """The output limit ended the reply in the middle."""
        return self.finish_reason == "length"

    def as_message(self) -> Message:
        """The assistant message to keep: calls with distinct ids and arguments that are JSON
        objects; ``reasoning_content`` is kept beside them for endpoints that want it back."""
        message: Message = {"role": "assistant", "content": self.content or (None if self.calls else "")}
        if self.calls:
            message["tool_calls"] = [call.on_the_wire() for call in self.calls]
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        return message


Piece = Text | Retrying | Reply


class ModelClient(Protocol):
    """Must yield exactly one `Reply`, last. Raises only `perdure.errors.EndpointError` and its
    children (`ContextOverflow` with the limit where it is known); cancellation passes through."""

    @property
    def model(self) -> str: ...

    @property
    def counter(self) -> TokenCounter:
        """Counts exactly as this model's endpoint does, or an upper bound of it."""
        ...

    @property
    def context_window(self) -> int | None:
        """Tokens of prompt and answer together, where the endpoint or a table knows it."""
        ...

    @property
    def form(self) -> Form:
        """What is known to be demanded of the order of roles; the client gives it to each request."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]: ...

    async def aclose(self) -> None: ...


async def complete(client: ModelClient, request: ModelRequest) -> Reply:
    """The whole reply, for those who don't show it as it comes."""
    async with aclosing(client.stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Reply):
                return piece
    raise AssertionError(f"{type(client).__name__} ended without a reply")
