"""An agent that is killed outright at random moments, again and again, loses nothing it was told.

A few kills as part of all tests; `make torture` does many. The seed is printed, and `TORTURE_SEED` takes
it again, though the moment at which a signal arrives is never quite the same.
"""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perdure.chat.messages import Entry, Kind, Message
from perdure.chat.repair import INTERRUPTED
from perdure.memory.notes import HEADING
from perdure.memory.passages import searchable
from perdure.store.sqlite import SqliteJournal
from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint

KILLS = int(os.environ.get("TORTURE_KILLS", "12"))
SEED = int(os.environ.get("TORTURE_SEED", str(random.SystemRandom().randrange(10**9))))
#: Small enough that every few turns there is a compaction.
WINDOW = ("--context-window", "3000", "--max-output-tokens", "500")
ROUNDS = 4
#: Seconds in which the first request comes, and another one unless a command goes on and on.
FIRST, NEXT = 30.0, 0.6


@dataclass
class Model:
    """What the endpoint says: rounds of tools, then an answer; now and then a command that goes on and on."""

    random: random.Random
    calls: int = 0

    def __call__(self, request: Request) -> Scripted:
        delay = self.random.uniform(0, 0.03)
        if request.headers["x-perdure-purpose"] == "summarize":
            return Answer("- The person wants steps to be done, one after the other.", delay=delay)
        rounds = 0
        for message in reversed(request.messages):
            if message["role"] == "user":
                break
            rounds += message["role"] == "assistant"
        if rounds >= ROUNDS:
            return Answer(f"Done, {self.random.random()}. " + "word " * 60, delay=delay)
        calls = [self._call() for _ in range(self.random.choice((1, 1, 2, 3)))]
        return Answer(calls=calls, delay=delay)

    def _call(self) -> tuple[str, str, Any]:
        self.calls += 1
        id = f"call_{self.calls}"
        drawn = self.random.random()
        if drawn < 0.05:
            return id, "bash", {"command": "sleep 60"}
        if drawn < 0.4:
            return id, "bash", {"command": f"echo {id}; seq 1 {self.random.randint(1, 60)}"}
        if drawn < 0.6:
            return id, "recall", {"query": "steps that were done"}
        return id, "calculator", {"expression": f"{self.calls} * {self.random.randint(2, 99)}"}


@dataclass
class Seen:
    """What a store must still hold."""

    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    requests: int = 0
    found: Counter[str] = field(default_factory=Counter)


def run_and_kill(command: Command, endpoint: ScriptedEndpoint, task: str, draw: random.Random) -> bool:
    """Run a turn in a process of its own; True where it was killed before it ended."""
    before, nth = len(endpoint.requests), draw.randint(0, ROUNDS + 1)
    pause = draw.uniform(0, 1.0) if nth == 0 else draw.uniform(0, 0.12)
    # Loading what embeds takes longer than all else.
    embedder = draw.choice(("none", "none", "none", "auto"))
    arguments = ("run", "--quiet", "--yes", "--session", "s", "--embedder", embedder, *WINDOW, task)
    running = subprocess.Popen(
        [sys.executable, "-m", "perdure.faces.cli.main", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=command.workspace,
        env=command.environment,
    )
    came, quiet = before, time.monotonic() + FIRST
    while came < before + nth and running.poll() is None and time.monotonic() < quiet:
        time.sleep(0.002)
        if len(endpoint.requests) > came:
            came, quiet = len(endpoint.requests), time.monotonic() + NEXT
    try:
        running.wait(pause)
    except subprocess.TimeoutExpired:
        running.kill()
    _, said = running.communicate(timeout=30)
    assert running.returncode in {0, -9}, said
    return running.returncode == -9


def check(path: Path, endpoint: ScriptedEndpoint, seen: Seen) -> None:
    """All that must hold of a store whose writer was killed."""
    assert endpoint.refusals == []
    if not path.exists():
        return
    journal = SqliteJournal(path)
    try:
        sessions = journal.sessions()
        entries = (
            [each for each in journal.records("s") if isinstance(each, Entry)] if journal.exists("s") else []
        )
    finally:
        journal.close()
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    check_database(path, seen, entries)
    turns = sum(entry.kind is Kind.USER for entry in entries)
    assert [(each.entries, each.turns) for each in sessions] == [(len(entries), turns)] * len(sessions)
    check_sent(endpoint, seen, entries)
    check_answered(entries, seen)


def check_database(path: Path, seen: Seen, entries: list[Entry]) -> None:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.execute("INSERT INTO passage_words (passage_words) VALUES ('integrity-check')")
        rows = connection.execute("SELECT seq, type, body, tokens, time FROM record WHERE seq IS NOT NULL")
        now = {row[0]: row for row in rows}
        taken_in = {row[0] for row in connection.execute("SELECT DISTINCT seq FROM passage")}
        words = connection.execute("SELECT count(*) FROM passage_words").fetchone()
        assert words == connection.execute("SELECT count(*) FROM passage").fetchone()
        lost = "SELECT count(*) FROM vector WHERE passage NOT IN (SELECT id FROM passage WHERE embedder > 0)"
        assert connection.execute(lost).fetchone() == (0,)
    finally:
        connection.close()
    assert {seq: now.get(seq) for seq in seen.rows} == seen.rows, "what was there before is there as it was"
    seen.rows = now
    tools = {call["id"]: call["function"]["name"] for each in entries for call in calls_of(each.message)}
    texts = {
        each.seq: searchable(each.kind, each.message, tools.get(each.message.get("tool_call_id", ""), ""))
        for each in entries
    }
    assert taken_in == {seq for seq, text in texts.items() if text.strip()}


def check_sent(endpoint: ScriptedEndpoint, seen: Seen, entries: list[Entry]) -> None:
    """Whatever reached the wire was in the journal before."""
    kept = {json.dumps(plain(each.message), sort_keys=True) for each in entries}
    for request in endpoint.requests[seen.requests :]:
        if request.headers["x-perdure-purpose"] != "think":
            continue
        for message in request.messages:
            if message["role"] == "system" or str(message["content"]).startswith(HEADING):
                continue
            if json.dumps(plain(message), sort_keys=True) not in kept:
                stub = re.search(r"entry (\d+)", str(message["content"]))
                assert stub, f"never journaled: {message}"
                whole = entries[int(stub[1]) - 1].message
                assert plain({**whole, "content": ""}) == plain({**message, "content": ""})
                seen.found["shortened"] += 1
    seen.requests = len(endpoint.requests)


def check_answered(entries: list[Entry], seen: Seen) -> None:
    """Calls have one result each, right behind them; those of a turn that was broken off may be open."""
    expected: list[str] = []
    for entry in entries:
        if entry.kind is Kind.TOOL_RESULT:
            assert entry.message["tool_call_id"] == expected.pop(0)
        else:
            assert not expected, f"entry {entry.seq} stands behind open calls"
            expected = [call["id"] for call in calls_of(entry.message)]
    texts = [str(each.message["content"]) for each in entries if each.kind is Kind.TOOL_RESULT]
    seen.found["interrupted"] = texts.count(INTERRUPTED)
    seen.found["open"] += bool(expected)


def calls_of(message: Message) -> list[dict[str, Any]]:
    return list(message.get("tool_calls") or ())


def plain(message: Message) -> dict[str, Any]:
    return {name: value for name, value in message.items() if value is not None and name != "refusal"}


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
def test_an_agent_that_is_killed_again_and_again_goes_on_with_all_it_had(tmp_path: Path) -> None:
    print(f"TORTURE_SEED={SEED} TORTURE_KILLS={KILLS}")
    draw = random.Random(SEED)
    seen, killed, runs = Seen(), 0, 0
    path = tmp_path / ".local" / "share" / "perdure" / "sessions.db"
    model = Model(random.Random(SEED + 1))
    with ScriptedEndpoint(model, count=lambda body: len(json.dumps(body)) // 4) as endpoint:
        # A request that breaks off in the middle is what happens here.
        endpoint._server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        command = Command(tmp_path, endpoint.base_url)
        while killed < KILLS:
            runs += 1
            killed += run_and_kill(command, endpoint, f"Step {runs}: go on. " + "please " * 40, draw)
            end = time.monotonic() + 10
            while (left := processes_in(tmp_path)) and time.monotonic() < end:
                time.sleep(0.02)
            assert left == [], "a command outlived the agent"
            check(path, endpoint, seen)
        open_calls = seen.found["open"]
        endpoint.script = [Answer("All is well.")]
        ran = command("run", "--session", "s", *WINDOW, "Is all well?")

        assert (ran.code, ran.out) == (0, "All is well.\n"), ran.err
        check(path, endpoint, seen)
        assert seen.found["open"] == open_calls, "a turn that ended leaves no call open"
        verified = json.loads(command("sessions", "verify", "s", "--json").out)
        assert verified["different"] == []
        assert seen.found["interrupted"] > 0
        compactions = json.loads(command("context", "s", "--json").out)["compactions"]
    print(
        f"{runs} runs, {killed} killed, {len(seen.rows)} entries, {len(endpoint.requests)} requests, "
        f"{len(compactions)} compactions, {verified['same']} prompts replayed, {dict(seen.found)}"
    )
