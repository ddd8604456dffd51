"""The tools of other servers (Model Context Protocol), beside our own and under the same rules.

A server is somebody else's program: what it says of itself is shown and not believed, what it describes is
cut to size, and whatever it does wrong is a tool's result or a notice. No turn waits for one longer than for
its start, and none fails for it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from perdure.chat.calls import ToolSpec
from perdure.config import McpServer, is_loopback
from perdure.errors import PerdureError, ToolError, Words
from perdure.tools.contract import Tool
from perdure.tools.environment import environment_for_commands
from perdure.tools.mcp_answers import claims_of, text_of
from perdure.tools.mcp_connection import Connection, Lost, reason
from perdure.tools.mcp_schema import Unfit, acceptable, names, told
from perdure.tools.own import Provided

#: Seconds until a server that could not be had is tried again.
AGAIN = 300.0
#: Between the name of a server and that of its tool.
BETWEEN = "__"

NOT_INSTALLED: Words = (
    "the package mcp is not installed: pip install 'perdure[mcp]'",
    "没有安装软件包 mcp：pip install 'perdure[mcp]'",
)
SERVER_LEFT_OUT: Words = (
    "the tools of the server {server} are left out: {why}",
    "略去服务器 {server} 的工具：{why}",
)
TOOL_LEFT_OUT: Words = (
    "the tool {tool} of the server {server} is left out: {why}",
    "略去服务器 {server} 的工具 {tool}：{why}",
)
NOT_OFFERED: Words = (
    "the server {server} has no tool {tools} (it has: {known})",
    "服务器 {server} 没有工具 {tools}（已有：{known}）",
)
CHANGED: Words = ("the server {server} has other tools now: {tools}", "服务器 {server} 的工具已改变：{tools}")
OFFLINE: Words = ("it is reached over the network, and --offline is set", "它需要网络，而已设置 --offline")
NO_VARIABLE: Words = ("the variable {name} is not set", "没有设置变量 {name}")

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Servers:
    """The servers that the settings name. ``environment`` is the agent's own."""

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        *,
        folder: Path,
        offline: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._servers = servers
        self._folder = folder
        self._offline = offline
        self._environment = os.environ if environment is None else environment
        self._connections: dict[str, Connection] = {}
        self._failed: dict[str, float] = {}
        self._names: dict[str, list[str]] = {}

    async def offered(
        self, among: Collection[str] | None = None
    ) -> tuple[list[Provided], list[PerdureError]]:
        """The tools of all servers, or of those named, in the order of the settings; and what is wrong, or
        new. Servers are started, side by side, where they aren't yet."""
        wanted = [name for name in self._servers if among is None or name in among]
        found: dict[str, tuple[list[Provided], list[PerdureError]]] = {}

        async def one(name: str) -> None:
            found[name] = await self._offered_by(name)

        async with anyio.create_task_group() as group:
            for name in wanted:
                group.start_soon(one, name)
        tools = [tool for name in wanted for tool in found[name][0]]
        return tools, [trouble for name in wanted for trouble in found[name][1]]

    async def aclose(self) -> None:
        """End all servers; a later use starts them anew."""
        connections, self._connections = self._connections, {}
        async with anyio.create_task_group() as group:
            for each in connections.values():
                group.start_soon(each.aclose)

    async def _offered_by(self, name: str) -> tuple[list[Provided], list[PerdureError]]:
        if time.monotonic() < self._failed.get(name, 0.0):
            return [], []
        try:
            listed = await self._connection(name).tools()
        except PerdureError as error:
            self._failed[name] = time.monotonic() + AGAIN
            return [], [PerdureError(SERVER_LEFT_OUT, server=name, why=error)]
        self._failed.pop(name, None)
        return self._tools_of(name, listed)

    def _tools_of(self, name: str, listed: Sequence[Any]) -> tuple[list[Provided], list[PerdureError]]:
        server = self._servers[name]
        known = [each.name for each in listed]
        called = names(name, dict.fromkeys(known))
        tools: dict[str, Provided] = {}
        troubles: list[PerdureError] = []
        for each in listed:
            if called[each.name] in tools or not (server.tools is None or each.name in server.tools):
                continue
            try:
                parameters = acceptable(each.input_schema)
            except Unfit as unfit:
                facts = {"server": name, "tool": told(each.name, 80), "why": unfit.why}
                troubles.append(PerdureError(TOOL_LEFT_OUT, **facts))
                continue
            spec = ToolSpec(called[each.name], told(each.description) or told(each.title), parameters)
            tool = self._tool(name, each.name, spec)
            tools[spec.name] = Provided(tool, "server", name, says=claims_of(each.annotations))
        meant = dict.fromkeys((*(server.tools or ()), *server.reads))
        if missing := [each for each in meant if each not in known]:
            facts = {"server": name, "tools": ", ".join(missing), "known": told(", ".join(known), 300)}
            troubles.append(PerdureError(NOT_OFFERED, **facts))
        before, self._names[name] = self._names.get(name), list(tools)
        if before is not None and before != list(tools):
            troubles.append(PerdureError(CHANGED, server=name, tools=", ".join(tools)))
        return list(tools.values()), troubles

    def _tool(self, name: str, tool: str, spec: ToolSpec) -> Tool:
        server = self._servers[name]
        reads = tool in server.reads

        async def run(**arguments: Any) -> str:
            try:
                return text_of(await self._connection(name).call(tool, arguments, again=reads))
            except ToolError:
                raise
            except Lost as error:
                raise ToolError(
                    f"error: the server {name} ended during the call, so whether it did anything is not "
                    "known; the next call starts it again"
                ) from error
            except PerdureError as error:
                raise ToolError(f"error: the server {name} can't be used: {error.say('en')}") from error
            except Exception as error:  # whatever the package makes of what the server said
                raise ToolError(f"error: {reason(error)}") from error

        return Tool(spec, run, "reads" if reads else "acts", server.timeout)

    def _connection(self, name: str) -> Connection:
        """Raises `PerdureError` where the settings don't allow one."""
        if name not in self._connections:
            server = self._servers[name]
            _check_installed()
            if self._offline and server.url and not is_loopback(server.url):
                raise PerdureError(OFFLINE)
            env, headers = self._filled(server.env), self._filled(server.headers)
            self._connections[name] = Connection(
                replace(server, env=env, headers=headers),
                folder=self._folder,
                environment=environment_for_commands(self._environment) | env,
            )
        return self._connections[name]

    def _filled(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The texts, with `${NAME}` of the environment. Raises `PerdureError` where it isn't there."""

        def value(match: re.Match[str]) -> str:
            if match[1] not in self._environment:
                raise PerdureError(NO_VARIABLE, name=match[1])
            return self._environment[match[1]]

        return {key: _VARIABLE.sub(value, text) for key, text in texts.items()}


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise PerdureError(NOT_INSTALLED)
