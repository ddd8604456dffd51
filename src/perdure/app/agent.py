"""An agent, put together from its settings and nothing else.

Everything below takes what it needs as an argument.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread

from perdure.app.opening import built_in_tools, config_folder, new_session_name, open_model
from perdure.app.pricing import price_of, spending_of
from perdure.app.sessions import Sessions, checked_name
from perdure.config import Judging, Settings, load
from perdure.errors import ConfigError, PerdureError, Words

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream

    from perdure.agent.conversation import Conversation
    from perdure.agent.judge import Judge
    from perdure.agent.loop import Loop
    from perdure.agent.overview import Overview
    from perdure.agent.plan import OpenStep, OwnPlan, Planner
    from perdure.agent.recalling import Recaller, Recollection
    from perdure.agent.spending import Spending
    from perdure.agent.summarizing import Summarizer
    from perdure.chat.calls import ToolCall, ToolSpec
    from perdure.chat.events import Compacted, Event, RunFinished
    from perdure.chat.language import Language
    from perdure.chat.plans import Plan
    from perdure.chat.tokens import Usage
    from perdure.models.client import ModelClient
    from perdure.store.archive import Archive
    from perdure.store.journal import Journal
    from perdure.tools.contract import Approver, Tool
    from perdure.tools.policy import Policy
    from perdure.tools.registry import Registry

NO_TOOL: Words = ("there is no tool {names} (there are: {known})", "没有工具 {names}（已有：{known}）")
#: Tokens of context taken for a model that neither the endpoint nor the table knows.
UNKNOWN_WINDOW = 8192
#: Tokens of a window from which on the model is given a tool to keep a plan with.
PLANNING_WINDOW = 8000


@dataclass(frozen=True, slots=True)
class Wish:
    """What a run wants beside its task: a given ``plan`` carried out, a plan ``only``, or an interrupted one
    to go on."""

    plan: Plan | None = None
    only: bool = False
    goes_on: bool = False


class Agent:
    """An agent with its model, tools and journal.

    ``settings`` as they stand, or keyword arguments by the names of `Settings` on top of the
    environment and `perdure.toml`. ``tools`` adds to the built-in ones; ``client``, ``journal`` and
    ``archive`` replace what the settings would choose; ``approve`` is asked before a tool acts (without it,
    nothing acts unless ``yes`` is set).

        async with Agent(base_url="http://localhost:11434/v1", model="qwen3:8b") as agent:
            finished = await agent.run("What does src/app.py do?")

    Raises `ConfigError` where a setting isn't understood.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        tools: Sequence[Tool] = (),
        client: ModelClient | None = None,
        journal: Journal | None = None,
        archive: Archive | None = None,
        approve: Approver | None = None,
        **flags: Any,
    ) -> None:
        self.settings = settings or load(flags, os.environ, config_folder=config_folder())
        if settings is not None and flags:
            self.settings = replace(settings, **flags)
        self._own_tools = tuple(tools)
        self._approve = approve
        #: What is kept: the sessions, without a model.
        self.sessions = Sessions(self.settings, journal=journal, archive=archive)
        self._given = self._client = client
        #: Other models of the endpoint, by name.
        self._others: dict[str, ModelClient] = {}
        self._writing: Summarizer | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the embedded model, close connections, journal and archive. A later run opens them anew."""
        await self._exit.aclose()
        self._exit = AsyncExitStack()
        self.sessions.close()
        self._client = self._given
        self._others, self._writing = {}, None

    @property
    def journal(self) -> Journal:
        return self.sessions.journal

    async def client(self) -> ModelClient:
        """The model, started or reached at the first call."""
        if self._client is None:
            self._client = await open_model(self.settings)
            self._exit.push_async_callback(self._client.aclose)
        return self._client

    async def run(
        self,
        task: str,
        *,
        session: str | None = None,
        on_event: Callable[[Event], None] | None = None,
        plan: Plan | None = None,
        plan_only: bool = False,
        goes_on: bool = False,
    ) -> RunFinished:
        """One turn: ``task`` in ``session``, which is made where it doesn't exist; without a name
        a new one gets one (it is in the result). ``on_event`` must not raise. ``plan``: carry out this one
        (see `perdure.chat.plans.read_plan`); ``plan_only``: make a plan, which is the answer; ``goes_on``:
        where a plan was interrupted, it goes on.

        Raises `PerdureError` only for what prevents a turn from beginning.
        """
        from perdure.agent.beside import beside
        from perdure.agent.recalling import embed_behind
        from perdure.store.archive import Scope

        if session is not None:
            checked_name(session)
        client = await self.client()
        spending = self._spending(client)
        session = session or new_session_name()
        self._begin(session, task)
        recaller = self.sessions.recaller
        reach = Scope(session, self.settings.memory)
        async with self._having(session), beside(partial(embed_behind, recaller, reach)):
            wish = Wish(plan, only=plan_only, goes_on=goes_on)
            loop = await self._loop(session, recaller, on_event or _nothing, wish, spending)
            return await loop.run(task)

    async def _loop(
        self,
        session: str,
        recaller: Recaller | None,
        emit: Callable[[Event], None],
        wish: Wish,
        spending: Spending,
    ) -> Loop:
        from perdure.agent.acting import Acting
        from perdure.agent.loop import Loop
        from perdure.agent.plan import OwnPlan
        from perdure.agent.states import Limits

        client = await self.client()
        summarizer, judge = await self._summarizer(client), await self._judge(client)
        # One question at a time, whatever runs side by side.
        asking = anyio.Lock()

        def opened(lane: str, emit: Callable[[Event], None]) -> Loop:
            """The loop of the conversation, or of a step of its plan."""
            recollection = self._recollection(recaller)
            own_plan = None if lane else OwnPlan()
            registry = self._registry(client, recollection, own_plan)
            conversation = self._conversation(client, registry.specs, session, lane=lane)
            for each in (recollection, own_plan):
                if each is not None:
                    each.begin(conversation)
            policy = self._policy(client, conversation.lang)
            approve = self._approve or _nobody
            seconds = None if lane else self.settings.max_time
            return Loop(
                model=client,
                acting=Acting(registry, policy, approve, conversation.lang, asking),
                conversation=conversation,
                limits=Limits(self.settings.max_steps, seconds, self._output_limit(client)),
                emit=emit,
                summarizer=summarizer,
                background=self.settings.summary == "background",
                judge=replace(judge, mode="never") if judge and lane else judge,
                recollection=recollection,
                recalls=self.settings.recall == "auto",
                planner=None if lane else self._planner(client, conversation, opened, wish),
                spending=spending,
                price=partial(self._price, client.model),
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
            small=bool(getattr(client, "small", False)),
        )

    async def compact(self, session: str, *, preview: bool = False) -> Compacted | None:
        """Compact a session now, down to the low water mark; None where nothing can leave and nothing
        waits for a summary. ``preview``: only say what would leave and what the gist would become.

        Raises `SessionUnknown` where it doesn't exist.
        """
        from perdure.agent.overview import last_opened
        from perdure.agent.plan import OwnPlan
        from perdure.agent.spending import Account
        from perdure.agent.summarizing import compacted

        opened = last_opened(self.sessions.records(session))
        client = await self.client()
        spending = self._spending(client)
        tools = self._registry(client, self._recollection(self.sessions.recaller), OwnPlan()).specs
        # Where nobody names another window, the session keeps its own, whatever model writes the gist.
        window = None if self.settings.context_window else opened.get("window")
        if preview:
            conversation = self._conversation(client, tools, session, window, looking=True)
            account = Account(spending, conversation.used)
            return await compacted(conversation, await self._summarizer(client), force=True, account=account)
        async with self._having(session):
            conversation = self._conversation(client, tools, session, window)
            account = Account(spending, conversation.used)
            return await compacted(conversation, await self._summarizer(client), force=True, account=account)

    async def undo_compaction(self, session: str) -> Sequence[int] | None:
        """Take a session's last compaction back: the numbers of the entries that stand in the window again,
        or None where there is none. Raises `SessionUnknown` where the session doesn't exist."""
        return self.sessions.undo_compaction(session)

    def context(self, session: str) -> Overview:
        """What is in a session's window, in tokens, by part; its compactions; what waits for a summary.
        Asks no model and changes nothing. Raises `SessionUnknown` where the session doesn't exist."""
        from perdure.agent.overview import overview

        self.sessions.existing(session)
        return overview(self.journal, session)

    def run_sync(
        self,
        task: str,
        *,
        session: str | None = None,
        on_event: Callable[[Event], None] | None = None,
        plan: Plan | None = None,
        plan_only: bool = False,
    ) -> RunFinished:
        """`run` for programs without an event loop; closes the agent afterwards."""

        async def whole() -> RunFinished:
            async with self:
                return await self.run(
                    task, session=session, on_event=on_event, plan=plan, plan_only=plan_only
                )

        return anyio.run(whole)

    @asynccontextmanager
    async def stream(
        self, task: str, *, session: str | None = None, **wish: Any
    ) -> AsyncIterator[MemoryObjectReceiveStream[Event]]:
        """The events of `run`, which gets the same ``wish`` of a plan, as they happen; leaving the block
        interrupts the turn in order.

        async with agent.stream("...") as events:
            async for event in events:
                ...
        """
        send, receive = anyio.create_memory_object_stream[Any](float("inf"))

        failures: list[PerdureError] = []

        def tell(event: Event) -> None:
            # Whoever left the block hears no more; the turn still closes in order.
            with suppress(anyio.BrokenResourceError):
                send.send_nowait(event)

        async def work() -> None:
            with send:
                try:
                    await self.run(task, session=session, on_event=tell, **wish)
                except PerdureError as error:
                    failures.append(error)

        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            with receive:
                try:
                    yield receive
                except Exception as error:  # the group would wrap it in another
                    failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if failures:
            raise failures[0]

    @asynccontextmanager
    async def _having(self, session: str) -> AsyncIterator[None]:
        """Have a session, and show that its holder is alive."""
        from perdure.agent.beside import beside
        from perdure.store.leases import BEAT

        async def beat() -> None:
            while True:
                await anyio.sleep(BEAT)
                # One that was taken over is told at the next write, which is refused.
                with suppress(PerdureError):
                    self.journal.beat(session)

        with self.sessions.held(session):
            async with beside(beat):
                yield

    def _recollection(self, recaller: Recaller | None) -> Recollection | None:
        from perdure.agent.recalling import Recollection

        return Recollection(recaller, self.settings.memory) if recaller is not None else None

    async def _summarizer(self, client: ModelClient) -> Summarizer | None:
        """Who writes the gist; None where code does."""
        from perdure.agent.summarizing import Summarizer

        if not self._summarised(client):
            return None
        writer = await self._other(self.settings.summary_model) or client
        # One for all runs: it remembers how much its endpoint was seen to read.
        self._writing = self._writing or Summarizer(
            writer,
            own=writer is client,
            seconds=self.settings.summary_timeout,
            price=partial(self._price, writer.model),
        )
        return self._writing

    async def _judge(self, client: ModelClient) -> Judge | None:
        """Who checks answers; None where nobody does."""
        from perdure.agent.judge import Judge

        mode = self._judging(client)
        if mode == "off":
            return None
        judge = await self._other(self.settings.judge_model) or client
        return Judge(
            judge,
            own=judge is client,
            mode=mode,
            rounds=self.settings.judge_rounds,
            seconds=self.settings.judge_timeout,
            price=partial(self._price, judge.model),
        )

    async def _other(self, name: str | None) -> ModelClient | None:
        """Another model of the endpoint, reached at the first call; None where none is named."""
        if not name:
            return None
        if name not in self._others:
            other = replace(self.settings, model=name, context_window=None, tool_calls="native")
            self._others[name] = await open_model(other)
            self._exit.push_async_callback(self._others[name].aclose)
        return self._others[name]

    def _price(self, model: str, usage: Usage) -> float | None:
        """US dollars of a usage; None where the price is unknown."""
        own = self._given is None and self.settings.embedded
        return price_of(self.settings, model, usage, own_machine=own)

    def _spending(self, client: ModelClient) -> Spending:
        """What a run may spend. Raises `ConfigError` where a limit of money can't be kept."""
        named = (
            self.settings.summary_model if self._summarised(client) else None,
            self.settings.judge_model if self._judging(client) != "off" else None,
        )
        models = (client.model, *(name for name in named if name))
        return spending_of(self.settings, models, self._price, config_folder() / "perdure.toml")

    def _judging(self, client: ModelClient) -> Judging:
        return self.settings.judge or ("off" if getattr(client, "small", False) else "auto")

    def _summarised(self, client: ModelClient) -> bool:
        """A model writes the gist: any but one too small to be trusted with it, unless that is wished."""
        mode = self.settings.summary or ("code" if getattr(client, "small", False) else "sync")
        return mode != "code"

    def _registry(
        self, client: ModelClient, recollection: Recollection | None, own_plan: OwnPlan | None
    ) -> Registry:
        from perdure.tools.recall import recall_tool
        from perdure.tools.registry import Registry
        from perdure.tools.update_plan import UPDATE_PLAN, update_plan_tool

        # A page of an entry takes a fifth of the window, at some three characters a token.
        page = self._window(client) * 3 // 5
        others = self.settings.memory != "session"
        recall = [recall_tool(recollection, page, others=others)] if recollection is not None else []
        planning = [update_plan_tool(own_plan)] if own_plan is not None else []
        every = (*built_in_tools(self.settings), *recall, *planning, *self._own_tools)
        wanted = self.settings.tools
        if wanted is None:
            plans = self.settings.plan != "off" and not getattr(client, "small", False)
            plans = plans and self._window(client) >= PLANNING_WINDOW
            return Registry(each for each in every if plans or each.spec.name != UPDATE_PLAN)
        if own_plan is None:  # a step of a plan has none of its own
            wanted = tuple(name for name in wanted if name != UPDATE_PLAN)
        by_name = {tool.spec.name: tool for tool in every}
        if unknown := [name for name in wanted if name not in by_name]:
            raise ConfigError(NO_TOOL, names=", ".join(unknown), known=", ".join(by_name))
        return Registry([by_name[name] for name in dict.fromkeys(wanted)])

    def _policy(self, client: ModelClient, lang: Language) -> Policy:
        from perdure.tools.policy import Policy

        small = getattr(client, "small", False)
        approved = self.settings.yes_small if small else self.settings.yes
        return Policy(approve_all=approved, interactive=self._approve is not None, lang=lang)

    def _conversation(
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

        budget = Budget.of(window or self._window(client), self._output_limit(client))
        return Conversation(
            self.journal,
            session,
            client.counter,
            budget,
            tools,
            model=client.model,
            summarised=self._summarised(client),
            looking=looking,
            lane=lane,
        )

    def _begin(self, session: str, task: str) -> None:
        """Make the session where it doesn't exist."""
        from perdure.agent.prompts import SYSTEM
        from perdure.chat.language import language_of, say

        if not self.journal.exists(session):
            lang = language_of(task) if self.settings.lang == "auto" else self.settings.lang
            workspace, date = self.settings.workspace, datetime.now(UTC).date()
            system = say(SYSTEM, lang, workspace=workspace, date=date)
            self.journal.create(session, {"system": system, "lang": lang, "workspace": str(workspace)})

    def _window(self, client: ModelClient) -> int:
        known = [each for each in (self.settings.context_window, client.context_window) if each]
        return min(known, default=UNKNOWN_WINDOW)

    def _output_limit(self, client: ModelClient) -> int | None:
        from perdure.models.embedded import OUTPUT

        return self.settings.max_output_tokens or (OUTPUT if self.settings.embedded else None)


async def _nobody(call: ToolCall, tool: Tool) -> bool:
    return False


def _nothing(event: Event) -> None:
    pass
