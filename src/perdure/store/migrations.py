"""The steps from an empty file to today's schema. A step is never edited, only followed."""

from __future__ import annotations

#: The statements of each step: the first makes schema 1, the next schema 2, and so on.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE session (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            created TEXT NOT NULL
        )""",
        """CREATE TABLE record (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session INTEGER NOT NULL REFERENCES session(id),
            seq INTEGER,             -- number of the entry; NULL for an event
            after INTEGER NOT NULL,  -- the last entry's number before this record
            type TEXT NOT NULL,      -- kind of the entry, or type of the event
            body TEXT NOT NULL,      -- JSON: the message, or the event's fields
            tokens INTEGER NOT NULL DEFAULT 0,
            time TEXT NOT NULL
        )""",
        "CREATE UNIQUE INDEX entry_number ON record (session, seq) WHERE seq IS NOT NULL",
        "CREATE INDEX record_order ON record (session, id)",
    ),
    (
        """CREATE TABLE checkpoint (
            session INTEGER PRIMARY KEY REFERENCES session(id),
            record INTEGER NOT NULL, -- the last record that is in it
            body TEXT NOT NULL       -- JSON: derived from the records, so that opening needn't read them all
        )""",
        """CREATE TABLE learnt (
            model TEXT PRIMARY KEY,
            body TEXT NOT NULL       -- JSON: what the endpoint's own reports have taught of a model
        )""",
    ),
)
