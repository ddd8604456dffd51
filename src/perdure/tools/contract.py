"""What a tool is to the loop, and what comes back from a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from perdure.chat.calls import ToolCall, ToolSpec

#: `reads`: looks and changes nothing outside; `acts`: changes something, so it must be approved.
Effect = Literal["reads", "acts"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool the model can call.

    ``run`` gets the arguments, validated against ``spec.parameters``, by name, and returns what
    the model reads. It may raise `perdure.errors.ToolError` to say what was wrong; any other
    exception becomes a result as well, so a tool can't end a run. ``timeout`` in seconds;
    ``output_limit`` in characters, beyond which the text is cut to head and tail.
    """

    spec: ToolSpec
    run: Callable[..., Awaitable[str] | str]
    effect: Effect = "acts"
    timeout: float = 60.0
    output_limit: int = 30_000

    def __call__(self, **arguments: Any) -> Awaitable[str] | str:
        """Call it as the function it was made of, arguments by name."""
        return self.run(**arguments)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: the text the model reads, whether it worked, and seconds taken."""

    text: str
    ok: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy says of a call, and why (the words are shown to the person and the model)."""

    verdict: Literal["allow", "ask", "deny"]
    why: str = ""


#: Asks the person whether a call may run. Must not raise; False where nobody can be asked.
Approver = Callable[[ToolCall, Tool], Awaitable[bool]]
