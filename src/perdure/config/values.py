"""The values that settings are made of: a secret, a price, a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class Secret(str):
    """A text that doesn't show itself: ``repr`` is masked; ``str()`` gives the value."""

    def __repr__(self) -> str:
        return "Secret('***')" if self else "Secret('')"


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """US dollars per million tokens; ``cached``: of those of a prompt that came from a cache, where they cost
    otherwise than the rest of it."""

    input: float
    output: float
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of the Model Context Protocol: a ``command`` that is started and spoken to over its stdin and
    stdout, or a ``url`` (streamable HTTP). ``env`` and ``headers`` are added to what it gets; ``timeout`` of
    one call, in seconds; ``tools``: only these of it; ``reads``: those of its tools that only look, so that
    they need no approval (what a server says of itself is not believed)."""

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0
    tools: tuple[str, ...] | None = None
    reads: tuple[str, ...] = ()
