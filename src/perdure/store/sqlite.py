"""The journal in one SQLite file.

WAL with `synchronous=FULL`: a commit that returned has reached the disk. Python's own `sqlite3`
is enough; no extension is loaded.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.chat.messages import Entry, Kind
from perdure.errors import SessionUnknown, StoreError, StoreNewer
from perdure.store.journal import NewEntry, Recorded, SessionSummary
from perdure.store.migrations import MIGRATIONS


class SqliteJournal:
    """`Journal` in the file at ``path``, which is made with its folder where it doesn't exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A new file is the person's alone: sessions hold what they said.
            path.touch(mode=0o600, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=10.0, isolation_level=None)
        try:
            with self._errors():
                self._migrate()
        except StoreError:
            self._connection.close()
            raise

    def create(self, session: str, settings: Mapping[str, Any]) -> None:
        with self._transaction() as cursor:
            new = cursor.execute(
                "INSERT INTO session (name, created) VALUES (?, ?) ON CONFLICT DO NOTHING", (session, _now())
            )
            if new.rowcount:
                self._write_event(cursor, cursor.lastrowid or 0, "session.created", settings)

    def exists(self, session: str) -> bool:
        with self._errors():
            query = "SELECT 1 FROM session WHERE name = ?"
            return self._connection.execute(query, (session,)).fetchone() is not None

    def append(self, session: str, entries: Sequence[NewEntry]) -> list[Entry]:
        written: list[Entry] = []
        with self._transaction() as cursor:
            id = self._id(cursor, session)
            last = self._last(cursor, id)
            for seq, (kind, message, tokens) in enumerate(entries, last + 1):
                entry = Entry(seq, kind, message, tokens, _now())
                row = (id, seq, seq - 1, kind.value, _json(message), tokens, entry.time)
                cursor.execute(
                    "INSERT INTO record (session, seq, after, type, body, tokens, time)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
                written.append(entry)
        return written

    def record(self, session: str, type: str, body: Mapping[str, Any]) -> None:
        with self._transaction() as cursor:
            self._write_event(cursor, self._id(cursor, session), type, body)

    def records(self, session: str) -> Iterator[Entry | Recorded]:
        return self._records(session, 0)

    def entries(self, session: str, numbers: Sequence[int]) -> list[Entry]:
        with self._errors():
            id = self._id(self._connection.cursor(), session)
            found: list[Entry] = []
            for number in numbers:
                row = self._connection.execute(
                    "SELECT seq, type, body, tokens, time FROM record WHERE session = ? AND seq = ?",
                    (id, number),
                ).fetchone()
                if row:
                    found.append(Entry(row[0], Kind(row[1]), json.loads(row[2]), row[3], row[4]))
            return found

    def checkpoint(self, session: str, body: Mapping[str, Any]) -> None:
        with self._transaction() as cursor:
            id = self._id(cursor, session)
            cursor.execute(
                "INSERT INTO checkpoint (session, record, body)"
                " SELECT ?, max(id), ? FROM record WHERE session = ?"
                " ON CONFLICT (session) DO UPDATE SET record = excluded.record, body = excluded.body",
                (id, _json(body), id),
            )

    def since_checkpoint(self, session: str) -> tuple[Mapping[str, Any] | None, Iterator[Entry | Recorded]]:
        with self._errors():
            id = self._id(self._connection.cursor(), session)
            query = "SELECT record, body FROM checkpoint WHERE session = ?"
            row = self._connection.execute(query, (id,)).fetchone()
        if row is None:
            return None, self.records(session)
        return json.loads(row[1]), self._records(session, row[0])

    def learn(self, model: str, body: Mapping[str, Any]) -> None:
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO learnt (model, body) VALUES (?, ?)"
                " ON CONFLICT (model) DO UPDATE SET body = excluded.body",
                (model, _json(body)),
            )

    def learnt(self, model: str) -> Mapping[str, Any]:
        with self._errors():
            query = "SELECT body FROM learnt WHERE model = ?"
            row = self._connection.execute(query, (model,)).fetchone()
            found: dict[str, Any] = json.loads(row[0]) if row else {}
            return found

    def sessions(self) -> list[SessionSummary]:
        with self._errors():
            rows = self._connection.execute(
                "SELECT name, created, max(time), count(seq), count(CASE WHEN type = ? THEN 1 END)"
                " FROM session JOIN record ON record.session = session.id"
                " GROUP BY session.id ORDER BY max(record.id) DESC",
                (Kind.USER.value,),
            )
            return [SessionSummary(*row) for row in rows]

    def close(self) -> None:
        self._connection.close()

    def _records(self, session: str, after: int) -> Iterator[Entry | Recorded]:
        with self._errors():
            id = self._id(self._connection.cursor(), session)
            rows = self._connection.execute(
                "SELECT seq, after, type, body, tokens, time FROM record WHERE session = ? AND id > ?"
                " ORDER BY id",
                (id, after),
            )
            for seq, before, type, body, tokens, time in rows:
                if seq is None:
                    yield Recorded(type, before, json.loads(body), time)
                else:
                    yield Entry(seq, Kind(type), json.loads(body), tokens, time)

    def _migrate(self) -> None:
        if self._version() > len(MIGRATIONS):
            raise StoreNewer(path=self.path, found=self._version(), known=len(MIGRATIONS))
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        if self._version() < len(MIGRATIONS):
            with self._transaction() as cursor:
                # Read again: another process may have migrated while this one waited for the lock.
                for step in MIGRATIONS[self._version() :]:
                    for statement in step:
                        cursor.execute(statement)
                cursor.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _write_event(self, cursor: sqlite3.Cursor, id: int, type: str, body: Mapping[str, Any]) -> None:
        row = (id, self._last(cursor, id), type, _json(body), _now())
        cursor.execute("INSERT INTO record (session, after, type, body, time) VALUES (?, ?, ?, ?, ?)", row)

    def _id(self, cursor: sqlite3.Cursor, session: str) -> int:
        row = cursor.execute("SELECT id FROM session WHERE name = ?", (session,)).fetchone()
        if row is None:
            raise SessionUnknown(name=session, path=self.path)
        return int(row[0])

    def _last(self, cursor: sqlite3.Cursor, id: int) -> int:
        query = "SELECT coalesce(max(seq), 0) FROM record WHERE session = ? AND seq IS NOT NULL"
        return int(cursor.execute(query, (id,)).fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._errors():
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(str(error), path=self.path) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _json(value: Mapping[str, Any]) -> str:
    # ASCII escapes keep even a lone surrogate, which a provider may send and SQLite can't hold.
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
