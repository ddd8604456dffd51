from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.tools import watcher

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX")

#: Runs a command the way systems without subreapers do, and prints the report.
WITHOUT_ADOPTION = """
import json, os, sys
from perdure.tools import watcher
watch = watcher.Watch(sys.argv[2:], sys.argv[1], os.getppid(), adopts=False)
print(json.dumps(watch.run(float(os.environ["SECONDS_GIVEN"]))))
"""


@pytest.fixture
def sleeper() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    mark = secrets.token_hex(8)
    process = subprocess.Popen(["sleep", "300"], env={**os.environ, watcher.MARK: mark})
    while not any(each.pid == process.pid and each.name for each in watcher.processes()):
        time.sleep(0.01)  # between the old program and the new one, a process has no name
    yield process, mark
    process.kill()
    process.wait()


def watched_without_adoption(command: str, seconds: float = 20) -> dict[str, object]:
    mark = secrets.token_hex(8)
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_ADOPTION, mark, "/bin/sh", "-c", command],
        env={**os.environ, watcher.MARK: mark, "SECONDS_GIVEN": str(seconds)},
        stdin=subprocess.PIPE,  # stays open while it works: its end would mean that we are gone
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        report: dict[str, object] = json.loads(process.stdout.read())
    assert not watcher.marked(mark), "nothing of the call is left"
    return report


def test_both_tables_of_processes_show_the_same(sleeper: tuple[subprocess.Popen[bytes], str]) -> None:
    process, _ = sleeper
    for table in (watcher.processes(), watcher.processes_of_ps()):
        seen = {each.pid: each for each in table}
        assert seen[process.pid].parent == os.getpid()
        assert seen[process.pid].group == os.getpgrp()
        assert seen[process.pid].name == "sleep 300"


def test_both_ways_find_a_marked_process(sleeper: tuple[subprocess.Popen[bytes], str]) -> None:
    process, mark = sleeper
    assert watcher.marked(mark) == {process.pid}
    assert watcher.marked_of_ps(f"{watcher.MARK}={mark}") == {process.pid}
    assert watcher.marked("0" * 16) == set()


def test_marked_processes_can_be_stopped_from_outside(sleeper: tuple[subprocess.Popen[bytes], str]) -> None:
    process, mark = sleeper
    watcher.stop_marked(mark)
    assert process.wait(timeout=10) == -9


def test_descendants_are_found_at_any_depth_and_a_circle_does_no_harm() -> None:
    table = [
        watcher.Process(pid, parent, 0, "")
        for pid, parent in [(2, 1), (3, 2), (4, 3), (5, 9), (7, 8), (8, 7)]
    ]
    assert watcher.below(1, table) == {1, 2, 3, 4}
    assert watcher.below(7, table) == {7, 8}


@pytest.mark.parametrize(
    "command", ["sleep 300 & echo", "setsid sleep 300 & echo", "(setsid sleep 300 &) ; :"]
)
def test_without_subreapers_survivors_are_still_found(command: str) -> None:
    report = watched_without_adoption(command)
    assert report["why"] == "ended"
    assert report["code"] == 0
    assert report["stopped"] == ["sleep 300"]
    assert report["left"] == []


def test_without_subreapers_a_timeout_still_stops_everything() -> None:
    report = watched_without_adoption("setsid sleep 300 & sleep 300 | sleep 300", seconds=0.5)
    assert report["why"] == "timed out"
    assert report["code"] == -15


@pytest.mark.parametrize("sent", [b"", b'{"argv": ["/bin/touch", "made"]'])
def test_a_watcher_that_was_not_asked_does_nothing(sent: bytes, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-I", "-S", watcher.__file__],
        input=sent,
        check=False,
        capture_output=True,
        timeout=30,
        cwd=tmp_path,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")
    assert not list(tmp_path.iterdir())
