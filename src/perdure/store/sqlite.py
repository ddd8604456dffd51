"""The journal in one SQLite file."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.chat.encodings import sendable
from perdure.chat.messages import Entry, Kind
from perdure.chat.tokens import Usage
from perdure.errors import SessionExists, SessionHeld, StoreError
from perdure.store import forgetting, indexing, leases
from perdure.store.database import Database, as_text, now, shown_request
from perdure.store.journal import (
    LEFT,
    WHOLE,
    Forgotten,
    Instead,
    NewEntry,
    NewEvent,
    Recorded,
    SessionSummary,
)

#: The id of a new session: no passage of another one ever had its numbers.
NEXT_ID = "SELECT max(sessions, coalesce((SELECT max(id) FROM session), 0)) + 1 FROM archive"
RECORDS = (
    "SELECT seq, after, type, body, tokens, time, lane FROM record"
    " WHERE session = :session AND id > :after ORDER BY id"
)
RECORDS_OF_CONVERSATION = RECORDS.replace("ORDER", "AND lane = '' ORDER")
#: What it says twice lets SQLite use the index of lanes.
RECORDS_OF_LANE = RECORDS.replace("ORDER", "AND lane != '' AND lane = :lane ORDER")
#: What is known of each session at a glance, and the sums of what it used. In older records the numbers stand
#: in the record itself, with the prompt's digest in its place.
SUMMARIES = """
    SELECT name, created, changed, entries, turns, size, request, workspace,
        coalesce(prompt, 0), coalesce(completion, 0), coalesce(cached, 0),
        CASE WHEN calls > priced THEN NULL ELSE round(coalesce(cost, 0.0), 12) END
    FROM session LEFT JOIN (
        SELECT of, count(*) AS calls, count(cost) AS priced, total(cost) AS cost,
            sum(prompt) AS prompt, sum(completion) AS completion, sum(cached) AS cached
        FROM (
            SELECT session AS of, json_extract(body, '$.cost') AS cost,
                coalesce(json_extract(body, '$.usage.prompt'),
                    iif(json_type(body, '$.prompt') = 'integer', json_extract(body, '$.prompt'), 0)
                ) AS prompt,
                coalesce(json_extract(body, '$.usage.completion'),
                    json_extract(body, '$.completion')) AS completion,
                coalesce(json_extract(body, '$.usage.cached'), json_extract(body, '$.cached')) AS cached
            FROM record WHERE type = 'usage'
        ) GROUP BY of
    ) ON of = session.id
    ORDER BY newest DESC
"""


class SqliteJournal:
    """`Journal` in the file at ``path``, which is made with its folder where it doesn't exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path)
        #: Which leases are this object's.
        self._token = secrets.token_hex(8)
        self._held: set[str] = set()
        with suppress(StoreError):  # a file that can only be read stays as it is
            indexing.take_form(self._database)
            forgetting.clean_up(self._database)

    def create(
        self,
        session: str,
        settings: Mapping[str, Any],
        entries: Sequence[NewEntry] = (),
        events: Sequence[NewEvent] = (),
    ) -> bool:
        def create(taking_in: bool) -> bool:
            with self._database.transaction() as cursor:
                (id,) = cursor.execute(NEXT_ID).fetchone()
                new = cursor.execute(
                    "INSERT INTO session (id, name, created, workspace) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (name) DO NOTHING",
                    (id, session, now(), str(settings.get("workspace", ""))),
                )
                if new.rowcount:
                    self._write_event(cursor, id, "session.created", settings)
                    self._write(cursor, id, entries, events, taking_in=taking_in)
                return bool(new.rowcount)

        return indexing.taken_in_or_left(create)

    def exists(self, session: str) -> bool:
        with self._database.reading() as cursor:
            query = "SELECT 1 FROM session WHERE name = ?"
            # A name that is no text, as one may come from the command line, nothing has.
            return sendable(session) == session and cursor.execute(query, (session,)).fetchone() is not None

    def hold(self, session: str) -> None:
        with self._database.transaction() as cursor:
            id = self._database.session(cursor, session)
            lease = leases.lease_of(cursor, id)
            if lease and lease.alive:
                raise _held(session, lease)
            leases.take(cursor, id, self._token)
        self._held.add(session)

    def beat(self, session: str) -> None:
        with self._database.transaction() as cursor:
            leases.take(cursor, self._mine(cursor, session), self._token)

    def release(self, session: str) -> None:
        if session not in self._held:
            return
        self._held.discard(session)
        with suppress(StoreError), self._database.transaction() as cursor:
            leases.give_back(cursor, session, self._token)

    def append(
        self,
        session: str,
        entries: Sequence[NewEntry],
        events: Sequence[NewEvent] = (),
        *,
        lane: str = "",
    ) -> list[Entry]:
        def append(taking_in: bool) -> list[Entry]:
            with self._database.transaction() as cursor:
                return self._write(
                    cursor, self._mine(cursor, session), entries, events, taking_in=taking_in, lane=lane
                )

        return indexing.taken_in_or_left(append)

    @indexing.mending
    def record(self, session: str, type: str, body: Mapping[str, Any], *, lane: str = "") -> None:
        with self._database.transaction() as cursor:
            id = self._mine(cursor, session)
            self._write_event(cursor, id, type, body, lane)
            if type == "turn.undone":
                indexing.drop(cursor, id, range(body["first"], body["last"] + 1))
                forgetting.count(cursor, id)

    def records(self, session: str, lane: str | None = None) -> Iterator[Entry | Recorded]:
        return self._records(session, 0, lane)

    def entries(self, session: str, numbers: Sequence[int]) -> list[Entry]:
        with self._database.reading() as cursor:
            id = self._database.session(cursor, session)
            found: list[Entry] = []
            for number in numbers:
                row = cursor.execute(
                    "SELECT seq, type, body, tokens, time, lane FROM record WHERE session = ? AND seq = ?",
                    (id, number),
                ).fetchone()
                if row:
                    found.append(Entry(row[0], Kind(row[1]), json.loads(row[2]), *row[3:]))
            return found

    def whole(self, session: str, number: int) -> str | None:
        query = "SELECT body FROM record WHERE session = ? AND type = ? AND after = ? AND seq IS NULL"
        with self._database.reading() as cursor:
            id = self._database.session(cursor, session)
            row = cursor.execute(query, (id, WHOLE, number)).fetchone()
            return str(json.loads(row[0])["text"]) if row else None

    def entry_of(self, session: str, name: str) -> int | None:
        query = (
            "SELECT after FROM record WHERE session = ? AND type = ? AND seq IS NULL"
            " AND json_extract(body, '$.name') = ? ORDER BY id DESC LIMIT 1"
        )
        with self._database.reading() as cursor:
            row = cursor.execute(query, (self._database.session(cursor, session), WHOLE, name)).fetchone()
            return int(row[0]) if row else None

    def checkpoint(self, session: str, body: Mapping[str, Any]) -> None:
        with self._database.transaction() as cursor:
            id = self._mine(cursor, session)
            cursor.execute(
                "INSERT INTO checkpoint (session, record, body)"
                " SELECT ?, max(id), ? FROM record WHERE session = ?"
                " ON CONFLICT (session) DO UPDATE SET record = excluded.record, body = excluded.body",
                (id, as_text(body), id),
            )

    def since_checkpoint(self, session: str) -> tuple[Mapping[str, Any] | None, Iterator[Entry | Recorded]]:
        with self._database.reading() as cursor:
            id = self._database.session(cursor, session)
            query = "SELECT record, body FROM checkpoint WHERE session = ?"
            row = cursor.execute(query, (id,)).fetchone()
        if row is None:
            return None, self.records(session, "")
        return json.loads(row[1]), self._records(session, row[0], "")

    def learn(self, model: str, body: Mapping[str, Any]) -> None:
        with self._database.transaction() as cursor:
            cursor.execute(
                "INSERT INTO learnt (model, body) VALUES (?, ?)"
                " ON CONFLICT (model) DO UPDATE SET body = excluded.body",
                (model, as_text(body)),
            )

    def learnt(self, model: str) -> Mapping[str, Any]:
        with self._database.reading() as cursor:
            query = "SELECT body FROM learnt WHERE model = ?"
            row = cursor.execute(query, (model,)).fetchone()
            found: dict[str, Any] = json.loads(row[0]) if row else {}
            return found

    @indexing.mending
    def fork(self, session: str, new: str, at: int) -> None:
        with self._database.transaction() as cursor:
            old = self._database.session(cursor, session)
            row = cursor.execute("SELECT id FROM record WHERE session = ? AND seq = ?", (old, at)).fetchone()
            if row is None:
                raise ValueError(f"the session {session!r} has no entry {at}")
            taken = cursor.execute("SELECT 1 FROM session WHERE name = ?", (new,)).fetchone()
            if taken:
                raise SessionExists(name=new, path=self.path)
            (id,) = cursor.execute(NEXT_ID).fetchone()
            cursor.execute(
                "INSERT INTO session (id, name, created, workspace)"
                " SELECT ?, ?, ?, workspace FROM session WHERE id = ?",
                (id, new, now(), old),
            )
            cursor.execute(
                "INSERT INTO record (session, seq, after, type, body, tokens, time, forgotten, lane)"
                " SELECT ?, seq, after, type, body, tokens, time, forgotten, lane FROM record"
                " WHERE session = ? AND id <= ? ORDER BY id",
                (id, old, _told_of(cursor, old, at, row[0])),
            )
            forgetting.count(cursor, id)
            # What was taken back later stands in the fork, and isn't in the archive: it is taken in anew.
            gone = indexing.undone(cursor, old, since=row[0])
            indexing.copy(cursor, old, id, min([at, *(number - 1 for number in gone)]))
            self._write_event(cursor, id, "session.forked", {"from": session, "at": at})

    def reached(
        self, session: str, numbers: Sequence[int], *, forks: bool = True
    ) -> Mapping[str, Sequence[int]]:
        with self._database.reading() as cursor:
            id = self._database.session(cursor, session)
            places = forgetting.found(cursor, id, numbers, forks=forks)
            return {self._name(cursor, id): sorted(found) for id, found in places.items()}

    @indexing.mending
    def forget(self, session: str, numbers: Sequence[int], instead: Instead) -> Forgotten:
        with self._database.transaction() as cursor:
            places = forgetting.found(cursor, self._database.session(cursor, session), numbers)
            forgotten = self._forget(cursor, places, instead)
            forgetting.leaves_traces(cursor)
        return replace(forgotten, lingers=not forgetting.leave_no_trace(self._database))

    @indexing.mending
    def remove(self, session: str, instead: Instead) -> Forgotten:
        with self._database.transaction() as cursor:
            id = self._mine(cursor, session)
            (last,) = cursor.execute("SELECT entries FROM session WHERE id = ?", (id,)).fetchone()
            places = forgetting.found(cursor, id, range(1, last + 1), forks=False)
            del places[id]
            elsewhere = self._forget(cursor, places, instead)
            indexing.drop_all(cursor, id)
            forgetting.remove(cursor, id, session)
            forgetting.leaves_traces(cursor)
        self._held.discard(session)
        gone = forgetting.leave_no_trace(self._database)
        return Forgotten({session: range(1, last + 1), **elsewhere.entries}, elsewhere.summaries, not gone)

    def sessions(self) -> list[SessionSummary]:
        with self._database.reading() as cursor:
            rows = cursor.execute(SUMMARIES).fetchall()
        return [
            replace(SessionSummary(*glance), usage=Usage(prompt, completion, cached), cost=cost)
            for *glance, prompt, completion, cached, cost in rows
        ]

    def close(self) -> None:
        for session in tuple(self._held):
            self.release(session)
        self._database.close()

    def _records(self, session: str, after: int, lane: str | None) -> Iterator[Entry | Recorded]:
        with self._database.errors():
            cursor = self._database.connection.cursor()
            rows = cursor.execute(
                RECORDS if lane is None else RECORDS_OF_LANE if lane else RECORDS_OF_CONVERSATION,
                {"session": self._database.session(cursor, session), "after": after, "lane": lane},
            )
            for seq, before, type, body, tokens, time, stands_in in rows:
                if seq is None:
                    yield Recorded(type, before, json.loads(body), time, stands_in)
                else:
                    yield Entry(seq, Kind(type), json.loads(body), tokens, time, stands_in)

    def _write(
        self,
        cursor: sqlite3.Cursor,
        id: int,
        entries: Sequence[NewEntry],
        events: Sequence[NewEvent],
        *,
        taking_in: bool,
        lane: str = "",
    ) -> list[Entry]:
        written: list[Entry] = []
        query = "SELECT entries, indexed FROM session WHERE id = ?"
        last, indexed = cursor.execute(query, (id,)).fetchone()
        size = 0
        for seq, (kind, message, tokens, *given) in enumerate(entries, last + 1):
            time = str(given[0]) if given and given[0] else now()
            stands_in = str(given[1]) if len(given) > 1 else lane
            entry = Entry(seq, kind, message, tokens, time, stands_in)
            text = as_text(message)
            cursor.execute(
                "INSERT INTO record (session, seq, after, type, body, tokens, time, lane)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (id, seq, seq - 1, kind.value, text, tokens, time, stands_in),
            )
            size += len(text)
            written.append(entry)
        if written:
            self._take_note(cursor, id, written, size)
            # Many at once are taken in when they are first looked for: nobody waits so long for the file.
            if taking_in and indexed == last and len(written) <= indexing.AT_ONCE:
                indexing.index(cursor, id, written)
        for type, body in events:
            self._write_event(cursor, id, type, body, lane)
        return written

    def _write_event(
        self, cursor: sqlite3.Cursor, id: int, type: str, body: Mapping[str, Any], lane: str = ""
    ) -> None:
        text, time = as_text(body), now()
        cursor.execute(
            "INSERT INTO record (session, after, type, body, time, lane)"
            " SELECT id, entries, ?, ?, ?, ? FROM session WHERE id = ?",
            (type, text, time, lane, id),
        )
        cursor.execute(
            "UPDATE session SET size = size + ?, changed = ?, newest = ? WHERE id = ?",
            (len(text), time, cursor.lastrowid, id),
        )

    def _take_note(self, cursor: sqlite3.Cursor, id: int, written: Sequence[Entry], size: int) -> None:
        """What is known of the session at a glance."""
        newest = cursor.lastrowid
        asked = [entry.message for entry in written if entry.kind is Kind.USER]
        cursor.execute(
            "UPDATE session SET entries = ?, turns = turns + ?, size = size + ?, changed = ?, newest = ?"
            " WHERE id = ?",
            (written[-1].seq, len(asked), size, now(), newest, id),
        )
        if asked:
            request = shown_request(asked[-1])
            cursor.execute("UPDATE session SET request = ? WHERE id = ?", (request, id))

    def _mine(self, cursor: sqlite3.Cursor, session: str) -> int:
        """The id of a session that may be written here. Raises `SessionHeld`."""
        id = self._database.session(cursor, session)
        lease = leases.lease_of(cursor, id)
        lost = session in self._held and (lease is None or lease.token != self._token)
        if lease and lease.token != self._token and (lost or lease.alive):
            raise _held(session, lease)
        return id

    def _forget(
        self, cursor: sqlite3.Cursor, places: Mapping[int, Collection[int]], instead: Instead
    ) -> Forgotten:
        names = {id: self._name(cursor, id) for id in places}
        for name in names.values():
            self._mine(cursor, name)
        summaries = 0
        for id, numbers in places.items():
            glance = "SELECT changed, newest FROM session WHERE id = ?"
            worked = cursor.execute(glance, (id,)).fetchone()
            summaries += forgetting.forget(cursor, id, numbers, instead)
            self._write_event(cursor, id, "forgotten", {"entries": sorted(numbers)})
            # Nobody has worked in it: what is gone on with stays the one that it was.
            cursor.execute("UPDATE session SET changed = ?, newest = ? WHERE id = ?", (*worked, id))
        return Forgotten({names[id]: sorted(numbers) for id, numbers in places.items()}, summaries)

    def _name(self, cursor: sqlite3.Cursor, id: int) -> str:
        return str(cursor.execute("SELECT name FROM session WHERE id = ?", (id,)).fetchone()[0])


def _held(session: str, lease: leases.Lease) -> SessionHeld:
    machine, since = lease.machine.partition(" ")[0], lease.since[:19]
    return SessionHeld(name=session, process=lease.process, machine=machine, since=since)


def _told_of(cursor: sqlite3.Cursor, session: int, number: int, record: int) -> int:
    """The record up to which an entry goes: where an excerpt stands before it or is in it, the event that
    says whose words these are; where it is a tool's result, what that left beside it; else its own."""
    row = cursor.execute(
        "SELECT max(id) FROM record WHERE session = ? AND id > ? AND type IN ('recall', ?, ?)"
        " AND seq IS NULL AND after = ?",
        (session, record, WHOLE, LEFT, number),
    ).fetchone()
    return int(row[0] or record)
