"""A session opened on its checkpoint is the session opened on all its records, byte for byte."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.counting import CharacterCounter
from memory.histories import turns
from perdure.agent.conversation import Conversation
from perdure.chat.messages import Kind, Message, kind_of
from perdure.chat.tokens import TextCounter, TokenCounter, Usage
from perdure.memory.budget import Budget
from perdure.store.journal import Recorded
from perdure.store.sqlite import SqliteJournal

WIDER = TextCounter("halves", lambda text: (len(text) + 1) // 2)
ABOUT = {"model": "m", "seconds": 0.1}


class Store:
    """One file with the session "s" in it; everything is opened anew each time it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "s.db"
        self.journals: list[SqliteJournal] = []
        journal = self.journal()
        if not journal.exists("s"):
            journal.create("s", {"system": "be brief", "lang": "en"})

    def journal(self, path: Path | None = None) -> SqliteJournal:
        self.journals.append(SqliteJournal(path or self.path))
        return self.journals[-1]

    def opened(
        self,
        counter: TokenCounter | None = None,
        window: int = 3000,
        model: str = "",
        *,
        path: Path | None = None,
        looking: bool = False,
        summarised: bool = True,
    ) -> Conversation:
        journal, budget = self.journal(path), Budget.of(window)
        return Conversation(
            journal,
            "s",
            counter or CharacterCounter(),
            budget,
            model=model,
            looking=looking,
            summarised=summarised,
        )

    def copied_without_checkpoint(self) -> Path:
        """The same records in a file of their own."""
        copy = self.folder / "copy.db"
        for each in self.folder.glob("copy.db*"):
            each.unlink()
        with sqlite3.connect(self.path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        shutil.copyfile(self.path, copy)
        with sqlite3.connect(copy) as connection:
            connection.execute("DELETE FROM checkpoint")
        connection.close()
        return copy

    def checkpoint(self) -> dict[str, Any] | None:
        with sqlite3.connect(self.path) as connection:
            row = connection.execute("SELECT body FROM checkpoint").fetchone()
        connection.close()
        return json.loads(row[0]) if row else None

    def records(self) -> list[Any]:
        return list(self.journal().records("s"))

    def close(self) -> None:
        for journal in self.journals:
            journal.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def asked(conversation: Conversation, number: int, length: int = 60) -> None:
    conversation.add(Kind.USER, {"role": "user", "content": f"question {number} " + "blah " * length})
    conversation.compact()


def answered(conversation: Conversation, number: int) -> None:
    conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": f"answer {number} " + "yes " * 30})


def talks(conversation: Conversation, turns: int, start: int = 0) -> None:
    for number in range(start, start + turns):
        asked(conversation, number)
        answered(conversation, number)


def summarised(conversation: Conversation, *, later: bool = False) -> bool:
    request = conversation.summary_request()
    if request is None:
        return False
    facts = "; ".join([*request.literals, f"they talked of words up to {request.covered}"])
    reply: Message = {"role": "assistant", "content": f"Facts:\n- {facts}"}
    return conversation.accept(reply, request, cut=False, about=ABOUT, later=later).summary is not None


def all_of(conversation: Conversation) -> str:
    """All that a conversation's next prompts depend on."""
    memory = conversation.memory
    known = [memory.limit, conversation.budget.window, conversation.budget.output, memory.scale]
    rest = [conversation.failed_summaries, conversation.compactions_since_failure, conversation.lang]
    return json.dumps([conversation.prompt(), memory.as_json(), memory.tokens, *known, *rest])


def assert_both_ways_are_the_same(store: Store, **options: Any) -> None:
    copy = store.copied_without_checkpoint()
    on_checkpoint = store.opened(looking=True, **options)
    on_records = store.opened(path=copy, looking=True, **options)
    assert json.dumps(on_checkpoint.prompt()) == json.dumps(on_records.prompt())
    assert all_of(on_checkpoint) == all_of(on_records)
    for number in range(12):
        for each in (on_checkpoint, on_records):
            # Nothing is written: both go on as one would that had been opened so.
            for text in (f"later {number} " + "blah " * 40, "well " * 30):
                kind = Kind.USER if text.startswith("later") else Kind.ASSISTANT
                each.memory.append({"role": kind.value, "content": text})
            each.memory.compact()
        assert json.dumps(on_checkpoint.prompt()) == json.dumps(on_records.prompt())


done = st.sampled_from(
    [
        "compact",
        "force",
        "undo",
        "summarise",
        "summarise later",
        "fail",
        "usage",
        "refused",
        "other",
        "reopen",
    ]
)
scripts = st.lists(turns() | done.map(lambda each: [each]), min_size=3, max_size=20).map(
    lambda parts: [step for part in parts for step in part]
)


def goes_on(store: Store, conversation: Conversation, step: Message | str) -> Conversation:
    if not isinstance(step, str):
        conversation.add(kind_of(step), step)
    elif step == "undo":
        conversation.undo_compaction()
    elif step.startswith("summarise"):
        summarised(conversation, later=step.endswith("later"))
    elif step == "fail":
        conversation.summary_failed("timeout", {"model": "m"})
    elif step == "usage" and conversation.tokens > 500:
        conversation.learn_usage(conversation.tokens, Usage(conversation.tokens * 11 // 10, 5))
    elif step == "refused" and conversation.tokens > 1200 and conversation.budget.window > 2800:
        conversation.learn_window(conversation.budget.window - 100, conversation.tokens)
        conversation.compact()
    elif step == "other":
        store.opened(model="m").compact(force=True)
        return store.opened(model="m")
    elif step == "reopen":
        return store.opened(model="m")
    else:
        conversation.compact(force=step == "force")
    return conversation


@given(scripts)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happened_to_a_session_its_checkpoint_opens_it_as_its_records_do(
    tmp_path_factory: pytest.TempPathFactory, script: list[Message | str]
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    try:
        conversation = store.opened(model="m")
        conversation.add(Kind.USER, {"role": "user", "content": "Go through all of it."})
        for step in script:
            if not conversation.memory.open_calls or (
                isinstance(step, dict) and step.get("tool_call_id") in conversation.memory.open_calls
            ):
                conversation = goes_on(store, conversation, step)
        conversation.close_open_calls()
        assert_both_ways_are_the_same(store, model="m")
        assert store.opened(looking=True, model="m").prompt() == conversation.prompt()
    finally:
        store.close()


def test_a_checkpoint_is_kept_and_opening_reads_only_what_came_after_it(store: Store) -> None:
    conversation = store.opened()
    for number in range(40):
        asked(conversation, number, length=number)
        answered(conversation, number)
    state = store.checkpoint()
    assert state is not None
    assert 70 < state["memory"]["standing"][0][0] < 80
    with sqlite3.connect(store.path) as connection:
        # What has left the window isn't looked at: it could be anything.
        connection.execute(
            "UPDATE record SET body = 'no JSON' WHERE seq < ?", [state["memory"]["standing"][0][0]]
        )
    connection.close()
    assert store.opened(looking=True).prompt() == conversation.prompt()


def test_after_an_undo_both_ways_are_the_same(store: Store) -> None:
    conversation = store.opened()
    talks(conversation, 20)
    conversation.undo_compaction()
    assert_both_ways_are_the_same(store)
    talks(conversation, 3, start=20)
    assert_both_ways_are_the_same(store)


def test_an_undo_by_an_older_opening_is_seen_by_the_next_one(store: Store) -> None:
    """The undo stands behind a checkpoint in the journal, where it couldn't make one of its own."""
    talks(store.opened(), 20)
    store.journal().record("s", "compaction.undone", {})
    assert_both_ways_are_the_same(store)


@pytest.mark.parametrize("wrote", ["an entry", "a compaction", "an entry and a compaction"])
def test_what_another_process_wrote_in_between_is_in_the_prompt(store: Store, wrote: str) -> None:
    mine = store.opened()
    talks(mine, 12)
    other = store.opened()
    if "entry" in wrote:
        other.add(Kind.USER, {"role": "user", "content": "I am another process."})
    if "compaction" in wrote:
        assert other.compact(force=True)
    mine.compact(force=True)
    assert_both_ways_are_the_same(store)
    if "entry" in wrote:
        assert "I am another process." in json.dumps(store.opened().prompt())
    talks(mine, 8, start=12)
    assert_both_ways_are_the_same(store)
    talks(store.opened(), 12, start=20)
    assert_both_ways_are_the_same(store)


def test_with_another_counter_both_ways_are_the_same(store: Store) -> None:
    talks(store.opened(), 20)
    assert_both_ways_are_the_same(store, counter=WIDER)
    talks(store.opened(WIDER, 1500), 5, start=20)
    assert_both_ways_are_the_same(store, counter=WIDER, window=1500)
    assert_both_ways_are_the_same(store)


def test_entries_that_another_counter_counted_are_counted_anew_both_ways(store: Store) -> None:
    talks(store.opened(), 6)
    conversation = store.opened(WIDER)
    for number in range(6, 18):
        talks(conversation, 1, start=number)
        conversation.compact(force=True)
        assert conversation.memory.tokens == sum(map(WIDER.message, conversation.prompt()))
        assert_both_ways_are_the_same(store, counter=WIDER)


def test_with_another_model_and_another_window_both_ways_are_the_same(store: Store) -> None:
    conversation = store.opened(model="one")
    talks(conversation, 20)
    conversation.learn_usage(conversation.tokens, Usage(conversation.tokens * 2, 5))
    talks(conversation, 10, start=20)
    assert_both_ways_are_the_same(store, model="two", window=5000)
    assert_both_ways_are_the_same(store, model="one", window=2500)


def test_where_code_wrote_the_gist_and_then_a_model_does_both_ways_are_the_same(store: Store) -> None:
    talks(store.opened(summarised=False), 12)
    assert_both_ways_are_the_same(store)
    assert store.opened(looking=True).memory.record.pending == ()
    conversation = store.opened()
    talks(conversation, 6, start=12)
    assert conversation.memory.record.pending
    assert_both_ways_are_the_same(store)
    assert_both_ways_are_the_same(store, summarised=False)


def test_what_another_session_taught_of_the_model_holds_both_ways(store: Store) -> None:
    talks(store.opened(model="m"), 20)
    store.journal().learn("m", {"highest": 1.4, "reports": 9})
    assert_both_ways_are_the_same(store, model="m")


def test_a_window_once_learnt_holds_both_ways_whatever_windows_came_between(store: Store) -> None:
    conversation = store.opened(window=4000)
    talks(conversation, 12)
    conversation.learn_window(2800, None)
    conversation.compact()
    talks(store.opened(window=2500), 10, start=12)
    assert_both_ways_are_the_same(store, window=4000)
    assert store.opened(window=4000).budget.window <= 2800


def test_a_refusal_that_ends_a_scale_below_one_holds_both_ways(store: Store) -> None:
    conversation = store.opened(TextCounter("estimate", len), model="m")
    talks(conversation, 8)
    for _ in range(4):
        conversation.learn_usage(conversation.tokens, Usage(conversation.tokens * 7 // 10, 5))
    assert conversation.memory.scale < 1
    conversation.learn_window(2800, None)
    conversation.compact()
    assert_both_ways_are_the_same(store, counter=TextCounter("estimate", len), model="m")


@pytest.mark.parametrize("form", [0, 99, None])
def test_a_checkpoint_of_another_form_is_not_read_but_made_anew(store: Store, form: int | None) -> None:
    conversation = store.opened()
    talks(conversation, 20)
    store.journal().checkpoint("s", {"form": form, "memory": "in another form"})
    reopened = store.opened()
    assert reopened.prompt() == conversation.prompt()
    talks(reopened, 6, start=20)
    state = store.checkpoint()
    assert state is not None
    assert state["form"] != form
    assert_both_ways_are_the_same(store)


def test_an_undo_brings_the_entries_back_and_a_second_one_those_before(store: Store) -> None:
    conversation = store.opened()
    before: list[list[int]] = []
    number = 0
    while len(before) < 3:
        conversation.add(Kind.USER, {"role": "user", "content": f"question {number} " + "blah " * 60})
        standing = [entry.seq for entry in conversation.memory.entries]
        if conversation.compact():
            before.append(standing)
            summarised(conversation)
        answered(conversation, number)
        number += 1
    for standing in reversed(before):
        back = conversation.undo_compaction()
        assert back
        now = [entry.seq for entry in conversation.memory.entries]
        assert set(back) <= set(now)
        assert now[: len(standing)] == standing
        assert store.opened(looking=True).prompt() == conversation.prompt()
    assert conversation.memory.notes == ""
    records = len(store.records())
    assert conversation.undo_compaction() is None
    assert len(store.records()) == records, "nothing was undone, and nothing is written"
    assert (
        len([each for each in store.records() if not isinstance(each, Recorded)])
        == conversation.memory.newest
    )


def test_an_undo_takes_the_summary_back_with_its_compaction(store: Store) -> None:
    conversation = store.opened()
    talks(conversation, 12)
    assert summarised(conversation)
    asked(conversation, 12)
    notes, summary = conversation.memory.notes, conversation.memory.record.summary
    assert conversation.compact(force=True)
    assert summarised(conversation)
    assert conversation.memory.record.summary != summary
    conversation.undo_compaction()
    assert conversation.memory.record.summary == summary
    assert conversation.memory.notes == notes


def test_after_an_undo_what_failed_before_is_counted_once(store: Store) -> None:
    conversation = store.opened()
    talks(conversation, 12)
    conversation.summary_failed("timeout", {"model": "m"})
    talks(conversation, 12, start=12)
    assert conversation.undo_compaction()
    reopened = store.opened(path=store.copied_without_checkpoint(), looking=True)
    assert conversation.failed_summaries == reopened.failed_summaries == 1
    assert conversation.compactions_since_failure == reopened.compactions_since_failure


def test_who_only_looks_writes_nothing(store: Store) -> None:
    conversation = store.opened(model="m")
    talks(conversation, 12)
    calls: Message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    conversation.add(Kind.TOOL_CALL, calls)
    before, state, learnt = store.records(), store.checkpoint(), store.journal().learnt("m")
    looking = store.opened(WIDER, 9000, "m", looking=True)
    looking.compact(force=True)
    summarised(looking)
    looking.summary_failed("timeout", {"model": "m"})
    looking.learn_usage(2000, Usage(2200, 5, 100))
    looking.learn_window(2500, None)
    assert (store.records(), store.checkpoint(), store.journal().learnt("m")) == (before, state, learnt)
