"""The only place where adapters are chosen and put together.

Everything below takes what it needs as an argument; here it is decided which model, which
journal and which tools those are, from settings and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread

from perdure.config import Settings, load
from perdure.errors import ConfigError, EndpointError, PerdureError, SessionUnknown

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream

    from perdure.agent.conversation import Conversation
    from perdure.agent.overview import Overview
    from perdure.agent.summarizing import Summarizer
    from perdure.chat.calls import ToolCall, ToolSpec
    from perdure.chat.events import Compacted, Event, RunFinished
    from perdure.chat.language import Language
    from perdure.models.client import ModelClient
    from perdure.store.journal import Journal
    from perdure.tools.contract import Approver, Tool
    from perdure.tools.policy import Policy
    from perdure.tools.registry import Registry

#: Tokens of context taken for a model that neither the endpoint nor the table knows.
UNKNOWN_WINDOW = 8192
#: Tokens an answer of the embedded model may have: it rambles, and two cores write 90 a second.
EMBEDDED_OUTPUT = 512


class Agent:
    """An agent with its model, tools and journal.

    ``settings`` as they stand, or keyword arguments by the names of `Settings` on top of the
    environment and `perdure.toml`. ``tools`` adds to the built-in ones; ``client`` and ``journal``
    replace what the settings would choose; ``approve`` is asked before a tool acts (without it,
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
        approve: Approver | None = None,
        **flags: Any,
    ) -> None:
        self.settings = settings or load(flags, os.environ, config_folder=config_folder())
        if settings is not None and flags:
            self.settings = replace(settings, **flags)
        self._own_tools = tuple(tools)
        self._approve = approve
        self._given = (client, journal)
        self._client, self._journal = self._given
        self._summary_client: ModelClient | None = None
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
        """Stop the embedded model, close connections and the journal. A later run opens them anew."""
        await self._exit.aclose()
        self._exit = AsyncExitStack()
        self._client, self._journal = self._given
        self._summary_client = self._writing = None

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = open_journal(self.settings.store)
            self._exit.callback(self._journal.close)
        return self._journal

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
    ) -> RunFinished:
        """One turn: ``task`` in ``session``, which is made where it doesn't exist; without a name
        a new one gets one (it is in the result). ``on_event`` must not raise.

        Raises `PerdureError` only for what prevents a turn from beginning.
        """
        from perdure.agent.acting import Acting
        from perdure.agent.loop import Limits, Loop

        if session is not None and (not session.strip() or not session.isprintable() or len(session) > 200):
            raise ConfigError("a session's name has 1 to 200 printable characters")
        client = await self.client()
        registry = self._registry(client)
        conversation = self._conversation(client, registry.specs, session or new_session_name(), task)
        loop = Loop(
            model=client,
            acting=Acting(
                registry, self._policy(client, conversation.lang), self._approve or _nobody, conversation.lang
            ),
            conversation=conversation,
            limits=Limits(self.settings.max_steps, self.settings.max_time, self._output_limit(client)),
            emit=on_event or _nothing,
            summarizer=await self._summarizer(client),
            background=self.settings.summary == "background",
        )
        return await loop.run(task)

    async def compact(self, session: str, *, preview: bool = False) -> Compacted | None:
        """Compact a session now, down to the low water mark; None where nothing can leave and nothing
        waits for a summary. ``preview``: only say what would leave and what the gist would become.

        Raises `SessionUnknown` where it doesn't exist.
        """
        from perdure.agent.summarizing import compacted

        client = await self.client()
        tools = self._registry(client).specs
        conversation = self._conversation(client, tools, self._existing(session), "", looking=preview)
        return await compacted(conversation, await self._summarizer(client), force=True)

    async def undo_compaction(self, session: str) -> Sequence[int] | None:
        """Take a session's last compaction back: the numbers of the entries that stand in the window again,
        or None where there is none. Raises `SessionUnknown` where the session doesn't exist."""
        client = await self.client()
        tools = self._registry(client).specs
        return self._conversation(client, tools, self._existing(session), "").undo_compaction()

    def context(self, session: str) -> Overview:
        """What is in a session's window, in tokens, by part; its compactions; what waits for a summary.
        Asks no model and changes nothing. Raises `SessionUnknown` where the session doesn't exist."""
        from perdure.agent.overview import overview

        return overview(self.journal, self._existing(session))

    def run_sync(
        self,
        task: str,
        *,
        session: str | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> RunFinished:
        """`run` for programs without an event loop; closes the agent afterwards."""

        async def whole() -> RunFinished:
            async with self:
                return await self.run(task, session=session, on_event=on_event)

        return anyio.run(whole)

    @asynccontextmanager
    async def stream(
        self, task: str, *, session: str | None = None
    ) -> AsyncIterator[MemoryObjectReceiveStream[Event]]:
        """The events of `run` as they happen; leaving the block interrupts the turn in order.

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
                    await self.run(task, session=session, on_event=tell)
                except PerdureError as error:
                    failures.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            with receive:
                yield receive
            group.cancel_scope.cancel()
        if failures:
            raise failures[0]

    def _existing(self, session: str) -> str:
        if not self.journal.exists(session):
            raise SessionUnknown(name=session)
        return session

    async def _summarizer(self, client: ModelClient) -> Summarizer | None:
        """Who writes the gist; None where code does."""
        from perdure.agent.summarizing import Summarizer
        from perdure.models.catalog import cost_of

        settings = self.settings
        if not self._summarised(client):
            return None
        if settings.summary_model and self._summary_client is None:
            other = replace(settings, model=settings.summary_model, context_window=None, tool_calls="native")
            self._summary_client = await open_model(other)
            self._exit.push_async_callback(self._summary_client.aclose)
        writer = self._summary_client or client
        # One for all runs: it remembers how much its endpoint was seen to read.
        self._writing = self._writing or Summarizer(
            writer,
            own=writer is client,
            seconds=settings.summary_timeout,
            price=lambda usage: cost_of(writer.model, usage, settings.base_url or ""),
        )
        return self._writing

    def _summarised(self, client: ModelClient) -> bool:
        """A model writes the gist: any but one too small to be trusted with it, unless that is wished."""
        mode = self.settings.summary or ("code" if getattr(client, "small", False) else "sync")
        return mode != "code"

    def _registry(self, client: ModelClient) -> Registry:
        from perdure.tools.registry import Registry

        every = (*built_in_tools(self.settings), *self._own_tools)
        wanted = self.settings.tools
        if wanted is None:
            return Registry(every)
        by_name = {tool.spec.name: tool for tool in every}
        if unknown := [name for name in wanted if name not in by_name]:
            raise ConfigError(f"there is no tool {', '.join(unknown)} (there are: {', '.join(by_name)})")
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
        task: str,
        *,
        looking: bool = False,
    ) -> Conversation:
        from perdure.agent.conversation import Conversation
        from perdure.agent.prompts import SYSTEM
        from perdure.chat.language import language_of, say
        from perdure.memory.budget import Budget

        if not self.journal.exists(session):
            lang = language_of(task) if self.settings.lang == "auto" else self.settings.lang
            workspace, date = self.settings.workspace, datetime.now(UTC).date()
            system = say(SYSTEM, lang, workspace=workspace, date=date)
            self.journal.create(session, {"system": system, "lang": lang, "workspace": str(workspace)})
        known = [each for each in (self.settings.context_window, client.context_window) if each]
        window = min(known, default=UNKNOWN_WINDOW)
        budget = Budget.of(window, self._output_limit(client))
        return Conversation(
            self.journal,
            session,
            client.counter,
            budget,
            tools,
            model=client.model,
            summarised=self._summarised(client),
            looking=looking,
        )

    def _output_limit(self, client: ModelClient) -> int | None:
        return self.settings.max_output_tokens or (EMBEDDED_OUTPUT if self.settings.embedded else None)


async def _nobody(call: ToolCall, tool: Tool) -> bool:
    return False


def _nothing(event: Event) -> None:
    pass


def built_in_tools(settings: Settings) -> list[Tool]:
    """The tools every agent has."""
    from perdure.tools.bash import bash_tool
    from perdure.tools.calculator import calculator
    from perdure.tools.files import read_file_tool

    return [calculator, read_file_tool(settings.workspace), bash_tool(settings.workspace)]


async def open_model(settings: Settings) -> ModelClient:
    """The model that the settings name: an endpoint's, or the embedded one where none is set.

    Raises `ConfigError` where no model is named and the endpoint has several, and
    `EmbeddedModelMissing` where the embedded model isn't installed.
    """
    if settings.base_url is None:
        return await _open_embedded(settings)
    from perdure.chat.tokens import counter_for
    from perdure.models.catalog import counter_of, window_of_model
    from perdure.models.endpoint import EndpointClient, window_of

    def client(model: str, window: int | None) -> ModelClient:
        endpoint = EndpointClient(
            settings.base_url or "",
            model,
            counter=counter_of(model, reasoning=settings.replay_reasoning),
            api_key=settings.api_key,
            context_window=settings.context_window or window,
            connect_timeout=settings.connect_timeout,
            idle_timeout=settings.idle_timeout,
            replay_reasoning=settings.replay_reasoning,
        )
        if settings.tool_calls == "native":
            return endpoint
        from perdure.models.embedder import SentenceEncoder
        from perdure.models.small import SmallModelClient

        return SmallModelClient(endpoint, SentenceEncoder())

    if settings.model and settings.context_window:
        return client(settings.model, None)
    asking = EndpointClient(
        settings.base_url,
        settings.model or "",
        counter=counter_for(None),
        api_key=settings.api_key,
        connect_timeout=settings.connect_timeout,
        idle_timeout=settings.connect_timeout,
    )
    try:
        listed = {str(each.get("id")): each for each in await asking.listed()}
    except EndpointError as error:
        if settings.model is None:
            raise ConfigError(f"no model is named, and none could be asked for: {error.say('en')}") from error
        # The turn itself will meet the same, with the request journaled and its retries.
        listed = {}
    finally:
        await asking.aclose()
    model = settings.model or _only(listed, settings.base_url)
    window = window_of(listed[model]) if model in listed else None
    if window is None and not settings.context_window:
        window = await anyio.to_thread.run_sync(window_of_model, model, settings.base_url)
    return client(model, window)


def _only(listed: Mapping[str, object], base_url: str) -> str:
    """The one model that an endpoint has."""
    if len(listed) == 1:
        return next(iter(listed))
    several = f" ({base_url} has {', '.join(list(listed)[:8])})" if listed else ""
    raise ConfigError(f"name a model with --model{several}")


async def _open_embedded(settings: Settings) -> ModelClient:
    from perdure.models.embedded import MODEL, WINDOW, EmbeddedServer, as_small_talk
    from perdure.models.embedder import SentenceEncoder
    from perdure.models.endpoint import EndpointClient
    from perdure.models.small import SmallModelClient

    if settings.model not in {None, "embedded", MODEL}:
        raise ConfigError(
            f"the model {settings.model!r} needs an endpoint: name it with --base-url or OPENAI_BASE_URL"
        )
    server = await anyio.to_thread.run_sync(EmbeddedServer)
    inner = EndpointClient(
        server.base_url,
        MODEL,
        counter=server.counter,
        api_key=server.api_key,
        context_window=min(settings.context_window or WINDOW, WINDOW),
        connect_timeout=settings.connect_timeout,
        idle_timeout=settings.idle_timeout,
    )
    return SmallModelClient(inner, SentenceEncoder(), talk=as_small_talk, on_close=server.stop)


def open_journal(store: str | None) -> Journal:
    """The journal at ``store``: a path, `sqlite:///relative/path`, `sqlite:////absolute/path`, or the
    user's data folder."""
    from perdure.store.sqlite import SqliteJournal

    if store is None:
        from platformdirs import user_data_path

        return SqliteJournal(user_data_path("perdure", appauthor=False) / "sessions.db")
    scheme, colon, rest = store.partition("://")
    if not colon:
        return SqliteJournal(Path(store).expanduser())
    if scheme != "sqlite":
        raise ConfigError(f"a store must be a path or sqlite:///path, not {store!r}")
    return SqliteJournal(Path(rest.removeprefix("/") if not rest.startswith("//") else rest[1:]).expanduser())


def config_folder() -> Path:
    """Where the user's own `perdure.toml` lies."""
    from platformdirs import user_config_path

    return user_config_path("perdure", appauthor=False)


def new_session_name() -> str:
    """A name that sorts by time and that two processes don't both choose."""
    import secrets

    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
