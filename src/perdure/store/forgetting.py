"""Remove words for good, and everything that was made from them: the only exception to append-only.

An entry keeps its number, kind and place, so that what refers to it still holds, and loses what it
said. What may repeat it goes with it: summaries that were written since, the notes of compactions,
the checkpoint, excerpts of it in any session, and the same entries in forks.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from perdure.chat.messages import Entry, Kind
from perdure.chat.plans import request_of
from perdure.errors import StoreError
from perdure.store import indexing
from perdure.store.database import Database, as_text, connected, now, shown_request
from perdure.store.journal import LEFT, WHOLE, Instead

#: Levels of the index of words from which it is written anew: each time it is put in order it gets one or
#: two more, and with 2,000 an older SQLite takes it for damaged.
MOST_LEVELS = 500

#: What the plan for a request showed behind an entry: in the lanes of its steps, and in the conversation
#: from when it was made until it was over.
SHOWN_BY_PLANS = """
    WITH of_plan (first, last) AS (
        SELECT min(id), max(id) FROM record WHERE session = :session AND type = 'plan' AND seq IS NULL
        AND json_extract(body, '$.request') = :request
    )
    SELECT seq FROM record, of_plan WHERE session = :session AND seq > :number AND type = :plan AND (
        lane GLOB :lanes OR lane = '' AND id > first AND id < coalesce((
            SELECT min(id) FROM record WHERE session = :session AND type = 'plan.over' AND seq IS NULL
            AND id > last
        ), id + 1)
    )"""

#: Ids of sessions to numbers of entries.
Places = dict[int, set[int]]
#: Where entries of a session, by its id, stand as well.
Near = Callable[[int, Collection[int]], Iterable[tuple[int, set[int]]]]


def found(cursor: sqlite3.Cursor, session: int, numbers: Collection[int], *, forks: bool = True) -> Places:
    """Where these entries, excerpts of them, what plans showed of them, and what was objected to them stand.
    Without ``forks``, which stay whole then, nor does an excerpt go from a session that holds the very entry
    itself."""
    holders = {} if forks else _holders(cursor, session, numbers)

    def near(id: int, some: Collection[int]) -> Iterator[tuple[int, set[int]]]:
        yield id, _objections(cursor, id, some)
        yield id, _plans(cursor, id, some)
        if forks:
            yield from _forks(cursor, id, some)
        yield from _quotes(cursor, id, some, holders if id == session else {})

    return _reached(session, numbers, near)


def _holders(cursor: sqlite3.Cursor, session: int, numbers: Collection[int]) -> Places:
    """The sessions that hold these very entries, since one was forked from another."""
    return _reached(session, numbers, partial(_forks, cursor))


def _reached(session: int, numbers: Collection[int], near: Near) -> Places:
    places: Places = {session: set(numbers)}
    waiting = [session]
    while waiting:
        id = waiting.pop()
        # As they are now: what is near may be in the same session.
        for other, more in near(id, frozenset(places[id])):
            known = places.setdefault(other, set())
            if not more <= known:
                known |= more
                waiting.append(other)
    return places


def forget(cursor: sqlite3.Cursor, session: int, numbers: Collection[int], instead: Instead) -> int:
    """Forget entries of one session; how many summaries went with them."""
    first = None
    for number in sorted(numbers):
        row = cursor.execute(
            "SELECT id, seq, type, body, tokens, time FROM record WHERE session = ? AND seq = ?",
            (session, number),
        ).fetchone()
        if row is None:
            continue
        id, seq, kind, body, tokens, time = row
        first = first or id
        message, fewer = instead(Entry(seq, Kind(kind), json.loads(body), tokens, time))
        cursor.execute(
            "UPDATE record SET body = ?, tokens = ?, forgotten = coalesce(forgotten, ?) WHERE id = ?",
            (as_text(message), fewer, now(), id),
        )
    if first is None:
        return 0
    since = (session, first)
    _change(cursor, since, "compaction", {"notes": None})
    _change(cursor, since, "usage", {"prompt": None})
    _change(cursor, since, "judge", {"missing": [], "contradicted": []})
    # Without steps, it is no plan any more.
    _change(cursor, since, "plan", {"steps": []})
    # What files held before tools changed them: what was said may have been written there.
    _change(cursor, since, "file.changed", {"before": None})
    summaries = cursor.execute(
        "DELETE FROM record WHERE session = ? AND id > ? AND type = 'summary' AND seq IS NULL", since
    ).rowcount
    cursor.executemany(
        "DELETE FROM record WHERE session = ? AND after = ? AND type = ? AND seq IS NULL",
        ((session, number, type) for number in numbers for type in (WHOLE, LEFT)),
    )
    # Notes that were made anew since something else was forgotten.
    cursor.execute(
        "DELETE FROM record WHERE session = ? AND id > ? AND type = 'notes' AND seq IS NULL", since
    )
    cursor.execute("DELETE FROM checkpoint WHERE session = ?", (session,))
    # Damaged lines of an imported file may hold the same words, and what was mended quotes what it was.
    cursor.execute("DELETE FROM record WHERE session = ? AND type = 'import.damage'", (session,))
    _change(cursor, (session, 0), "session.imported", {"repairs": None})
    indexing.drop(cursor, session, numbers)
    count(cursor, session)
    return summaries


def remove(cursor: sqlite3.Cursor, session: int, name: str) -> None:
    """Remove a session whose entries the archive has no longer."""
    _quote_themselves(cursor, session, name)
    _pass_on(cursor, session, name)
    cursor.execute("DELETE FROM checkpoint WHERE session = ?", (session,))
    cursor.execute("DELETE FROM lease WHERE session = ?", (session,))
    cursor.execute("DELETE FROM record WHERE session = ?", (session,))
    cursor.execute("DELETE FROM session WHERE id = ?", (session,))


def _quote_themselves(cursor: sqlite3.Cursor, session: int, name: str) -> None:
    """Let excerpts of a session that goes, in those that hold the very entry, be of their own, so that they
    are still forgotten with it."""
    (last,) = cursor.execute("SELECT entries FROM session WHERE id = ?", (session,)).fetchone()
    for holder, held in _holders(cursor, session, range(1, last + 1)).items():
        rows = cursor.execute(
            "SELECT record.id, name, body FROM record JOIN session ON session.id = session"
            " WHERE session = ? AND type = 'recall' AND seq IS NULL",
            (holder,),
        ).fetchall()
        for id, own, body in rows:
            recall = json.loads(body)
            recall["recalled"] = [
                [own if of == name and number in held else of, number] for of, number in recall["recalled"]
            ]
            cursor.execute("UPDATE record SET body = ? WHERE id = ?", (as_text(recall), id))


def _pass_on(cursor: sqlite3.Cursor, session: int, name: str) -> None:
    """Let the forks of a session that goes know each other, and where it came from, so that what they share
    is still forgotten in all of them; and no session that gets its name later."""
    rows = cursor.execute(
        "SELECT record.id, session, name, body FROM record JOIN session ON session.id = session"
        " WHERE type = 'session.forked' AND seq IS NULL ORDER BY record.id"
    ).fetchall()
    events = [(id, of, called, json.loads(body)) for id, of, called, body in rows]
    sources = [(body["from"], body["at"]) for _, of, _, body in events if of == session and body["from"]]
    forks = [(id, called, body) for id, of, called, body in events if body["from"] == name and of != session]
    # The fork that shares the most takes its place: it comes from where that came from, the others from it.
    origin, shared = sources[-1] if sources else (None, 0)
    for id, called, body in sorted(forks, key=lambda fork: -fork[2]["at"]):
        changed = {**body, "from": origin, "at": min(body["at"], shared) if origin else body["at"]}
        cursor.execute("UPDATE record SET body = ? WHERE id = ?", (as_text(changed), id))
        if origin is None or origin in {source for source, _ in sources}:
            origin, shared = called, body["at"]


def count(cursor: sqlite3.Cursor, session: int) -> None:
    """Count anew what is known of a session at a glance. Turns are those that stand."""
    cursor.execute(
        "UPDATE session SET (entries, size, newest, changed) ="
        " (SELECT count(seq), coalesce(sum(length(body)), 0), coalesce(max(id), 0),"
        " coalesce(max(time), created) FROM record WHERE record.session = session.id) WHERE id = ?",
        (session,),
    )
    asked = cursor.execute(
        "SELECT id, seq, forgotten FROM record WHERE session = ? AND type = ? AND seq IS NOT NULL"
        " ORDER BY id",
        (session, Kind.USER.value),
    ).fetchall()
    undone = indexing.undone(cursor, session)
    standing = [(id, forgotten) for id, seq, forgotten in asked if seq not in undone]
    last = next((id for id, forgotten in reversed(standing) if not forgotten), None)
    row = cursor.execute("SELECT body FROM record WHERE id = ?", (last,)).fetchone()
    request = shown_request(json.loads(row[0])) if row else ""
    cursor.execute(
        "UPDATE session SET turns = ?, request = ? WHERE id = ?", (len(standing), request, session)
    )


def leaves_traces(cursor: sqlite3.Cursor) -> None:
    """Remember, with what is removed, that the file is to be cleaned of it: who does it may be ended."""
    cursor.execute("UPDATE archive SET traces = traces + 1")


def clean_up(database: Database) -> None:
    """Clean the file where who removed something could not, unless somebody uses it."""
    with database.reading() as cursor:
        traces = _traces(cursor)
    if traces:
        leave_no_trace(database, waits=False)


def leave_no_trace(database: Database, *, waits: bool = True) -> bool:
    """Make what was removed vanish from the file: from the index of words, which only marks it as gone, from
    what SQLite left of it beside the rows when it moved them (which `secure_delete` doesn't see, so the file
    is written anew), and from the log that a write goes through first. False where somebody who reads the
    file still holds on to what it was, or there is no room: what was removed stays so, and who opens the
    file next tries again. ``waits``: for others who use the file."""
    try:
        with database.reading() as cursor:
            traces = _traces(cursor)
        indexing.mended(database, partial(_put_words_in_order, database))
        # On a connection of its own, since here somebody may be reading.
        with database.errors(), closing(connected(database.path)) as connection:
            if not waits:
                connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("VACUUM")
            (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not is_busy:
            with database.transaction() as cursor:
                # Unless something else was removed meanwhile.
                cursor.execute("UPDATE archive SET traces = 0 WHERE traces = ?", (traces,))
    except StoreError:
        return False
    return not is_busy


def _traces(cursor: sqlite3.Cursor) -> int:
    return int(cursor.execute("SELECT traces FROM archive").fetchone()[0])


def _put_words_in_order(database: Database) -> None:
    with database.transaction() as cursor:
        if _levels(cursor) > MOST_LEVELS:
            indexing.write_words_anew(cursor)
        else:
            cursor.execute("INSERT INTO passage_words (passage_words) VALUES ('optimize')")


def _levels(cursor: sqlite3.Cursor) -> int:
    """How many levels the index of words has: a varint behind the four bytes of its cookie
    (fts5_index.c, "STRUCTURE RECORD")."""
    (block,) = cursor.execute("SELECT block FROM passage_words_data WHERE id = 10").fetchone()
    levels = 0
    for byte in block[4:13]:
        levels = levels << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return levels


def _forks(cursor: sqlite3.Cursor, session: int, numbers: Collection[int]) -> Iterator[tuple[int, set[int]]]:
    """The same entries in sessions that were forked from this one, and in the one it was forked from."""
    (name,) = cursor.execute("SELECT name FROM session WHERE id = ?", (session,)).fetchone()
    rows = cursor.execute("SELECT session, body FROM record WHERE type = 'session.forked'").fetchall()
    for id, body in rows:
        fork = json.loads(body)
        shared = {number for number in numbers if number <= fork["at"]}
        if shared and fork["from"] == name:
            yield id, shared
        elif shared and id == session and fork["from"]:
            yield from ((origin, shared) for origin in _named(cursor, fork["from"]))


def _quotes(
    cursor: sqlite3.Cursor, session: int, numbers: Collection[int], holders: Places
) -> Iterator[tuple[int, set[int]]]:
    """Entries anywhere that are excerpts of these ones, but for those of which the session is a holder."""
    (name,) = cursor.execute("SELECT name FROM session WHERE id = ?", (session,)).fetchone()
    events = "SELECT session, after, body FROM record WHERE type = 'recall' AND seq IS NULL"
    for id, excerpt, body in cursor.execute(events).fetchall():
        recall = json.loads(body)
        held = holders.get(id, ())
        if any(of == name and entry in numbers and entry not in held for of, entry in recall["recalled"]):
            yield id, {excerpt - recall.get("before", 0)}


def _objections(cursor: sqlite3.Cursor, session: int, numbers: Collection[int]) -> set[int]:
    """What a judge objected, and plans, in the turns of these entries, behind them: they may quote them."""
    rows = cursor.execute(
        "SELECT seq, (SELECT max(asked.seq) FROM record AS asked WHERE asked.session = record.session"
        " AND asked.seq < record.seq AND asked.type = ?) FROM record"
        " WHERE session = ? AND type IN (?, ?) AND seq > ?",
        (Kind.USER.value, session, Kind.FEEDBACK.value, Kind.PLAN.value, min(numbers, default=0)),
    ).fetchall()
    ordered = sorted(numbers)
    # The nearest entry before it is of its turn.
    nearest = ((seq, begun, bisect_left(ordered, seq) - 1) for seq, begun in rows)
    return {seq for seq, begun, at in nearest if at >= 0 and ordered[at] >= (begun or 0)}


def _plans(cursor: sqlite3.Cursor, session: int, numbers: Collection[int]) -> set[int]:
    """What plans showed behind these entries: to each step its request and what the steps before it said, and
    in the end all of that to who answered."""
    quoting = set[int]()
    for number in numbers:
        row = cursor.execute(
            "SELECT type, lane FROM record WHERE session = ? AND seq = ?", (session, number)
        ).fetchone()
        if row is None or not (row[1] or row[0] == Kind.USER.value):
            continue
        request = request_of(row[1]) if row[1] else number
        rows = cursor.execute(
            SHOWN_BY_PLANS,
            {
                "session": session,
                "number": number,
                "plan": Kind.PLAN.value,
                "request": request,
                "lanes": f"{request}/*",
            },
        )
        quoting.update(seq for (seq,) in rows)
    return quoting


def _named(cursor: sqlite3.Cursor, name: str) -> list[int]:
    return [row[0] for row in cursor.execute("SELECT id FROM session WHERE name = ?", (name,))]


def _change(cursor: sqlite3.Cursor, since: tuple[int, int], type: str, fields: dict[str, Any]) -> None:
    """Set fields of the events of a type that a session has since a record."""
    rows = cursor.execute(
        "SELECT id, body FROM record WHERE session = ? AND id > ? AND type = ? AND seq IS NULL",
        (*since, type),
    ).fetchall()
    cursor.executemany(
        "UPDATE record SET body = ? WHERE id = ?",
        ((as_text({**json.loads(body), **fields}), id) for id, body in rows),
    )
