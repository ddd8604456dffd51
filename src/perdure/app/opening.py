"""Which model, which journal, which archive and which tools those are that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from perdure.config import Sandboxing, Settings
from perdure.errors import ConfigError, EndpointError, Words

if TYPE_CHECKING:
    from perdure.models.client import ModelClient
    from perdure.models.embedder import Embedder
    from perdure.store.archive import Archive
    from perdure.store.journal import Journal
    from perdure.tools.changes import ChangeLog
    from perdure.tools.contract import Tool
    from perdure.tools.jobs import Jobs
    from perdure.tools.sandbox import Sandbox
    from perdure.tools.shell import Memo

NO_MODEL: Words = ("name a model with --model", "请用 --model 指定模型")
ONE_OF_THESE: Words = (
    "name a model with --model ({url} has {models})",
    "请用 --model 指定模型（{url} 有 {models}）",
)
NONE_ASKED_FOR: Words = (
    "no model is named, and none could be asked for: {why}",
    "没有指定模型，也无法向端点询问：{why}",
)
NO_ENDPOINT: Words = (
    "the model {model!r} needs an endpoint: name it with --base-url or OPENAI_BASE_URL",
    "模型 {model!r} 需要端点：请用 --base-url 或 OPENAI_BASE_URL 指定",
)
NO_STORE: Words = (
    "a store must be a path or sqlite:///path, not {store!r}",
    "存储应为路径或 sqlite:///路径，不能是 {store!r}",
)


def built_in_tools(
    settings: Settings,
    changes: ChangeLog | None = None,
    memo: Memo | None = None,
    jobs: Jobs | None = None,
    *,
    recalls: bool = False,
) -> list[Tool]:
    """The tools every agent has; ``changes`` is told what they change in files. ``memo``: of the shell, where
    there is a conversation; ``jobs``: where commands may run in the background; ``recalls``: `recall` is
    there."""
    from perdure.tools.background import background_tool
    from perdure.tools.bash import bash_tool
    from perdure.tools.calculator import calculator
    from perdure.tools.files import read_file_tool
    from perdure.tools.searching import list_files_tool, search_files_tool
    from perdure.tools.writing import edit_file_tool, write_file_tool

    workspace = settings.workspace
    return [
        calculator,
        read_file_tool(workspace),
        bash_tool(workspace, sandbox=sandbox_of(settings), memo=memo, recalls=recalls, jobs=jobs),
        *([background_tool(jobs, memo, recalls=recalls)] if jobs and memo else []),
        list_files_tool(workspace),
        search_files_tool(workspace),
        write_file_tool(workspace, changes),
        edit_file_tool(workspace, changes),
    ]


def sandbox_of(settings: Settings) -> Sandbox:
    """What commands may reach: one for all conversations, so that it is tried once."""
    folders = (settings.workspace / Path(each).expanduser() for each in settings.sandbox_folders)
    store = path_of(settings.store).absolute()
    files = (store.with_name(store.name + ending) for ending in ("", "-wal", "-shm"))
    hidden = (*files, path_of(None).parent, config_folder())
    network = settings.sandbox_network
    return _sandbox(settings.workspace, settings.sandbox, network, tuple(folders), hidden)


@cache
def _sandbox(
    workspace: Path, mode: Sandboxing, network: bool, folders: tuple[Path, ...], hidden: tuple[Path, ...]
) -> Sandbox:
    from perdure.tools.sandbox import Sandbox

    return Sandbox(workspace, mode, network=network, folders=folders, hidden=hidden)


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
            raise ConfigError(NONE_ASKED_FOR, why=error) from error
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
    models = ", ".join(list(listed)[:8])
    raise ConfigError(ONE_OF_THESE if listed else NO_MODEL, url=base_url, models=models)


async def _open_embedded(settings: Settings) -> ModelClient:
    from perdure.models.embedded import MODEL, WINDOW, EmbeddedServer, as_small_talk
    from perdure.models.embedder import SentenceEncoder
    from perdure.models.endpoint import EndpointClient
    from perdure.models.small import SmallModelClient

    if settings.model not in {None, "embedded", MODEL}:
        raise ConfigError(NO_ENDPOINT, model=settings.model)
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

    return SqliteJournal(path_of(store))


def open_archive(journal: Journal) -> Archive | None:
    """The archive of what a journal holds; None where it has none."""
    from perdure.store.sqlite import SqliteJournal
    from perdure.store.sqlite_archive import SqliteArchive

    return SqliteArchive(journal.path) if isinstance(journal, SqliteJournal) else None


def open_embedder(settings: Settings) -> Embedder | None:
    """What gives texts their vectors; None where words alone are searched. Raises `ConfigError` where it
    can't be had."""
    from perdure.models.embedder import embedder_named

    return embedder_named(settings.embedder, base_url=settings.base_url, api_key=settings.api_key)


def path_of(store: str | None) -> Path:
    """Where a store's file lies. Raises `ConfigError` for what is no path and no such URL."""
    if store is None:
        from platformdirs import user_data_path

        return user_data_path("perdure", appauthor=False) / "sessions.db"
    scheme, colon, rest = store.partition("://")
    if not colon:
        return Path(store).expanduser()
    if scheme != "sqlite":
        raise ConfigError(NO_STORE, store=store)
    return Path(rest.removeprefix("/") if not rest.startswith("//") else rest[1:]).expanduser()


def config_folder() -> Path:
    """Where the user's own `perdure.toml` lies."""
    from platformdirs import user_config_path

    return user_config_path("perdure", appauthor=False)


def new_session_name() -> str:
    """A name that sorts by time and that two processes don't both choose."""
    import secrets

    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
