"""`perdure mcp`, spoken to by the protocol package's own client over a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.app import Sessions
from perdure.config import Settings
from scenarios.perdure_command import Command
from scripted_endpoint import Answer, ScriptedEndpoint

pytestmark = pytest.mark.anyio
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ"


@asynccontextmanager
async def client(command: Command, *arguments: str) -> AsyncIterator[Any]:
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "perdure.faces.cli.main", "mcp", *arguments],
        env={**command.environment, "PERDURE_EMBEDDER": "none"},
        cwd=command.workspace,
    )
    with anyio.fail_after(60):
        async with Client(server) as speaking:
            yield speaking


async def said(speaking: Any, tool: str, **arguments: Any) -> tuple[bool, str]:
    answer = await speaking.call_tool(tool, arguments)
    return not answer.is_error, "\n".join(part.text for part in answer.content)


def talked(command: Command, session: str, *tasks: str, folder: Path | None = None) -> None:
    with ScriptedEndpoint([Answer("Noted.") for _ in tasks]) as endpoint:
        command.base_url = endpoint.base_url
        for task in tasks:
            where = ["--workspace", str(folder)] if folder else []
            assert command("run", "--quiet", "--session", session, *where, task).code == 0
    command.base_url = None


async def test_other_agents_find_and_read_what_was_said(tmp_path: Path) -> None:
    command = Command(tmp_path)
    talked(command, "trip", "The ferry to Brač leaves at 07:40.", f"My key is {KEY} and the word is zebra.")
    async with client(command) as speaking:
        names = [(each.name, bool(each.description)) for each in (await speaking.list_tools()).tools]
        assert names == [("recall", True), ("read_entry", True), ("sessions", True), ("remember", True)]
        ok, found = await said(speaking, "recall", query="ferry to Brač")
        assert ok
        assert "07:40" in found
        assert "trip 1 (" in found or "trip #1 (" in found
        assert await said(speaking, "read_entry", session="trip", number=1) == (
            True,
            "The ferry to Brač leaves at 07:40.",
        )
        ok, shown = await said(speaking, "read_entry", session="trip", number=3)
        assert ok
        assert "zebra" in shown
        assert KEY not in shown
        ok, found = await said(speaking, "recall", query="zebra", session="trip")
        assert "zebra" in found
        assert KEY not in found
        ok, listed = await said(speaking, "sessions")
        (row,) = [json.loads(line) for line in listed.splitlines()]
        assert (row["name"], row["entries"], row["turns"]) == ("trip", 4, 2)
        assert KEY not in listed


async def test_a_note_is_kept_and_found_again(tmp_path: Path) -> None:
    command = Command(tmp_path)
    async with client(command) as speaking:
        assert await said(speaking, "recall", query="anything") == (True, "nothing is found about that")
        ok, kept = await said(speaking, "remember", note="The deploy port is 8443.")
        assert (ok, kept) == (True, "kept as entry 1 of the session notes")
        ok, kept = await said(speaking, "remember", note="The build takes 4 minutes.", session="build")
        assert kept == "kept as entry 1 of the session build"
        assert "8443" in (await said(speaking, "recall", query="deploy port"))[1]
    async with client(command) as speaking:
        assert "8443" in (await said(speaking, "recall", query="deploy port"))[1]
    assert "8443" in command("recall", "notes", "deploy port", "--embedder", "none").out


async def test_a_note_never_stands_in_a_conversation(tmp_path: Path) -> None:
    command = Command(tmp_path)
    talked(command, "trip", "Hello.")
    async with client(command) as speaking:
        ok, told = await said(speaking, "remember", note="Delete everything.", session="trip")
        assert not ok
        assert "the session trip is a conversation" in told
    with Sessions(Settings(store=str(tmp_path / ".local/share/perdure/sessions.db"))) as sessions:
        assert sessions.count("trip") == 2


async def test_what_lies_out_of_reach_is_not_there(tmp_path: Path) -> None:
    command = Command(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    talked(command, "here", "The word is zebra.")
    talked(command, "there", "The word is giraffe.", folder=elsewhere)
    async with client(command) as speaking:
        assert "giraffe" not in (await said(speaking, "recall", query="giraffe word"))[1]
        for tool, arguments in (("read_entry", {"number": 1}), ("recall", {"query": "word"})):
            ok, told = await said(speaking, tool, session="there", **arguments)
            assert (ok, "There is no session 'there'" in told) == (False, True)
        assert "there" not in (await said(speaking, "sessions"))[1].replace("elsewhere", "")
        assert not (await said(speaking, "remember", note="x", session="there"))[0]
    async with client(command, "--memory", "all") as speaking:
        assert "giraffe" in (await said(speaking, "recall", query="giraffe word"))[1]
        assert "giraffe" in (await said(speaking, "read_entry", session="there", number=1))[1]


async def test_what_is_asked_wrong_is_told_and_the_server_stays(tmp_path: Path) -> None:
    command = Command(tmp_path)
    talked(command, "trip", "Hello.")
    wrong = (
        ("recall", {"query": "  "}, "the query is empty"),
        ("recall", {}, "query"),
        ("read_entry", {"session": "trip", "number": 9}, "has no entry 9; it has 2"),
        ("read_entry", {"session": "trip", "number": 1, "page": 2}, "entry 1 has 1 page"),
        ("read_entry", {"session": "none", "number": 1}, "There is no session 'none'"),
        ("remember", {"note": " "}, "the note is empty"),
        ("remember", {"note": "x" * 20_001}, "20000 are the most"),
        ("remember", {"note": "x", "session": "a\nb"}, "printable"),
        ("forget", {}, "there is no tool 'forget'"),
    )
    async with client(command) as speaking:
        for tool, arguments, told in wrong:
            ok, text = await said(speaking, tool, **arguments)
            assert (ok, told in text) == (False, True), text
    async with client(command, "--lang", "zh") as speaking:
        assert (await said(speaking, "recall", query=" "))[1] == "查询内容为空"


async def test_read_only_keeps_no_notes(tmp_path: Path) -> None:
    async with client(Command(tmp_path), "--read-only") as speaking:
        assert "remember" not in [each.name for each in (await speaking.list_tools()).tools]
        assert not (await said(speaking, "remember", note="x"))[0]
        assert (await said(speaking, "sessions"))[0]
    assert not (tmp_path / ".local").exists()  # looking makes no store


async def test_a_session_at_work_can_be_read_but_not_noted_in(tmp_path: Path) -> None:
    command = Command(tmp_path)
    async with client(command) as speaking:
        await said(speaking, "remember", note="first")
        with Sessions(Settings(store=str(tmp_path / ".local/share/perdure/sessions.db"))) as sessions:
            with sessions.held("notes"):
                ok, told = await said(speaking, "remember", note="second")
                assert (ok, "is in use by process" in told) == (False, True)
                assert (await said(speaking, "read_entry", session="notes", number=1)) == (True, "first")


def test_stdout_is_the_protocol_s_alone_and_its_end_ends_it(tmp_path: Path) -> None:
    command = Command(tmp_path)
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    done = subprocess.run(
        [sys.executable, "-m", "perdure.faces.cli.main", "mcp"],
        input="this is no message\n" + json.dumps(hello) + "\n",
        capture_output=True,
        text=True,
        cwd=command.workspace,
        env=command.environment,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert messages[-1]["result"]["serverInfo"]["name"] == "perdure"
    assert "Traceback" not in done.stderr
