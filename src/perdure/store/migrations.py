"""The steps from an empty file to today's schema. A step is never edited, only followed.

`shown_request` is `perdure.store.database.shown_request` of a message's JSON, which SQLite is lent.
"""

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
    (
        # What is known of a session at a glance, so that a list needn't read them all.
        "ALTER TABLE session ADD COLUMN workspace TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE session ADD COLUMN entries INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE session ADD COLUMN turns INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE session ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE session ADD COLUMN request TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE session ADD COLUMN changed TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE session ADD COLUMN newest INTEGER NOT NULL DEFAULT 0",  # id of its last record
        """UPDATE session SET
            workspace = coalesce((SELECT json_extract(body, '$.workspace') FROM record
                WHERE session = session.id AND type = 'session.created' LIMIT 1), ''),
            entries = (SELECT count(seq) FROM record WHERE session = session.id),
            turns = (SELECT count(seq) FROM record WHERE session = session.id AND type = 'user'),
            size = (SELECT coalesce(sum(length(body)), 0) FROM record WHERE session = session.id),
            request = coalesce((SELECT shown_request(body) FROM record
                WHERE session = session.id AND type = 'user' ORDER BY id DESC LIMIT 1), ''),
            changed = coalesce((SELECT max(time) FROM record WHERE session = session.id), created),
            newest = coalesce((SELECT max(id) FROM record WHERE session = session.id), 0)
        """,
        "CREATE INDEX session_newest ON session (newest)",
        "ALTER TABLE record ADD COLUMN forgotten TEXT",  # when the entry's words were removed
        """CREATE TABLE lease (
            session INTEGER PRIMARY KEY REFERENCES session(id) ON DELETE CASCADE,
            token TEXT NOT NULL,
            machine TEXT NOT NULL,
            process INTEGER NOT NULL,
            started TEXT NOT NULL,   -- of the process, so that another of the same number is another
            since TEXT NOT NULL,
            beat REAL NOT NULL       -- seconds since 1970
        )""",
        # The archive: derived from the entries, and made anew where it is missing or of an older form.
        "ALTER TABLE session ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0",  # the last entry in it
        "ALTER TABLE session ADD COLUMN passages INTEGER NOT NULL DEFAULT 0",
        # The last number that a passage was given: none is given twice, so no vector comes to another's.
        "ALTER TABLE session ADD COLUMN numbered INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE session ADD COLUMN words INTEGER NOT NULL DEFAULT 0",  # in all its passages
        """CREATE TABLE passage (
            id INTEGER PRIMARY KEY,  -- session << 32 | its number in the session
            seq INTEGER NOT NULL,
            part INTEGER NOT NULL,
            kind TEXT NOT NULL,
            time TEXT NOT NULL,
            text TEXT NOT NULL,
            words TEXT NOT NULL,     -- as they are searched, spaces between them
            embedder INTEGER NOT NULL DEFAULT 0  -- whose vector there is, 0 for none
        )""",
        "CREATE INDEX passage_embedder ON passage (embedder)",
        r"""CREATE VIRTUAL TABLE passage_words USING fts5(
            words, content = '', detail = none,
            tokenize = "ascii tokenchars '!#$%&()*+,-./:;<=>?@[\]^_`{|}~'"
        )""",
        """CREATE TABLE embedder (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            centre BLOB              -- little-endian float32: what the signs are taken from; NULL for few
        )""",
        """CREATE TABLE vector (
            id INTEGER PRIMARY KEY AUTOINCREMENT,  -- in the order in which they came
            passage INTEGER NOT NULL UNIQUE,
            embedder INTEGER NOT NULL,
            body BLOB NOT NULL       -- little-endian float16
        )""",
        # Whether each number of a vector is above the centre: of most, a search in many reads nothing else.
        """CREATE TABLE sign (
            vector INTEGER PRIMARY KEY,
            passage INTEGER NOT NULL,
            embedder INTEGER NOT NULL,
            bits BLOB NOT NULL
        )""",
        """CREATE TRIGGER vector_gone AFTER DELETE ON vector BEGIN
            DELETE FROM sign WHERE vector = old.id;
        END""",
        # dropped: counted up when vectors go, so that who has read them begins anew.
        # sessions: the highest id of a session that is gone, so that none is given twice either.
        """CREATE TABLE archive (
            form INTEGER NOT NULL,
            dropped INTEGER NOT NULL,
            sessions INTEGER NOT NULL DEFAULT 0
        )""",
        "INSERT INTO archive (form, dropped) VALUES (0, 0)",
        """CREATE TRIGGER session_gone AFTER DELETE ON session BEGIN
            UPDATE archive SET sessions = max(sessions, old.id);
        END""",
    ),
    (
        # Each search among several sessions asks who was forked from whom.
        "CREATE INDEX record_forked ON record (session) WHERE type = 'session.forked'",
        # What was removed since the file was last cleaned of it: 0 when nothing is left in it.
        "ALTER TABLE archive ADD COLUMN traces INTEGER NOT NULL DEFAULT 0",
    ),
    (
        # In whose window a record stands: the conversation's own (empty), or that of a step of a plan.
        "ALTER TABLE record ADD COLUMN lane TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX record_lane ON record (session, lane) WHERE lane != ''",
        # A list of sessions sums up what each one used.
        "CREATE INDEX record_usage ON record (session) WHERE type = 'usage'",
    ),
)
