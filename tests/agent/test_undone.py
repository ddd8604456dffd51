"""Whatever happened in a session: undoing its last turn gives the prompt that stood before it, what was
forgotten is in no prompt, and replaying its journal gives the prompts that were sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.histories import assert_paired, turns
from perdure.agent.conversation import Conversation
from perdure.agent.forgetting import FORGOTTEN, blanked
from perdure.agent.undone import standing
from perdure.agent.verifying import Verified, verified
from perdure.app import Sessions
from perdure.chat.messages import Entry, Kind, Message, kind_of
from perdure.chat.tokens import Usage, counter_for
from perdure.config import Settings
from perdure.memory.budget import Budget
from perdure.store.journal import Recorded
from perdure.store.sqlite import SqliteJournal

ABOUT = {"model": "m", "seconds": 0.1}
SECRET = "quokka-7731"


class Session:
    """The session "s" as a process has it, and what its prompts were before each turn that stands."""

    def __init__(self, folder: Path, window: int = 1500) -> None:
        self.path = folder / "s.db"
        self.window = window
        self.journal = SqliteJournal(self.path)
        self.journal.create("s", {"system": "be brief", "lang": "en"})
        self.conversation = self.opened()
        #: Of each turn that stands; None where something since has changed what came before it.
        self.before: list[str | None] = []
        #: How many turns stood when each compaction that stands was made.
        self.compacted: list[int] = []
        self.sent = 0
        self.forgot = False

    def opened(self, session: str = "s", *, looking: bool = False) -> Conversation:
        return Conversation(
            self.journal, session, counter_for(None), Budget.of(self.window), model="m", looking=looking
        )

    def prompt(self) -> str:
        return json.dumps(self.conversation.prompt())

    def reopens(self) -> None:
        self.conversation = self.opened()

    def does(self, step: list[Message] | str) -> None:
        if isinstance(step, list):
            self.turn(step)
        elif not self.before or step == "reopen":
            self.reopens()
        else:
            getattr(self, step.replace(" ", "_"))()

    def turn(self, messages: Sequence[Message], excerpt: str = "") -> None:
        self.conversation.close_open_calls()
        self.before.append(self.prompt())
        asked, *rest = messages
        if excerpt:
            self.conversation.ask(asked["content"], excerpt, [("s", 1)])
        else:
            self.conversation.add(Kind.USER, asked)
        for message in rest:
            if message["role"] == "assistant":
                self.compacts()
                self.conversation.used("think", Usage(100, 10))
                self.sent += 1
            self.conversation.add(kind_of(message), message)

    def recalls(self) -> None:
        self.turn([said("user", "what was it?"), said("assistant", "that")], excerpt="[1] somebody said it")

    def stops(self) -> None:
        """A turn that ends between a call and its result."""
        call = {"id": f"c{self.sent}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        calls: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
        self.turn([said("user", "call it"), calls])

    def compacts(self, *, force: bool = False) -> None:
        if self.conversation.compact(force=force):
            self.compacted.append(len(self.before))

    def forces(self) -> None:
        self.conversation.close_open_calls()
        self.compacts(force=True)

    def summarises(self, *, later: bool = False) -> None:
        request = self.conversation.summary_request()
        if request is None:
            return
        facts = "; ".join([*request.literals, f"they talked of words up to {request.covered}"])
        reply = said("assistant", f"Facts:\n- {facts}")
        self.conversation.accept(reply, request, cut=False, about=ABOUT, later=later)

    def summarises_later(self) -> None:
        self.summarises(later=True)

    def fails(self) -> None:
        self.conversation.summary_failed("timeout", {"model": "m"})

    def undoes_compaction(self) -> None:
        self.conversation.close_open_calls()
        if self.conversation.undo_compaction() is None:
            assert not self.compacted
            return
        turn = self.compacted.pop()
        self.before = [each if at < turn else None for at, each in enumerate(self.before)]

    def undoes_turn(self) -> None:
        with sessions(self.journal) as kept:
            assert kept.undo_turn("s")
        self.reopens()
        before = self.before.pop()
        self.compacted = [turn for turn in self.compacted if turn <= len(self.before)]
        if before is not None:
            assert self.prompt() == before

    def forgets(self) -> None:
        """Of what stands or stood, the third entry from the end."""
        number = max(self.conversation.memory.newest - 2, 1)
        self.journal.forget("s", [number], blanked)
        self.forgot = True
        self.before = [None] * len(self.before)
        self.reopens()

    def forks(self) -> None:
        """The work goes on in a fork from the newest entry, which is called "s" here no less."""
        newest = self.conversation.memory.newest
        name = f"fork {newest} {self.sent}"
        prompt, last = self.prompt(), list(self.journal.records("s"))[-1]
        if self.journal.exists(name):
            return
        self.journal.fork("s", name, newest)
        if isinstance(last, Entry) and not self.conversation.memory.open_calls:
            assert json.dumps(self.opened(name, looking=True).prompt()) == prompt
        assert verified(self.journal, name).different == []


def sessions(journal: SqliteJournal) -> Sessions:
    return Sessions(Settings(store=str(journal.path)), journal=journal)


def said(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def talks(session: Session, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        session.turn(
            [
                said("user", f"question {number} " + "blah " * 60),
                said("assistant", f"answer {number} " + "yes " * 30),
            ]
        )


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.journal.close()


STEPS = (
    "recalls",
    "stops",
    "forces",
    "summarises",
    "summarises later",
    "fails",
    "reopen",
    "undoes compaction",
    "undoes turn",
    "forks",
)


def scripts(*more: str) -> st.SearchStrategy[list[list[Message] | str]]:
    """What happens in a session: turns, and what a person, a model or a process does between them."""
    return st.lists(turns() | st.sampled_from((*STEPS, *more)), min_size=3, max_size=25)


@given(scripts())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_undoing_turn_by_turn_gives_the_prompts_that_stood_before_each(
    tmp_path_factory: pytest.TempPathFactory, script: list[list[Message] | str]
) -> None:
    session = Session(tmp_path_factory.mktemp("session"))
    try:
        for step in script:
            session.does(step)
        assert verified(session.journal, "s") == Verified(session.sent, [], 0)
        while session.before:
            session.undoes_turn()
            assert_paired(session.conversation.prompt())
        assert json.loads(session.prompt()) == [said("system", "be brief")]
        with sessions(session.journal) as kept:
            assert kept.undo_turn("s") is None
        assert verified(session.journal, "s") == Verified(session.sent, [], 0)
    finally:
        session.journal.close()


@given(scripts("forgets"))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_was_forgotten_and_taken_back_no_prompt_comes_out_otherwise(
    tmp_path_factory: pytest.TempPathFactory, script: list[list[Message] | str]
) -> None:
    session = Session(tmp_path_factory.mktemp("session"))
    try:
        for step in script:
            session.does(step)
            looking = session.opened(looking=True)
            assert_paired(looking.prompt())
            memory = looking.memory
            assert memory.record.left or memory.hides or not memory.notes, "notes are on what left"
        found = verified(session.journal, "s")
        assert (found.different, found.same + found.unknown) == ([], session.sent)
        assert session.forgot or not found.unknown
        while session.before:
            session.undoes_turn()
        assert json.loads(session.prompt()) == [said("system", "be brief")]
        assert verified(session.journal, "s").different == []
    finally:
        session.journal.close()


@given(scripts("forgets"), st.integers(0, 30))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_forgotten_is_in_no_prompt_whatever_is_taken_back_then(
    tmp_path_factory: pytest.TempPathFactory, script: list[list[Message] | str], at: int
) -> None:
    session = Session(tmp_path_factory.mktemp("session"))
    try:
        script.insert(at, [said("user", f"the word is {SECRET}"), said("assistant", f"{SECRET}, I see")])
        for step in script:
            session.does(step)
        with sessions(session.journal) as kept:
            numbers = kept.holding("s", SECRET)
            assert numbers
            gone = kept.forget("s", numbers)
            assert set(numbers) <= set(gone.entries["s"])
        for each in session.journal.sessions():
            records = [
                json.dumps(getattr(one, "message", getattr(one, "body", "")))
                for one in session.journal.records(each.name)
            ]
            assert not [one for one in records if SECRET in one]
        session.before = [None] * len(session.before)
        session.reopens()
        assert SECRET not in session.prompt()
        while session.before:
            session.undoes_turn()
            assert SECRET not in session.prompt()
        assert verified(session.journal, "s").different == []
        for file in session.path.parent.glob("s.db*"):
            assert SECRET.encode() not in file.read_bytes()
    finally:
        session.journal.close()


def test_undoing_brings_back_what_the_turn_had_compacted(session: Session) -> None:
    talks(session, 3)
    before = session.prompt()
    session.turn([said("user", "and now this"), said("assistant", "yes")])
    session.forces()
    session.summarises()
    assert session.prompt() != before
    session.undoes_turn()
    assert session.prompt() == before


def test_what_was_recalled_for_a_request_goes_with_its_turn(session: Session) -> None:
    talks(session, 2)
    before = session.prompt()
    session.recalls()
    with sessions(session.journal) as kept:
        assert kept.undo_turn("s") == (5, 7)
        session.reopens()
        assert session.prompt() == before
        assert kept.undo_turn("s") == (3, 4), "the excerpt is not of the turn before it"
        assert kept.undo_turn("s") == (1, 2)
        assert kept.undo_turn("s") is None


def test_an_excerpt_whose_turn_was_taken_back_belongs_to_no_later_one(session: Session) -> None:
    talks(session, 2)
    session.recalls()
    session.journal.fork("s", "fork", 5)
    with sessions(session.journal) as kept:
        assert kept.undo_turn("fork") == (3, 5)
        session.journal.append("fork", [(Kind.USER, {"role": "user", "content": "anew"}, 3)])
        assert kept.undo_turn("fork") == (6, 6)
        assert kept.undo_turn("fork") == (1, 2)
        assert kept.fork("s", "another", 5) == 4, "an excerpt goes with the request behind it"


def test_a_turn_that_comes_after_one_that_was_taken_back_takes_its_place(session: Session) -> None:
    talks(session, 2)
    before = session.prompt()
    session.undoes_turn()
    session.turn([said("user", "another question"), said("assistant", "another answer")])
    prompt = session.prompt()
    assert "another question" in prompt
    assert "question 1" not in prompt
    with sessions(session.journal) as kept:
        assert kept.undo_turn("s") == (5, 6)
        assert kept.undo_turn("s") == (1, 2)
    session.reopens()
    assert session.prompt() != before
    assert "question" not in session.prompt()


@pytest.mark.parametrize("undo", ["compaction", "turn"])
def test_notes_made_anew_after_forgetting_go_with_their_compaction(session: Session, undo: str) -> None:
    """Something was forgotten, and so the notes were made anew; then what they tell of is taken back."""
    talks(session, 3)
    session.turn([said("user", "see src/odd_name.py"), said("assistant", "seen src/odd_name.py")])
    session.turn([said("user", "see src/even_name.py"), said("assistant", "seen")])
    session.forces()
    assert "odd_name" in session.prompt()
    with sessions(session.journal) as kept:
        kept.forget("s", [1])
        session.reopens()
        events = [each.type for each in session.journal.records("s") if isinstance(each, Recorded)]
        assert "notes" in events
        if undo == "turn":
            kept.undo_turn("s")
        else:
            kept.undo_compaction("s")
    session.reopens()
    assert session.conversation.memory.notes == "", "nothing has left the window"
    assert session.prompt().count(FORGOTTEN) == 1


def test_standing_of_nothing_is_nothing() -> None:
    found = standing([])
    assert (found.dropped, found.compaction, found.turn) == (set(), set(), None)
