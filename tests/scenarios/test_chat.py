"""The chat at a real terminal: tmux's screen, real keys, a real endpoint over loopback."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed")


class Tmux:
    """A terminal of its own that a command runs in, as a person has it before them."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    def opens(
        self, command: Command, *arguments: str, width: int = 80, height: int = 24, **environment: str
    ) -> None:
        surroundings = command.environment | {"LC_ALL": "C.UTF-8"} | environment
        settings = [f"{name}={shlex.quote(value)}" for name, value in surroundings.items() if value]
        words = " ".join(map(shlex.quote, [sys.executable, "-m", "perdure.faces.cli.main", *arguments]))
        run = f"cd {shlex.quote(str(command.workspace))}; env -i {' '.join(settings)} {words}"
        run += "; echo left $?; sleep 60"
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), run)

    def types(self, *keys: str) -> None:
        for key in keys:
            self._tmux("send-keys", key)

    def says(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def pastes(self, text: str) -> None:
        subprocess.run([*self._command, "load-buffer", "-"], input=text, text=True, check=True)
        self._tmux("paste-buffer", "-p")

    def screen(self, *options: str) -> str:
        """What stands on it, with what has scrolled away."""
        shown = subprocess.run(
            [*self._command, "capture-pane", "-p", "-S", "-500", *options],
            capture_output=True,
            text=True,
            check=True,
        )
        return shown.stdout

    def sees(self, text: str, within: float = 30) -> str:
        """The screen, as soon as the text stands on it."""
        end = time.monotonic() + within
        while text not in (screen := self.screen()):
            assert time.monotonic() < end, f"no {text!r} on\n{screen}"
            time.sleep(0.1)
        return screen

    def close(self) -> None:
        subprocess.run([*self._command, "kill-server"], capture_output=True, check=False)

    @property
    def _command(self) -> list[str]:
        return ["tmux", "-S", str(self.socket), "-f", "/dev/null"]

    def _tmux(self, *arguments: str) -> None:
        subprocess.run([*self._command, *arguments], check=True)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    terminal = Tmux(tmp_path / "tmux")
    yield terminal
    terminal.close()


def play(request: Request) -> Scripted:
    """Does what the last request says, so that the order of requests doesn't matter."""
    if request.headers.get("x-perdure-purpose", "think") != "think":
        return Answer("The person greeted, and a file was changed.")
    asked: Any = request.body["messages"][-1]
    said = str(asked["content"])
    if asked["role"] == "tool":
        return Answer("The tool said: " + said[:30])
    if "edit" in said:
        edit = {"path": "a.py", "old_text": "x = 1", "new_text": "x = 2"}
        return Answer(calls=[("e", "edit_file", edit)])
    if "slowly" in said:
        return Answer("never seen", delay=60)
    if "long" in said:
        return Answer("many words here " * 400)
    if "你好" in said:
        return Answer("## 标题\n\n你好，**世界** 🎉\n")
    return Answer(f"## Heading\n\nHello **there**, you sent {len(said)} characters.\n\n- one\n- two\n")


OPTIONS = ("--judge", "off", "--embedder", "none")


def test_turns_with_a_question_an_edit_and_its_difference(tmp_path: Path, tmux: Tmux) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "a.py").write_text("x = 1\n")
        tmux.opens(command, "chat", "--session", "s", *OPTIONS)
        tmux.sees("›")
        tmux.says("hello")
        screen = tmux.sees("you sent 5 characters")
        assert "Heading" in screen
        assert "**" not in screen, "Markdown is drawn"
        tmux.says("edit it")
        screen = tmux.sees("[n] no")
        assert "-x = 1" in screen
        assert "+x = 2" in screen
        assert "always edit_file(**) in this session" in screen
        time.sleep(0.6)
        tmux.types("y")
        tmux.sees("The tool said")
        assert (command.workspace / "a.py").read_text() == "x = 2\n"
        tmux.says("/open 1")
        tmux.sees('"old_text": "x = 1"')
        tmux.says("/undo")
        tmux.sees("a.py: as it was before")
        assert (command.workspace / "a.py").read_text() == "x = 1\n"
        tmux.says("/quit")
        assert "perdure chat --session s" in tmux.sees("left 0")
        assert not endpoint.refusals


@pytest.mark.parametrize("key", ["Escape", "C-c"])
def test_a_key_stops_the_turn_and_keeps_the_session(tmp_path: Path, tmux: Tmux, key: str) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        tmux.opens(command, "chat", "--session", "s", *OPTIONS)
        tmux.sees("›")
        tmux.says("answer slowly")
        tmux.sees("Esc stops")
        tmux.types(key)
        tmux.sees("interrupted")
        tmux.says("hello")
        tmux.sees("you sent 5 characters")
        tmux.types("C-d")
        tmux.sees("left 0")
        shown = command("sessions", "show", "s").out
    assert "answer slowly" in shown
    assert "you sent 5 characters" in shown


def test_a_no_is_a_no_and_what_was_typed_before_is_no_answer(tmp_path: Path, tmux: Tmux) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "a.py").write_text("x = 1\n")
        tmux.opens(command, "chat", "--session", "s", *OPTIONS)
        tmux.sees("›")
        tmux.says("edit it")
        tmux.sees("[n] no")
        time.sleep(0.6)
        tmux.types("Escape")
        tmux.sees("The tool said")
        assert (command.workspace / "a.py").read_text() == "x = 1\n"
    assert "did not approve" in str(endpoint.requests[-1].messages[-1]["content"])


def test_what_is_typed_while_it_works_is_sent_next(tmp_path: Path, tmux: Tmux) -> None:
    with ScriptedEndpoint(play) as endpoint:
        tmux.opens(Command(tmp_path, endpoint.base_url), "chat", *OPTIONS)
        tmux.sees("›")
        tmux.says("answer slowly")
        tmux.sees("Esc stops")
        tmux.says("hello")
        tmux.sees("next: hello")
        tmux.types("Escape")
        tmux.sees("you sent 5 characters")


def test_a_large_paste_is_a_mark_and_is_sent_whole(tmp_path: Path, tmux: Tmux) -> None:
    text = "".join(f"line {n}\n" for n in range(200))
    with ScriptedEndpoint(play) as endpoint:
        tmux.opens(Command(tmp_path, endpoint.base_url), "chat", *OPTIONS)
        tmux.sees("›")
        tmux.pastes(text)
        tmux.sees("[pasted 201 lines #1]")
        tmux.types("Enter")
        tmux.sees("characters")
    assert text.strip() in str(endpoint.requests[0].messages[-1]["content"])


def test_files_and_commands_are_completed(tmp_path: Path, tmux: Tmux) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "src").mkdir()
        (command.workspace / "src/wanted.py").write_text("")
        tmux.opens(command, "chat", *OPTIONS)
        tmux.sees("›")
        tmux.types("/", "c", "o")
        tmux.sees("what is in the window")
        tmux.types("BSpace", "BSpace", "BSpace")
        tmux.types("r", "e", "a", "d", "Space", "@", "w", "a", "n")
        tmux.sees("src/wanted.py")
        tmux.types("Tab", "Enter")
        tmux.types("Enter")
        tmux.sees("characters")
    assert str(endpoint.requests[0].messages[-1]["content"]).strip() == "read src/wanted.py"


def test_a_compaction_is_one_quiet_line(tmp_path: Path, tmux: Tmux) -> None:
    with ScriptedEndpoint(play) as endpoint:
        tmux.opens(
            Command(tmp_path, endpoint.base_url),
            "chat",
            "--session",
            "s",
            "--context-window",
            "6000",
            *OPTIONS,
        )
        tmux.sees("›")
        for number in range(1, 5):
            tmux.says(f"say something long {number}")
            tmux.sees(f"› say something long {number}")
            time.sleep(1.5)
        assert "/context shows it" in tmux.sees("left the window")
        tmux.says("/context")
        tmux.sees("compaction")
    assert not endpoint.refusals


def test_a_session_goes_on_where_it_was(tmp_path: Path, tmux: Tmux) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "hello", "--session", "s", *OPTIONS).code == 0
        tmux.opens(command, "--continue", *OPTIONS)
        screen = tmux.sees("going on with s (1 turn)")
        assert "hello" in tmux.sees("›") or "hello" in screen
        tmux.says("again")
        tmux.sees("you sent 5 characters")
    said = [each["content"] for each in endpoint.requests[-1].messages if each["role"] == "user"]
    assert said[0] == "hello"


@pytest.mark.parametrize(
    ("environment", "width"),
    [({"NO_COLOR": "1", "TERM": "xterm-256color"}, 80), ({"TERM": "xterm-256color"}, 40)],
    ids=["without colour", "40 columns"],
)
def test_it_works_without_colour_and_in_a_narrow_terminal(
    tmp_path: Path, tmux: Tmux, environment: dict[str, str], width: int
) -> None:
    with ScriptedEndpoint(play) as endpoint:
        tmux.opens(Command(tmp_path, endpoint.base_url), "chat", *OPTIONS, width=width, **environment)
        tmux.sees("›")
        tmux.says("你好")
        tmux.sees("世界")
        screen = tmux.screen("-e")
    if "NO_COLOR" in environment:
        assert not re.search(r"\x1b\[(?:\d+;)*(?:[349]|10)[0-7]m", screen)
    assert all(len(line) <= width for line in tmux.screen().splitlines())


def test_a_dumb_terminal_gets_lines_and_no_escape_sequence(tmp_path: Path) -> None:
    import pexpect

    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        surroundings: Any = command.environment | {"TERM": "dumb"}
        process = pexpect.spawn(
            sys.executable,
            ["-m", "perdure.faces.cli.main", "chat", *OPTIONS],
            cwd=str(command.workspace),
            env=surroundings,
            encoding="utf-8",
            timeout=30,
        )
        process.expect_exact("> ")
        process.sendline("hello")
        process.expect_exact("5 characters")
        seen = str(process.before)
        process.expect_exact("> ")
        process.sendline("/quit")
        seen += process.read()
        process.close()
    assert process.exitstatus == 0
    assert "\x1b" not in seen


def test_a_pipe_is_one_task_and_nothing_is_help(tmp_path: Path) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        piped = command(stdin="hello\n")
        assert (piped.code, "you sent 5 characters" in piped.out) == (0, True)
        asked = command("-p", "hello", "--session", "s")
        assert (asked.code, "you sent 5 characters" in asked.out) == (0, True)
        assert command().code == 2


def test_with_no_endpoint_it_says_what_runs_and_speaks_the_persons_language(
    tmp_path: Path, tmux: Tmux
) -> None:
    command = Command(tmp_path)
    tmux.opens(command, "chat", LC_ALL="zh_CN.UTF-8", LANG="zh_CN.UTF-8", PYTHONUTF8="1")
    screen = tmux.sees("没有设置端点")
    assert "OPENAI_BASE_URL" in tmux.sees("perdure.toml") or "OPENAI_BASE_URL" in screen
    tmux.says("/help")
    tmux.sees("退出；会话已保存")
    tmux.says("/hlep")
    tmux.sees("您是指 /help 吗")
