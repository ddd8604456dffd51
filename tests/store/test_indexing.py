"""An index of words that is broken: nothing said is lost by it, and it is written anew from the passages."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.agent.forgetting import blanked
from perdure.chat.messages import Entry, Kind, Message
from perdure.errors import StoreError
from perdure.memory.passages import Query
from perdure.store.archive import Scope
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive

STRUCTURE = "UPDATE passage_words_data SET block = X'{}' WHERE id = 10"
#: What may have become of the tables in which FTS5 keeps the index.
BROKEN: dict[str, str] = {
    # What a build of December 2026 left after 1,300 forgettings: 2,001 levels (an older SQLite refuses them).
    "too many levels": STRUCTURE.format("00000001" + "8f51" + "00" * 2 + "00" * 4002),
    "rubbish": STRUCTURE.format("00000000FFFFFFFFFF0101"),
    "more rubbish": "UPDATE passage_words_data SET block = randomblob(40) WHERE id = 10",
    "a structure of nothing": STRUCTURE.format("DEADBEEF"),
    "an empty structure": STRUCTURE.format(""),
    "a structure of more than there is memory for": STRUCTURE.format("0000000101010000" + "bfffffff7f"),
    "no structure": "DELETE FROM passage_words_data WHERE id = 10",
    "no averages": "DELETE FROM passage_words_data WHERE id = 1",
    "nothing": "DELETE FROM passage_words_data",
    "rubbish in the leaves": "UPDATE passage_words_data SET block = randomblob(length(block)) WHERE id > 10",
    "no leaves": "DELETE FROM passage_words_data WHERE id > 10",
    "no form": "DELETE FROM passage_words_config",
}
#: What can't be mended by writing.
GONE = {
    "no table of data": "DROP TABLE passage_words_data",
    "no table of leaves": "DROP TABLE passage_words_idx",
}
#: What only who writes can notice.
LOOKS_EMPTY = {"a structure of nothing", "an empty structure"}


def user(text: str) -> tuple[Kind, Message, int]:
    return (Kind.USER, {"role": "user", "content": text}, 5)


class Kept:
    """A journal with two sessions and its archive, on connections that are open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal, self.archive = SqliteJournal(path), SqliteArchive(path)

    def filled(self) -> Kept:
        for session in ("s", "t"):
            self.journal.create(session, {"workspace": "/w"})
            self.journal.append(session, [user(f"zebra number {number}") for number in range(150)])
            self.journal.append(session, [user(f"quokka of {session}")])
        assert self.finds("quokka") == [("s", 151), ("t", 151)]
        return self

    def broken(self, how: str) -> Kept:
        self.writes(how)
        return self

    def writes(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def again(self) -> Kept:
        self.journal.close()
        self.archive.close()
        return Kept(self.path)

    def finds(self, word: str) -> list[tuple[str, int]]:
        pool = self.archive.pool(Query(word, (word,)), Scope("s", reach="all"))
        return sorted((each.session, each.entry) for each in pool.passages if word in each.words)

    def said(self, session: str) -> list[str]:
        records = self.journal.records(session)
        return [str(each.message["content"]) for each in records if isinstance(each, Entry)]

    def is_sound(self) -> bool:
        """The index is what its passages say, and all that was said is in it."""
        self.writes("INSERT INTO passage_words (passage_words) VALUES ('integrity-check')")
        connection = sqlite3.connect(self.path)
        try:
            (behind,) = connection.execute("SELECT count(*) FROM session WHERE indexed < entries").fetchone()
            return not behind and connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            connection.close()


def appends(kept: Kept) -> None:
    (entry,) = kept.journal.append("s", [user("wombat")], [("usage", {"purpose": "think"})])
    assert entry.seq == 152
    assert kept.said("s")[-1] == "wombat"
    assert kept.finds("wombat") == [("s", 152)]


def begins(kept: Kept) -> None:
    assert kept.journal.create("new", {}, [user("numbat")])
    assert kept.said("new") == ["numbat"]
    assert kept.finds("numbat") == [("new", 1)]


def takes_back(kept: Kept) -> None:
    kept.journal.record("s", "turn.undone", {"first": 151, "last": 151})
    assert kept.finds("quokka") == [("t", 151)]


def forks(kept: Kept) -> None:
    kept.journal.fork("s", "fork", 151)
    kept.journal.append("fork", [user("bandicoot")])
    assert kept.finds("bandicoot") == [("fork", 152)]


def forgets(kept: Kept) -> None:
    assert kept.journal.forget("s", [151], blanked).entries == {"s": [151]}
    assert kept.finds("quokka") == [("t", 151)]
    assert b"quokka of s" not in b"".join(each.read_bytes() for each in kept.path.parent.iterdir())


def removes(kept: Kept) -> None:
    kept.journal.remove("t", blanked)
    assert kept.finds("quokka") == [("s", 151)]


def searches(kept: Kept) -> None:
    assert kept.finds("quokka") == [("s", 151), ("t", 151)]


DOING = (appends, begins, takes_back, forks, forgets, removes, searches)


@pytest.mark.parametrize(
    ("how", "does"),
    [
        pytest.param(how, does, id=f"{name}, {does.__name__}")
        for name, how in BROKEN.items()
        for does in DOING
        if does is not searches or name not in LOOKS_EMPTY
    ],
)
@pytest.mark.parametrize("opened", ["before", "after"])
def test_whatever_is_done_first_in_a_broken_index_is_done_and_mends_it(
    tmp_path: Path, how: str, does: Callable[[Kept], None], opened: str
) -> None:
    kept = Kept(tmp_path / "s.db").filled().broken(how)
    if opened == "after":
        kept = kept.again()
    does(kept)
    if does is searches:
        appends(kept)  # some of it is broken only for who writes
    kept = kept.again()
    assert kept.is_sound()
    kept.journal.append("s", [user("potoroo")])
    assert [session for session, _ in kept.finds("potoroo")] == ["s"]
    assert ("s", 150) in kept.finds("zebra")
    assert kept.is_sound()


@pytest.mark.parametrize("how", [*BROKEN.values(), *GONE.values()], ids=[*BROKEN, *GONE])
@pytest.mark.parametrize("opened", ["before", "after"])
def test_what_is_said_is_kept_whatever_has_become_of_the_index(tmp_path: Path, how: str, opened: str) -> None:
    kept = Kept(tmp_path / "s.db").filled().broken(how)
    if opened == "after":
        kept = kept.again()
    for number in range(152, 155):
        (entry,) = kept.journal.append("s", [user(f"wombat {number}")], [("usage", {"n": number})])
        assert entry.seq == number
    assert kept.journal.create("new", {}, [user("numbat")])
    assert kept.again().said("s")[-4:] == ["quokka of s", "wombat 152", "wombat 153", "wombat 154"]


@pytest.mark.parametrize("how", GONE.values(), ids=GONE)
def test_what_cant_be_mended_is_a_clear_error_for_who_searches(tmp_path: Path, how: str) -> None:
    kept = Kept(tmp_path / "s.db").filled().broken(how).again()
    before = kept.path.read_bytes()
    with pytest.raises(StoreError, match="cannot be used"):
        kept.finds("quokka")
    assert len(kept.said("s")) == 151
    assert kept.path.read_bytes() == before


def test_an_index_that_is_sound_is_not_written_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s.db").filled()
    kept.journal.close()
    kept.archive.close()
    before = kept.path.read_bytes()
    for _ in range(3):
        kept = kept.again()
        searches(kept)
    kept.journal.close()
    kept.archive.close()
    assert kept.path.read_bytes() == before
