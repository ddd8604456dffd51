"""An agent, put together from its settings and nothing else.

Everything below takes what it needs as an argument.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread

from perdure.app.assembly import Assembly, Wish, output_schema_of
from perdure.app.instructions import instructions
from perdure.app.models import Models
from perdure.app.opening import config_folder, new_session_name
from perdure.app.sessions import Sessions, checked_name
from perdure.app.toolbox import Toolbox
from perdure.config import Settings, load
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream

    from perdure.agent.overview import Overview
    from perdure.chat.events import Compacted, Event, RunFinished
    from perdure.chat.plans import Plan
    from perdure.models.client import ModelClient
    from perdure.store.archive import Archive
    from perdure.store.journal import Journal
    from perdure.tools.contract import Approver, Asker, Tool


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
        approve: Approver | Asker | None = None,
        **flags: Any,
    ) -> None:
        self.settings = settings or load(flags, os.environ, config_folder=config_folder())
        if settings is not None and flags:
            self.settings = replace(settings, **flags)
        #: What is kept: the sessions, without a model.
        self.sessions = Sessions(self.settings, journal=journal, archive=archive)
        self._models = Models(self.settings, client)
        #: What it can do: the tools there are, and what they may do.
        self.tools = Toolbox(self.settings, tools, approve)
        self._assembly = Assembly(self.settings, self.sessions, self._models, self.tools)

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
        """Stop the embedded model, servers of tools and what runs in the background, close connections,
        journal and archive. A later run opens them anew."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.tools.jobs.stop_all)
            await self.tools.aclose()
        await self._models.aclose()
        self._assembly.forget_writer()
        self.sessions.close()

    @property
    def journal(self) -> Journal:
        return self.sessions.journal

    async def client(self) -> ModelClient:
        """The model, started or reached at the first call."""
        return await self._models.main()

    async def run(
        self,
        task: str,
        *,
        session: str | None = None,
        on_event: Callable[[Event], None] | None = None,
        plan: Plan | None = None,
        plan_only: bool = False,
        goes_on: bool = False,
        output_schema: Mapping[str, Any] | None = None,
    ) -> RunFinished:
        """One turn: ``task`` in ``session``, which is made where it doesn't exist; without a name
        a new one gets one (it is in the result). ``on_event`` must not raise. ``plan``: carry out this one
        (see `perdure.chat.plans.read_plan`); ``plan_only``: make a plan, which is the answer; ``goes_on``:
        where a plan was interrupted, it goes on; ``output_schema``: a JSON schema that the answer must fit,
        which then is one line of JSON, and as a value in the result's ``output``. One that doesn't fit after
        two more tries fails the run (`AnswerUnfit`).

        Raises `PerdureError` only for what prevents a turn from beginning.
        """
        from perdure.agent.beside import beside
        from perdure.agent.recalling import embed_behind
        from perdure.store.archive import Scope

        if session is not None:
            checked_name(session)
        schema = output_schema_of(output_schema, plan_only=plan_only)
        client, assembly = await self.client(), self._assembly
        spending = assembly.spending(client)
        session = session or new_session_name()
        self._begin(session, task, client)
        recaller = self.sessions.recaller
        reach = Scope(session, self.settings.memory)
        async with self._having(session), beside(partial(embed_behind, recaller, reach)):
            wish = Wish(plan, only=plan_only, goes_on=goes_on, output_schema=schema)
            loop = await assembly.loop(session, recaller, on_event or _nothing, wish, spending)
            return await loop.run(task)

    async def tools_of_a_turn(self) -> Sequence[Tool]:
        """The tools that a turn has, in the order in which the model is told of them."""
        from perdure.agent.plan import OwnPlan

        client, assembly = await self.client(), self._assembly
        return assembly.registry(client, assembly.recollection(self.sessions.recaller), OwnPlan()).tools

    async def compact(self, session: str, *, preview: bool = False) -> Compacted | None:
        """Compact a session now, down to the low water mark; None where nothing can leave and nothing
        waits for a summary. ``preview``: only say what would leave and what the gist would become.

        Raises `SessionUnknown` where it doesn't exist.
        """
        from perdure.agent.leaving import Leaving
        from perdure.agent.overview import last_opened
        from perdure.agent.plan import OwnPlan
        from perdure.agent.spending import Account
        from perdure.agent.summarizing import compacted

        opened = last_opened(self.sessions.records(session))
        client, assembly = await self.client(), self._assembly
        spending = assembly.spending(client)
        tools = assembly.registry(
            client, assembly.recollection(self.sessions.recaller), OwnPlan(), memo=Leaving("bash")
        ).specs
        # Where nobody names another window, the session keeps its own, whatever model writes the gist.
        window = None if self.settings.context_window else opened.get("window")
        if preview:
            conversation = assembly.conversation(client, tools, session, window, looking=True)
            account = Account(spending, conversation.used)
            writer = await assembly.summarizer(client)
            return await compacted(conversation, writer, force=True, account=account)
        async with self._having(session):
            conversation = assembly.conversation(client, tools, session, window)
            account = Account(spending, conversation.used)
            writer = await assembly.summarizer(client)
            return await compacted(conversation, writer, force=True, account=account)

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
        **wish: Any,
    ) -> RunFinished:
        """`run`, which gets the same ``wish``, for programs without an event loop; closes the agent
        afterwards."""

        async def whole() -> RunFinished:
            async with self:
                return await self.run(task, session=session, on_event=on_event, **wish)

        return anyio.run(whole)

    @asynccontextmanager
    async def stream(
        self, task: str, *, session: str | None = None, **wish: Any
    ) -> AsyncIterator[MemoryObjectReceiveStream[Event]]:
        """The events of `run`, which gets the same ``wish``, as they happen; leaving the block
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

    def _begin(self, session: str, task: str, client: ModelClient) -> None:
        """Make the session where it doesn't exist."""
        from perdure.agent.prompts import SYSTEM
        from perdure.chat.language import language_of, say

        if not self.journal.exists(session):
            lang = language_of(task) if self.settings.lang == "auto" else self.settings.lang
            workspace, date = self.settings.workspace, datetime.now(UTC).date()
            system = say(SYSTEM, lang, workspace=workspace, date=date)
            if self.settings.instructions == "auto":
                room = min(self.settings.instructions_tokens, self._models.window(client) // 8)
                told = instructions(workspace, room, client.counter.text, lang)
                system = f"{system}\n\n{told}" if told else system
            self.journal.create(session, {"system": system, "lang": lang, "workspace": str(workspace)})


def _nothing(event: Event) -> None:
    pass
