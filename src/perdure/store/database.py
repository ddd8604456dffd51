"""One SQLite file: opened, brought to today's schema, and written in transactions.

WAL with `synchronous=FULL`: a commit that returned has reached the disk. Python's own `sqlite3`
is enough; no extension is loaded.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

from perdure.chat.encodings import sendable
from perdure.chat.messages import Message, text_of
from perdure.chat.secrets import masked
from perdure.errors import SessionUnknown, StoreError, StoreForeign, StoreNewer, StoreReadOnly, Words, why
from perdure.store.migrations import MIGRATIONS

#: Seconds that a writer waits for another.
PATIENCE = 10.0
#: What the header of a store says that it is, as SQLite's `application_id`: "prdr". Older ones say nothing.
APPLICATION = 0x70726472
#: Bytes of the smallest database: one page (https://www.sqlite.org/fileformat.html, "The Database Header").
LEAST_SIZE = 512
#: What SQLite says of a file, in Chinese.
_TROUBLES = {
    "attempt to write a readonly database": "它是只读的",
    "file is not a database": "这个文件不是数据库",
    "unable to open database file": "打不开这个文件",
    "database or disk is full": "磁盘已满",
    "database is locked": "另一进程正在写入它",
    "database disk image is malformed": "它的内容已损坏",
    "disk I/O error": "读写磁盘时出错",
    "out of memory": "内存不足",
}
#: Characters of the last request that stand in a list of sessions.
REQUEST_SHOWN = 200


class Database:
    """The file at ``path``, which is made with its folder where it doesn't exist.

    ``durable``: a commit waits for the disk; without that, what a power failure takes can be made anew.
    One connection, which threads may share: they take turns. A file that can only be read is opened all
    the same, and what would write raises; one of an older schema is read from a copy in memory. Raises
    `StoreError` where it can't be opened; `StoreForeign` and `StoreNewer` before anything is written.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        self._turn = threading.RLock()
        with self.errors():
            _look_at(path)
            self.connection = _opened(path)
        try:
            with self.errors():
                self._prepare(durable)
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        with self._turn:
            self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Everything in it is written, or nothing."""
        with self.reading() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Cursor]:
        with self._turn, self.errors():
            yield self.connection.cursor()

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, MemoryError) as error:
            if _says_read_only(error):
                folder = self.path.resolve().parent
                raise StoreReadOnly(_said_by(error), path=self.path, folder=folder) from error
            raise StoreError(_said_by(error), path=self.path) from error

    def session(self, cursor: sqlite3.Cursor, name: str) -> int:
        """The id of a session. Raises `SessionUnknown`."""
        row = cursor.execute("SELECT id FROM session WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise SessionUnknown(name=name, path=self.path)
        return int(row[0])

    def _prepare(self, durable: bool) -> None:
        version = _schema(self.connection, self.path)
        with suppress(sqlite3.OperationalError):  # of a file that can only be read
            self.connection.execute("PRAGMA journal_mode = WAL")
        # What is deleted must be gone from the file, too.
        for pragma in (f"synchronous = {'FULL' if durable else 'NORMAL'}", "secure_delete = ON"):
            self.connection.execute(f"PRAGMA {pragma}")
        if version < len(MIGRATIONS):
            try:
                self._migrate()
            except StoreError as error:
                if not _only_reads(error.__cause__):
                    raise
                with closing(self.connection) as file:
                    self.connection = _in_memory(file)
                self._migrate()
        if not self.connection.execute("SELECT file FROM pragma_database_list").fetchone()[0]:
            # Into a copy goes only what is made anew from the file.
            self.connection.execute(f"PRAGMA query_only = {'ON' if durable else 'OFF'}")
        self.connection.execute("PRAGMA foreign_keys = ON")

    def _migrate(self) -> None:
        self.connection.create_function("shown_request", 1, _shown, deterministic=True)
        with self.transaction() as cursor:
            # Read again: another process may have migrated while this one waited for the lock.
            for step in MIGRATIONS[self._version() :]:
                for statement in step:
                    cursor.execute(statement)
            cursor.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            cursor.execute(f"PRAGMA application_id = {APPLICATION}")

    def _version(self) -> int:
        return int(self.connection.execute("PRAGMA user_version").fetchone()[0])


def connected(path: Path) -> sqlite3.Connection:
    """A connection to the file, which threads may share."""
    return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)


def _look_at(path: Path) -> None:
    """Raise where a file is no store of ours, or a newer one, without touching it: to open it for writing
    could write what its log still holds."""
    with suppress(OSError):  # what can't be seen is judged where it is opened
        if 0 < path.stat().st_size < LEAST_SIZE:
            # SQLite takes one that is shorter than its header for a new one, and would write over it. It is
            # not read here: who closes a file gives up all locks that his process has on it (POSIX), and then
            # another process takes itself for the last one, and deletes the log that is still written here.
            raise sqlite3.DatabaseError("file is not a database")
    # What can't be seen so, and a link that leads to itself, is judged when the file has been opened.
    with suppress(sqlite3.Error, RuntimeError):
        way = "mode=ro" if _log_of(path).exists() else "mode=ro&immutable=1"
        with closing(_reader(path, way)) as connection:
            _schema(connection, path)


def _schema(connection: sqlite3.Connection, path: Path) -> int:
    """The schema of a store, 0 of a blank file. Raises `StoreForeign` and `StoreNewer`."""
    # In this order: another process may be making the store, and who sees its tables sees all the rest.
    tables, version, application, own = (
        int(connection.execute(query).fetchone()[0])
        for query in (
            "SELECT count(*) FROM sqlite_master",
            "PRAGMA user_version",
            "PRAGMA application_id",
            "SELECT count(*) = 3 FROM pragma_table_info('record') WHERE name IN ('seq', 'after', 'body')",
        )
    )
    is_unnamed_store = version and own and not application
    if (tables or version or application) and application != APPLICATION and not is_unnamed_store:
        raise StoreForeign(path=path)
    if version > len(MIGRATIONS):
        raise StoreNewer(path=path, found=version, known=len(MIGRATIONS))
    return version


def _opened(path: Path) -> sqlite3.Connection:
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A new file is the person's alone: sessions hold what they said.
            path.touch(mode=0o600)
    except OSError:
        if not path.is_file():
            raise
        return _to_read(path)
    connection = connected(path)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if not _only_reads(error):
            raise
        return _to_read(path)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _said_by(error: sqlite3.Error | OSError | MemoryError) -> str | Words:
    """What is wrong, in both languages; what SQLite says rarely, as it says it."""
    if isinstance(error, OSError):
        # It may be a folder on the way. Words have places for facts; a name is none.
        name = str(error.filename or "").replace("{", "{{").replace("}", "}}")
        english, chinese = why(error)
        return (f"{english}: {name}", f"{chinese}：{name}") if name else (english, chinese)
    # There was no room for the file beside the log; of that, SQLite says no more than "I/O error".
    is_full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE
    told = "database or disk is full" if is_full else str(error) or "out of memory"
    return (told, _TROUBLES[told]) if told in _TROUBLES else told


def _says_read_only(error: sqlite3.Error | OSError | MemoryError) -> bool:
    """Whether only the right to write is missing, and not the file itself."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_READONLY and code != sqlite3.SQLITE_READONLY_DBMOVED


def _only_reads(error: BaseException | None) -> bool:
    """Whether it was raised since the file can't be written; in a folder that can't be written, SQLite can't
    make the files that it needs to write."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


def _to_read(path: Path) -> sqlite3.Connection:
    """A file that can't be written; in a folder that can't either, nobody else is writing it. Where the log
    can't be read in its place, both are read from a copy."""
    with suppress(sqlite3.OperationalError):
        return _reader(path, "mode=ro")
    log = _log_of(path)
    if not log.exists() or not log.stat().st_size:
        return _reader(path, "mode=ro&immutable=1")
    with TemporaryDirectory() as folder:
        copy = Path(folder, "store")
        copyfile(path, copy)
        copyfile(log, _log_of(copy))
        with closing(connected(copy)) as file:
            return _in_memory(file)


def _log_of(path: Path) -> Path:
    """Where SQLite writes first what is to stand in the file; beside the file itself, not a link to it."""
    return Path(f"{path.resolve()}-wal")


def _in_memory(file: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    file.backup(copy)
    return copy


def _reader(path: Path, way: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{way}",
        uri=True,
        timeout=PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def shown_request(message: Message) -> str:
    """What of a request stands in a list of sessions: without secrets, of which a cut would leave a part."""
    return sendable(masked(text_of(message)[: 5 * REQUEST_SHOWN])[:REQUEST_SHOWN])


def _shown(body: str) -> str:
    message = json.loads(body)
    return shown_request(message) if isinstance(message, dict) else ""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def as_text(value: Mapping[str, Any]) -> str:
    # ASCII escapes keep even a lone surrogate, which a provider may send and SQLite can't hold.
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
