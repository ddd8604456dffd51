"""ACTING: all calls of one message at once, each approved, run, and answered in call order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from perdure.agent.prompts import CUT_CALL, NOT_APPROVED, NOT_RUN, REFUSED_WITH
from perdure.chat.calls import ToolCall
from perdure.chat.events import Event, Notice, ToolFinished, ToolRequested, ToolStarted
from perdure.chat.language import Language, say
from perdure.errors import ToolError
from perdure.tools.contract import Asker, Decision, Outcome, Question, Tool
from perdure.tools.policy import Policy
from perdure.tools.registry import Registry, read_arguments


@dataclass
class Acting:
    """Runs calls. ``asker`` is asked, one call at a time, where the policy says so."""

    registry: Registry
    policy: Policy
    asker: Asker
    lang: Language = "en"
    _asking: anyio.Lock = field(default_factory=anyio.Lock)

    def knows(self, call: ToolCall) -> bool:
        return self.registry.get(call.name) is not None

    async def run(
        self,
        calls: Sequence[ToolCall],
        *,
        cut: bool,
        emit: Callable[[Event], object],
        keep: Callable[[ToolCall, Outcome], None],
    ) -> list[Outcome]:
        """Run the calls side by side. ``keep`` gets each outcome in call order, as soon as those
        before it are there, whatever order they finish in. ``cut``: the output limit ended the
        message, so a call whose arguments are incomplete must not run."""
        outcomes: dict[int, Outcome] = {}
        kept = 0

        async def one(index: int, call: ToolCall) -> None:
            nonlocal kept
            outcome = await self._outcome(call, cut, emit)
            emit(
                ToolFinished(
                    id=call.id,
                    name=call.name,
                    ok=outcome.ok,
                    seconds=round(outcome.seconds, 3),
                    output=outcome.text,
                )
            )
            if outcome.notice:
                emit(Notice(code=f"{call.name}.notice", text=say(outcome.notice, self.lang)))
            outcomes[index] = outcome
            while kept in outcomes:
                keep(calls[kept], outcomes[kept])
                kept += 1

        for call in calls:
            emit(ToolRequested(id=call.id, name=call.name, arguments=call.arguments))
        try:
            async with anyio.create_task_group() as group:
                for index, call in enumerate(calls):
                    group.start_soon(one, index, call)
        except ExceptionGroup as several:
            # Tools don't raise; what does is the journal, and one failure of it says it all.
            raise several.exceptions[0] from None
        return [outcomes[index] for index in range(len(calls))]

    async def _outcome(self, call: ToolCall, cut: bool, emit: Callable[[Event], object]) -> Outcome:
        if cut and not _complete(call):
            return Outcome(say(CUT_CALL, self.lang), ok=False)
        tool = self.registry.get(call.name)
        if tool is not None:
            refused = await self._refused(call, tool)
            if refused:
                return Outcome(refused, ok=False)
            emit(ToolStarted(id=call.id, name=call.name))
        return await self.registry.call(call)

    async def _refused(self, call: ToolCall, tool: Tool) -> str:
        """Why the call may not run; empty where it may."""
        decision = self.policy.decide(tool, call)
        if decision.verdict == "ask":
            async with self._asking:
                # What was asked before may have answered this one as well.
                decision = self.policy.decide(tool, call)
                if decision.verdict == "ask":
                    return await self._asked(call, tool, decision)
        return say(NOT_RUN, self.lang, why=decision.why) if decision.verdict == "deny" else ""

    async def _asked(self, call: ToolCall, tool: Tool, decision: Decision) -> str:
        preview = await _preview(tool, call)
        answer = await self.asker.ask(Question(call, tool, decision.why, decision.always, preview))
        if not answer.allowed:
            return say(REFUSED_WITH if answer.said else NOT_APPROVED, self.lang, said=answer.said)
        if answer.lasting != "once" and decision.always:
            self.policy.remember(tool, call, answer.lasting)
        return ""


async def _preview(tool: Tool, call: ToolCall) -> str:
    """What the call would change. It only looks, and may read a file, so it looks in a thread."""
    if tool.preview is None:
        return ""
    try:
        return await anyio.to_thread.run_sync(tool.preview, read_arguments(call.arguments))
    except ToolError:
        return ""


def _complete(call: ToolCall) -> bool:
    try:
        json.loads(call.arguments)
    except ValueError:
        return False
    return True
