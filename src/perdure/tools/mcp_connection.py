"""One server of tools, spoken to by a task of its own.

The package's client lives in cancel scopes and task groups that must be left by the task that entered them,
and a server is to outlive the turn that started it. So a task owns it from the first to the last, takes
requests over a stream, and works on each beside the others. Whoever asks waits for the answer and nothing
else: what breaks in there is an error of that one request.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from perdure import __version__
from perdure.config import McpServer
from perdure.errors import PerdureError, Words
from perdure.tools.mcp_process import Said, process_of
from perdure.tools.mcp_schema import told

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import Client

#: Seconds in which a server must have started and said what its tools are; and in which it must end.
START, END = 10.0, 5.0
#: Numbers of the protocol's errors: of the connection, and of a request that is none.
CONNECTION_CLOSED, INVALID_REQUEST = -32000, -32600
#: Pages of a list of tools, and tools of one server, at most.
PAGES, MOST_TOOLS = 50, 500

NOT_STARTED: Words = ("it can't be started: {why}{said}", "无法启动：{why}{said}")
NO_ANSWER: Words = (
    "it didn't say what its tools are within {seconds:g} s{said}",
    "{seconds:g} 秒内没有说明其工具{said}",
)
ENDED: Words = ("it ended{said}", "它已结束{said}")
REFUSED: Words = ("{why}{said}", "{why}{said}")
IT_SAID: Words = (" (it said: {said})", "（它说：{said}）")
NOTHING: Words = ("", "")


class Lost(Exception):
    """The connection is gone; whether a request that was sent has done anything isn't known."""


class NotTaken(Lost):
    """The connection was gone before the request was sent, or the server had forgotten it and said so."""


@dataclass
class Request:
    """A piece of work with the client, done by the task that owns it."""

    work: Callable[[Client], Awaitable[Any]]
    answer: Any = None
    failure: Exception | None = field(default_factory=Lost)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)

    async def serve(self, client: Client) -> None:
        try:
            with self.scope:
                self.answer = await self.work(client)
                self.failure = None
        except Exception as error:
            self.failure = _first(error)
        finally:
            self.done.set()


class Running:
    """A server at work, from its start to its end."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.said = Said()
        self.ready = anyio.Event()
        self.over = anyio.Event()
        self.failure: PerdureError | None = None
        self.tools: Sequence[Any] = ()
        self.stale = False
        streams = anyio.create_memory_object_stream[Request](0)
        self.send: MemoryObjectSendStream[Request] = streams[0]
        self.receive: MemoryObjectReceiveStream[Request] = streams[1]
        self.scope = anyio.CancelScope()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_there(self) -> bool:
        return self.loop is asyncio.get_running_loop() and not (self.over.is_set() or self.said.ended)


class Connection:
    """A server, started or reached at the first use and after its end, once for each use. ``environment`` of
    its process; what ``server`` says of both is filled in already."""

    def __init__(self, server: McpServer, *, folder: Path, environment: Mapping[str, str]) -> None:
        self._server = server
        self._folder = folder
        self._environment = environment
        self._running: Running | None = None
        self._opening: tuple[asyncio.AbstractEventLoop, anyio.Lock] | None = None

    async def tools(self) -> Sequence[Any]:
        """What the server says its tools are, as of now. Raises `PerdureError` that says why there are
        none."""
        running = await self._opened()
        if running.stale:
            running.stale = False
            try:
                with anyio.fail_after(START):
                    running.tools = await self._asked(running, _listed)
            except (Exception, TimeoutError) as error:
                raise _trouble(error, running.said) from error
        return running.tools

    async def call(self, tool: str, arguments: Mapping[str, Any], *, again: bool) -> Any:
        """The result of a call. ``again``: where the connection is lost over it, it may be made once more.
        Raises `PerdureError` where the server can't be had, `Lost`, and what the package's client raises."""

        async def work(client: Client) -> Any:
            return await client.call_tool(tool, dict(arguments))

        for last in (False, True):
            running = await self._opened()
            try:
                return await self._asked(running, work)
            except Lost as error:
                await self._close(running)
                if last or not (again or isinstance(error, NotTaken)):
                    raise
        raise AssertionError("the last way out is an error")

    @property
    def said(self) -> str:
        """The last that its process said on stderr."""
        return self._running.said.text if self._running else ""

    async def aclose(self) -> None:
        """End it; a later use starts it anew."""
        if self._running is not None:
            await self._close(self._running)

    async def _close(self, running: Running) -> None:
        if self._running is running:
            self._running = None
        if running.over.is_set() or running.loop is not asyncio.get_running_loop():
            return
        with anyio.CancelScope(shield=True):
            running.send.close()
            with anyio.move_on_after(END):
                await running.over.wait()
            if not running.over.is_set():
                running.scope.cancel()
                with anyio.move_on_after(END):
                    await running.over.wait()

    async def _asked(self, running: Running, work: Callable[[Client], Awaitable[Any]]) -> Any:
        request = Request(work)
        try:
            try:
                await running.send.send(request)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise NotTaken from error
            await request.done.wait()
        finally:
            # Where nobody waits any more, the server is told.
            request.scope.cancel()
        if request.failure is None:
            return request.answer
        if _is_forgotten(request.failure):
            raise NotTaken from request.failure
        if _is_lost(request.failure):
            raise Lost from request.failure
        raise request.failure

    async def _opened(self) -> Running:
        """The server at work, and nothing started twice. Raises `PerdureError`."""
        async with self._lock():
            if self._running is not None and not self._running.is_there:
                await self._close(self._running)
            if self._running is None:
                self._running = Running()
                self._running.task = asyncio.create_task(self._own(self._running), name="tools of a server")
            running = self._running
            await running.ready.wait()
            if running.failure is not None:
                self._running = None
                raise running.failure
            return running

    def _lock(self) -> anyio.Lock:
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening[0] is not loop:
            self._opening = (loop, anyio.Lock())
        return self._opening[1]

    async def _own(self, running: Running) -> None:
        try:
            with running.scope:
                running.scope.deadline = anyio.current_time() + START
                async with AsyncExitStack() as stack:
                    client = await self._entered(stack, running)
                    running.tools = await _listed(client)
                    running.scope.deadline = math.inf
                    running.ready.set()
                    await _served(client, running)
            if not running.ready.is_set():
                facts = {"seconds": START, "said": _told(running.said)}
                running.failure = PerdureError(NO_ANSWER, **facts)
        except Exception as error:
            running.failure = _trouble(error, running.said)
        finally:
            if not running.ready.is_set() and running.failure is None:
                running.failure = PerdureError(ENDED, said=_told(running.said))
            running.receive.close()
            running.send.close()
            running.over.set()
            running.ready.set()

    async def _entered(self, stack: AsyncExitStack, running: Running) -> Client:
        from mcp import Client, MCPError
        from mcp_types import Implementation, ToolListChangedNotification

        # What the package logs of a server isn't for the person's terminal; its errors say it.
        for name in ("mcp", "client"):
            logging.getLogger(name).addHandler(logging.NullHandler())

        async def heard(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification):
                running.stale = True

        def client(mode: str) -> Client:
            about = Implementation(name="perdure", version=__version__)
            transport = self._transport(running)
            return Client(transport, mode=mode, message_handler=heard, client_info=about, cache=None)

        # The older handshake first: servers that know only that one may not even answer the newer.
        try:
            return await stack.enter_async_context(client("legacy"))
        except Exception as error:
            refused = _first(error)
            if not isinstance(refused, MCPError) or _is_lost(refused):
                raise
        running.stale = True  # of a change it says nothing unasked
        return await stack.enter_async_context(client("auto"))

    def _transport(self, running: Running) -> Any:
        server = self._server
        if server.command:
            return process_of(
                server.command, folder=self._folder, environment=self._environment, said=running.said
            )
        return _over_http(server)


@asynccontextmanager
async def _over_http(server: McpServer) -> AsyncIterator[Any]:
    from httpx2 import AsyncClient, Timeout
    from mcp.client.streamable_http import streamable_http_client

    # A stream of what the server says unasked stays open, however long it says nothing.
    http = AsyncClient(headers=dict(server.headers), timeout=Timeout(START, read=None))
    async with http, streamable_http_client(server.url, http_client=http) as streams:
        yield streams


async def _listed(client: Client) -> Sequence[Any]:
    """All pages of the list, as far as they go."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor or len(found) >= MOST_TOOLS:
            break
    return found[:MOST_TOOLS]


async def _served(client: Client, running: Running) -> None:
    """Work on requests, beside each other, until nobody can make one."""
    async with anyio.create_task_group() as group:
        async for request in running.receive:
            group.start_soon(request.serve, client)
        group.cancel_scope.cancel()


def _is_lost(error: BaseException) -> bool:
    """The connection is gone. By its words as well, since servers use the same number for other errors."""
    return isinstance(error, Lost) or (
        _code(error) == CONNECTION_CLOSED
        and str(error) in {"Connection closed", "SSE stream ended without a response"}
    )


def _is_forgotten(error: BaseException) -> bool:
    """The server was started anew, or threw the session away."""
    return _code(error) == INVALID_REQUEST and str(error) in {"Session not found", "Session terminated"}


def _code(error: BaseException) -> int | None:
    code = getattr(error, "code", None)
    return code if isinstance(code, int) else None


def _trouble(error: BaseException, said: Said) -> PerdureError:
    """Why there is no server, in words."""
    error = _first(error)
    if isinstance(error, TimeoutError):
        return PerdureError(NO_ANSWER, seconds=START, said=_told(said))
    if _is_lost(error):
        return PerdureError(ENDED, said=_told(said))
    if isinstance(error, OSError):
        return PerdureError(NOT_STARTED, why=error.strerror or str(error), said=_told(said))
    return PerdureError(REFUSED, why=reason(error), said=_told(said))


def reason(error: BaseException) -> str:
    """What an error says, on one line; it may be the server's own words."""
    text = told(" ".join(str(error).split()), 300)
    return text if type(error).__name__ == "MCPError" and text else f"{type(error).__name__}: {text}"


def _told(said: Said) -> Words:
    text = told(" ".join(said.text.split())[-300:], 300)
    return (IT_SAID[0].format(said=text), IT_SAID[1].format(said=text)) if text else NOTHING


def _first(error: BaseException) -> Exception:
    """What went wrong first, of several that were wrapped."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else RuntimeError(str(error))
