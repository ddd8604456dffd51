from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.counting import CharacterCounter
from perdure.agent.conversation import Conversation, result_message
from perdure.agent.prompts import RESULT_LEFT_OUT
from perdure.chat.messages import Entry, Kind, Message, kind_of
from perdure.chat.repair import INTERRUPTED
from perdure.chat.tokens import TextCounter
from perdure.memory.budget import Budget
from perdure.store.sqlite import SqliteJournal

WIDER = TextCounter("halves", lambda text: (len(text) + 1) // 2)


def opened(journal: SqliteJournal) -> Conversation:
    return Conversation(journal, "s", CharacterCounter(), Budget.of(3000))


def test_a_session_that_is_opened_again_has_the_same_prompt_byte_for_byte(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "s.db")
    journal.create("s", {"system": "be brief", "lang": "en"})
    conversation = opened(journal)
    compactions = 0
    for number in range(30):
        conversation.add(Kind.USER, {"role": "user", "content": f"question {number} " + "blah " * 60})
        compactions += conversation.compact() is not None
        assert opened(journal).prompt() == conversation.prompt()
        conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": "answer " * 30})
    assert compactions > 3


def test_reading_a_prompt_lets_nothing_leave_that_the_journal_does_not_know_of(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "s.db")
    journal.create("s", {"system": "be brief", "lang": "en"})
    conversation = opened(journal)
    messages: list[Message] = [{"role": "user", "content": f"{number} " + "x" * 900} for number in range(6)]
    conversation.add_all([(Kind.USER, message) for message in messages])
    assert conversation.prompt()[1:] == messages
    assert conversation.compact() is not None
    assert opened(journal).prompt() == conversation.prompt() != messages


def calling(*ids: str) -> Message:
    calls = [{"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def written(journal: SqliteJournal, *messages: Message) -> None:
    """As another process, or an older perdure, would have written them."""
    journal.append("s", [(kind_of(message), message, 20) for message in messages])


def said(text: str) -> Message:
    return {"role": "user", "content": text}


def shape(prompt: list[Message]) -> list[str]:
    """Each message's role, with what its result or its person says."""
    return [
        each["role"] if each.get("tool_calls") else f"{each['role']}: {each['content']}" for each in prompt
    ]


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    journal = SqliteJournal(tmp_path / "s.db")
    journal.create("s", {"system": "be brief", "lang": "en"})
    return journal


def test_what_comes_while_calls_are_open_answers_them_first(journal: SqliteJournal) -> None:
    conversation = opened(journal)
    conversation.add(Kind.USER, said("do it"))
    conversation.add(Kind.TOOL_CALL, calling("a", "b"))
    conversation.add(Kind.TOOL_RESULT, result_message("a", "one"))
    assert conversation.add(Kind.USER, said("are you there?")).message == said("are you there?")
    for each in (conversation, opened(journal), Conversation(journal, "s", WIDER, Budget.of(3000))):
        assert shape(each.prompt())[2:] == [
            "assistant",
            "tool: one",
            f"tool: {INTERRUPTED}",
            "user: are you there?",
        ]
        assert not each.mended


def test_opening_a_session_closes_no_calls(journal: SqliteJournal) -> None:
    running = opened(journal)
    running.add(Kind.USER, said("do it"))
    running.add(Kind.TOOL_CALL, calling("a"))
    beside = opened(journal)
    beside.compact(force=True)
    beside.undo_compaction()
    running.add(Kind.TOOL_RESULT, result_message("a", "the real result"))
    assert shape(opened(journal).prompt())[-1] == "tool: the real result"


def test_of_two_results_for_a_call_the_first_counts_and_the_other_is_named(journal: SqliteJournal) -> None:
    running = opened(journal)
    running.add(Kind.USER, said("do it"))
    running.add(Kind.TOOL_CALL, calling("a"))
    beside = opened(journal)
    beside.add(Kind.USER, said("go on"))
    running.add(Kind.TOOL_RESULT, result_message("a", "too late"))
    reopened = opened(journal)
    assert shape(reopened.prompt())[2:] == ["assistant", f"tool: {INTERRUPTED}", "user: go on"]
    assert reopened.mended == [(RESULT_LEFT_OUT, 5)]
    assert journal.entries("s", [5])[0].message["content"] == "too late", "it can be read back"


@pytest.mark.parametrize("looking", [True, False])
def test_a_journal_that_was_left_out_of_order_is_paired_in_the_prompt(
    journal: SqliteJournal, looking: bool
) -> None:
    written(journal, said("do it"), calling("a", "b"), result_message("a", "one"), said("hello?"))
    count = len(list(journal.records("s")))
    conversation = Conversation(journal, "s", CharacterCounter(), Budget.of(3000), looking=looking)
    assert shape(conversation.prompt())[3:] == ["tool: one", f"tool: {INTERRUPTED}", "user: hello?"]
    assert (len(list(journal.records("s"))) == count) is looking
    assert opened(journal).prompt() == conversation.prompt()


def assert_paired_in_any_order(prompt: list[Message]) -> None:
    expected: set[str] = set()
    for message in prompt:
        if message["role"] == "tool":
            expected.remove(message["tool_call_id"])
        else:
            assert not expected
            expected = {call["id"] for call in message.get("tool_calls") or ()}
    assert not expected


kinds_written = st.lists(
    st.sampled_from(
        ["user", "assistant", "call 1", "call 2", "result", "again", "strange", "compact", "open"]
    ),
    max_size=25,
)


@given(kinds_written)
@settings(max_examples=150, deadline=None)
def test_whatever_the_order_in_a_journal_the_prompt_is_paired_and_nothing_is_lost(script: list[str]) -> None:
    with TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "s.db")
        journal.create("s", {"system": "be brief", "lang": "en"})
        waiting: list[str] = []
        for number, step in enumerate(script):
            if step.startswith("call"):
                ids = [f"{number}-{each}" for each in range(int(step[-1]))]
                waiting += ids
                written(journal, calling(*ids))
            elif step == "result" and waiting:
                written(journal, result_message(waiting.pop(number % len(waiting)), f"result {number}"))
            elif step == "again" and waiting:
                written(journal, result_message(waiting[-1], f"result {number}"))
            elif step == "strange":
                written(journal, result_message("nobody's", "?"))
            elif step == "compact":
                opened(journal).compact(force=True)
            elif step == "open":
                opened(journal)
            elif step in {"user", "assistant"}:
                written(journal, {"role": step, "content": f"{number} " + "words " * 20})
        before = [record for record in journal.records("s") if isinstance(record, Entry)]
        looked = Conversation(journal, "s", CharacterCounter(), Budget.of(3000), looking=True)
        live = opened(journal)
        live.add(Kind.USER, said("and now?"))
        live.compact()
        for each in (looked, live, opened(journal)):
            assert_paired_in_any_order(each.prompt())
        assert opened(journal).prompt() == live.prompt()
        kept = [record for record in journal.records("s") if isinstance(record, Entry)]
        assert kept[: len(before)] == before
        journal.close()
