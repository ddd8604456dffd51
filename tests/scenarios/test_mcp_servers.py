"""Servers of tools in a run: the same policy, journal and limits as our own tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, ScriptedEndpoint

PLACE = Path(__file__).parent.parent / "mcp_servers"


def configured(command: Command, **servers: str) -> None:
    """Servers in the person's own file: by name, the arguments of the test's server."""
    folder = command.folder / ".config" / "perdure"
    folder.mkdir(parents=True)
    tables = []
    for name, arguments in servers.items():
        file, *way = arguments.split()
        words = json.dumps([sys.executable, str(PLACE / file), *way])
        tables.append(f"[mcp.{name}]\ncommand = {words}\n" + ('reads = ["look"]\n' if name == "home" else ""))
    (folder / "perdure.toml").write_text("\n".join(tables))


def test_a_run_calls_a_server_s_tool_as_one_of_its_own(tmp_path: Path) -> None:
    calls = [("a", "home__look", {}), ("b", "home__echo", {"word": "hello"})]
    with ScriptedEndpoint([Answer(calls=calls), Answer("done")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        configured(command, home="ordinary.py")
        ran = command("run", "--json", "--session", "s", "--context-window", "32000", "look at home")
        results = [m["content"] for m in endpoint.requests[1].messages if m["role"] == "tool"]
        assert ran.code == 0, ran.err
        assert "starting on stderr" not in ran.err
        assert results[0].startswith("look ")
        # Nobody is there to approve what acts.
        assert "nobody to ask" in results[1]
        assert "home__look" in [tool["function"]["name"] for tool in endpoint.requests[0].body["tools"]]
        shown = command("sessions", "show", "s")
        assert results[0] in shown.out
        pid = int(results[0].split()[-1])
        assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_does_not_start_is_a_notice_and_the_turn_begins(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("Yes.")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        configured(command, bad="scripted.py closes", noisy="scripted.py rubbish")
        ran = command("run", "--json", "--context-window", "32000", "Is it?")
    told = [event["text"] for event in ran.of("notice")]
    assert ran.code == 0
    assert told[0] == "the tools of the server bad are left out: it ended (it said: way closes)"
    assert told[1].startswith("the tools of the server noisy are left out: it ended")
    assert "Traceback" not in ran.err


def test_a_small_window_gets_no_tools_of_servers_but_those_that_are_named(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("Yes."), Answer("Yes.")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        configured(command, home="ordinary.py")
        for named in ([], ["--tools", "home__look,calculator,home__gone"]):
            assert command("run", *named, "--context-window", "6000", "Is it?").code == 0
    names = [[tool["function"]["name"] for tool in each.body["tools"]] for each in endpoint.requests]
    assert not [name for name in names[0] if name.startswith("home__")]
    assert names[1] == ["home__look", "calculator"]


def test_tools_that_would_fill_the_window_are_left_out_and_named(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("Yes.")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        configured(command, first="scripted.py good", many="scripted.py many")
        ran = command("run", "--json", "--context-window", "16000", "Is it?")
    (told,) = [event["text"] for event in ran.of("notice")]
    names = [tool["function"]["name"] for tool in endpoint.requests[0].body["tools"]]
    kept = [name for name in names if name.startswith("many__")]
    assert "first__echo" in names
    assert 10 < len(kept) < 99
    assert told.startswith("no room in a window of 16000 tokens for the tools ")
    assert f"many__t{len(kept)}," in told
    assert "many__t99" in told


def test_tools_shows_servers_and_what_they_say_of_themselves(tmp_path: Path) -> None:
    command = Command(tmp_path, "http://127.0.0.1:9/v1")
    configured(command, home="ordinary.py", bad="scripted.py closes")
    ran = command("tools")
    assert ran.code == 0
    line = next(line for line in ran.out.splitlines() if line.startswith("home__look"))
    assert "allowed" in line
    assert "server home" in line
    assert "(the server says: reads)" in line
    assert "the tools of the server bad are left out: it ended" in ran.err
    assert "略去服务器 bad 的工具：它已结束" in command("tools", "--lang", "zh").err


@pytest.mark.parametrize("argument", ["--no-tools", "--tools=calculator"])
def test_where_none_of_its_tools_is_wanted_no_server_is_started(tmp_path: Path, argument: str) -> None:
    with ScriptedEndpoint([Answer("Yes.")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        configured(command, bad="scripted.py closes")
        ran = command("run", "--json", argument, "--context-window", "32000", "Is it?")
    assert ran.code == 0
    assert not ran.of("notice")
