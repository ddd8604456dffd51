"""Files of every older schema are brought to today's, with all that is in them, and a newer one is left
alone."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.conversation import Conversation
from perdure.agent.forgetting import blanked
from perdure.app import Sessions
from perdure.chat.messages import Entry, Kind
from perdure.chat.tokens import counter_for
from perdure.config import Settings
from perdure.errors import StoreNewer
from perdure.memory.budget import Budget
from perdure.store.database import _shown
from perdure.store.journal import Recorded
from perdure.store.migrations import MIGRATIONS
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive

CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "make"}'}}
#: Number, kind or type, and body of each record of an old session.
RECORDS: tuple[tuple[int | None, str, dict[str, Any]], ...] = (
    (None, "session.created", {"system": "be brief", "lang": "en", "workspace": "/old"}),
    (1, "user", {"role": "user", "content": "The gateway is called zanzibar, 网关密钥每月轮换。"}),
    (2, "tool_call", {"role": "assistant", "content": None, "tool_calls": [CALL]}),
    (3, "tool_result", {"role": "tool", "tool_call_id": "c1", "content": "ERR_QUOTA_771 in src/ledger.py"}),
    (None, "usage", {"purpose": "think", "prompt": 90, "completion": 5}),
    (4, "assistant", {"role": "assistant", "content": "The build failed \ud800."}),
    (5, "user", {"role": "user", "content": "and now\ud83d\x00? " + "天气" * 300}),
)


def made(path: Path, schema: int) -> None:
    """A file as the perdure of that schema left it."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.create_function("shown_request", 1, _shown, deterministic=True)
    for step in MIGRATIONS[: min(schema, 2)]:
        for statement in step:
            connection.execute(statement)
    for id, name in ((3, "old"), (8, "another")):
        connection.execute("INSERT INTO session (id, name, created) VALUES (?, ?, '2025-01-01')", (id, name))
        after = 0
        for seq, kind, body in RECORDS:
            connection.execute(
                "INSERT INTO record (session, seq, after, type, body, tokens, time)"
                " VALUES (?, ?, ?, ?, ?, 7, '2025-01-02')",
                (id, seq, after, kind, json.dumps(body)),
            )
            after = seq or after
        if schema >= 2:
            last = connection.execute("SELECT max(id) FROM record WHERE session = ?", (id,)).fetchone()[0]
            connection.execute("INSERT INTO checkpoint VALUES (?, ?, ?)", (id, last, '{"kept": 1}'))
    if schema >= 2:
        connection.execute("INSERT INTO learnt VALUES ('m', '{\"highest\": 1.25}')")
    # Later steps fill what they add from what is there.
    for step in MIGRATIONS[2:schema]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.commit()
    connection.close()


def schema_of(path: Path) -> list[Any]:
    """Every table and index as it was made, and the version."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
        return [*rows, connection.execute("PRAGMA user_version").fetchone()]
    finally:
        connection.close()


def rows_of(path: Path) -> dict[str, list[Any]]:
    """All that stands in the tables of the journal."""
    connection = sqlite3.connect(path)
    try:
        tables = ("session", "record", "checkpoint", "learnt")
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    finally:
        connection.close()


def found(path: Path, query: str, session: str = "old", embedder: str = "none") -> list[int]:
    with Sessions(Settings(store=str(path), embedder=embedder)) as sessions:
        return [each.passage.entry for each in sessions.recall(session, query)]


OLDER = range(1, len(MIGRATIONS))


@pytest.mark.parametrize("schema", OLDER)
def test_an_older_file_gets_todays_schema_and_keeps_its_rows(tmp_path: Path, schema: int) -> None:
    blank, old = tmp_path / "blank.db", tmp_path / "old.db"
    SqliteJournal(blank).close()
    made(old, schema)
    journal = SqliteJournal(old)
    assert schema_of(old) == schema_of(blank)
    for name in ("old", "another"):
        kept = [
            (each.seq, each.kind.value, each.message, each.tokens, each.time)
            if isinstance(each, Entry)
            else (None, each.type, each.body, 7, each.time)
            for each in journal.records(name)
        ]
        assert kept == [(*record, 7, "2025-01-02") for record in RECORDS]
        afters = [each.after for each in journal.records(name) if isinstance(each, Recorded)]
        assert afters == [0, 3]
        if schema >= 2:
            state, since = journal.since_checkpoint(name)
            assert (state, list(since)) == ({"kept": 1}, [])
    if schema >= 2:
        assert journal.learnt("m") == {"highest": 1.25}
    journal.close()


def test_a_file_that_is_not_there_and_one_with_nothing_in_it_come_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for name in ("empty.db", "none.db"):
        SqliteJournal(tmp_path / name).close()
    assert schema_of(tmp_path / "empty.db") == schema_of(tmp_path / "none.db")
    assert schema_of(tmp_path / "none.db")[-1] == (len(MIGRATIONS),)


@pytest.mark.parametrize("schema", OLDER)
def test_an_old_session_is_opened_forked_forgotten_and_removed(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "old.db"
    made(path, schema)
    journal = SqliteJournal(path)
    opened = Conversation(journal, "old", counter_for(None), Budget.of(8000))
    said = [body for seq, _, body in RECORDS if seq]
    assert opened.prompt() == [{"role": "system", "content": "be brief"}, *said]
    journal.fork("old", "fork", 4)
    gone = journal.forget("old", [1], blanked)
    assert gone.entries == {"old": [1], "fork": [1]}
    assert "zanzibar" not in json.dumps([each.message for each in journal.entries("old", [1, 2, 3])])
    journal.remove("old", blanked)
    assert {each.name for each in journal.sessions()} == {"fork", "another"}
    journal.close()
    assert 1 not in found(path, "zanzibar", "fork")
    assert 3 in found(path, "ERR_QUOTA_771", "fork")


@pytest.mark.parametrize("schema", OLDER)
def test_a_list_tells_of_old_sessions_what_it_tells_of_new_ones(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "old.db"
    made(path, schema)
    journal = SqliteJournal(path)
    newer, older = journal.sessions()
    assert (newer.name, older.name) == ("another", "old")
    assert (older.entries, older.turns, older.workspace) == (5, 2, "/old")
    assert older.request == ("and now\ufffd\x00? " + "天气" * 300)[:200]
    assert older.size == sum(len(json.dumps(body)) for _, _, body in RECORDS)
    assert (older.created, older.changed) == ("2025-01-01", "2025-01-02")
    (entry,) = journal.append("old", [(Kind.USER, {"role": "user", "content": "on it goes"}, 3)])
    assert entry.seq == 6
    first = journal.sessions()[0]
    assert (first.name, first.entries, first.turns, first.request) == ("old", 6, 3, "on it goes")
    journal.close()


@pytest.mark.parametrize("schema", OLDER)
def test_opening_again_changes_nothing(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "old.db"
    made(path, schema)
    SqliteJournal(path).close()
    before = schema_of(path), rows_of(path)
    SqliteJournal(path).close()
    SqliteArchive(path).close()
    assert (schema_of(path), rows_of(path)) == before


@pytest.mark.parametrize("schema", OLDER)
def test_old_entries_are_found_when_they_are_first_looked_for(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "old.db"
    made(path, schema)
    assert 1 in found(path, "zanzibar")
    assert 1 in found(path, "网关密钥")
    assert 3 in found(path, "ERR_QUOTA_771")
    assert 5 in found(path, "天气")
    assert 2 in found(path, "which command was run: make", embedder="encoder")
    connection = sqlite3.connect(path)
    taken_in = connection.execute("SELECT name, indexed = entries FROM session ORDER BY name").fetchall()
    connection.close()
    assert dict(taken_in)["old"] == 1


def test_what_is_written_before_old_entries_are_taken_in_is_found_as_well(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    made(path, 1)
    journal = SqliteJournal(path)
    journal.append("old", [(Kind.USER, {"role": "user", "content": "quokkas live on Rottnest"}, 3)])
    journal.fork("old", "fork", 6)
    journal.close()
    for session in ("old", "fork"):
        assert 6 in found(path, "quokkas", session)
        assert 1 in found(path, "zanzibar", session)


def test_two_processes_that_open_an_old_file_at_once_bring_it_there_once(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    made(path, 1)
    program = (
        "import sys; from pathlib import Path; from perdure.store.sqlite import SqliteJournal\n"
        "print(len(SqliteJournal(Path(sys.argv[1])).sessions()))"
    )
    opening = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [each.communicate(timeout=60)[0] for each in opening] == ["2\n"] * 3
    assert 1 in found(path, "zanzibar")


#: Opens an old file and searches it, and is killed at each statement in turn, each time on a copy of its own;
#: says how many there were.
KILLED = """
import os, shutil, sys
from pathlib import Path
from perdure.memory.passages import Query
from perdure.store import database
from perdure.store.archive import Scope
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive
import numpy

source, left = Path(sys.argv[1]), 0
connected = database.connected

def count_down(statement):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)

def killed_later(path):
    connection = connected(path)
    connection.set_trace_callback(count_down)
    return connection

database.connected = killed_later
for number in range(1_000):
    copy = source.with_name(f"{number}.db")
    shutil.copy(source, copy)
    child = os.fork()
    if not child:
        left = number
        SqliteJournal(copy)
        SqliteArchive(copy).pool(Query("zanzibar", ("zanzibar",)), Scope("old"))
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
print(number)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="fork and signals of POSIX")
def test_who_is_killed_in_an_update_leaves_a_file_that_is_whole(tmp_path: Path) -> None:
    made(tmp_path / "old.db", 1)
    killed = [sys.executable, "-c", KILLED, str(tmp_path / "old.db")]
    done = subprocess.run(killed, capture_output=True, text=True, check=True)
    last = int(done.stdout)
    assert sum(map(len, MIGRATIONS[1:])) < last < 999
    whole = tmp_path / f"{last}.db"
    versions = set()
    for path in (tmp_path / f"{number}.db" for number in range(last)):
        versions.add(schema_of(path)[-1][0])
        journal = SqliteJournal(path)
        assert [(each.name, each.entries) for each in journal.sessions()] == [("another", 5), ("old", 5)]
        journal.close()
        assert 1 in found(path, "zanzibar")
        assert (schema_of(path), rows_of(path)["record"]) == (schema_of(whole), rows_of(whole)["record"])
    assert versions == {1, len(MIGRATIONS)}, "some were killed before it was done, and some after"


def test_a_step_that_fails_leaves_the_older_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    made(path, 2)
    before = schema_of(path), rows_of(path)
    with monkeypatch.context() as broken:
        broken.setattr(
            "perdure.store.database.MIGRATIONS", (*MIGRATIONS[:2], (*MIGRATIONS[2], "CREATE NONSENSE"))
        )
        with pytest.raises(Exception, match="NONSENSE"):
            SqliteJournal(path)
    assert (schema_of(path), rows_of(path)) == before
    SqliteJournal(path).close()


@pytest.mark.parametrize("opened", [SqliteJournal, SqliteArchive])
def test_a_newer_file_says_so_and_is_not_touched(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "new.db"
    made(path, len(MIGRATIONS) - 1)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 4}")
    connection.close()
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(StoreNewer) as newer:
        opened(path)
    known = len(MIGRATIONS)
    assert f"schema {known + 4}; this one knows {known}" in newer.value.say("en")
    assert "升级" in newer.value.say("zh")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
