"""What is opened: a store, a blank file that becomes one, and everything else, which is left as it is."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.chat.messages import Kind
from perdure.errors import StoreError, StoreForeign, StoreNewer, StoreReadOnly
from perdure.store.database import APPLICATION, Database, _look_at
from perdure.store.migrations import MIGRATIONS
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive

OPENED = pytest.mark.parametrize("opened", [SqliteJournal, SqliteArchive])
#: Nanoseconds since 1970, long ago.
LONG_AGO = 10**18


def made(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.create_function("shown_request", 1, str)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def left_by_a_killed_process(path: Path, *statements: str) -> None:
    """What is written stands in the log alone."""
    program = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for statement in sys.argv[2:]: connection.execute(statement)\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path), *statements], check=False)
    assert Path(f"{path}-wal").stat().st_size > 0


def a_store(path: Path) -> None:
    journal = SqliteJournal(path)
    journal.create("s", {})
    journal.append("s", [(Kind.USER, {"role": "user", "content": "zanzibar"}, 3)])
    journal.close()


def pragma(path: Path, name: str) -> Any:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]
    finally:
        connection.close()


def check_untouched(opened: Callable[[Path], object], path: Path, error: type[StoreError]) -> StoreError:
    """It is refused, and neither the file nor anything beside it is another than before."""
    for each in path.parent.iterdir():
        os.utime(each, ns=(LONG_AGO, LONG_AGO))
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises(error) as raised:
        opened(path)
    # The index of a log is no content: it is made anew whenever a log is read.
    for each in path.parent.glob("[!-]*[!m]"):
        assert (each.read_bytes(), each.stat().st_mtime_ns) == (before.pop(each.name), LONG_AGO)
    assert all(name.endswith("-shm") for name in before)
    return raised.value


NEWER = len(MIGRATIONS) + 4
FOREIGN: dict[str, tuple[str, ...]] = {
    "with no version": ("CREATE TABLE moz (a)",),
    "with the version of an older store": ("CREATE TABLE moz (a)", "PRAGMA user_version = 1"),
    "with today's version": ("CREATE TABLE moz (a)", f"PRAGMA user_version = {len(MIGRATIONS)}"),
    "with a newer version": ("CREATE TABLE moz (a)", f"PRAGMA user_version = {NEWER}"),
    "with a version alone": ("PRAGMA user_version = 2",),
    "with a name alone": ("PRAGMA application_id = 252006673",),
    "with tables of our names": (
        "CREATE TABLE session (id INTEGER PRIMARY KEY, name TEXT)",
        "CREATE TABLE record (id INTEGER PRIMARY KEY, title TEXT)",
        "PRAGMA user_version = 2",
    ),
    "with a name and our tables": (*MIGRATIONS[0], "PRAGMA user_version = 1", "PRAGMA application_id = 7"),
    "with a view alone": ("CREATE VIEW one AS SELECT 1",),
}


@OPENED
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
def test_another_programs_database_is_named_and_not_touched(
    tmp_path: Path, statements: tuple[str, ...], mode: str, opened: Any
) -> None:
    path = tmp_path / "places.sqlite"
    made(path, f"PRAGMA journal_mode = {mode}", *statements)
    error = check_untouched(opened, path, StoreForeign)
    assert "places.sqlite is another program's database" in error.say("en")
    assert "不是 perdure 的存储" in error.say("zh")
    assert pragma(path, "journal_mode") == mode.lower()


@OPENED
def test_what_another_program_left_in_its_log_stays_there(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "places.sqlite"
    left_by_a_killed_process(path, "PRAGMA journal_mode = WAL", "CREATE TABLE moz (a)")
    check_untouched(opened, path, StoreForeign)


@OPENED
def test_another_program_at_work_is_left_to_it(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "places.sqlite"
    made(path, "CREATE TABLE moz (a)")
    at_work = sqlite3.connect(path, isolation_level=None)
    at_work.execute("BEGIN IMMEDIATE")
    at_work.execute("INSERT INTO moz VALUES (1)")
    check_untouched(opened, path, StoreForeign)
    at_work.execute("COMMIT")
    at_work.close()


@OPENED
def test_behind_a_link_too_nothing_is_touched(tmp_path: Path, opened: Any) -> None:
    path, link = tmp_path / "there" / "s.db", tmp_path / "link.db"
    a_store(path)
    left_by_a_killed_process(path, f"PRAGMA user_version = {NEWER}")
    link.symlink_to(path)
    before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    with pytest.raises(StoreNewer):
        opened(link)
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(StoreError):
        opened(link)


@OPENED
def test_a_newer_store_is_not_touched_nor_what_it_left_in_its_log(tmp_path: Path, opened: Any) -> None:
    whole, killed = tmp_path / "whole" / "s.db", tmp_path / "killed" / "s.db"
    for path in (whole, killed):
        a_store(path)
    made(whole, f"PRAGMA user_version = {NEWER}")
    left_by_a_killed_process(killed, f"PRAGMA user_version = {NEWER}")
    for path in (whole, killed):
        assert isinstance(check_untouched(opened, path, StoreNewer), StoreNewer)


@OPENED
@pytest.mark.parametrize(
    "content",
    [b"\n", b"x", b"no", b"hello, my notes", b"x" * 5_000, b"\x00" * 5_000, b"SQLite format 3\x00"],
)
def test_a_file_that_is_no_database_is_not_touched(tmp_path: Path, content: bytes, opened: Any) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    error = check_untouched(opened, path, StoreError)
    assert "notes.txt cannot be used" in error.say("en")


def test_a_folder_in_the_way_is_not_touched(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(LONG_AGO, LONG_AGO))
    with pytest.raises(StoreError, match="cannot be used"):
        SqliteJournal(tmp_path)
    assert tmp_path.stat().st_mtime_ns == LONG_AGO


@OPENED
def test_a_store_says_in_its_header_that_it_is_one_and_an_older_one_without_that_is_opened(
    tmp_path: Path, opened: Any
) -> None:
    path = tmp_path / "s.db"
    opened(path).close()
    assert pragma(path, "application_id") == APPLICATION
    for schema in range(1, len(MIGRATIONS)):
        old = tmp_path / f"{schema}.db"
        steps = [statement for step in MIGRATIONS[:schema] for statement in step]
        made(old, *steps, f"PRAGMA user_version = {schema}")
        opened(old).close()
        assert pragma(old, "application_id") == APPLICATION
    made(path, "PRAGMA application_id = 0")
    opened(path).close()


@pytest.mark.parametrize("where", ["new/s.db", "s.db", "link.db"])
def test_a_file_that_is_not_there_becomes_a_store_of_its_owner_alone(tmp_path: Path, where: str) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    a_store(tmp_path / where)
    assert (tmp_path / where).stat().st_mode & 0o077 == 0
    assert [each.name for each in SqliteJournal(tmp_path / where).sessions()] == ["s"]


def test_processes_that_make_a_store_at_once_all_have_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from perdure.store.sqlite import SqliteJournal\n"
        "for number in range(20):\n"
        "    SqliteJournal(Path(sys.argv[1]) / f'{number}.db').close()"
    )
    making = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [each.communicate(timeout=60)[1] for each in making] == [""] * 3


TROUBLES = (
    "attempt to write a readonly database",
    "file is not a database",
    "unable to open database file",
    "database or disk is full",
    "database is locked",
    "database disk image is malformed",
    "disk I/O error",
    "out of memory",
)


@pytest.mark.parametrize("told", TROUBLES)
def test_what_sqlite_says_is_said_in_both_languages(tmp_path: Path, told: str) -> None:
    database = Database(tmp_path / "s.db")
    with pytest.raises(StoreError) as raised, database.errors():
        raise sqlite3.OperationalError(told)
    assert told in raised.value.say("en")
    chinese = raised.value.say("zh").replace(str(database.path), "").replace("--store", "")
    assert not re.search("[a-z]", chinese)
    database.close()


def test_a_store_in_trouble_speaks_chinese_from_its_opening_on(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_bytes(b"x" * 5_000)
    for path, said in (
        (notes, "这个文件不是数据库"),
        (tmp_path, "打不开这个文件"),
        (notes / "s.db", f"它已经存在：{notes}。"),
        (tmp_path / "{x}" / ("n" * 300), f"名称太长：{tmp_path / '{x}' / ('n' * 300)}。"),
    ):
        with pytest.raises(StoreError) as raised:
            SqliteJournal(path)
        assert f"无法使用存储 {path}：{said}" in raised.value.say("zh")


def test_another_writer_is_named_in_both_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.store.database.PATIENCE", 0.01)
    journal = SqliteJournal(tmp_path / "s.db")
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="database is locked") as raised:
        journal.create("s", {})
    assert "另一进程正在写入它" in raised.value.say("zh")
    other.close()
    journal.close()


def test_a_store_that_can_only_be_read_says_what_is_needed_to_write_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    a_store(path)
    journal = SqliteJournal(path)
    with journal._database.reading() as cursor:
        cursor.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreReadOnly, match="attempt to write a readonly database") as raised:
        journal.create("t", {})
    assert f"the right to write the file and its folder {tmp_path}." in raised.value.say("en")
    assert (
        f"它是只读的。它仍可读取，其中已有的内容都保留着。要写入，需要该文件及其文件夹 {tmp_path}"
        in raised.value.say("zh")
    )
    assert [each.name for each in journal.sessions()] == ["s"]
    journal.close()


@pytest.mark.parametrize("also", [SqliteJournal, SqliteArchive, _look_at])
def test_what_is_written_stays_whoever_opens_and_closes_the_file_meanwhile(
    tmp_path: Path, also: Callable[[Path], object]
) -> None:
    """POSIX takes all locks on a file from a process that closes it once, however often it has it open. Then
    another process that closes it takes itself for the last one, and deletes the log."""
    path = tmp_path / "s.db"
    journal = SqliteJournal(path)
    journal.create("s", {})
    opened = also(path)
    another = "import sys; from pathlib import Path; from perdure.store.sqlite import SqliteJournal; "
    another += "SqliteJournal(Path(sys.argv[1])).close()"
    counts = "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); "
    counts += "print(*file.execute(\"SELECT count(*) FROM record WHERE type = 'user'\").fetchone())"
    for number in range(1, 4):
        subprocess.run([sys.executable, "-c", another, str(path)], check=True)
        journal.append("s", [(Kind.USER, {"role": "user", "content": f"word {number}"}, 3)])
    command = [sys.executable, "-c", counts, str(path)]
    read = subprocess.run(command, check=True, capture_output=True, text=True)
    assert read.stdout == "3\n"
    del opened
    journal.close()
