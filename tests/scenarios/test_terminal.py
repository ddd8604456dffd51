"""`perdure run` at a real terminal: questions, the answer as it comes, interruption, no steering."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Raw, ScriptedEndpoint

ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
MAKE = Answer(calls=[("c", "bash", {"command": "touch made"})])


class Terminal:
    """A process at a terminal of its own, 80 by 24."""

    def __init__(self, command: Command, *arguments: str, **environment: str) -> None:
        surroundings: Any = command.environment | {"TERM": "xterm-256color"} | environment
        self.process = pexpect.spawn(
            sys.executable,
            ["-m", "perdure.faces.cli.main", *arguments],
            cwd=str(command.workspace),
            env=surroundings,
            dimensions=(24, 80),
            encoding="utf-8",
            timeout=30,
        )

    def sees(self, text: str) -> None:
        self.process.expect_exact(text)

    def types(self, text: str) -> None:
        self.process.send(text)

    def ended(self) -> tuple[int, str]:
        rest = self.process.read()
        self.process.close()
        return int(self.process.exitstatus or 0), ESCAPES.sub("", rest)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for each in opened:
        each.process.close(force=True)


@pytest.mark.parametrize(
    ("answer", "made"), [("y\n", True), ("n\n", False), ("\n", False), ("perhaps\n", False)]
)
def test_a_tool_that_acts_asks_and_only_a_yes_approves(
    tmp_path: Path, terminals: list[Terminal], answer: str, made: bool
) -> None:
    with ScriptedEndpoint([MAKE, Answer("told")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        terminal = Terminal(command, "run", "make a file")
        terminals.append(terminal)
        terminal.sees("touch made")
        terminal.sees("[n] no")
        terminal.types(answer)
        code, rest = terminal.ended()
    assert code == 0
    assert "told" in rest
    assert (command.workspace / "made").exists() is made
    assert ("did not approve" in endpoint.requests[1].messages[-1]["content"]) is not made


def test_nothing_is_written_over_a_question(tmp_path: Path, terminals: list[Terminal]) -> None:
    calls = [("a", "bash", {"command": "touch made"}), ("b", "calculator", {"expression": "6*7"})]
    with ScriptedEndpoint([Answer(calls=calls), Answer("all done")]) as endpoint:
        terminal = Terminal(Command(tmp_path, endpoint.base_url), "run", "do two things")
        terminals.append(terminal)
        terminal.sees("say why: ")
        time.sleep(0.5)
        terminal.types("y\n")
        terminal.sees("y\r\n")
        between = ESCAPES.sub("", str(terminal.process.before))
        _, rest = terminal.ended()
    assert between.strip() == "", "the result of the other call waits"
    assert "→ 42" in rest


def test_always_is_asked_once(tmp_path: Path, terminals: list[Terminal]) -> None:
    calls = [("a", "bash", {"command": "touch one"}), ("b", "bash", {"command": "touch two"})]
    with ScriptedEndpoint([Answer(calls=calls), MAKE, Answer("all done")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        terminal = Terminal(command, "run", "make files")
        terminals.append(terminal)
        terminal.sees("[n] no")
        terminal.types("a\n")
        code, rest = terminal.ended()
    assert code == 0
    assert "[n] no" not in rest
    assert sorted(path.name for path in command.workspace.iterdir()) == ["made", "one", "two"]


def test_the_question_comes_in_chinese_where_the_task_is(tmp_path: Path, terminals: list[Terminal]) -> None:
    with ScriptedEndpoint([MAKE, Answer("好了")]) as endpoint:
        terminal = Terminal(Command(tmp_path, endpoint.base_url), "run", "请创建一个文件")
        terminals.append(terminal)
        terminal.sees("[n] 否")
        terminal.types("是\n")
        assert terminal.ended()[0] == 0


def test_ctrl_c_at_the_question_interrupts_and_nothing_acts(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    with ScriptedEndpoint([MAKE, Answer("told")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        terminal = Terminal(command, "run", "--session", "s", "make a file")
        terminals.append(terminal)
        terminal.sees("[n] no")
        terminal.types("\x03")
        code, rest = terminal.ended()
        assert (code, "interrupted" in rest) == (130, True)
        assert command("run", "--session", "s", "go on").code == 0
    assert not (command.workspace / "made").exists()
    assert not endpoint.refusals


def test_the_answer_streams_to_the_terminal_once(tmp_path: Path, terminals: list[Terminal]) -> None:
    first_seen = threading.Event()

    def chunks() -> Iterator[str]:
        for n in range(5):
            assert n == 0 or first_seen.wait(30), "it came piece by piece"
            yield f'data: {{"choices": [{{"delta": {{"content": "word{n} "}}}}]}}\n\n'
        yield end

    end = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    with ScriptedEndpoint([Raw(chunks())]) as endpoint:
        terminal = Terminal(Command(tmp_path, endpoint.base_url), "run", "speak")
        terminals.append(terminal)
        terminal.sees("word0")
        first_seen.set()
        terminal.sees("word4")
        code, rest = terminal.ended()
    assert code == 0
    assert "word" not in rest


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}], ids=str)
def test_a_dumb_terminal_and_one_that_wants_no_colour_get_plain_lines(
    tmp_path: Path, terminals: list[Terminal], environment: dict[str, str]
) -> None:
    script = [Answer(calls=[("c", "calculator", {"expression": "6*7"})]), Answer("It is 42.")]
    with ScriptedEndpoint(script) as endpoint:
        terminal = Terminal(Command(tmp_path, endpoint.base_url), "run", "What is 6*7?", **environment)
        terminals.append(terminal)
        whole = terminal.process.read()
    assert "\x1b" not in whole
    assert "→ 42" in whole
    assert "It is 42." in whole


def test_text_of_a_model_or_a_tool_cannot_steer_the_terminal(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b5n\x08\x08 text \u202eback"
    with ScriptedEndpoint(
        [Answer(calls=[("c", "read_file", {"path": "evil.txt"})]), Answer(hostile)]
    ) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "evil.txt").write_text(hostile, encoding="utf-8")
        terminal = Terminal(command, "run", "--verbose", "read evil.txt")
        terminals.append(terminal)
        whole = terminal.process.read()
    assert "red" in whole
    for steering in ("\x1b]0;", "\x1b[2J", "\x1b[31m", "\x9b", "\x08", "\u202e"):
        assert steering not in whole


def test_closing_the_terminal_leaves_no_process(tmp_path: Path, terminals: list[Terminal]) -> None:
    mark = f"5{os.getpid()}.25"
    script = [Answer(calls=[("c", "bash", {"command": f"sleep {mark}"})]), Answer("fine")]
    with ScriptedEndpoint(script) as endpoint:
        terminal = Terminal(Command(tmp_path, endpoint.base_url), "run", "--yes", "sleep")
        terminals.append(terminal)
        deadline = time.monotonic() + 20
        while not sleeping(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sleeping(mark)
        terminal.process.ptyproc.fileobj.close()
        terminal.process.closed = True
        while (sleeping(mark) or terminal.process.isalive()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not sleeping(mark)
        assert not terminal.process.isalive()


def sleeping(mark: str) -> bool:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode():
                    return True
            except OSError:
                continue
    return False


def test_what_was_answered_stays_on_the_screen_while_it_is_checked(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    slow = Answer('{"satisfied": true, "missing": [], "contradicted": []}', delay=1.0)
    with ScriptedEndpoint([Answer("It is so.")], verdict=slow) as endpoint:
        terminal = Terminal(Command(tmp_path, endpoint.base_url), "run", "is it?", "--judge", "on")
        terminals.append(terminal)
        terminal.sees("It is so.")
        terminal.sees("checking the answer")
        before = terminal.process.before or ""
        code, _ = terminal.ended()
    assert code == 0
    assert "\n" in before, "the living line has a line of its own"


def test_always_in_this_session_lasts_and_in_this_workspace_for_other_sessions(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    def touch(name: str) -> Answer:
        return Answer(calls=[("a", "bash", {"command": f"touch {name}"})])

    script = [touch("one"), Answer("1"), touch("two"), Answer("2"), touch("three"), Answer("3")]
    script += [touch("four"), Answer("4"), touch("five"), Answer("5")]
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        first = Terminal(command, "run", "make a file", "--session", "s")
        terminals.append(first)
        first.sees("always bash(touch *) in this session")
        first.types("a\n")
        assert first.ended()[0] == 0
        assert command("run", "again", "--session", "s").code == 0
        second = Terminal(command, "run", "make a file", "--session", "other")
        terminals.append(second)
        second.sees("in this workspace")
        second.types("w\n")
        assert second.ended()[0] == 0
        assert command("run", "again", "--session", "third").code == 0
        (kept,) = tmp_path.rglob("allowed.json")
        assert kept.stat().st_mode & 0o077 == 0
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        ran = command("run", "again", "--session", "fourth", "--workspace", str(elsewhere), "--json")
        assert [each["ok"] for each in ran.of("tool.finished")] == [False], "it is another workspace"
    made = sorted(path.name for path in command.workspace.iterdir())
    assert made == ["four", "one", "three", "two"]


def test_a_no_may_say_why_and_the_model_reads_it(tmp_path: Path, terminals: list[Terminal]) -> None:
    with ScriptedEndpoint([MAKE, Answer("told")]) as endpoint:
        terminal = Terminal(Command(tmp_path, endpoint.base_url), "run", "make a file")
        terminals.append(terminal)
        terminal.sees("say why: ")
        terminal.types("r\n")
        terminal.sees("Why not? ")
        terminal.types("name it otherwise\n")
        assert terminal.ended()[0] == 0
    assert "name it otherwise" in endpoint.requests[1].messages[-1]["content"]


def test_an_edit_is_shown_as_a_difference_before_it_is_approved(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    edit = {"path": "a.py", "old_text": "x = 1", "new_text": "x = 2"}
    with ScriptedEndpoint([Answer(calls=[("a", "edit_file", edit)]), Answer("done")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "a.py").write_text("x = 1\n")
        terminal = Terminal(command, "run", "change it")
        terminals.append(terminal)
        terminal.sees("-x = 1")
        terminal.sees("+x = 2")
        terminal.sees("always edit_file(**)")
        terminal.types("y\n")
        assert terminal.ended()[0] == 0
    assert (command.workspace / "a.py").read_text() == "x = 2\n"
