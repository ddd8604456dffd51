"""What the loop of a session is made of: model, conversation, tools, judge, planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from perdure.app.models import Models
from perdure.app.sessions import Sessions
from perdure.app.toolbox import Toolbox
from perdure.config import Judging, Settings
from perdure.errors import ConfigError, Words

if TYPE_CHECKING:
    from perdure.agent.conversation import Conversation
    from perdure.agent.judge import Judge
    from perdure.agent.leaving import Leaving
    from perdure.agent.loop import Loop
    from perdure.agent.plan import OpenStep, OwnPlan, Planner
    from perdure.agent.recalling import Recaller, Recollection
    from perdure.agent.spending import Spending
    from perdure.agent.summarizing import Summarizer
    from perdure.chat.calls import ToolSpec
    from perdure.chat.events import Event
    from perdure.chat.plans import Plan
    from perdure.chat.structured import OutputSchema
    from perdure.models.client import ModelClient
    from perdure.tools.changes import ChangeLog
    from perdure.tools.policy import Policy
    from perdure.tools.registry import Registry

NO_ANSWER: Words = (
    "a plan only has no answer that could fit a schema",
    "仅制定计划时没有可符合模式的回答",
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a run wants beside its task: a given ``plan`` carried out, a plan ``only``, or an interrupted one
    to go on; an answer that fits a schema."""

    plan: Plan | None = None
    only: bool = False
    goes_on: bool = False
    output_schema: OutputSchema | None = None


class Assembly:
    """Puts loops together, by the settings."""

    def __init__(self, settings: Settings, sessions: Sessions, models: Models, tools: Toolbox) -> None:
        self.settings = settings
        self._sessions = sessions
        self._models = models
        self._tools = tools
        self._writing: Summarizer | None = None

    def forget_writer(self) -> None:
        """The writer of gists is asked for anew: its model was closed."""
        self._writing = None

    async def loop(
        self,
        session: str,
        recaller: Recaller | None,
        emit: Callable[[Event], None],
        wish: Wish,
        spending: Spending,
    ) -> Loop:
        from perdure.agent.acting import Acting
        from perdure.agent.changes import FileChanges
        from perdure.agent.fitting import Fitting
        from perdure.agent.leaving import Leaving
        from perdure.agent.loop import Loop
        from perdure.agent.plan import OwnPlan
        from perdure.agent.states import Limits

        client = await self._models.main()
        await self._tools.reach(self._models.window(client), client.counter, small=_small(client))
        summarizer, judge = await self.summarizer(client), await self._judge(client)
        schema = wish.output_schema
        fitting = Fitting(schema, told=not _small(client)) if schema else None
        policies: list[Policy] = []
        # One question at a time, whatever runs side by side.
        asking = anyio.Lock()

        def opened(lane: str, emit: Callable[[Event], None]) -> Loop:
            """The loop of the conversation, or of a step of its plan."""
            recollection = self.recollection(recaller)
            own_plan = None if lane else OwnPlan()
            changes, memo = FileChanges(), Leaving("bash")
            registry = self.registry(client, recollection, own_plan, changes, memo)
            conversation = self.conversation(client, registry.specs, session, lane=lane)
            for each in (recollection, own_plan, changes, memo):
                if each is not None:
                    each.begin(conversation)
            if not policies:  # the conversation itself comes first, and its steps go by what it may
                policies.append(self._tools.policy(conversation, small=_small(client)))
            seconds = None if lane else self.settings.max_time
            return Loop(
                model=client,
                acting=Acting(registry, policies[0], self._tools.asker, conversation.lang, asking),
                conversation=conversation,
                limits=Limits(self.settings.max_steps, seconds, self._models.output_limit(client)),
                emit=emit,
                summarizer=summarizer,
                background=self.settings.summary == "background",
                judge=replace(judge, mode="never") if judge and lane else judge,
                recollection=recollection,
                recalls=self.settings.recall == "auto",
                planner=None if lane else self._planner(client, conversation, opened, wish),
                spending=spending,
                price=partial(self._models.price, client.model),
                news=() if lane else self._tools.news(),
                fitting=None if lane else fitting,
            )

        return opened("", emit)

    def _planner(
        self, client: ModelClient, conversation: Conversation, open_step: OpenStep, wish: Wish
    ) -> Planner | None:
        """Who makes a plan first and has it carried out; None where nobody does."""
        from perdure.agent.plan import Planner

        interrupted = conversation.plan is not None and conversation.plan.by != "model"
        if not (self.settings.plan == "on" or wish.plan or wish.only or (wish.goes_on and interrupted)):
            return None
        return Planner(
            client,
            open_step,
            parallel=self.settings.parallel,
            given=wish.plan,
            only=wish.only,
            goes_on=wish.goes_on,
            small=_small(client),
        )

    def recollection(self, recaller: Recaller | None) -> Recollection | None:
        from perdure.agent.recalling import Recollection

        return Recollection(recaller, self.settings.memory) if recaller is not None else None

    async def summarizer(self, client: ModelClient) -> Summarizer | None:
        """Who writes the gist; None where code does."""
        from perdure.agent.summarizing import Summarizer

        if not self._summarised(client):
            return None
        writer = await self._models.other(self.settings.summary_model) or client
        # One for all runs: it remembers how much its endpoint was seen to read.
        self._writing = self._writing or Summarizer(
            writer,
            own=writer is client,
            seconds=self.settings.summary_timeout,
            price=partial(self._models.price, writer.model),
        )
        return self._writing

    async def _judge(self, client: ModelClient) -> Judge | None:
        """Who checks answers; None where nobody does."""
        from perdure.agent.judge import Judge

        mode = self._judging(client)
        if mode == "off":
            return None
        judge = await self._models.other(self.settings.judge_model) or client
        return Judge(
            judge,
            own=judge is client,
            mode=mode,
            rounds=self.settings.judge_rounds,
            seconds=self.settings.judge_timeout,
            price=partial(self._models.price, judge.model),
        )

    def spending(self, client: ModelClient) -> Spending:
        """What a run may spend. Raises `ConfigError` where a limit of money can't be kept."""
        named = (
            self.settings.summary_model if self._summarised(client) else None,
            self.settings.judge_model if self._judging(client) != "off" else None,
        )
        models = (client.model, *(name for name in named if name))
        return self._models.spending(models)

    def _judging(self, client: ModelClient) -> Judging:
        return self.settings.judge or ("off" if _small(client) else "auto")

    def _summarised(self, client: ModelClient) -> bool:
        """A model writes the gist: any but one too small to be trusted with it, unless that is wished."""
        mode = self.settings.summary or ("code" if _small(client) else "sync")
        return mode != "code"

    def registry(
        self,
        client: ModelClient,
        recollection: Recollection | None,
        own_plan: OwnPlan | None,
        changes: ChangeLog | None = None,
        memo: Leaving | None = None,
    ) -> Registry:
        # What was learnt of the model in earlier turns counts as well: schemas must leave room for the rest.
        learnt = self._sessions.journal.learnt(client.model).get("window")
        window = min(self._models.window(client), learnt or self._models.window(client))
        return self._tools.registry(window, recollection, own_plan, changes, memo, small=_small(client))

    def conversation(
        self,
        client: ModelClient,
        tools: Sequence[ToolSpec],
        session: str,
        window: int | None = None,
        *,
        looking: bool = False,
        lane: str = "",
    ) -> Conversation:
        from perdure.agent.conversation import Conversation
        from perdure.memory.budget import Budget

        budget = Budget.of(window or self._models.window(client), self._models.output_limit(client))
        return Conversation(
            self._sessions.journal,
            session,
            client.counter,
            budget,
            tools,
            model=client.model,
            summarised=self._summarised(client),
            looking=looking,
            lane=lane,
        )


def output_schema_of(schema: Mapping[str, Any] | None, *, plan_only: bool) -> OutputSchema | None:
    """What the answer must fit. Raises `ConfigError` where it is no schema, or a plan is the answer."""
    from perdure.chat.structured import OutputSchema

    if schema is None:
        return None
    if plan_only:
        raise ConfigError(NO_ANSWER)
    return OutputSchema(schema)


def _small(client: ModelClient) -> bool:
    return bool(getattr(client, "small", False))
