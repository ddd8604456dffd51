from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perdure.chat.messages import Entry, Kind, Message
from perdure.errors import SessionUnknown, StoreError
from perdure.store.journal import Recorded
from perdure.store.sqlite import SqliteJournal


def said(text: str) -> tuple[Kind, Message, int]:
    return (Kind.USER, {"role": "user", "content": text}, len(text))


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    journal = SqliteJournal(tmp_path / "new" / "sessions.db")
    journal.create("one", {"lang": "en"})
    return journal


def test_entries_are_numbered_from_one_without_gaps_beside_events(journal: SqliteJournal) -> None:
    journal.append("one", [said("a"), said("b")])
    journal.record("one", "compaction", {"left": [1]})
    journal.append("one", [said("c")])
    records = list(journal.records("one"))
    assert [record.seq for record in records if isinstance(record, Entry)] == [1, 2, 3]
    events = [(record.type, record.after) for record in records if isinstance(record, Recorded)]
    assert events == [("session.created", 0), ("compaction", 2)]


def test_what_is_read_is_what_was_written_lone_surrogates_and_all(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    message = {"role": "tool", "tool_call_id": "x", "content": "\ud800 天气\u0000\u2028"}
    (written,) = journal.append("one", [(Kind.TOOL_RESULT, message, 7)])
    journal.close()
    (entry,) = (
        record
        for record in SqliteJournal(tmp_path / "new" / "sessions.db").records("one")
        if isinstance(record, Entry)
    )
    assert entry == written
    assert entry.message == message


def test_sessions_keep_apart_and_the_last_changed_comes_first(journal: SqliteJournal) -> None:
    journal.create("two", {})
    journal.append("two", [said("x")])
    journal.append("one", [said("y"), said("z")])
    assert [(each.name, each.entries, each.turns) for each in journal.sessions()] == [
        ("one", 2, 2),
        ("two", 1, 1),
    ]


def test_a_session_that_is_not_there_is_named(journal: SqliteJournal) -> None:
    with pytest.raises(SessionUnknown, match="'three'"):
        journal.append("three", [said("x")])
    assert not journal.exists("three")


def test_several_entries_are_written_all_or_none(journal: SqliteJournal) -> None:
    bad = (Kind.USER, {"role": "user", "content": object()}, 1)
    with pytest.raises(TypeError):
        journal.append("one", [said("first"), bad])
    assert not [record for record in journal.records("one") if isinstance(record, Entry)]
    assert journal.append("one", [said("after")])[0].seq == 1


def test_two_writers_take_turns_and_no_number_is_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    SqliteJournal(path).create("shared", {})
    program = (
        "import sys; from pathlib import Path; from perdure.store.sqlite import SqliteJournal\n"
        "from perdure.chat.messages import Kind\n"
        "journal = SqliteJournal(Path(sys.argv[1]))\n"
        "for n in range(50): journal.append('shared', [(Kind.USER, {'role': 'user', 'content': str(n)}, 1)])"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    numbers = [record.seq for record in SqliteJournal(path).records("shared") if isinstance(record, Entry)]
    assert numbers == list(range(1, 101))


def test_entries_come_by_number_in_the_order_asked_for_and_others_are_left_out(
    journal: SqliteJournal,
) -> None:
    written = journal.append("one", [said("a"), said("b"), said("c")])
    journal.create("two", {})
    journal.append("two", [said("another")])
    assert journal.entries("one", [1, 3]) == [written[0], written[2]]
    assert journal.entries("one", [3, 99, 0, -1, 2]) == [written[2], written[1]]
    assert journal.entries("one", []) == []
    with pytest.raises(SessionUnknown):
        journal.entries("three", [1])


def test_what_came_since_the_checkpoint_is_what_was_written_after_it_and_no_other_sessions(
    journal: SqliteJournal,
) -> None:
    journal.create("two", {})
    state, since = journal.since_checkpoint("one")
    assert (state, [type(each) for each in since]) == (None, [Recorded])
    journal.append("one", [said("a"), said("b")])
    journal.checkpoint("one", {"n": 1, "text": "\ud800 天气"})
    state, since = journal.since_checkpoint("one")
    assert (state, list(since)) == ({"n": 1, "text": "\ud800 天气"}, [])
    journal.append("two", [said("x")])
    journal.record("one", "compaction", {"left": [1]})
    (third,) = journal.append("one", [said("c")])
    _, since = journal.since_checkpoint("one")
    event, entry = since
    assert isinstance(event, Recorded)
    assert (event.type, event.after, event.body, entry) == ("compaction", 2, {"left": [1]}, third)
    assert journal.since_checkpoint("two")[0] is None


def test_a_checkpoint_takes_the_place_of_the_one_before(journal: SqliteJournal, tmp_path: Path) -> None:
    for number in range(3):
        journal.append("one", [said(str(number))])
        journal.checkpoint("one", {"n": number})
    journal.close()
    again = SqliteJournal(tmp_path / "new" / "sessions.db")
    state, since = again.since_checkpoint("one")
    assert (state, list(since)) == ({"n": 2}, [])
    assert len(list(again.records("one"))) == 4, "the journal keeps everything"
    for wrong in (lambda: again.checkpoint("three", {}), lambda: again.since_checkpoint("three")):
        with pytest.raises(SessionUnknown):
            wrong()


def test_what_was_learnt_of_a_model_is_kept_by_its_name(journal: SqliteJournal, tmp_path: Path) -> None:
    assert journal.learnt("gpt-4o") == {}
    journal.learn("gpt-4o", {"highest": 1.02, "caches": True})
    journal.learn("天气", {"highest": 1.5})
    journal.learn("gpt-4o", {"highest": 1.04})
    journal.close()
    again = SqliteJournal(tmp_path / "new" / "sessions.db")
    assert again.learnt("gpt-4o") == {"highest": 1.04}, "the newer takes the place of the older, whole"
    assert again.learnt("天气") == {"highest": 1.5}
    assert again.learnt("gpt-4") == {}


@pytest.mark.parametrize("content", [b"this is no database, " * 500, b"\x00" * 5000])
def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sessions.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"sessions\.db"):
        SqliteJournal(path).sessions()
    assert path.read_bytes() == content


def test_a_folder_in_the_way_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be used"):
        SqliteJournal(tmp_path)


def test_a_new_file_is_readable_by_its_owner_alone(journal: SqliteJournal) -> None:
    assert journal.path.stat().st_mode & 0o077 == 0
    assert journal.path.parent.stat().st_mode & 0o077 == 0


def test_an_acknowledged_entry_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    program = (
        "import sys; from pathlib import Path; from perdure.store.sqlite import SqliteJournal\n"
        "from perdure.chat.messages import Kind\n"
        "journal = SqliteJournal(Path(sys.argv[1])); journal.create('s', {})\n"
        "while True:\n"
        "    (entry,) = journal.append('s', [(Kind.USER, {'role': 'user', 'content': 'x' * 500}, 1)])\n"
        "    print(entry.seq, flush=True)"
    )
    writer = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = 0
    while acknowledged < 30:
        acknowledged = int(writer.stdout.readline())
    writer.kill()
    acknowledged = max([acknowledged, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    writer.wait()
    writer.stdout.close()
    numbers = [record.seq for record in SqliteJournal(path).records("s") if isinstance(record, Entry)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= acknowledged
