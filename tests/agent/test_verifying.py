"""A session's journal gives the prompts that were sent, byte for byte, or says which ones it doesn't."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.agent.conversation import Conversation, digest, result_message
from perdure.agent.forgetting import blanked
from perdure.agent.verifying import Verified, verified
from perdure.chat.messages import Kind, Message
from perdure.chat.tokens import Usage, counter_for
from perdure.errors import SessionUnknown
from perdure.memory.budget import Budget
from perdure.models.scripted import ScriptedModel
from perdure.store.journal import Recorded
from perdure.store.sqlite import SqliteJournal

WINDOW = 2_400


class Kept:
    """A session in a store, each turn on a model of its own, as an agent runs it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.db"
        self.models: list[ScriptedModel] = []

    def agent(self, *script: Any, **settings: Any) -> Agent:
        self.models.append(ScriptedModel(list(script)))
        given = {"store": str(self.path), "context_window": WINDOW, "embedder": "none", **settings}
        return Agent(client=self.models[-1], **given)

    def turn(self, task: str, *script: Any, **settings: Any) -> None:
        agent = self.agent(*(script or ("Done.",)), **settings)
        assert agent.run_sync(task, session="s").status == "answered"

    def verified(self, session: str = "s") -> Verified:
        journal = SqliteJournal(self.path)
        try:
            before = list(journal.records(session))
            found = verified(journal, session)
            assert list(journal.records(session)) == before, "looking changes nothing"
            return found
        finally:
            journal.close()

    def changes(self, statement: str, *values: Any) -> None:
        """Somebody else's hand in the file."""
        with sqlite3.connect(self.path) as connection:
            assert connection.execute(statement, values).rowcount
        connection.close()

    @property
    def thought(self) -> int:
        return sum(len(model.requests) for model in self.models)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def works(kept: Kept, turns: int = 8, start: int = 0) -> None:
    for number in range(start, start + turns):
        kept.turn(
            f"Look at part_{number}.py, please. " + "blah " * 90,
            [("calculator", json.dumps({"expression": f"{number} + 1"}))],
            f"It is {number + 1}. " + "yes " * 40,
            summary="code",
        )


def test_prompts_of_an_agent_with_tools_and_compactions_come_out_as_they_were_sent(kept: Kept) -> None:
    works(kept)
    journal = SqliteJournal(kept.path)
    assert any(each.type == "compaction" for each in journal.records("s") if isinstance(each, Recorded))
    journal.close()
    assert kept.verified() == Verified(kept.thought, [], 0)


def test_each_undoing_leaves_the_prompts_before_it_as_they_were(kept: Kept) -> None:
    works(kept)
    sessions = kept.agent().sessions
    with sessions:
        assert sessions.undo_turn("s")
        assert sessions.undo_compaction("s")
    works(kept, 3, start=20)
    with sessions:
        assert sessions.undo_turn("s")
        assert sessions.undo_turn("s")
    works(kept, 2, start=30)
    assert kept.verified() == Verified(kept.thought, [], 0)


@pytest.mark.parametrize("undo", [False, True], ids=["as it stands", "after an undo"])
def test_after_something_was_forgotten_what_cannot_be_compared_is_unknown_and_the_rest_the_same(
    kept: Kept, undo: bool
) -> None:
    works(kept)
    sessions = kept.agent().sessions
    with sessions:
        sessions.forget("s", sessions.holding("s", "part_2.py"))
        if undo:
            assert sessions.undo_compaction("s")
    before = kept.thought
    works(kept, 4, start=20)
    found = kept.verified()
    assert found.different == []
    assert found.same + found.unknown == kept.thought
    assert found.same >= kept.thought - before + 4, "what was sent before and afterwards can be compared"
    assert found.unknown > 0


def test_forks_of_each_entry_come_out_the_same(kept: Kept) -> None:
    works(kept, 3)
    sessions = kept.agent().sessions
    with sessions:
        for at in range(1, sessions.count("s") + 1):
            sessions.fork("s", f"f{at}", at)
            assert sessions.verify(f"f{at}").different == []
        assert sessions.verify("f12").same == 6


def conversation(journal: SqliteJournal) -> Conversation:
    """A session with two calls of the model, each prompt journaled."""
    journal.create("t", {"system": "be brief", "lang": "en"})
    conversation = Conversation(journal, "t", counter_for(None), Budget.of(WINDOW))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    conversation.add(Kind.USER, {"role": "user", "content": "call it"})
    conversation.used("think", Usage(10, 1))
    calls: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
    conversation.add(Kind.TOOL_CALL, calls)
    conversation.add(Kind.TOOL_RESULT, result_message("c", "one"))
    conversation.used("think", Usage(20, 1))
    conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": "it is one"})
    return conversation


@pytest.fixture
def told(kept: Kept) -> Iterator[Kept]:
    journal = SqliteJournal(kept.path)
    conversation(journal)
    journal.close()
    yield kept


@pytest.mark.parametrize(
    ("statement", "different"),
    [
        ("UPDATE record SET body = replace(body, 'call it', 'Call it') WHERE seq = 1", [1, 3]),
        ("UPDATE record SET body = replace(body, 'one', 'two') WHERE seq = 3", [3]),
        ("UPDATE record SET body = replace(body, ': 1}', ': 2}') WHERE seq = 2", [3]),
        (
            "UPDATE record SET body = replace(body, 'be brief', 'be long') WHERE type = 'session.created'",
            [1, 3],
        ),
        ("DELETE FROM record WHERE seq = 1", [1, 3]),
        ("DELETE FROM record WHERE seq = 3", [3]),
    ],
)
def test_a_journal_that_was_tampered_with_is_noticed(
    told: Kept, statement: str, different: list[int]
) -> None:
    assert told.verified("t") == Verified(2, [], 0)
    told.changes(statement)
    found = told.verified("t")
    assert set(found.different) & set(different)
    assert found.same + len(found.different) + found.unknown <= 2
    if "DELETE" not in statement:
        assert found.different == different


def test_what_happens_after_the_last_prompt_changes_none(told: Kept) -> None:
    told.changes("UPDATE record SET body = replace(body, 'it is one', 'it is two') WHERE seq = 4")
    assert told.verified("t") == Verified(2, [], 0)


def test_prompts_of_an_older_perdure_are_unknown_and_not_different(told: Kept) -> None:
    told.changes("UPDATE record SET body = json_remove(body, '$.prompt') WHERE type = 'usage'")
    assert told.verified("t") == Verified(0, [], 2)


def test_other_calls_than_the_conversations_own_are_not_compared(told: Kept) -> None:
    journal = SqliteJournal(told.path)
    Conversation(journal, "t", counter_for(None), Budget.of(WINDOW)).used("summarize", Usage(9, 9))
    journal.close()
    assert told.verified("t") == Verified(2, [], 0)


def test_a_digest_tells_prompts_apart(told: Kept) -> None:
    journal = SqliteJournal(told.path)
    opened = Conversation(journal, "t", counter_for(None), Budget.of(WINDOW))
    before = digest(opened.memory)
    opened.add(Kind.USER, {"role": "user", "content": "\ud800"})
    assert digest(opened.memory) != before
    journal.close()


def test_a_session_that_was_never_opened_has_no_prompts_and_one_that_is_not_there_is_named(
    kept: Kept,
) -> None:
    journal = SqliteJournal(kept.path)
    journal.create("new", {"system": "", "lang": "en"})
    assert verified(journal, "new") == Verified(0, [], 0)
    with pytest.raises(SessionUnknown):
        verified(journal, "nobody")
    journal.close()


def test_forgetting_an_entry_leaves_no_word_of_it_where_prompts_are_replayed(told: Kept) -> None:
    journal = SqliteJournal(told.path)
    journal.forget("t", [3], blanked)
    assert verified(journal, "t") == Verified(1, [], 1)
    journal.forget("t", [1], blanked)
    assert verified(journal, "t") == Verified(0, [], 2)
    journal.close()
