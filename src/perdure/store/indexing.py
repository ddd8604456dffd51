"""Entries become passages with their words, in the transaction that writes them.

What is derived here can be made anew: where entries were written before there was an archive, or where
its form has changed, they are taken in when they are first looked for; and where the index of words turns
out to be broken, it is written anew from the passages.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from perdure.chat.messages import Entry, Kind
from perdure.errors import StoreError
from perdure.memory.passages import searchable
from perdure.memory.words import passages_of, words_of
from perdure.store.database import Database

#: The form of passages and words. Whoever changes how a text is cut or segmented counts it up.
FORM = 2
#: Bits of a passage's id that are its number in its session.
NUMBER = 32
#: Entries that are taken in at once, so that nobody waits long for the file.
AT_ONCE = 200
#: SQLite's codes where FTS5 finds what it keeps in its tables broken; with a code of its own, or without.
BROKEN = {
    sqlite3.SQLITE_CORRUPT_VTAB,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_ERROR,
}

Given = ParamSpec("Given")
Gives = TypeVar("Gives")


class Keeping(Protocol):
    _database: Database


Keeper = TypeVar("Keeper", bound=Keeping)


def ids_of(session: int) -> tuple[int, int]:
    """The first and the last id that passages of a session can have."""
    return session << NUMBER, (session + 1 << NUMBER) - 1


def take_form(database: Database) -> None:
    """Begin anew where the archive is of another form, or its index of words broken."""
    mended(database, partial(_look_for_a_word, database))
    with database.reading() as cursor:
        if _form(cursor) == FORM:
            return
    with database.transaction() as cursor:
        if _form(cursor) != FORM:
            cursor.execute("DELETE FROM vector")
            cursor.execute("INSERT INTO passage_words (passage_words) VALUES ('delete-all')")
            cursor.execute("DELETE FROM passage")
            cursor.execute("UPDATE session SET indexed = 0, passages = 0, words = 0")
            cursor.execute("UPDATE archive SET form = ?, dropped = dropped + 1", (FORM,))


def mended(database: Database, work: Callable[[], Gives]) -> Gives:
    """What ``work`` gives, which writes all or nothing. Where the index of words is broken, it is written
    anew and the work done again."""
    try:
        return work()
    except StoreError as error:
        if not _is_broken(error):
            raise
    with suppress(StoreError), database.transaction() as cursor:  # what stays broken is told by the work
        write_words_anew(cursor)
    return work()


def mending(
    method: Callable[Concatenate[Keeper, Given], Gives],
) -> Callable[Concatenate[Keeper, Given], Gives]:
    """A method that is `mended`."""

    def mending(self: Keeper, /, *args: Given.args, **kwargs: Given.kwargs) -> Gives:
        return mended(self._database, partial(method, self, *args, **kwargs))

    update_wrapper(mending, method)
    return mending


def taken_in_or_left(write: Callable[[bool], Gives]) -> Gives:
    """What ``write`` gives, which is told whether to take in what it writes. Where that breaks it is left to
    `catch_up`: the journal is written whatever has become of what is made from it."""
    try:
        return write(True)
    except StoreError as error:
        if not _is_broken(error):
            raise
        return write(False)


def write_words_anew(cursor: sqlite3.Cursor) -> None:
    """Write the index of words of all passages anew."""
    # Where its own records are broken, no statement opens the index, not even one that would empty it: those
    # of an empty one come first (fts5_index.c, "STRUCTURE RECORD").
    cursor.execute("INSERT OR REPLACE INTO passage_words_data (id, block) VALUES (10, zeroblob(7))")
    cursor.execute("INSERT OR REPLACE INTO passage_words_config (k, v) VALUES ('version', 4)")
    cursor.execute("INSERT INTO passage_words (passage_words) VALUES ('delete-all')")
    cursor.execute("INSERT INTO passage_words (rowid, words) SELECT id, words FROM passage")


def index(cursor: sqlite3.Cursor, session: int, entries: Sequence[Entry]) -> None:
    """Take in the entries that follow the last one that was."""
    (numbered,) = cursor.execute("SELECT numbered FROM session WHERE id = ?", (session,)).fetchone()
    id = (session << NUMBER) + numbered
    rows, words = [], 0
    for entry, tool in _with_tools(cursor, session, entries):
        text = searchable(entry.kind, entry.message, tool)
        for part, (start, stop) in enumerate(passages_of(text) if text.strip() else ()):
            id += 1
            found = words_of(text[start:stop])
            words += len(found)
            rows.append(
                (id, entry.seq, part, entry.kind.value, entry.time, text[start:stop], " ".join(found))
            )
    cursor.executemany(
        "INSERT INTO passage (id, seq, part, kind, time, text, words) VALUES (?, ?, ?, ?, ?, ?, ?)", rows
    )
    cursor.executemany(
        "INSERT INTO passage_words (rowid, words) VALUES (?, ?)", ((row[0], row[-1]) for row in rows)
    )
    cursor.execute(
        "UPDATE session SET indexed = ?, passages = passages + ?, words = words + ?, numbered = numbered + ?"
        " WHERE id = ?",
        (entries[-1].seq if entries else 0, len(rows), words, len(rows), session),
    )


def catch_up(database: Database, sessions: Iterable[int]) -> None:
    """Take in what was written before there was an archive of today's form, or left."""
    for session in sessions:
        while mended(database, partial(_take_some_in, database, session)):
            pass


def _take_some_in(database: Database, session: int) -> bool:
    """Take in the next entries of a session that aren't yet; False where there are none."""
    with database.transaction() as cursor:
        rows = cursor.execute(
            "SELECT seq, type, body, tokens, time, lane, forgotten FROM record WHERE session = ?"
            " AND seq > (SELECT indexed FROM session WHERE id = ?) ORDER BY seq LIMIT ?",
            (session, session, AT_ONCE),
        ).fetchall()
        if not rows:
            return False
        gone = undone(cursor, session)
        kept = [row[:6] for row in rows if not row[6] and row[0] not in gone]
        index(cursor, session, [_entry(*row) for row in kept])
        cursor.execute("UPDATE session SET indexed = ? WHERE id = ?", (rows[-1][0], session))
        return True


def drop(cursor: sqlite3.Cursor, session: int, numbers: Iterable[int]) -> None:
    """Take entries out of the archive: their passages, words and vectors."""
    chosen = frozenset(numbers)
    query = "SELECT id, words, seq FROM passage WHERE id BETWEEN ? AND ?"
    rows = cursor.execute(query, ids_of(session)).fetchall()
    _drop(cursor, session, [row[:2] for row in rows if row[2] in chosen])


def drop_all(cursor: sqlite3.Cursor, session: int) -> None:
    """Take a whole session out of the archive."""
    query = "SELECT id, words FROM passage WHERE id BETWEEN ? AND ?"
    _drop(cursor, session, cursor.execute(query, ids_of(session)).fetchall())


def copy(cursor: sqlite3.Cursor, old: int, new: int, last: int) -> None:
    """The passages of a session up to entry ``last``, for another one that has the same entries."""
    shift = (new - old) << NUMBER
    first, highest = ids_of(old)
    chosen = (first, highest, last)
    cursor.execute(
        "INSERT INTO passage SELECT id + ?, seq, part, kind, time, text, words, embedder FROM passage"
        " WHERE id BETWEEN ? AND ? AND seq <= ?",
        (shift, *chosen),
    )
    cursor.execute(
        "INSERT INTO passage_words (rowid, words) SELECT id, words FROM passage WHERE id BETWEEN ? AND ?",
        ids_of(new),
    )
    cursor.execute(
        "INSERT INTO vector (passage, embedder, body)"
        " SELECT passage + ?, embedder, body FROM vector WHERE passage IN"
        " (SELECT id FROM passage WHERE id BETWEEN ? AND ? AND seq <= ?)",
        (shift, *chosen),
    )
    cursor.execute(
        "INSERT INTO sign SELECT copied.id, copied.passage, sign.embedder, sign.bits FROM vector AS copied"
        " JOIN vector ON vector.passage = copied.passage - ? JOIN sign ON sign.vector = vector.id"
        " WHERE copied.passage BETWEEN ? AND ?",
        (shift, *ids_of(new)),
    )
    cursor.execute(
        "UPDATE session SET (passages, words) ="
        " (SELECT count(*), coalesce(sum(CASE words WHEN '' THEN 0"
        " ELSE length(words) - length(replace(words, ' ', '')) + 1 END), 0)"
        " FROM passage WHERE id BETWEEN ? AND ?),"
        " (indexed, numbered) = (SELECT min(indexed, ?), numbered FROM session WHERE id = ?) WHERE id = ?",
        (*ids_of(new), last, old, new),
    )


def _drop(cursor: sqlite3.Cursor, session: int, rows: Sequence[tuple[int, str]]) -> None:
    cursor.executemany(
        "INSERT INTO passage_words (passage_words, rowid, words) VALUES ('delete', ?, ?)", rows
    )
    cursor.executemany("DELETE FROM vector WHERE passage = ?", ((id,) for id, _ in rows))
    cursor.executemany("DELETE FROM passage WHERE id = ?", ((id,) for id, _ in rows))
    cursor.execute("UPDATE archive SET dropped = dropped + 1")
    words = sum(len(row[1].split()) for row in rows)
    cursor.execute(
        "UPDATE session SET passages = passages - ?, words = words - ? WHERE id = ?",
        (len(rows), words, session),
    )


def _with_tools(
    cursor: sqlite3.Cursor, session: int, entries: Sequence[Entry]
) -> Iterable[tuple[Entry, str]]:
    """Each entry with the name of the tool whose result it is."""
    of_lane: dict[str, dict[str, str]] = {}
    for entry in entries:
        if entry.kind is Kind.TOOL_CALL:
            of_lane[entry.lane] = _names(entry.message)
        elif entry.kind is Kind.TOOL_RESULT and entry.lane not in of_lane:
            row = cursor.execute(
                "SELECT body FROM record WHERE session = ? AND seq < ? AND type = ? AND lane = ?"
                " ORDER BY seq DESC LIMIT 1",
                (session, entry.seq, Kind.TOOL_CALL.value, entry.lane),
            ).fetchone()
            of_lane[entry.lane] = _names(json.loads(row[0])) if row else {}
        yield entry, of_lane.get(entry.lane, {}).get(entry.message.get("tool_call_id", ""), "")


def _names(message: dict[str, object]) -> dict[str, str]:
    calls = message.get("tool_calls")
    return {call["id"]: call["function"]["name"] for call in calls} if isinstance(calls, list) else {}


def undone(cursor: sqlite3.Cursor, session: int, since: int = 0) -> frozenset[int]:
    """Numbers of the entries of turns that were taken back, ``since`` a record."""
    rows = cursor.execute(
        "SELECT body FROM record WHERE session = ? AND type = 'turn.undone' AND id > ?", (session, since)
    )
    spans = (json.loads(row[0]) for row in rows)
    return frozenset(number for span in spans for number in range(span["first"], span["last"] + 1))


def _entry(seq: int, type: str, body: str, *about: Any) -> Entry:
    """``about``: tokens, time and lane."""
    return Entry(seq, Kind(type), json.loads(body), *about)


def _look_for_a_word(database: Database) -> None:
    """Look for any word: it opens the index."""
    with database.reading() as cursor:
        cursor.execute("SELECT 1 FROM passage_words WHERE passage_words MATCH '\"?\"' LIMIT 1").fetchall()


def _is_broken(error: StoreError) -> bool:
    # Of damaged records that promise a lot, SQLite says that there isn't enough memory.
    is_too_much = isinstance(error.__cause__, MemoryError)
    return is_too_much or getattr(error.__cause__, "sqlite_errorcode", None) in BROKEN


def _form(cursor: sqlite3.Cursor) -> int:
    return int(cursor.execute("SELECT form FROM archive").fetchone()[0])
