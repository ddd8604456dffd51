"""Commands in the background, with real processes."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest

from perdure.errors import ToolError
from perdure.tools.background import background_tool
from perdure.tools.bash import bash_tool
from perdure.tools.jobs import MOST, Jobs
from perdure.tools.sandbox import Sandbox
from perdure.tools.shell import OwnMemo
from tools.running import gone, sleeper, there

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not shutil.which("bash"), reason="no bash here"),
]

Call = Callable[..., Awaitable[str]]


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    jobs = Jobs()
    yield jobs
    jobs.stop_all()


@pytest.fixture
def memo() -> OwnMemo:
    return OwnMemo()


@pytest.fixture
def bash(tmp_path: Path, jobs: Jobs, memo: OwnMemo) -> Call:
    return bash_tool(tmp_path, jobs=jobs, memo=memo).run


@pytest.fixture
def background(jobs: Jobs, memo: OwnMemo) -> Call:
    return background_tool(jobs, memo).run


async def test_it_goes_on_at_once_and_is_read_bit_by_bit(
    bash: Call, background: Call, tmp_path: Path
) -> None:
    began = time.monotonic()
    said = await bash(
        command="echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; sleep 60", background=True
    )
    assert time.monotonic() - began < 10
    assert re.fullmatch(r'one\n\[b1 runs in the background for \d+ s; background\("b1"\) reads on\]', said)
    assert (await background(id="b1")).startswith("(no output)\n[b1 runs")
    (tmp_path / "go").touch()
    assert (await background(id="b1", wait=30)).startswith("two\n[b1 runs")
    assert re.match(r"b1: runs for \d+ s, 0 bytes to read: echo one; while", await background())


async def test_waiting_ends_with_the_first_output_and_at_its_time(bash: Call, background: Call) -> None:
    await bash(command="sleep 60", background=True)
    began = time.monotonic()
    assert (await background(id="b1", wait=0.3)).startswith("(no output)")
    assert 0.3 <= time.monotonic() - began < 10


async def test_one_that_fails_at_once_says_so_at_once(bash: Call, background: Call) -> None:
    assert (
        await bash(command="echo no >&2; exit 3", background=True)
        == "no\n[b1 in the background; exit code 3]"
    )
    assert await background() == "(nothing runs in the background)"


async def test_its_end_is_told_once_with_the_next_result(
    bash: Call, background: Call, tmp_path: Path
) -> None:
    await bash(command="while [ ! -e go ]; do sleep 0.05; done; echo done; exit 4", background=True)
    (tmp_path / "go").touch()
    with anyio.fail_after(20):
        while "ended" not in await background():
            await anyio.sleep(0.05)
    news = 'b1 in the background ended: background("b1") shows how'
    assert await bash(command="true") == f"(no output)\n[exit code 0; {news}]"
    assert await bash(command="true") == "(no output)\n[exit code 0]"
    assert await background(id="b1") == "done\n[b1 in the background; exit code 4]"
    with pytest.raises(ToolError, match="no command in the background is named 'b1'"):
        await background(id="b1")


async def test_stopping_stops_all_that_it_started(bash: Call, background: Call) -> None:
    sleeps, others = sleeper(), sleeper()
    await bash(
        command=f"trap 'echo bye; exit 5' TERM; setsid {others} & {sleeps} & echo on; wait", background=True
    )
    assert there(sleeps, others)
    said = await background(id="b1", action="stop")
    assert "bye\n" in said
    assert said.endswith("[b1 in the background; stopped; exit code 5]")
    assert gone(sleeps, others, within=1)
    assert await background() == "(nothing runs in the background)"


async def test_one_that_ignores_signals_and_stops_its_watcher_is_stopped(
    bash: Call, background: Call
) -> None:
    sleeps = sleeper()
    await bash(command=f"trap '' TERM; kill -STOP $PPID; {sleeps}; {sleeps}", background=True)
    assert there(sleeps)
    await background(id="b1", action="stop")
    assert gone(sleeps, within=1)


async def test_its_time_ends_it(bash: Call, background: Call) -> None:
    await bash(command="sleep 60", background=True, timeout=1.2)
    with anyio.fail_after(20):
        while "ended" not in await background():
            await anyio.sleep(0.05)
    said = await background(id="b1")
    how = "timed out after 1.2 s and was stopped; exit code 143, killed by SIGTERM"
    assert said == f"(no output)\n[b1 in the background; {how}]"


async def test_what_is_not_read_is_bounded(bash: Call, background: Call, jobs: Jobs) -> None:
    said = await bash(command="head -c 20000000 /dev/zero | tr '\\0' 'x'; echo; echo end", background=True)
    with anyio.fail_after(60):
        while "ended" not in said and "exit code" not in said:
            await anyio.sleep(0.1)
            said = await background()
    if "exit code" not in said:
        said = await background(id="b1")
    assert "bytes of output; the middle is left out" in said
    assert len(said) <= 30_000
    assert said.endswith("xend\n[b1 in the background; exit code 0]") or "\nend\n[b1" in said


async def test_so_many_at_once_and_no_more(
    bash: Call, background: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.tools.bash.SOON", 0.0)
    for _ in range(MOST):
        await bash(command="sleep 60", background=True)
    with pytest.raises(ToolError, match=r"8 commands run in the background already \(b1, b2"):
        await bash(command="sleep 60", background=True)
    await background(id="b3", action="stop")
    assert "b9 runs" in await bash(command="sleep 60", background=True)


async def test_each_session_has_its_own(tmp_path: Path, jobs: Jobs) -> None:
    one, other = OwnMemo(), OwnMemo()
    one.session, other.session = "one", "other"
    await bash_tool(tmp_path, jobs=jobs, memo=one).run(command="echo private; sleep 60", background=True)
    assert await background_tool(jobs, other).run() == "(nothing runs in the background)"
    with pytest.raises(ToolError, match="there are: none"):
        await background_tool(jobs, other).run(id="b1")
    assert "b1: runs" in await background_tool(jobs, one).run()


async def test_it_begins_where_the_shell_is_and_leaves_it_there(tmp_path: Path, jobs: Jobs) -> None:
    (tmp_path / "inner").mkdir()
    bash = bash_tool(tmp_path, jobs=jobs).run
    await bash(command="cd inner")
    assert (await bash(command="pwd; cd /usr", background=True)).startswith(f"{tmp_path}/inner\n")
    assert (await bash(command="pwd")).startswith(f"{tmp_path}/inner\n")


async def test_cancelling_the_call_that_waits_leaves_it_running(bash: Call, background: Call) -> None:
    sleeps = sleeper()
    with anyio.move_on_after(0.3):
        await bash(command=sleeps, background=True)
    assert there(sleeps)
    await background(id="b1", action="stop")
    assert gone(sleeps, within=1)


async def test_closing_stops_all(tmp_path: Path) -> None:
    jobs = Jobs()
    bash, names = bash_tool(tmp_path, jobs=jobs).run, [sleeper() for _ in range(3)]
    for each in names:
        await bash(command=each, background=True)
    assert there(*names)
    jobs.stop_all()
    assert gone(*names, within=1)
    jobs.stop_all()


@pytest.mark.parametrize("how", ["SIGKILL", "exit", "SIGINT"])
@pytest.mark.parametrize("sandboxed", [False, True])
async def test_nothing_outlives_the_agent_however_it_ends(
    tmp_path: Path, how: str, *, sandboxed: bool
) -> None:
    if sandboxed and not Sandbox(tmp_path).state().in_force:
        pytest.skip("no sandbox works here")
    sleeps, others = sleeper(), sleeper()
    program = f"""
import anyio, time
from pathlib import Path
from perdure.tools.bash import bash_tool
from perdure.tools.jobs import Jobs
from perdure.tools.sandbox import Sandbox
workspace = Path({str(tmp_path)!r})
bash = bash_tool(workspace, jobs=Jobs(), sandbox=Sandbox(workspace, {"on" if sandboxed else "off"!r}))
anyio.run(lambda: bash.run(command={f"setsid {others} & {sleeps}"!r}, background=True))
time.sleep({0 if how == "exit" else 60})
"""
    agent = subprocess.Popen(
        [sys.executable, "-c", program], start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        if how != "exit":
            assert there(sleeps, others)
            agent.send_signal(getattr(signal, how))
        agent.wait(30)
        assert gone(sleeps, others)
    finally:
        agent.kill()
        agent.wait()


async def test_in_the_sandbox_without_a_network_it_says_that_its_ports_are_its_own(
    tmp_path: Path, jobs: Jobs
) -> None:
    sandbox = Sandbox(tmp_path, "on")
    if not sandbox.state().in_force:
        pytest.skip("no sandbox works here")
    bash = bash_tool(tmp_path, jobs=jobs, sandbox=sandbox).run
    said = await bash(command="echo on; sleep 60", background=True)
    assert said.endswith("; without a network in the sandbox, other calls can't reach its ports]")
    assert (await background_tool(jobs, OwnMemo()).run(id="b1", action="stop")).endswith(
        "[b1 in the background; stopped; exit code 143, as of SIGTERM]"
    )
