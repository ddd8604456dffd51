"""A model that says what it was told to say: for tests of programs that use perdure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count

from perdure.chat.calls import ToolCall
from perdure.chat.forms import Form
from perdure.chat.tokens import TokenCounter, Usage, counter_for
from perdure.errors import PerdureError
from perdure.models.client import ModelRequest, Piece, Reply, Text

#: An answer, calls as (name, arguments as JSON text), a whole reply, or an error to raise.
Script = str | Sequence[tuple[str, str]] | Reply | PerdureError


class ScriptedModel:
    """`ModelClient` that plays a script: a list, one item a request and the last for ever, or a
    function of the request. What was asked is in ``requests``; beside a list, a judge gets ``verdict`` and
    doesn't count."""

    def __init__(
        self,
        script: Sequence[Script] | Callable[[ModelRequest], Script],
        *,
        context_window: int | None = 8192,
        counter: TokenCounter | None = None,
        verdict: Script = '{"satisfied": true, "missing": [], "contradicted": []}',
    ) -> None:
        self.model = "scripted"
        self.context_window = context_window
        self.counter = counter or counter_for(None)
        self.form = Form()
        self.requests: list[ModelRequest] = []
        self._script = script
        self._verdict = verdict
        self._ids = count(1)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        if request.purpose == "judge" and not callable(self._script):
            said = self._verdict
        elif callable(self._script):
            self.requests.append(request)
            said = self._script(request)
        else:
            self.requests.append(request)
            said = self._script[min(len(self.requests), len(self._script)) - 1]
        if isinstance(said, PerdureError):
            raise said
        reply = self._reply(said, request)
        for word in reply.content.splitlines(keepends=True):
            yield Text(word)
        yield reply

    async def aclose(self) -> None:
        pass

    def _reply(self, said: str | Sequence[tuple[str, str]] | Reply, request: ModelRequest) -> Reply:
        if isinstance(said, Reply):
            return said
        prompt = sum(map(self.counter.message, request.messages)) + self.counter.tools(request.tools)
        if isinstance(said, str):
            return Reply(said, finish_reason="stop", usage=Usage(prompt, self.counter.text(said)))
        calls = tuple(ToolCall(f"call_{next(self._ids)}", name, arguments) for name, arguments in said)
        return Reply("", calls, finish_reason="tool_calls", usage=Usage(prompt, 8 * len(calls)))
