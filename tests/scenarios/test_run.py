"""`perdure run` end to end: a process, real HTTP, real tools, a real store."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Plain, Raw, Request, Scripted, ScriptedEndpoint

CHUNK = 'data: {"choices": [{"index": 0, "delta": {"content": "partial words"}}]}\n\n'


def play(*script: Scripted) -> ScriptedEndpoint:
    return ScriptedEndpoint(list(script))


def test_the_answer_goes_to_stdout_and_progress_to_stderr(tmp_path: Path) -> None:
    with play(Answer(calls=[("c", "calculator", {"expression": "6*7"})]), Answer("It is 42.")) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "What is 6*7?")
    assert (ran.code, ran.out) == (0, "It is 42.\n")
    assert "session " in ran.err
    assert '· calculator {"expression": "6*7"}' in ran.err
    assert "→ 42" in ran.err
    assert not endpoint.refusals


def test_quiet_says_nothing_but_the_answer(tmp_path: Path) -> None:
    with play(Answer("Yes.")) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "--quiet", "Is it?")
    assert (ran.code, ran.out, ran.err) == (0, "Yes.\n", "")


def test_json_writes_one_event_a_line_and_nothing_else(tmp_path: Path) -> None:
    with play(Answer(calls=[("c", "calculator", {"expression": "6*7"})]), Answer("42 🌧 天气")) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "--json", "What is 6*7?")
    assert ran.code == 0
    assert [event["seq"] for event in ran.events] == list(range(1, len(ran.events) + 1))
    assert ran.events[0]["type"] == "run.started"
    (requested,) = ran.of("tool.requested")
    assert (requested["name"], json.loads(requested["arguments"]), requested["id"]) == (
        "calculator",
        {"expression": "6*7"},
        "c",
    )
    assert ran.events[-1]["type"] == "run.finished"
    assert ran.events[-1]["answer"] == "42 🌧 天气"
    assert ran.events[-1]["status"] == "answered"
    assert "".join(event["text"] for event in ran.of("text.delta")) == "42 🌧 天气"


def test_three_tools_run_side_by_side(tmp_path: Path) -> None:
    calls = [
        ("a", "bash", {"command": "sleep 0.5; echo slow"}),
        ("b", "calculator", {"expression": "1+1"}),
        ("c", "read_file", {"path": "note.txt"}),
    ]
    with play(Answer(calls=calls), Answer("done")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "note.txt").write_text("remember")
        ran = command("run", "--json", "--yes", "do three things")
    order = [(event["type"], event["id"]) for event in ran.events if event["type"].startswith("tool.")]
    assert order[:3] == [("tool.requested", id) for id in "abc"]
    started = [at for at, (type, _) in enumerate(order) if type == "tool.started"]
    finished = [at for at, (type, _) in enumerate(order) if type == "tool.finished"]
    assert max(started) < finished[-1]
    assert order[-1] == ("tool.finished", "a")
    results = [m["content"] for m in endpoint.requests[1].messages if m["role"] == "tool"]
    assert ["slow" in results[0], results[1], "remember" in results[2]] == [True, "2", True]
    assert endpoint.requests[1].headers["x-perdure-purpose"] == "think"
    assert endpoint.requests[1].headers["x-perdure-session"] == ran.events[0]["session"]


@pytest.mark.parametrize("arguments", [["run"], ["run", "-"]])
def test_the_task_is_read_from_stdin(tmp_path: Path, arguments: list[str]) -> None:
    with play(Answer("ok")) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(*arguments, stdin="from a pipe: 天气\n")
    assert ran.code == 0
    assert endpoint.requests[0].messages[-1]["content"] == "from a pipe: 天气"


def test_a_session_goes_on_where_it_stopped_with_the_same_prefix(tmp_path: Path) -> None:
    with play(Answer("noted"), Answer("blue")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "--session", "colours", "My colour is blue.").code == 0
        assert command("run", "--session", "colours", "Which is it?").out == "blue\n"
    first, second = (request.messages for request in endpoint.requests)
    assert second[: len(first)] == first
    assert second[len(first)]["content"] == "noted"
    listed = command("sessions", "list")
    assert listed.out.startswith("colours")
    assert "2 turns, 4 entries" in listed.out
    shown = command("sessions", "show", "colours", "--json")
    assert [json.loads(line)["kind"] for line in shown.out.splitlines()] == ["user", "assistant"] * 2


def test_a_session_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = Command(tmp_path)
    for store in ("there is no store", "`perdure sessions list` shows"):
        ran = command("sessions", "show", "nothing")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("perdure: There is no session 'nothing'")
        assert store in ran.err
        made = command("sessions", "import", "-", stdin='{"role": "user", "content": "x"}')
        assert made.code == 0


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith(("session ", "! "))]


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (Plain(401, {"error": {"message": "bad key", "code": "invalid_api_key"}}), 2, "OPENAI_API_KEY"),
        (
            Plain(404, {"error": {"message": "The model `scripted` does not exist"}}),
            2,
            "has no model 'scripted'",
        ),
        (Plain(200, "<html><title>Login</title></html>", {}, "text/html"), 1, "a web page (HTML) (Login)"),
        (Plain(404, "<html><title>Not Found</title></html>", {}, "text/html"), 1, "usually ends in /v1"),
        (Plain(400, {"error": {"message": "top_p is wrong"}}), 1, "top_p is wrong"),
    ],
)
def test_an_endpoint_that_does_not_answer_is_said_in_a_line_or_two(
    tmp_path: Path, script: Plain, code: int, said: str
) -> None:
    with play(script) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "hello")
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert len(lines(ran.err)) == 1
    assert "Traceback" not in ran.err


def test_an_endpoint_that_is_down_is_said_in_a_line(tmp_path: Path) -> None:
    with play(Answer("x")) as endpoint:
        pass
    command = Command(tmp_path, endpoint.base_url)
    ran = command("run", "--session", "kept", "remember me")
    assert ran.code == 1
    assert "No answer from" in lines(ran.err)[0]
    assert len(lines(ran.err)) == 1
    assert "remember me" in command("sessions", "show", "kept").out, "it says that the session is kept"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--context-window", "many", "x"],
        ["run", "--context-window", "0", "x"],
        ["run", "--context-window", "150", "x"],
        ["run", "--max-time", "-1", "x"],
        ["run", "--base-url", "localhost:1234", "x"],
        ["run", "--tools", "hammer", "x"],
        ["run", "--workspace", "/nowhere/at/all", "x"],
        ["run", "--store", "postgresql://x/y", "x"],
        ["run", "  "],
        ["run", "--session", "", "x"],
        ["run", "--session", "two\nlines", "x"],
        ["run", "--no-such-option", "x"],
        ["no-such-command"],
        [],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_2_with_a_clear_error_and_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    with play(Answer("x")) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(*arguments)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert ran.err or ran.out
    assert not endpoint.requests


def test_a_limit_exits_3_and_the_session_goes_on(tmp_path: Path) -> None:
    count = iter(range(1, 99))

    def endless(request: Request) -> Scripted:
        if request.messages[-1]["content"] == "stop now":
            return Answer("stopped")
        return Answer(calls=[(f"c{next(count)}", "calculator", {"expression": f"{next(count)}+1"})])

    with ScriptedEndpoint(endless) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--session", "s", "--max-steps", "3", "count for ever")
        assert ran.code == 3
        assert "limit of 3 steps" in ran.err
        assert command("run", "--session", "s", "stop now").out == "stopped\n"
    assert not endpoint.refusals


def test_bash_is_refused_without_a_terminal_and_the_model_is_told_how_to_allow_it(tmp_path: Path) -> None:
    call = Answer(calls=[("c", "bash", {"command": "touch made"})])
    with play(call, Answer("told")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "make a file").code == 0
        assert not (command.workspace / "made").exists()
        assert "--yes" in endpoint.requests[1].messages[-1]["content"]
    with play(call, Answer("told")) as endpoint:
        command.base_url = endpoint.base_url
        assert command("run", "--yes", "make a file").code == 0
        assert (command.workspace / "made").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_in_order_and_leaves_no_process_and_a_session_that_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    mark = f"3{os.getpid()}.{number:02d}"
    script = [Answer(calls=[("c", "bash", {"command": f"sleep {mark}"})]), Answer("fine")]
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        process = command.start("run", "--json", "--yes", "--session", "s", "sleep")
        assert process.stdout is not None
        while "tool.started" not in process.stdout.readline():
            pass
        deadline = time.monotonic() + 20
        while not _running(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
        assert process.returncode == 130
        assert json.loads(out.splitlines()[-1])["status"] == "interrupted"
        assert not _running(mark)
        assert command("run", "--session", "s", "go on").out == "fine\n"
    assert not endpoint.refusals
    tool = [m for m in endpoint.requests[1].messages if m["role"] == "tool"]
    assert [m["content"] for m in tool] == ["interrupted, result unknown"]


def test_killing_the_agent_outright_leaves_no_process_and_a_session_that_goes_on(tmp_path: Path) -> None:
    mark = f"4{os.getpid()}.5"
    script = [Answer(calls=[("c", "bash", {"command": f"sleep {mark}"})]), Answer("fine")]
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        process = command.start("run", "--json", "--yes", "--session", "s", "sleep")
        deadline = time.monotonic() + 20
        while not _running(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        process.communicate(timeout=20)
        while _running(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _running(mark)
        assert command("run", "--session", "s", "go on").out == "fine\n"
    assert not endpoint.refusals


def test_an_interruption_while_the_model_speaks_keeps_what_it_said(tmp_path: Path) -> None:
    with ScriptedEndpoint([Raw([CHUNK], stall=20.0), Answer("fine")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        process = command.start("run", "--json", "--session", "s", "speak")
        assert process.stdout is not None
        while "partial words" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 130
        command("run", "--session", "s", "go on")
    assert endpoint.requests[1].messages[-2]["content"].startswith("partial words")


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    with play(Answer("word " * 50_000)) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        process = command.start("run", "--json", "speak")
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
        process.stderr.close()
        process.wait(20)
    assert "Traceback" not in said


def test_output_that_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    with play(Answer("word")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        with Path("/dev/full").open("w") as full:
            process = subprocess.run(
                [sys.executable, "-m", "perdure.faces.cli.main", "run", "--quiet", "speak"],
                stdin=subprocess.DEVNULL,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                env=command.environment,
                cwd=command.workspace,
                check=False,
            )
    assert process.returncode == 1
    assert process.stderr == "perdure: the output could not be written: No space left on device\n"


def test_of_two_processes_that_begin_one_session_at_once_one_is_told_who_has_it(tmp_path: Path) -> None:
    with ScriptedEndpoint(lambda _: Answer("ok", delay=2.5)) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        command("sessions", "list")
        both = [command.start("run", "--session", "new", word) for word in ("one", "two")]
        ended = [(*process.communicate(timeout=60), process.returncode) for process in both]
        (told,) = [err for _, err, code in ended if code == 1]
        (answered,) = [out for out, _, code in ended if code == 0]
        assert answered == "ok\n"
        assert re.search(r"The session 'new' is in use by process \d+ on .+, since .+ UTC\.", told)
        assert len(endpoint.requests) == 1
        again = command("run", "--session", "new", "three")
    assert (again.code, again.out) == (0, "ok\n")


def test_the_one_model_of_an_endpoint_needs_no_name_and_several_are_listed(tmp_path: Path) -> None:
    with play(Answer("hi")) as endpoint:
        command = Command(tmp_path)
        assert command("run", "--base-url", endpoint.base_url, "hello").out == "hi\n"
        assert endpoint.requests[0].body["model"] == "scripted"
        endpoint.models = [{"id": "one"}, {"id": "two"}]
        ran = command("run", "--base-url", endpoint.base_url, "hello")
    assert ran.code == 2
    assert "one, two" in ran.err


def test_the_window_that_the_endpoint_tells_is_used(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("hi")], models=[{"id": "scripted", "max_model_len": 5000}]) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "--json", "hello")
    assert ran.events[0]["context_window"] == 5000


def test_messages_come_in_chinese_where_the_task_or_the_locale_is(tmp_path: Path) -> None:
    with play(Plain(400, {"error": {"message": "bad"}})) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "请列出文件")
    assert "拒绝了请求" in ran.err
    ran = Command(tmp_path)("sessions", "show", "x", "--lang", "zh")
    assert "没有名为" in ran.err


def test_help_and_version_work_without_anything() -> None:
    for arguments in (["--help"], ["run", "--help"], ["--version"], ["sessions", "list", "--help"]):
        command = Path(sys.executable).with_name("perdure")
        done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert "perdure" in done.stdout


def _running(mark: str) -> bool:
    """A process whose command line holds the mark, other than our own command's."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()]:
                return True
    return False
