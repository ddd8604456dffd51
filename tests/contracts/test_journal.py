"""What every journal promises, on every adapter there is."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.agent.conversation import Conversation, result_message
from perdure.agent.forgetting import FORGOTTEN, blanked
from perdure.agent.undone import standing, undone_entries
from perdure.chat.encodings import sendable
from perdure.chat.messages import Entry, Kind, Message
from perdure.chat.tokens import counter_for
from perdure.errors import SessionExists, SessionHeld, SessionUnknown
from perdure.memory.budget import Budget
from perdure.store import leases
from perdure.store.journal import LEFT, WHOLE, Journal, NewEntry, NewEvent, Recorded
from perdure.store.sqlite import SqliteJournal

Opener = Callable[[Path], Journal]
ADAPTERS: dict[str, Opener] = {"sqlite": SqliteJournal}


@pytest.fixture(params=ADAPTERS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Journal]]:
    """Opens the same store, as often as it is called."""
    journals: list[Journal] = []

    def open_one() -> Journal:
        journals.append(ADAPTERS[request.param](tmp_path / "s.db"))
        return journals[-1]

    yield open_one
    for journal in journals:
        journal.close()


@pytest.fixture
def journal(opened: Callable[[], Journal]) -> Journal:
    journal = opened()
    journal.create("s", {"system": "be brief", "lang": "en", "workspace": "/w"})
    return journal


def user(text: str) -> NewEntry:
    return (Kind.USER, {"role": "user", "content": text}, 5)


def answer(text: str) -> NewEntry:
    return (Kind.ASSISTANT, {"role": "assistant", "content": text}, 5)


def calling(id: str, name: str, arguments: Any) -> NewEntry:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": id, "type": "function", "function": function}
    return (Kind.TOOL_CALL, {"role": "assistant", "content": None, "tool_calls": [call]}, 9)


def result(id: str, text: str) -> NewEntry:
    return (Kind.TOOL_RESULT, result_message(id, text), 9)


def entries(journal: Journal, session: str = "s") -> list[Entry]:
    return [each for each in journal.records(session) if isinstance(each, Entry)]


def events(journal: Journal, session: str = "s") -> list[Recorded]:
    return [each for each in journal.records(session) if isinstance(each, Recorded)]


def at_a_glance(journal: Journal, session: str) -> Any:
    return next(each for each in journal.sessions() if each.name == session)


def test_entries_and_events_are_written_together_and_read_in_order(journal: Journal) -> None:
    written = journal.append("s", [user("a"), answer("b")], [("recall", {"recalled": []})])
    assert [entry.seq for entry in written] == [1, 2]
    *_, last = journal.records("s")
    assert isinstance(last, Recorded)
    assert (last.type, last.after) == ("recall", 2)


def test_an_event_that_cant_be_written_takes_its_entries_with_it(journal: Journal) -> None:
    with pytest.raises(TypeError):
        journal.append("s", [user("a")], [("recall", {"recalled": object()})])
    assert entries(journal) == []
    assert at_a_glance(journal, "s").entries == 0


def test_a_session_begins_with_what_is_known_of_it(journal: Journal) -> None:
    assert journal.create("t", {"lang": "en"}, [user("a"), answer("b")], [("session.imported", {"n": 1})])
    kinds = [each.type if isinstance(each, Recorded) else each.seq for each in journal.records("t")]
    assert kinds == ["session.created", 1, 2, "session.imported"]
    assert (at_a_glance(journal, "t").entries, at_a_glance(journal, "t").request) == (2, "a")
    assert not journal.create("t", {}, [user("of another")])
    assert len(entries(journal, "t")) == 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_of_a_session_whose_making_is_ended_nothing_is_there(tmp_path: Path, adapter: str, name: str) -> None:
    ended = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from perdure.chat.messages import Kind\n"
        f"from {ADAPTERS[adapter].__module__} import {ADAPTERS[adapter].__name__} as Opened\n"
        "class Entries(list):\n"
        "    def __iter__(self):\n"
        "        for at in range(3000):\n"
        "            if at == 2500:\n"
        f"                os.kill(os.getpid(), signal.{name})\n"
        "            yield (Kind.USER, {'role': 'user', 'content': 'x' * 2000}, 5)\n"
        "Opened(Path(sys.argv[1])).create('s', {}, Entries())\n"
    )
    path = tmp_path / "s.db"
    ran = subprocess.run(
        [sys.executable, "-c", ended, str(path)], capture_output=True, check=False, timeout=60
    )
    assert ran.returncode != 0
    journal = ADAPTERS[adapter](path)
    assert journal.sessions() == []
    assert journal.create("s", {}, [user("again")])
    journal.close()


def test_an_entry_from_elsewhere_keeps_its_time(journal: Journal) -> None:
    kind, message, tokens = user("a")[:3]
    (written,) = journal.append("s", [(kind, message, tokens, "2020-01-02T03:04:05+00:00")])
    assert written.time == entries(journal)[0].time == "2020-01-02T03:04:05+00:00"


def test_a_list_of_sessions_says_how_much_there_is_and_what_was_asked_last(journal: Journal) -> None:
    journal.append("s", [user("first"), answer("x" * 100), user("和第二个")])
    seen = at_a_glance(journal, "s")
    assert (seen.entries, seen.turns, seen.request, seen.workspace) == (3, 2, "和第二个", "/w")
    bodies = [each.message if isinstance(each, Entry) else each.body for each in journal.records("s")]
    assert seen.size == sum(len(json.dumps(each, separators=(",", ":"))) for each in bodies)


@pytest.mark.parametrize("before", [0, 150, 185, 199, 300])
def test_of_a_key_that_the_list_would_cut_nothing_is_shown(journal: Journal, before: int) -> None:
    key = "sk-proj-" + "aB3dE5gH7j" * 6
    journal.append("s", [user("x" * before + f" {key} and on")])
    assert "sk-proj-a" not in at_a_glance(journal, "s").request


def test_a_turn_that_was_taken_back_is_neither_counted_nor_the_last_request(journal: Journal) -> None:
    journal.append("s", [user("first"), answer("a"), user("second"), answer("b")])
    journal.record("s", "turn.undone", {"first": 3, "last": 4})
    seen = at_a_glance(journal, "s")
    assert (seen.entries, seen.turns, seen.request) == (4, 1, "first")
    journal.fork("s", "before", 4)
    journal.fork("before", "behind", 2)
    assert [at_a_glance(journal, each).turns for each in ("before", "behind")] == [2, 1]
    journal.append("s", [user("third")])
    journal.forget("s", [1], blanked)
    seen = at_a_glance(journal, "s")
    assert (seen.entries, seen.turns, seen.request) == (5, 2, "third")
    journal.record("s", "turn.undone", {"first": 5, "last": 5})
    journal.record("s", "turn.undone", {"first": 1, "last": 2})
    seen = at_a_glance(journal, "s")
    assert (seen.entries, seen.turns, seen.request) == (5, 0, "")


# --- forks


def test_a_fork_has_all_up_to_an_entry_and_goes_its_own_way(journal: Journal) -> None:
    journal.append("s", [user("a"), answer("b")])
    journal.record("s", "compaction", {"left": []})
    journal.append("s", [user("c"), answer("d")])
    journal.fork("s", "t", 3)
    assert [each.message["content"] for each in entries(journal, "t")] == ["a", "b", "c"]
    assert [each.type for each in events(journal, "t")] == ["session.created", "compaction", "session.forked"]
    journal.append("t", [answer("other")])
    assert [each.message["content"] for each in entries(journal)] == ["a", "b", "c", "d"]
    assert at_a_glance(journal, "t").entries == 4
    journal.fork("t", "u", 4)
    assert entries(journal, "u")[-1].message["content"] == "other"


def test_a_fork_of_nothing_or_onto_something_changes_nothing(journal: Journal) -> None:
    journal.append("s", [user("a")])
    with pytest.raises(ValueError, match="no entry 2"):
        journal.fork("s", "t", 2)
    with pytest.raises(SessionExists):
        journal.fork("s", "s", 1)
    with pytest.raises(SessionUnknown):
        journal.fork("nobody", "t", 1)
    assert not journal.exists("t")


# --- forgetting

SECRET = "zanzibar-4711"


def holds(journal: Journal, word: str) -> list[str]:
    """Sessions in whose records the word stands."""
    return [
        each.name
        for each in journal.sessions()
        if any(
            word in json.dumps(record.message if isinstance(record, Entry) else record.body)
            for record in journal.records(each.name)
        )
    ]


def test_what_is_forgotten_is_gone_from_the_journal_its_forks_and_every_excerpt_of_it(
    journal: Journal, tmp_path: Path
) -> None:
    journal.append("s", [user(f"the code is {SECRET}"), answer("noted"), user("go on"), answer("done")])
    journal.record("s", "summary", {"lines": [], "covered": [], "notes": f"In short: {SECRET}"})
    journal.record("s", "compaction", {"left": [1], "shortened": {}, "notes": f"{SECRET}!", "shares": []})
    journal.checkpoint("s", {"notes": SECRET})
    journal.fork("s", "fork", 3)
    journal.fork("fork", "grandchild", 2)
    journal.create("other", {"workspace": "/w"})
    recalled = [("recall", {"recalled": [["s", 1]], "before": 1})]
    excerpt: NewEntry = (Kind.RECALL, {"role": "user", "content": f"1: {SECRET}"}, 9)
    journal.append("other", [excerpt, user("hm")], recalled)
    journal.append("other", [calling("c", "recall", {"query": "code"})])
    journal.append("other", [result("c", f"1: the code is {SECRET}")], [("recall", {"recalled": [["s", 1]]})])
    assert sorted(holds(journal, SECRET)) == ["fork", "grandchild", "other", "s"]
    reached = journal.reached("s", [1])
    gone = journal.forget("s", [1], blanked)
    assert list(gone.entries.items()) == list(reached.items())
    assert dict(gone.entries) == {"s": [1], "fork": [1], "grandchild": [1], "other": [1, 4]}
    assert gone.summaries == 1
    assert holds(journal, SECRET) == []
    assert journal.since_checkpoint("s")[0] is None
    assert [each.seq for each in entries(journal)] == [1, 2, 3, 4]
    assert entries(journal)[0].message == {"role": "user", "content": FORGOTTEN}
    assert entries(journal, "other")[3].message == result_message("c", FORGOTTEN)
    (said,) = [each for each in events(journal, "other") if each.type == "forgotten"]
    assert said.body == {"entries": [1, 4]}
    on_disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"zanzibar" not in on_disk
    assert b"grandchild" in on_disk


def test_who_asks_what_forgetting_reaches_changes_nothing_and_may_ask_while_others_write(
    journal: Journal, opened: Callable[[], Journal]
) -> None:
    journal.append("s", [user("a"), user("b"), user("c")])
    journal.fork("s", "child", 2)
    before = {name: list(journal.records(name)) for name in ("s", "child")}
    other = opened()
    other.hold("s")
    assert dict(journal.reached("child", [1])) == {"child": [1], "s": [1]}
    assert list(journal.reached("child", [1])) == ["child", "s"], "the one that was asked for first"
    assert dict(journal.reached("s", [2, 3])) == {"s": [2, 3], "child": [2]}
    assert dict(journal.reached("s", [2, 3], forks=False)) == {"s": [2, 3]}
    assert dict(journal.reached("s", [])) == {"s": []}
    with pytest.raises(SessionUnknown):
        journal.reached("nobody", [1])
    assert {name: list(journal.records(name)) for name in ("s", "child")} == before


def test_a_fork_at_a_request_knows_whose_words_stand_before_it(journal: Journal) -> None:
    journal.append("s", [user(f"the code is {SECRET}")])
    journal.create("other", {"workspace": "/w"})
    excerpt: NewEntry = (Kind.RECALL, {"role": "user", "content": f"1: {SECRET}"}, 9)
    journal.append("other", [excerpt, user("hm")], [("recall", {"recalled": [["s", 1]], "before": 1})])
    journal.append("other", [answer("well"), user("go on")])
    journal.fork("other", "at the request", 2)
    journal.remove("other", blanked)
    journal.forget("s", [1], blanked)
    assert holds(journal, SECRET) == []


def test_forgetting_is_no_work_in_a_session(journal: Journal) -> None:
    journal.append("s", [user("one"), user("two")])
    journal.fork("s", "fork", 2)
    journal.append("s", [user("three")])
    before = [(each.name, each.changed) for each in journal.sessions()]
    assert before[0][0] == "s"
    journal.forget("s", [1], blanked)
    assert [(each.name, each.changed) for each in journal.sessions()] == before


@pytest.mark.parametrize("origin", [True, False])
def test_forks_of_a_fork_that_was_removed_share_all_they_shared(journal: Journal, origin: bool) -> None:
    journal.append("s", [user("one"), answer("two")])
    if origin:
        journal.fork("s", "a", 2)
    else:
        journal.create("a", {})
        journal.append("a", [user("one"), answer("two")])
    journal.append("a", [user(f"the code is {SECRET}"), answer("noted"), user("five")])
    for name, at in (("b", 4), ("c", 5), ("d", 3), ("e", 1)):
        journal.fork("a", name, at)
    journal.remove("a", blanked)
    gone = journal.forget("b", [3], blanked)
    assert dict(gone.entries) == {"b": [3], "c": [3], "d": [3]}
    assert holds(journal, SECRET) == []
    first = journal.forget("e", [1], blanked)
    assert set(first.entries) == {"b", "c", "d", "e", *(["s"] if origin else [])}


def test_what_was_mended_when_it_came_in_is_forgotten_too(journal: Journal) -> None:
    journal.append(
        "s", [user("x")], [("session.imported", {"form": "chat", "repairs": [f"a call of {SECRET}"]})]
    )
    journal.forget("s", [1], blanked)
    assert holds(journal, SECRET) == []


def test_what_a_judge_objected_to_an_entry_is_forgotten_with_it(journal: Journal) -> None:
    objected: NewEntry = (Kind.FEEDBACK, user(f"it says {SECRET}")[1], 9)
    verdict: NewEvent = (
        "judge",
        {"satisfied": False, "missing": [f"not {SECRET}"], "contradicted": [SECRET]},
    )
    journal.append("s", [user("x"), answer("before"), objected, answer("well")])
    journal.append("s", [user("y"), answer(f"it is {SECRET}")], [verdict])
    journal.append("s", [objected, answer("so be it"), user("z")])
    journal.append("s", [(Kind.FEEDBACK, user("the unit is missing")[1], 9)])
    gone = journal.forget("s", [6], blanked)
    assert dict(gone.entries) == {"s": [6, 7]}, "of this turn, and only what came behind"
    assert entries(journal)[9].message["content"] == "the unit is missing"
    journal.forget("s", [1], blanked)
    assert holds(journal, SECRET) == []


def test_while_somebody_reads_the_file_what_is_forgotten_lingers_and_that_is_said(
    journal: Journal, tmp_path: Path
) -> None:
    journal.append("s", [user(f"the code is {SECRET}"), user("two"), user("three")])
    path = next(tmp_path.glob("*.db"))
    reading = sqlite3.connect(path)
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM record").fetchone()
    assert journal.forget("s", [1], blanked).lingers
    reading.close()
    assert not journal.forget("s", [2], blanked).lingers
    assert SECRET.encode() not in b"".join(each.read_bytes() for each in tmp_path.iterdir())


def test_a_forgotten_call_is_still_a_call_and_its_result_still_answers_it(journal: Journal) -> None:
    journal.append("s", [user("x"), calling("c", "bash", {"command": f"echo {SECRET}"}), result("c", SECRET)])
    journal.forget("s", [2, 3], blanked)
    _, call, answered = entries(journal)
    (only,) = call.message["tool_calls"]
    assert (only["id"], only["function"]) == ("c", {"name": "bash", "arguments": "{}"})
    assert answered.message["tool_call_id"] == "c"
    assert holds(journal, SECRET) == []


def test_no_prompt_holds_what_was_forgotten_and_the_next_one_is_valid(journal: Journal) -> None:
    def conversation() -> Conversation:
        return Conversation(journal, "s", counter_for(None), Budget.of(1500), model="m", summarised=False)

    first = conversation()
    first.add(Kind.USER, {"role": "user", "content": f"The code is {SECRET}, for Ines."})
    first.add(Kind.ASSISTANT, {"role": "assistant", "content": f"I will use {SECRET}."})
    for number in range(20):
        first.add(Kind.USER, {"role": "user", "content": f"part {number} " + "blah " * 60})
        first.compact()
        first.add(Kind.ASSISTANT, {"role": "assistant", "content": f"part {number} is done"})
    assert SECRET in json.dumps(first.prompt())
    journal.forget("s", [1, 2], blanked)
    again = conversation()
    again.add(Kind.USER, {"role": "user", "content": "and now?"})
    again.compact()
    assert SECRET not in json.dumps(again.prompt())
    assert again.tokens <= again.budget.tokens
    assert conversation().prompt() == again.prompt()


def test_forgetting_twice_and_forgetting_nothing_do_no_harm(journal: Journal) -> None:
    journal.append("s", [user("a"), answer("b")])
    journal.forget("s", [1], blanked)
    journal.forget("s", [1, 99], blanked)
    assert [each.message["content"] for each in entries(journal)] == [FORGOTTEN, "b"]


def test_a_session_is_removed_with_all_that_is_kept_of_it(journal: Journal, tmp_path: Path) -> None:
    journal.append("s", [user(SECRET)])
    journal.checkpoint("s", {})
    journal.create("other", {})
    journal.append("other", [result("c", SECRET)], [("recall", {"recalled": [["s", 1]]})])
    journal.fork("s", "fork", 1)
    reached = journal.reached("s", [1], forks=False)
    gone = journal.remove("s", blanked)
    assert reached == {"s": [1], "other": [1]}
    assert {name: list(numbers) for name, numbers in gone.entries.items()} == {"s": [1], "other": [1]}
    assert not journal.exists("s")
    assert holds(journal, SECRET) == ["fork"], "a fork is a session of its own"
    journal.create("s", {})
    assert entries(journal) == []
    journal.append("s", [user("somebody else")])
    journal.forget("s", [1], blanked)
    assert holds(journal, SECRET) == ["fork"], "the new session of that name is not where it came from"


def test_a_fork_keeps_its_excerpts_of_what_it_holds_itself_when_its_origin_is_removed(
    journal: Journal,
) -> None:
    journal.append("s", [user(f"the code is {SECRET}"), answer("two")])
    excerpt: NewEntry = (Kind.RECALL, {"role": "user", "content": f"1: {SECRET}"}, 9)
    of_first = ("recall", {"recalled": [["s", 1]], "before": 1})
    journal.append("s", [excerpt, user("three")], [of_first])
    journal.record("s", "compaction", {"left": [1, 2], "notes": None})
    journal.record("s", "summary", {"text": f"It is {SECRET}.", "of": [1, 2]})
    journal.append("s", [answer("five")])
    for origin, name, at in (("s", "child", 5), ("child", "grandchild", 5), ("s", "short", 1)):
        journal.fork(origin, name, at)
    # Some entries of the origin are not the fork's own.
    journal.append("s", [user("six zanzibar")])
    of_six = ("recall", {"recalled": [["s", 1], ["s", 6]], "before": 1})
    journal.append("child", [excerpt, user("seven")], [of_six])
    journal.append("short", [excerpt, user("eight")], [of_first])
    journal.create("other", {})
    journal.append("other", [excerpt, user("nine")], [of_first])
    kept = {name: entries(journal, name) for name in ("grandchild", "short")}
    reached = journal.reached("s", range(1, 7), forks=False)
    gone = journal.remove("s", blanked)
    expected = {"s": [*range(1, 7)], "child": [6], "other": [1]}
    assert {name: [*numbers] for name, numbers in reached.items()} == expected
    assert {name: [*numbers] for name, numbers in gone.entries.items()} == expected
    assert {name: entries(journal, name) for name in kept} == kept
    assert sum(each.type == "summary" for each in events(journal, "grandchild")) == 1
    # What is left is still forgotten with what it quotes, and with nothing of a new session of that name.
    journal.create("s", {})
    journal.append("s", [user("somebody else")])
    assert not {"child", "grandchild", "short"} & journal.forget("s", [1], blanked).entries.keys()
    again = journal.forget("grandchild", [1], blanked).entries
    assert dict(again) == {"grandchild": [1, 3], "child": [1, 3, 6], "short": [1, 2]}
    assert holds(journal, SECRET) == []


def test_forks_of_a_session_that_is_gone_still_know_what_they_share(journal: Journal) -> None:
    journal.append("s", [user("a"), user(SECRET), user("c")])
    journal.fork("s", "child", 3)
    journal.fork("child", "grandchild", 2)
    journal.fork("child", "another", 3)
    journal.remove("child", blanked)
    assert sorted(journal.forget("s", [2], blanked).entries) == ["another", "grandchild", "s"]
    journal.append("s", [user(SECRET)])
    journal.fork("s", "late", 4)
    journal.remove("s", blanked)
    journal.create("s", {})
    journal.append("s", [user(text) for text in "abcd"])
    assert dict(journal.forget("another", [3], blanked).entries) == {"another": [3], "late": [3]}
    assert dict(journal.forget("late", [2], blanked).entries) == {
        "late": [2],
        "another": [2],
        "grandchild": [2],
    }
    assert [each.message["content"] for each in entries(journal)] == list("abcd")


def test_notes_that_were_made_anew_when_something_was_forgotten_are_forgotten_with_what_they_tell(
    journal: Journal,
) -> None:
    def conversation() -> Conversation:
        return Conversation(journal, "s", counter_for(None), Budget.of(1500), model="m", summarised=False)

    first = conversation()
    for text in ("The first word is aardvark-1.", f"The second word is {SECRET}."):
        first.add(Kind.USER, {"role": "user", "content": text})
        first.add(Kind.ASSISTANT, {"role": "assistant", "content": "noted"})
    for number in range(20):
        first.add(Kind.USER, {"role": "user", "content": f"part {number} " + "blah " * 60})
        first.compact()
        first.add(Kind.ASSISTANT, {"role": "assistant", "content": f"part {number} is done"})
    journal.forget("s", [1], blanked)
    assert SECRET in json.dumps(conversation().prompt())
    journal.forget("s", [3], blanked)
    assert holds(journal, SECRET) == []
    assert SECRET not in json.dumps(conversation().prompt())
    assert holds(journal, SECRET) == []


# --- leases


def test_a_session_that_is_held_is_written_by_its_holder_alone_and_read_by_all(
    journal: Journal, opened: Callable[[], Journal]
) -> None:
    other = opened()
    journal.hold("s")
    journal.append("s", [user("mine")])
    for write in (
        lambda: other.append("s", [user("not mine")]),
        lambda: other.record("s", "usage", {}),
        lambda: other.checkpoint("s", {}),
        lambda: other.hold("s"),
        lambda: other.forget("s", [1], blanked),
        lambda: other.remove("s", blanked),
        lambda: journal.hold("s"),
    ):
        with pytest.raises(SessionHeld, match=f"process {os.getpid()} "):
            write()
    assert [each.message["content"] for each in entries(other)] == ["mine"]
    journal.release("s")
    other.hold("s")
    other.append("s", [user("mine now")])
    with pytest.raises(SessionHeld):
        journal.append("s", [user("no more")])


def test_other_sessions_are_free_and_each_is_given_back_by_itself(
    journal: Journal, opened: Callable[[], Journal]
) -> None:
    journal.create("t", {})
    journal.hold("s")
    journal.hold("t")
    journal.release("s")
    journal.release("s")
    other = opened()
    other.hold("s")
    with pytest.raises(SessionHeld):
        other.hold("t")


def test_closing_gives_everything_back(journal: Journal, opened: Callable[[], Journal]) -> None:
    journal.hold("s")
    journal.close()
    opened().hold("s")


HOLDER = """
import sys, time
from pathlib import Path
from perdure.store.sqlite import SqliteJournal
journal = SqliteJournal(Path(sys.argv[1]))
journal.hold("s")
print("held", flush=True)
time.sleep(60)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_holder_that_was_killed_is_replaced_at_once_and_a_living_one_is_named(
    journal: Journal, tmp_path: Path
) -> None:
    process = holder(tmp_path / "s.db")
    try:
        with pytest.raises(SessionHeld, match=f"process {process.pid} ") as held:
            journal.hold("s")
        assert held.value.exit_code == 1
        assert str(process.pid) in held.value.say("zh")
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(SessionHeld):
            journal.hold("s")
    finally:
        process.kill()
        process.communicate()
    journal.hold("s")
    journal.append("s", [user("taken over")])


def test_another_process_of_the_same_number_is_not_the_holder(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[], Journal]
) -> None:
    journal.hold("s")
    monkeypatch.setattr(leases, "started", lambda process: "later")
    opened().hold("s")
    with pytest.raises(SessionHeld):
        journal.append("s", [user("I was replaced")])
    with pytest.raises(SessionHeld):
        journal.beat("s")


def test_a_silent_holder_on_another_machine_counts_as_dead_after_a_minute(
    journal: Journal, opened: Callable[[], Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(leases, "machine", lambda: "elsewhere")
        journal.hold("s")
    now = time.time()
    other = opened()
    with monkeypatch.context() as clock:
        clock.setattr(leases.time, "time", lambda: now + leases.DEAD - 1)
        with pytest.raises(SessionHeld, match="on elsewhere"):
            other.hold("s")
        clock.setattr(leases.time, "time", lambda: now + leases.DEAD + 1)
        other.hold("s")
        with pytest.raises(SessionHeld):
            journal.append("s", [user("too late")])


@pytest.mark.parametrize("ahead", [1, 30, 50, -1, -30, -45])
def test_clocks_that_differ_a_little_rob_no_living_holder_on_another_machine(
    journal: Journal, opened: Callable[[], Journal], monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    clock = [time.time()]
    monkeypatch.setattr(leases.time, "time", lambda: clock[0])
    other = opened()
    journal.hold("s")
    for _ in range(4):
        clock[0] += ahead
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(leases, "machine", lambda: "elsewhere")
            journal.beat("s")
        clock[0] -= ahead
        for _ in range(2):
            with pytest.raises(SessionHeld, match="on elsewhere"):
                other.hold("s")
            clock[0] += leases.BEAT / 2
    journal.append("s", [user("still mine")])


@pytest.mark.parametrize("ahead", [61, 3_600, 365 * 86_400, 10**12])
def test_a_holder_on_another_machine_whose_clock_was_far_ahead_doesnt_keep_a_session(
    journal: Journal, opened: Callable[[], Journal], monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    now = time.time()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(leases, "machine", lambda: "elsewhere")
        elsewhere.setattr(leases.time, "time", lambda: now + ahead)
        journal.hold("s")
    other = opened()
    other.hold("s")
    other.append("s", [user("mine")])
    for write in (lambda: journal.append("s", [user("too late")]), lambda: journal.beat("s")):
        with pytest.raises(SessionHeld):
            write()


def test_on_the_same_machine_no_clock_decides(
    journal: Journal, opened: Callable[[], Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    with monkeypatch.context() as clock:
        clock.setattr(leases.time, "time", lambda: now + 10**9)
        journal.hold("s")
    with pytest.raises(SessionHeld):
        opened().hold("s")


def test_a_holder_that_has_ended_but_whose_parent_never_asks_for_it_is_replaced_at_once(
    journal: Journal, tmp_path: Path
) -> None:
    process = holder(tmp_path / "s.db")
    try:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        journal.hold("s")
    finally:
        process.communicate()


def test_who_lost_a_session_writes_it_no_more_even_when_the_next_one_has_given_it_back(
    journal: Journal, opened: Callable[[], Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(leases, "machine", lambda: "elsewhere")
        journal.hold("s")
    other = opened()
    silent = time.time() + leases.DEAD + 1
    with monkeypatch.context() as clock:
        clock.setattr(leases.time, "time", lambda: silent)
        other.hold("s")
    other.append("s", [user("meanwhile")])
    other.release("s")
    for write in (
        lambda: journal.append("s", [user("too late")]),
        lambda: journal.record("s", "usage", {}),
        lambda: journal.checkpoint("s", {}),
        lambda: journal.beat("s"),
    ):
        with pytest.raises(SessionHeld):
            write()
    journal.release("s")
    journal.hold("s")
    journal.append("s", [user("again")])
    assert [each.message["content"] for each in entries(journal)] == ["meanwhile", "again"]


def test_a_heartbeat_doesnt_change_since_when_a_session_is_held(
    journal: Journal, opened: Callable[[], Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as early:
        early.setattr(leases, "now", lambda: "2020-01-02T03:04:05.000+00:00")
        journal.hold("s")
    journal.beat("s")
    with pytest.raises(SessionHeld, match="since 2020-01-02T03:04:05 UTC"):
        opened().hold("s")


# --- whatever is done

DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.sampled_from(["", "x", "天气" * 9, "\ud800"]), max_size=3)),
        st.tuples(st.just("record"), st.sampled_from(["compaction", "usage", "summary"])),
        st.tuples(st.just("fork"), st.integers(1, 9)),
        st.tuples(st.just("forget"), st.sets(st.integers(1, 9), max_size=3)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("undo"), st.just(0)),
    ),
    max_size=12,
)


@given(DEEDS)
def test_what_a_list_says_of_a_session_is_what_is_there_and_numbers_have_no_gaps(
    deeds: list[tuple[str, Any]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "s.db")
        journal.create("0", {"workspace": folder})
        names = ["0"]
        for number, (deed, what) in enumerate(deeds):
            name = names[number % len(names)]
            if deed == "append":
                journal.append(name, [user(text) for text in what])
            elif deed == "record":
                journal.record(name, what, {"notes": "n"})
            elif deed == "checkpoint":
                journal.checkpoint(name, {})
            elif deed == "forget":
                journal.forget(name, sorted(what), blanked)
            elif deed == "undo":
                if turn := standing(journal.records(name)).turn:
                    journal.record(name, "turn.undone", {"first": turn[0], "last": turn[1]})
            elif what <= at_a_glance(journal, name).entries:
                names.append(str(len(names)))
                journal.fork(name, names[-1], what)
        for name in names:
            there = entries(journal, name)
            seen = at_a_glance(journal, name)
            assert [entry.seq for entry in there] == list(range(1, len(there) + 1))
            undone = undone_entries(journal.records(name))
            turns = [each for each in there if each.seq not in undone]
            assert (seen.entries, seen.turns) == (len(there), len(turns))
            bodies: list[Message] = [
                each.message if isinstance(each, Entry) else dict(each.body) for each in journal.records(name)
            ]
            assert seen.size == sum(len(json.dumps(each, separators=(",", ":"))) for each in bodies)
            asked = [each.message["content"] for each in turns if each.message["content"] != FORGOTTEN]
            assert seen.request == (sendable(asked[-1]) if asked else "")
        journal.close()


def test_the_whole_of_a_result_is_found_by_entry_and_by_name_and_goes_with_it(journal: Journal) -> None:
    journal.append("s", [user("go"), calling("c", "bash", {"command": "seq 9"})])
    beside: list[NewEvent] = [
        (WHOLE, {"name": "abc123", "text": "all of it"}),
        (LEFT, {"tool": "bash", "left": {"folder": "/w/inner"}}),
    ]
    journal.append("s", [result("c", "part of it")], beside)
    journal.append("s", [answer("done")])
    assert journal.whole("s", 3) == "all of it"
    assert journal.entry_of("s", "abc123") == 3
    assert (journal.whole("s", 2), journal.whole("s", 4), journal.entry_of("s", "abc")) == (None, None, None)
    journal.fork("s", "at-the-result", 3)
    journal.fork("s", "before-it", 2)
    assert journal.whole("at-the-result", 3) == "all of it"
    assert journal.entry_of("before-it", "abc123") is None
    assert [each.type for each in journal.records("at-the-result") if isinstance(each, Recorded)][1:3] == [
        WHOLE,
        LEFT,
    ]
    journal.forget("s", [3], blanked)
    for session in ("s", "at-the-result"):
        assert journal.whole(session, 3) is None
        told = json.dumps([each.body for each in journal.records(session) if isinstance(each, Recorded)])
        assert "all of it" not in told
        assert "/w/inner" not in told
