"""An agent at work is killed outright at any moment, again and again, and loses nothing it had acknowledged.

`make torture` does it 200 times (PERDURE_KILLS), a run of the tests a few. What had been acknowledged is
seen from outside: whatever reached the endpoint in a request was journaled before.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.chat.messages import Entry, Kind
from perdure.chat.repair import INTERRUPTED
from perdure.store.sqlite import SqliteJournal
from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint

KILLS = int(os.environ.get("PERDURE_KILLS", "12"))
SEED = int(os.environ.get("PERDURE_SEED", "20261202"))
#: Rounds of tools before a turn is answered, and seconds that a whole run takes at most.
ROUNDS, WHOLE_RUN = 4, 30.0
WINDOW = "3500"


def at_work(request: Request) -> Scripted:
    """Several rounds of two calls, then an answer; now and then the session must be compacted."""
    messages = request.messages
    since = next(at for at in range(len(messages), 0, -1) if messages[at - 1]["role"] == "user")
    rounds = sum(1 for message in messages[since:] if message["role"] == "assistant")
    if rounds >= ROUNDS:
        return Answer("Done: " + "word " * 60)
    number = len(json.dumps(messages))
    return Answer(
        calls=[
            (f"a{number}", "calculator", {"expression": f"{number} * 2"}),
            (f"b{number}", "bash", {"command": f"sleep 0.25; seq {number % 300}"}),
        ]
    )


def counted(body: dict[str, Any]) -> int:
    """Tokens, some three characters each, so that nothing is learnt of the endpoint."""
    return len(json.dumps(body["messages"])) // 3


def said(messages: list[dict[str, Any]]) -> set[str]:
    """What of a prompt came from entries, whole: neither system prompt, notes nor what was shortened."""
    bodies = (json.dumps(each, sort_keys=True) for each in messages if each["role"] != "system")
    return {body for body in bodies if "[Notes on" not in body and "holds the whole" not in body}


def journaled(path: Path) -> list[Entry]:
    journal = SqliteJournal(path)
    try:
        return [each for each in journal.records("s") if isinstance(each, Entry)]
    finally:
        journal.close()


def is_sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        connection.close()


def processes_in(folder: Path) -> list[str]:
    """Command lines of processes that work in the folder."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.timeout(60 + 10 * KILLS)
def test_whatever_the_moment_of_the_kill_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    draw = random.Random(SEED)
    path = tmp_path / "s.db"
    known: list[Entry] = []
    with ScriptedEndpoint(at_work, count=counted) as endpoint:
        command = Command(tmp_path, endpoint.base_url)

        def start(task: str) -> subprocess.Popen[str]:
            kept = ("--store", str(path), "--session", "s", "--context-window", WINDOW, "--yes", "--json")
            return subprocess.Popen(
                [sys.executable, "-m", "perdure.faces.cli.main", "run", task, *kept],
                cwd=command.workspace,
                env=command.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        began = time.monotonic()
        whole = start("Begin. " + "please " * 30)
        out, err = whole.communicate(timeout=WHOLE_RUN)
        assert whole.returncode == 0, (out[-500:], err)
        length = time.monotonic() - began
        for kill in range(KILLS):
            seen = len(endpoint.requests)
            running = start(f"Part {kill}. " + "please " * 30)
            time.sleep(draw.uniform(0.15, 1.1) * length)
            running.kill()
            running.communicate()
            assert is_sound(path)
            entries = journaled(path)
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert entries[: len(known)] == known, "what was there stays as it was"
            kept = {json.dumps(entry.message, sort_keys=True) for entry in entries}
            for request in endpoint.requests[seen:]:
                answered_for_now = {each for each in said(request.messages) if INTERRUPTED in each}
                lost = said(request.messages) - answered_for_now - kept
                assert not lost, f"kill {kill}: {lost}"
            known = entries
        last = start("And the last part. " + "please " * 30)
        out, err = last.communicate(timeout=WHOLE_RUN)
        assert last.returncode == 0, (out[-500:], err)
        assert endpoint.refusals == []
    entries = journaled(path)
    assert entries[: len(known)] == known
    open_calls: list[str] = []
    for entry in entries:
        if entry.kind is Kind.TOOL_RESULT:
            open_calls.remove(entry.message["tool_call_id"])
            continue
        assert open_calls == [], f"entry {entry.seq} comes while calls are open"
        open_calls = [call["id"] for call in entry.message.get("tool_calls") or ()]
    assert sum(entry.message.get("content") == INTERRUPTED for entry in entries) > 0
    end = time.monotonic() + 5
    while (left := processes_in(tmp_path)) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == []
    ran = command("sessions", "verify", "s", "--json", "--store", str(path))
    assert ran.code == 0, ran.out
    assert json.loads(ran.out)["different"] == []
    shutil.rmtree(tmp_path / "workspace")
