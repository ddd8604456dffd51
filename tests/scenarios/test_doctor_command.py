"""`perdure doctor` as a person runs it: what it finds, what it keeps to itself, and its exit code."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from perdure.tools.sandbox import Sandbox
from scenarios.perdure_command import Command, Ran
from scripted_endpoint import Answer, ScriptedEndpoint

KEY = "sk-proj-a1B2c3D4e5F6g7H8i9J0"


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def found(ran: Ran) -> dict[str, dict[str, Any]]:
    return {each["part"]: each for each in json.loads(ran.out)["findings"]}


def test_each_part_has_a_line(command: Command) -> None:
    ran = command("doctor")
    parts = [line[6:18].strip() for line in ran.out.splitlines()]
    assert parts[:7] == ["perdure", "Python", "terminal", "settings", "store", "model", "embedder"]
    assert {line.split()[0] for line in ran.out.splitlines()} <= {"ok", "warn", "bad"}
    assert ran.err == ""
    assert not (command.folder / ".local").exists(), "looking makes no store"


def test_it_speaks_chinese(command: Command) -> None:
    ran = command("doctor", "--lang", "zh")
    assert "存储：" in ran.out
    assert "权限：工具做改动之前会询问；规则：允许 0 条，询问 0 条，拒绝 0 条" in ran.out
    assert not [line for line in ran.out.splitlines() if line.split()[0] in {"ok", "warn", "bad"}]


def test_an_endpoint_is_reached_and_no_secret_told(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ScriptedEndpoint([]) as endpoint:
        command.base_url = endpoint.base_url.replace("http://", "http://ada:hunter2@")
        ran = command("doctor")
        assert "with a key" in ran.out
        assert "OPENAI_API_KEY: api_key" in ran.out
        both = ran.out + ran.err + command("doctor", "--json").out
        assert KEY not in both
        assert "hunter2" not in both


def test_an_endpoint_that_is_not_there_is_bad(command: Command) -> None:
    command.base_url = "http://127.0.0.1:9/v1"
    ran = command("doctor", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["ok"] is False
    model = found(ran)["model"]
    assert model["verdict"] == "bad"
    assert model["text"].startswith("No answer from http://127.0.0.1:9/v1")
    assert "session" not in model["text"]


def test_settings_that_cannot_be_read_hide_nothing_else(command: Command) -> None:
    (command.workspace / "perdure.toml").write_text("max_step = 3\n")
    ran = command("doctor", "--json")
    assert ran.code == 1
    assert "max_step" in found(ran)["settings"]["text"]
    assert found(ran)["python"]["verdict"] == "ok"


def test_it_says_where_each_setting_comes_from(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    own = command.folder / ".config" / "perdure" / "perdure.toml"
    own.parent.mkdir(parents=True)
    own.write_text('judge = "on"\nmax_steps = 3\nallow = ["bash(ls)"]\ndeny = ["bash(rm *)"]\n')
    theirs = command.workspace / "perdure.toml"
    theirs.write_text('max_steps = 4\ndeny = ["bash(curl *)"]\n')
    monkeypatch.setenv("PERDURE_MAX_COST", "2")
    ran = command("doctor", "--json", "--lang", "en")
    assert found(ran)["settings"]["facts"]["origins"] == {
        "judge": str(own),
        "max_steps": str(theirs),
        "allow": str(own),
        "deny": f"{own}, {theirs}",
        "max_cost": "PERDURE_MAX_COST",
        "lang": "flag",
    }
    assert found(ran)["files"]["text"] == f"read: {own}, {theirs}"
    assert found(ran)["policy"]["facts"]["deny"] == 2


def test_the_store_is_counted_and_must_be_writable(command: Command) -> None:
    with ScriptedEndpoint([Answer("done")]) as endpoint:
        command.base_url = endpoint.base_url
        assert command("run", "hello", "--no-tools").code == 0
    command.base_url = None
    store = found(command("doctor", "--json"))["store"]
    assert store["facts"]["sessions"] == 1
    assert "1 session," in store["text"]
    broken = command.folder / "broken.db"
    broken.write_text("this is no database, and long enough to be told from one" * 99)
    ran = command("doctor", "--json", "--store", str(broken))
    assert (ran.code, found(ran)["store"]["verdict"]) == (1, "bad")
    ran = command("doctor", "--json", "--store", str(broken / "below" / "x.db"))
    assert (ran.code, found(ran)["store"]["verdict"]) == (1, "bad")


def test_servers_and_files_that_are_set_and_missing_are_bad(command: Command) -> None:
    own = command.folder / ".config" / "perdure" / "perdure.toml"
    own.parent.mkdir(parents=True)
    own.write_text(
        'tool_files = ["mine.py"]\n'
        f'[mcp.here]\ncommand = ["{sys.executable}", "--token={KEY}"]\n'
        f'[mcp.gone]\ncommand = ["no-such-server"]\nenv = {{TOKEN = "{KEY}"}}\n'
        f'[mcp.far]\nurl = "https://ada:hunter2@mcp.example.org/mcp?token={KEY}"\n'
    )
    ran = command("doctor")
    assert ran.code == 1
    assert "MCP server  gone: there is no program no-such-server" in ran.out
    assert f"MCP server  here: {sys.executable}\n" in ran.out
    assert "MCP server  far: https://mcp.example.org/mcp\n" in ran.out
    assert f"there is no file {command.workspace}/mine.py" in ran.out
    assert KEY not in ran.out
    assert "hunter2" not in ran.out


def test_the_sandbox_and_what_it_lets_through(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Sandbox(command.workspace).state().in_force:
        pytest.skip("no sandbox works here")
    monkeypatch.setenv("PERDURE_SANDBOX_NETWORK", "true")
    monkeypatch.setenv("PERDURE_SANDBOX_FOLDERS", f"{command.folder / 'more'},/no/such/folder")
    (command.folder / "more").mkdir()
    out = command("doctor").out
    assert "ok    sandbox     in force (bubblewrap" in out
    assert f"write {command.workspace}, {command.folder}/more;" in out
    assert "network: yes" in out
    assert "warn  bash reach  /no/such/folder: no such folder" in out


@pytest.mark.parametrize(
    ("mode", "verdict", "code"), [("auto", "warn", 0), ("on", "bad", 1), ("off", "ok", 0)]
)
def test_where_there_is_no_sandbox(
    command: Command, monkeypatch: pytest.MonkeyPatch, mode: str, verdict: str, code: int
) -> None:
    bin = command.folder / "bin"
    bin.mkdir()
    (bin / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    monkeypatch.setenv("PATH", str(bin))
    monkeypatch.setenv("PERDURE_SANDBOX", mode)
    # A model is not what this is about.
    with ScriptedEndpoint([]) as endpoint:
        command.base_url = endpoint.base_url
        ran = command("doctor", "--json")
    assert ran.code == code
    assert found(ran)["sandbox"]["verdict"] == verdict
    assert found(ran)["ripgrep"]["verdict"] == "warn"


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm-256color"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)],
)
def test_colour_at_a_terminal_that_shows_it(
    command: Command, environment: dict[str, str], *, coloured: bool
) -> None:
    surroundings: Any = command.environment | {"TERM": "xterm"} | environment
    out = pexpect.run(
        f"{sys.executable} -m perdure.faces.cli.main doctor",
        cwd=str(command.workspace),
        env=surroundings,
        encoding="utf-8",
    )
    assert ("\x1b[32mok\x1b[0m" in out) is coloured
    assert "80 columns, UTF-8, " in out


def test_a_terminal_without_unicode_is_told(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    assert found(command("doctor", "--json", "--lang", "en"))["terminal"]["verdict"] == "warn"
