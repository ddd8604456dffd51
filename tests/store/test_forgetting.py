"""What was removed is gone from the file, whatever ends the process that removed it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perdure.agent.forgetting import blanked
from perdure.chat.messages import Kind
from perdure.store.journal import NewEntry
from perdure.store.sqlite import SqliteJournal

SECRET = "zanzibarswordfish"

#: Removes something and is killed as soon as a statement begins that cleans the file.
KILLED = """
import os, sys
from pathlib import Path
from perdure.agent.forgetting import blanked
from perdure.store import database, forgetting
from perdure.store.sqlite import SqliteJournal

path, fatal, removed = sys.argv[1:]
connected = database.connected

def killed_later(path):
    connection = connected(path)
    connection.set_trace_callback(lambda said: os.kill(os.getpid(), 9) if said.startswith(fatal) else None)
    return connection

database.connected = forgetting.connected = killed_later
journal = SqliteJournal(Path(path))
if removed == "entries":
    journal.forget("s", [2, 3], blanked)
else:
    journal.remove("s", blanked)
"""
CLEANING = (
    "INSERT INTO passage_words (passage_words) VALUES ('optimize')",
    "VACUUM",
    "PRAGMA wal_checkpoint",
    "UPDATE archive SET traces = 0",
)


def user(text: str) -> NewEntry:
    return (Kind.USER, {"role": "user", "content": text}, 5)


def made(path: Path) -> None:
    journal = SqliteJournal(path)
    journal.create("s", {})
    for text in ("one", f"the code is {SECRET}", f"again {SECRET} it is", "four"):
        journal.append("s", [user(text)])
    journal.close()


def on_disk(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("removed", ["entries", "session"])
@pytest.mark.parametrize("fatal", CLEANING)
def test_who_is_killed_before_the_file_is_clean_leaves_the_rest_to_who_opens_it_next(
    tmp_path: Path, fatal: str, removed: str
) -> None:
    path = tmp_path / "s.db"
    made(path)
    child = subprocess.run([sys.executable, "-c", KILLED, str(path), fatal, removed], check=False)
    assert child.returncode == -9
    assert (SECRET.encode() in on_disk(path)) is (fatal != CLEANING[-1])
    SqliteJournal(path).close()
    assert SECRET.encode() not in on_disk(path)
    before = path.read_bytes()
    SqliteJournal(path).close()
    assert path.read_bytes() == before, "what is clean is not written anew"


def test_what_lingers_since_somebody_reads_is_gone_when_the_file_is_opened_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.store.database.PATIENCE", 0.01)
    path = tmp_path / "s.db"
    made(path)
    journal, reader = SqliteJournal(path), SqliteJournal(path)
    rows = reader.records("s")
    next(rows)
    gone = journal.forget("s", [2, 3], blanked)
    assert gone.lingers
    assert dict(gone.entries) == {"s": [2, 3]}
    SqliteJournal(path).close()
    assert SECRET.encode() in on_disk(path), "it is opened while somebody reads, and they read on"
    assert sum(1 for _ in rows) > 0
    SqliteJournal(path).close()
    assert SECRET.encode() not in on_disk(path)
    reader.close()
    journal.close()
