"""Servers of tools: real ones made with the protocol's package, and some that do what none should."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.chat.calls import ToolCall
from perdure.config import McpServer
from perdure.tools.contract import Outcome
from perdure.tools.mcp import Servers
from perdure.tools.own import Provided
from perdure.tools.registry import Registry
from tools.running import gone

pytestmark = pytest.mark.anyio

PLACE = Path(__file__).parent.parent / "mcp_servers"
ORDINARY = McpServer((sys.executable, str(PLACE / "ordinary.py")))


def scripted(way: str, **about: Any) -> McpServer:
    return McpServer((sys.executable, str(PLACE / "scripted.py"), way), **about)


class Bench:
    """Servers, and what they offered last."""

    def __init__(self, folder: Path, servers: Mapping[str, McpServer], **about: Any) -> None:
        import os

        self.servers = Servers(
            servers, folder=folder, environment=about.pop("environment", os.environ), **about
        )
        self.tools: list[Provided] = []
        self.news: list[str] = []

    async def __aenter__(self) -> Bench:
        await self.offer()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.servers.aclose()

    async def offer(self) -> list[str]:
        self.tools, news = await self.servers.offered()
        self.news = [each.say("en") for each in news]
        assert all(each.say("zh") for each in news)
        return self.names

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.tools]

    async def call(self, name: str, arguments: str = "{}") -> Outcome:
        return await Registry(each.tool for each in self.tools).call(ToolCall("c", name, arguments))


def bench(folder: Path, server: McpServer, **about: Any) -> Bench:
    return Bench(folder, {"s": server}, **about)


async def test_a_server_s_tools_are_offered_and_called(tmp_path: Path) -> None:
    async with bench(tmp_path, ORDINARY) as at:
        assert not at.news
        assert at.names[:3] == ["s__echo", "s__look", "s__picture"]
        assert at.names[-1] == "s__files_read_it"
        said = await at.call("s__echo", '{"word": "héllo 天气"}')
        assert (said.ok, said.text) == (True, "héllo 天气")
        assert (await at.call("s__files_read_it")).text.startswith("files.read it ")
        # Words of the server: controls and turns of direction are out.
        assert at.tools[0].tool.spec.description == "Say it again.[2J"


async def test_what_a_server_says_of_itself_is_shown_and_not_believed(tmp_path: Path) -> None:
    async with bench(tmp_path, ORDINARY) as at:
        look = at.tools[1]
        assert (look.says, look.tool.effect) == ("reads", "acts")
    known = McpServer(ORDINARY.command, reads=("look",), tools=("look", "echo"))
    async with bench(tmp_path, known) as at:
        assert [(each.name, each.tool.effect) for each in at.tools] == [
            ("s__echo", "acts"),
            ("s__look", "reads"),
        ]


async def test_tools_that_the_server_has_not_are_told(tmp_path: Path) -> None:
    async with bench(tmp_path, McpServer(ORDINARY.command, tools=("look", "lok"))) as at:
        assert at.names == ["s__look"]
        assert at.news[0].startswith("the server s has no tool lok (it has: echo, look")


@pytest.mark.parametrize(
    ("tool", "ok", "text"),
    [
        ("fail", False, "no such city"),
        ("raise", False, "error: broken inside"),
        ("value", True, '{"degrees": 21}'),
        (
            "picture",
            True,
            "here\n[image, image/png, 8 bytes: not shown]\n[audio, audio/wav, 8 bytes: not shown]\n"
            "[resource note://1]\na note\n[resource note://2, data, 8 bytes: not shown]\n"
            "[resource https://example.org/: page: A page.]",
        ),
    ],
)
async def test_every_kind_of_answer_is_a_result(tmp_path: Path, tool: str, ok: bool, text: str) -> None:
    async with bench(tmp_path, ORDINARY) as at:
        said = await at.call(f"s__{tool}")
    assert said.text == text
    assert said.ok is ok


async def test_a_long_answer_is_cut_as_any_other(tmp_path: Path) -> None:
    async with bench(tmp_path, ORDINARY) as at:
        said = await at.call("s__much")
    assert said.ok
    assert len(said.text) < 31_000
    assert "characters left out" in said.text


async def test_a_server_is_reused_and_ended(tmp_path: Path) -> None:
    async with bench(tmp_path, ORDINARY) as at:
        first = (await at.call("s__look")).text
        await at.offer()
        assert (await at.call("s__look")).text == first
        pid = int(first.split()[-1])
    assert not Path(f"/proc/{pid}").exists()


async def test_a_call_that_takes_too_long_ends_and_the_server_is_told(tmp_path: Path) -> None:
    async with bench(tmp_path, McpServer(ORDINARY.command, timeout=0.5)) as at:
        said = await at.call("s__sleep")
        assert (said.ok, said.text) == (False, "error: no result within 0.5 s")
        with anyio.fail_after(5):
            while not (tmp_path / "cancelled").exists():
                await anyio.sleep(0.02)
        assert (await at.call("s__look")).ok


async def test_calls_run_side_by_side(tmp_path: Path) -> None:
    async with bench(tmp_path, McpServer(ORDINARY.command, timeout=1.0)) as at:
        began = time.monotonic()
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(at.call, "s__sleep")
            said = await at.call("s__look")
            assert said.ok
        assert time.monotonic() - began < 3


async def test_a_server_that_dies_in_a_call_is_told_and_started_again(tmp_path: Path) -> None:
    async with bench(tmp_path, ORDINARY) as at:
        said = await at.call("s__die")
        assert not said.ok
        assert "ended during the call, so whether it did anything is not known" in said.text
        assert (await at.call("s__look")).ok


async def test_a_call_that_only_looks_is_made_again_once(tmp_path: Path) -> None:
    async with bench(tmp_path, McpServer(ORDINARY.command, reads=("die",))) as at:
        assert not (await at.call("s__die")).ok
        assert (await at.call("s__look")).ok


async def test_a_server_that_died_between_two_calls_is_started_again(tmp_path: Path) -> None:
    import os
    import signal

    async with bench(tmp_path, ORDINARY) as at:
        first = (await at.call("s__look")).text
        os.kill(int(first.split()[-1]), signal.SIGKILL)
        await anyio.sleep(0.3)
        second = await at.call("s__look")
        assert second.ok
        assert second.text != first


async def test_a_list_that_changes_is_heard_of(tmp_path: Path) -> None:
    async with bench(tmp_path, ORDINARY) as at:
        assert "s__more" not in at.names
        assert (await at.call("s__grow")).ok
        assert "s__more" in await at.offer()
        assert at.news[0].startswith("the server s has other tools now: s__echo")
        await at.offer()
        assert not at.news


async def test_its_environment_holds_no_secret_but_those_it_was_given(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "sk-secret", "WORD": "known", "GIVEN": "sesame"}
    server = McpServer(ORDINARY.command, env={"SERVICE_TOKEN": "${GIVEN}", "PLAIN": "a"})
    async with bench(tmp_path, server, environment=environment) as at:
        lines = (await at.call("s__environment")).text.splitlines()
    assert {"SERVICE_TOKEN=sesame", "PLAIN=a", "WORD=known"} <= set(lines)
    assert not [line for line in lines if "sk-secret" in line]


async def test_a_variable_that_is_not_set_leaves_the_server_out(tmp_path: Path) -> None:
    async with bench(tmp_path, McpServer(ORDINARY.command, env={"X": "${NOT_SET_AT_ALL}"})) as at:
        assert not at.tools
        assert at.news == ["the tools of the server s are left out: the variable NOT_SET_AT_ALL is not set"]


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("closes", "it ended (it said: way closes)"),
        ("rubbish", "it ended (it said: "),
        ("no-result", "ValidationError"),
        ("no-list", "no tools[2J today (it said: way no-list)"),
        ("list-rubbish", "ValidationError"),
        ("malformed", "ValidationError: 1 validation error for ListToolsResult"),
    ],
)
async def test_a_server_that_is_none_is_left_out_and_told_at_once(
    tmp_path: Path, way: str, told: str
) -> None:
    began = time.monotonic()
    async with Bench(tmp_path, {"bad": scripted(way), "good": scripted("good")}) as at:
        assert at.names == ["good__echo"]
        assert at.news[0].startswith("the tools of the server bad are left out: ")
        assert told in at.news[0]
        assert len(at.news[0]) < 800
        # It isn't tried again in each turn.
        assert await at.offer() == ["good__echo"]
    assert time.monotonic() - began < 9


@pytest.mark.parametrize("way", ["stalls", "wrong-id", "deaf"])
async def test_a_server_that_never_answers_costs_its_start_and_no_more(tmp_path: Path, way: str) -> None:
    server = scripted(way)
    began = time.monotonic()
    async with Bench(tmp_path, {"bad": server, "good": scripted("good")}) as at:
        assert at.names == ["good__echo"]
        assert f"it didn't say what its tools are within 10 s (it said: way {way})" in at.news[0]
        assert 9 < time.monotonic() - began < 14
    assert gone(" ".join(server.command))


async def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with bench(tmp_path, McpServer(("no-such-server-anywhere",))) as at:
        assert at.news == [
            "the tools of the server s are left out: it can't be started: No such file or directory"
        ]


@pytest.mark.parametrize(
    ("way", "told"),
    [
        (
            "huge-schema",
            "the tool huge of the server s is left out: the schema of its parameters is too large",
        ),
        ("bomb", "the tool bomb of the server s is left out: the schema of its parameters is too large"),
    ],
)
async def test_a_tool_that_no_endpoint_would_take_is_left_out(tmp_path: Path, way: str, told: str) -> None:
    async with bench(tmp_path, scripted(way)) as at:
        assert at.names == ["s__small"]
        assert at.news == [told]


async def test_a_list_without_an_end_ends(tmp_path: Path) -> None:
    async with bench(tmp_path, scripted("endless-pages")) as at:
        assert len(at.tools) == 50


@pytest.mark.parametrize(
    ("way", "ok", "told"),
    [
        ("call-rubbish", True, "still here"),
        ("bad-text", True, "after all"),
        ("call-wrong-form", False, "error: ValidationError"),
        ("call-error", False, "error: the quota is used up"),
        ("call-stalls", False, "error: no result within 2 s"),
        ("call-floods", False, "ended during the call"),
    ],
)
async def test_what_a_server_answers_wrong_is_a_result(tmp_path: Path, way: str, ok: bool, told: str) -> None:
    slow = 30.0 if way == "call-floods" else 2.0
    async with bench(tmp_path, scripted(way, timeout=slow)) as at:
        said = await at.call("s__echo")
    assert told in said.text
    assert said.ok is ok


async def test_a_server_that_will_not_end_is_made_to(tmp_path: Path) -> None:
    server = scripted("stubborn")
    async with bench(tmp_path, server) as at:
        assert (await at.call("s__echo")).ok
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert gone(" ".join(server.command))


async def test_a_turn_that_is_interrupted_leaves_the_server_at_work(tmp_path: Path) -> None:
    async with bench(tmp_path, ORDINARY) as at:
        first = (await at.call("s__look")).text
        with anyio.move_on_after(0.3) as turn:
            await at.call("s__sleep")
        assert turn.cancelled_caught
        assert (await at.call("s__look")).text == first


def test_servers_serve_one_event_loop_after_another(tmp_path: Path) -> None:
    at = bench(tmp_path, ORDINARY)

    async def once() -> bool:
        await at.offer()
        return (await at.call("s__look")).ok

    assert anyio.run(once)
    assert anyio.run(once)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    server = served(tmp_path, number)
    yield number
    server.kill()
    server.wait()


def served(folder: Path, port: int) -> subprocess.Popen[bytes]:
    server = subprocess.Popen([*ORDINARY.command, str(port)], cwd=folder, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with socket.socket() as trying:
            if trying.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.05)
    raise AssertionError("the server doesn't listen")


async def test_a_server_over_http_is_one_as_well(tmp_path: Path, port: int) -> None:
    async with bench(tmp_path, McpServer(url=f"http://127.0.0.1:{port}/mcp"), offline=True) as at:
        assert not at.news
        assert (await at.call("s__echo", '{"word": "over HTTP"}')).text == "over HTTP"
        assert (await at.call("s__fail")).text == "no such city"
        said = await at.call("s__die")
        assert not said.ok
        again = served(tmp_path, port)
        try:
            assert (await at.call("s__look")).ok
        finally:
            again.kill()
            again.wait()
        said = await at.call("s__look")
        assert not said.ok
        assert "s can't be used" in said.text or "ended during the call" in said.text


async def test_nothing_listens_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    async with bench(tmp_path, McpServer(url=f"http://127.0.0.1:{port}/mcp")) as at:
        assert at.news[0].startswith("the tools of the server s are left out: ")


async def test_offline_no_server_is_reached_over_the_network(tmp_path: Path) -> None:
    async with bench(tmp_path, McpServer(url="http://203.0.113.9/mcp"), offline=True) as at:
        assert at.news == [
            "the tools of the server s are left out: it is reached over the network, and --offline is set"
        ]
