"""ACTING: all calls of one message at once, each approved, run, and answered in call order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from perdure.agent.prompts import CUT_CALL, NOT_APPROVED, NOT_RUN
from perdure.chat.calls import ToolCall
from perdure.chat.events import Event, ToolFinished, ToolRequested, ToolStarted
from perdure.chat.language import Language, say
from perdure.tools.contract import Approver, Outcome
from perdure.tools.policy import Policy
from perdure.tools.registry import Registry


@dataclass
class Acting:
    """Runs calls. ``approve`` is asked, one call at a time, where the policy says so."""

    registry: Registry
    policy: Policy
    approve: Approver
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
            decision = self.policy.decide(tool, call)
            if decision.verdict == "ask":
                async with self._asking:
                    if not await self.approve(call, tool):
                        return Outcome(say(NOT_APPROVED, self.lang), ok=False)
            elif decision.verdict == "deny":
                return Outcome(say(NOT_RUN, self.lang, why=decision.why), ok=False)
            emit(ToolStarted(id=call.id, name=call.name))
        return await self.registry.call(call)


def _complete(call: ToolCall) -> bool:
    try:
        json.loads(call.arguments)
    except ValueError:
        return False
    return True
