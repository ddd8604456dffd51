"""The bash tool with real processes. What public reports say of such tools is under tests/cases."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from perdure.chat.calls import ToolCall
from perdure.errors import ToolError
from perdure.tools import watcher
from perdure.tools.bash import LONGEST_TIMEOUT, bash_tool
from perdure.tools.registry import Registry
from perdure.tools.results import OUTPUT_LIMIT
from tools.running import gone, sleeper, there

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not shutil.which("bash"), reason="no bash here"),
]

needs_setsid = pytest.mark.skipif(not shutil.which("setsid"), reason="no setsid here")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

Bash = Callable[..., Awaitable[str]]


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    return bash_tool(tmp_path).run


# --- what a result says


async def test_output_and_exit_code_are_always_there(bash: Bash) -> None:
    assert await bash(command="echo hello") == "hello\n[exit code 0]"
    assert await bash(command="echo no >&2; exit 3") == "no\n[exit code 3]"
    assert await bash(command="true") == "(no output)\n[exit code 0]"
    assert await bash(command="echo; echo") == "(nothing visible: 2 bytes of output)\n[exit code 0]"


async def test_asyncio_has_nothing_to_complain_about(bash: Bash, caplog: pytest.LogCaptureFixture) -> None:
    for command in ("true", "kill -9 $$", "sleep 9 & echo"):
        await bash(command=command)
    assert not caplog.records


async def test_the_signal_that_ended_a_command_is_named(bash: Bash) -> None:
    assert "exit code 137, killed by SIGKILL" in await bash(command="kill -9 $$")
    assert "exit code 139, killed by SIGSEGV" in await bash(command="kill -SEGV $$")


async def test_stdout_and_stderr_come_in_the_order_they_were_written(bash: Bash) -> None:
    command = "for i in 1 2 3; do echo out $i; echo err $i >&2; done"
    assert (await bash(command=command)).splitlines()[:4] == ["out 1", "err 1", "out 2", "err 2"]
    program = "import sys; print('a'); print('b', file=sys.stderr); print('c')"
    assert (await bash(command=f'{sys.executable} -c "{program}"')).startswith("a\nb\nc\n")


async def test_a_command_runs_in_the_workspace_and_its_variables_are_lost(bash: Bash, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    await bash(command="export LOST=1; touch inner/made")
    assert (tmp_path / "inner" / "made").exists()
    assert await bash(command='echo "$PWD [$LOST]"') == f"{tmp_path} []\n[exit code 0]"


async def test_bash_is_bash(bash: Bash) -> None:
    assert (await bash(command="a=(x y z); [[ ${a[1]} == y ]] && echo ${#a[@]}")).startswith("3\n")


async def test_pipes_break_as_they_do_in_a_shell(bash: Bash) -> None:
    """Python ignores SIGPIPE, and an ignored signal would stay ignored in every command."""
    assert await bash(command="yes | head -1; echo ${PIPESTATUS[@]}") == "y\n141 0\n[exit code 0]"
    assert await bash(command="trap -p PIPE") == "(no output)\n[exit code 0]"


@pytest.mark.parametrize("command", ["-x", "+x", "--version"])
async def test_a_command_that_looks_like_an_option_is_a_command(bash: Bash, command: str) -> None:
    said = await bash(command=command)
    assert "command not found" in said
    assert "[exit code 127]" in said


async def test_a_long_output_fits_and_has_both_ends(bash: Bash) -> None:
    said = await bash(command="seq 1 1000000; echo the end; exit 4")
    assert len(said) <= OUTPUT_LIMIT
    assert said.startswith("1\n2\n")
    assert said.endswith("\nthe end\n[exit code 4]")
    assert "6888904 bytes of output" in said


@on_linux
async def test_output_without_end_takes_no_memory(bash: Bash) -> None:
    """The watcher is the command's parent, so the command can look at its peak."""
    said = await bash(command="head -c 300000000 /dev/zero | tr '\\0' 'a'; grep VmHWM /proc/$PPID/status")
    peak = re.search(r"VmHWM:\s+(\d+) kB", said)
    assert peak
    assert int(peak[1]) < 40_000


async def test_a_flood_is_stopped_before_its_time(bash: Bash) -> None:
    said = await bash(command="yes", timeout=100)
    assert "more than 1024 MiB" in said
    assert len(said) <= OUTPUT_LIMIT


# --- time


@pytest.mark.parametrize(
    "command",
    [
        "sleep {n}",
        "sleep {n} | cat | cat",
        "sleep {n} & sleep {n}; echo not reached",
        "trap '' TERM HUP INT; while :; do sleep {n}; done",
        "kill -STOP $$; sleep {n}",
        "sleep {n} & kill -STOP $!; wait",
        "exec >/dev/null 2>&1; sleep {n}",
        "exec >&- 2>&-; sleep {n}",
        pytest.param("setsid sleep {n} & sleep {n}", marks=needs_setsid),
        pytest.param("(setsid setsid sleep {n} &); sleep {n}", marks=needs_setsid),
        pytest.param("setsid -w bash -c \"trap '' TERM; sleep {n}; sleep {n}\"", marks=needs_setsid),
    ],
)
async def test_a_timeout_ends_everything_and_keeps_the_output_so_far(bash: Bash, command: str) -> None:
    sleeping = sleeper()
    began = time.monotonic()
    said = await bash(command="echo before; " + command.format(n=sleeping.split()[1]), timeout=0.7)
    assert time.monotonic() - began < 15
    assert said.startswith("before\n")
    assert "timed out after 0.7 s" in said
    assert "exit code 1" in said  # 137 or 143
    assert gone(sleeping, within=0)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("-inf")])
async def test_a_senseless_timeout_is_refused(bash: Bash, timeout: float) -> None:
    with pytest.raises(ToolError, match="timeout"):
        await bash(command="true", timeout=timeout)


@pytest.mark.parametrize("timeout", [120_000, float("inf"), 1e300])
async def test_a_timeout_beyond_the_longest_is_the_longest(bash: Bash, timeout: float) -> None:
    assert await bash(command="true", timeout=timeout) == "(no output)\n[exit code 0]"


def test_the_registry_is_more_patient_than_the_tool(tmp_path: Path) -> None:
    assert bash_tool(tmp_path).timeout > LONGEST_TIMEOUT


# --- what is left behind


@pytest.mark.parametrize(
    "command",
    [
        "{s} & echo done",
        "({s} &) ; echo done",
        "nohup {s} >/dev/null 2>&1 & echo done",
        "{s} & disown; echo done",
        "set -m; {s} & echo done",
        pytest.param("setsid {s} & echo done", marks=needs_setsid),
        pytest.param("setsid -f {s} >/dev/null; echo done", marks=needs_setsid),
    ],
)
async def test_what_is_left_in_the_background_is_stopped_and_named(bash: Bash, command: str) -> None:
    sleeping = sleeper()
    began = time.monotonic()
    said = await bash(command=command.format(s=sleeping), timeout=60)
    assert time.monotonic() - began < 15
    assert said == f"done\n[exit code 0; 1 process left in the background and stopped: {sleeping}]"
    assert gone(sleeping, within=0)


async def test_many_left_behind_are_counted_and_some_are_named(bash: Bash) -> None:
    sleeping = sleeper()
    said = await bash(command=f"for i in 1 2 3 4 5 6 7 8; do {sleeping} & done")
    assert "8 processes left in the background and stopped" in said
    assert said.count(sleeping) == 5
    assert gone(sleeping, within=0)


async def test_a_reader_at_the_end_of_a_pipe_may_finish(bash: Bash) -> None:
    assert await bash(command="echo one > >(sleep 0.05; cat)") == "one\n[exit code 0]"


async def test_orphans_that_end_are_buried(bash: Bash) -> None:
    said = await bash(
        command="for i in 1 2 3; do (true &); done; sleep 0.3; ps -o stat= --ppid $PPID | grep -c Z"
    )
    assert said.startswith("0\n")


# --- side by side, cancelled, killed


async def test_calls_run_side_by_side_and_keep_apart(tmp_path: Path) -> None:
    registry = Registry([bash_tool(tmp_path)])
    sleeping = [sleeper() for _ in range(6)]
    results: dict[int, str] = {}

    async def one(number: int) -> None:
        # Each waits until all have begun, so they only end when they really run at once.
        command = (
            f"touch {number}; until [ $(ls | wc -l) = 6 ]; do sleep 0.02; done; "
            f"{sleeping[number]} & echo mine {number}"
        )
        call = ToolCall(str(number), "bash", json.dumps({"command": command, "timeout": 60}))
        results[number] = (await registry.call(call)).text

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(one, number)
    for number in range(6):
        assert results[number].startswith(f"mine {number}\n[exit code 0; 1 process")
        assert sleeping[number] in results[number]


@pytest.mark.parametrize(
    "command",
    [
        "{s}",
        "trap '' TERM; while :; do {s}; done",
        "yes & {s}",
        "kill -STOP $PPID; {s}",
        pytest.param("setsid {s} & {s}", marks=needs_setsid),
    ],
)
async def test_a_cancelled_call_leaves_nothing(bash: Bash, command: str) -> None:
    sleeping = sleeper()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: bash(command=command.format(s=sleeping)))
        assert await anyio.to_thread.run_sync(there, sleeping)
        cancelled = time.monotonic()
        group.cancel_scope.cancel()
    assert time.monotonic() - cancelled < 10
    assert gone(sleeping, within=0), "the cancelled call had waited for it"


async def test_a_call_cancelled_at_any_moment_leaves_nothing(bash: Bash) -> None:
    sleeping = sleeper()
    for step in range(25):
        with anyio.move_on_after(step * 0.002):
            await bash(command=f"{sleeping} & {sleeping}")
    assert gone(sleeping, within=0)


async def test_a_watcher_that_a_command_kills_is_noticed_and_nothing_is_left(bash: Bash) -> None:
    sleeping = sleeper()
    with pytest.raises(ToolError, match="was stopped"):
        await bash(command=f"(setsid {sleeping} &); kill -9 $PPID; {sleeping}")
    assert gone(sleeping)


async def test_a_command_that_kills_pythons_by_name_does_not_stop_its_watcher(bash: Bash) -> None:
    assert (
        await bash(command="kill -TERM $PPID; kill -HUP $PPID; kill -INT $PPID; echo on")
        == "on\n[exit code 0]"
    )


AGENT = """
import sys
from pathlib import Path
import anyio
from perdure.tools.bash import bash_tool
anyio.run(lambda: bash_tool(Path(sys.argv[1])).run(command=sys.argv[2]))
"""
#: Runs the agent in a terminal of its own, and closes that when a line comes in.
TERMINAL = """
import os, pty, sys
pid, master = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
sys.stdin.readline()
os.close(master)
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "command", ["{s}", "trap '' TERM HUP; {s}", pytest.param("setsid {s} & {s}", marks=needs_setsid)]
)
def test_when_the_agent_dies_its_commands_do_too(command: str, number: int, tmp_path: Path) -> None:
    sleeping = sleeper()
    arguments = [sys.executable, "-c", AGENT, str(tmp_path), command.format(s=sleeping)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as agent:
        assert there(sleeping)
        agent.send_signal(number)
        assert agent.wait(timeout=30) != 0
    assert gone(sleeping)


#: Forks, as `multiprocessing` would, once the command runs; the fork holds copies of all pipes.
FORKING = """
import os, sys, threading, time
from pathlib import Path
def fork():
    while not Path(sys.argv[1], "runs").exists():
        time.sleep(0.02)
    if os.fork() == 0:
        Path(sys.argv[1], "fork").write_text(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
threading.Thread(target=fork, daemon=True).start()
"""


def test_a_fork_of_the_agent_that_holds_the_pipe_keeps_nothing_alive(tmp_path: Path) -> None:
    sleeping = sleeper()
    command = f"touch runs; until [ -s fork ]; do sleep 0.05; done; {sleeping}"
    with subprocess.Popen([sys.executable, "-c", FORKING + AGENT, str(tmp_path), command]) as agent:
        assert there(sleeping)
        agent.kill()
    try:
        assert gone(sleeping)
    finally:
        os.kill(int((tmp_path / "fork").read_text()), signal.SIGKILL)


def test_when_the_terminal_closes_nothing_is_left(tmp_path: Path) -> None:
    sleeping = sleeper()
    arguments = [sys.executable, "-c", TERMINAL, AGENT, str(tmp_path), f"(setsid {sleeping} &); {sleeping}"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as terminal:
        assert there(sleeping)
        terminal.communicate(b"close\n", timeout=30)
    assert gone(sleeping)


# --- what can't be run


@pytest.mark.parametrize(
    "command, why",
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("echo a\0b", "NUL character at position 6"),
        ("echo \ud83d", "surrogate pair at position 5"),
        ("echo " + "x" * 200_000, "too long: 200005 bytes"),
    ],
)
async def test_a_command_that_cannot_be_run_says_why(bash: Bash, command: str, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        await bash(command=command)


async def test_a_workspace_that_was_deleted_is_named(tmp_path: Path) -> None:
    bash = bash_tool(tmp_path / "gone").run
    with pytest.raises(ToolError, match=re.escape(f"the workspace {tmp_path / 'gone'} does not exist")):
        await bash(command="true")


async def test_a_command_may_delete_its_own_workspace(bash: Bash) -> None:
    assert await bash(command='rm -r "$PWD"; echo done') == "done\n[exit code 0]"
    with pytest.raises(ToolError, match="does not exist"):
        await bash(command="true")


async def test_without_bash_sh_does_it_and_the_result_says_so(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    bash = bash_tool(tmp_path, environment={"PATH": str(tmp_path / "bin")}).run
    said = await bash(command="echo still")
    assert said == "still\n[exit code 0; bash was not found, so sh ran this, and cd doesn't last]"


async def test_with_no_path_at_all_a_shell_is_still_found(tmp_path: Path) -> None:
    bash = bash_tool(tmp_path, environment={"PATH": str(tmp_path)}).run
    assert "sh ran this" in await bash(command="echo still")


# --- surroundings


async def test_secrets_of_the_agent_do_not_reach_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-model")
    monkeypatch.setenv("GITHUB_TOKEN", "token-of-the-person")
    look = "env; tr '\\0' '\\n' < /proc/$PPID/environ; tr '\\0' '\\n' < /proc/$PPID/cmdline"
    said = await bash_tool(tmp_path).run(command=look)
    assert "key-of-the-model" not in said
    assert "token-of-the-person" not in said
    allowing = bash_tool(tmp_path, allowed_secrets=["GITHUB_TOKEN"])
    assert "token-of-the-person" in await allowing.run(command="env")


@on_linux
async def test_a_command_gets_no_descriptors_of_the_agent(bash: Bash, tmp_path: Path) -> None:
    with (tmp_path / "private").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        said = await bash(command="ls /proc/self/fd")
    # 3 is that of the folder that is being read.
    assert sorted(said.split("\n")[:-1], key=int) == ["0", "1", "2", "3", str(watcher.TELLS)]


async def test_there_is_no_terminal_and_no_input(bash: Bash) -> None:
    said = await bash(command="test -t 0; echo $?; wc -c; (echo x > /dev/tty) 2>&1 | grep -c tty")
    assert said.split()[:3] == ["1", "0", "1"]
    assert await bash(command="ps -o tty= $$ | tr -d ' '") in {"?\n[exit code 0]", "??\n[exit code 0]"}


async def test_the_registry_runs_it_and_says_whether_it_worked(tmp_path: Path) -> None:
    registry = Registry([bash_tool(tmp_path)])
    good = await registry.call(ToolCall("1", "bash", '{"command": "echo 字 | cat", "timeout": "5"}'))
    assert (good.text, good.ok) == ("字\n[exit code 0]", True)
    bad = await registry.call(ToolCall("2", "bash", '{"command": ""}'))
    assert (bad.text, bad.ok) == ("error: the command is empty", False)


def test_its_examples_are_in_both_languages_and_fit_its_schema(tmp_path: Path) -> None:
    examples = bash_tool(tmp_path).spec.examples
    assert 5 <= len(examples) <= 24
    chinese = [each for each in examples if re.search("[\u4e00-\u9fff]", each.request)]
    assert 2 <= len(chinese) < len(examples)
    for each in examples:
        assert set(each.arguments) == {"command"}
