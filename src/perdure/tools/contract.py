"""What a tool is to the loop, and what comes back from a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, runtime_checkable

from perdure.chat.calls import ToolCall, ToolSpec
from perdure.errors import Words

#: `reads`: looks and changes nothing outside; `acts`: changes something, so it must be approved.
Effect = Literal["reads", "acts"]


@dataclass(frozen=True, slots=True)
class Touch:
    """What a call would act on, in the terms that rules speak of: files of the workspace (relative to it,
    with forward slashes; as they were given where they lie elsewhere), and a shell command."""

    paths: tuple[str, ...] = ()
    command: str | None = None


def touches_nothing(arguments: Mapping[str, Any]) -> Touch:
    """What a tool acts on of which nothing more can be said than its name."""
    return Touch()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool the model can call.

    ``run`` gets the arguments, validated against ``spec.parameters``, by name, and returns what
    the model reads. It may raise `perdure.errors.ToolError` to say what was wrong; any other
    exception becomes a result as well, so a tool can't end a run. ``timeout`` in seconds;
    ``output_limit`` in characters, beyond which the text is cut to head and tail. ``touches`` says of a
    call's arguments, which may be anything, what it would act on; ``preview`` shows what it would change (a
    unified diff), empty where there is nothing to show. Both only look, and never raise.
    """

    spec: ToolSpec
    run: Callable[..., Awaitable[str] | str]
    effect: Effect = "acts"
    timeout: float = 60.0
    output_limit: int = 30_000
    touches: Callable[[Mapping[str, Any]], Touch] = touches_nothing
    preview: Callable[[Mapping[str, Any]], str] | None = None

    def __call__(self, **arguments: Any) -> Awaitable[str] | str:
        """Call it as the function it was made of, arguments by name."""
        return self.run(**arguments)


class Said(str):
    """What a tool says, where there is more to it than the text that the model reads: a ``notice`` for the
    person; what it ``left`` for its next call in the conversation, which is journaled with it; and where the
    text is only part of it, the ``whole``, which is journaled under the ``name`` by which the text calls it.
    """

    __slots__ = ("left", "name", "notice", "whole")

    notice: Words | None
    left: Mapping[str, Any] | None
    whole: str
    name: str

    def __new__(
        cls,
        text: str,
        *,
        notice: Words | None = None,
        left: Mapping[str, Any] | None = None,
        whole: str = "",
        name: str = "",
    ) -> Self:
        said = super().__new__(cls, text)
        said.notice, said.left, said.whole, said.name = notice, left, whole, name
        return said

    def with_notice(self, notice: Words | None) -> Said:
        return Said(self, notice=notice, left=self.left, whole=self.whole, name=self.name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: the text the model reads, whether it worked, and seconds taken; the rest: see
    `Said`."""

    text: str
    ok: bool
    seconds: float = 0.0
    notice: Words | None = None
    left: Mapping[str, Any] | None = None
    whole: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy says of a call, and why (the words are shown to the person and the model).
    ``always``: what an answer of "always" would allow from then on, in words; empty where it can't be."""

    verdict: Literal["allow", "ask", "deny"]
    why: str = ""
    always: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """May this call run? ``why``, ``always``: see `Decision`; ``preview``: see `Tool`."""

    call: ToolCall
    tool: Tool
    why: str = ""
    always: str = ""
    preview: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the person said. ``lasting``: for how long what ``Question.always`` names is allowed (only this
    call, this session, or this workspace for good). ``said``: words for the model, where it was refused."""

    allowed: bool
    lasting: Literal["once", "session", "workspace"] = "once"
    said: str = ""


#: Asks the person whether a call may run. Must not raise; False where nobody can be asked.
Approver = Callable[[ToolCall, Tool], Awaitable[bool]]


@runtime_checkable
class Asker(Protocol):
    """Asks the person whether a call may run, and for how long. Must not raise."""

    async def ask(self, question: Question) -> Answer: ...


@dataclass(frozen=True, slots=True)
class AskThrough:
    """An `Asker` of an `Approver`."""

    approve: Approver

    async def ask(self, question: Question) -> Answer:
        return Answer(bool(await self.approve(question.call, question.tool)))


class Nobody:
    """The `Asker` where nobody can be asked."""

    async def ask(self, question: Question) -> Answer:
        return Answer(False)
