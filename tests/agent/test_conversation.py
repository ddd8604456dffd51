from __future__ import annotations

from pathlib import Path

from memory.counting import CharacterCounter
from perdure.agent.conversation import Conversation
from perdure.chat.messages import Kind, Message
from perdure.memory.budget import Budget
from perdure.store.sqlite import SqliteJournal


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
