"""A memory kept as JSON and opened again: the same now, and the same whatever happens afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.counting import CharacterCounter
from memory.histories import assistant, histories, tool_rounds, turns, user
from perdure.chat.calls import ToolSpec
from perdure.chat.forms import Form
from perdure.chat.messages import Entry, Message
from perdure.memory.memory import Memory

COUNTER = CharacterCounter()
RECALL = ToolSpec("recall", "Reads entries.", {"type": "object", "properties": {}})
#: A step of a session: a message that comes, or something that is done.
Step = Message | str

done = st.sampled_from(
    ["compact", "compact", "force", "summarise", "summarise later", "refuse", "0.7", "1.1"]
)
steps = st.lists(turns() | tool_rounds() | done.map(lambda each: [each]), min_size=1, max_size=16).map(
    lambda parts: [step for part in parts for step in part]
)
options = st.fixed_dictionaries(
    {
        "context_window": st.integers(2200, 9000),
        "system": st.sampled_from(["", "Be brief. " * 12]),
        "tools": st.sampled_from([(), (RECALL,)]),
        "lang": st.sampled_from([None, "zh"]),
        "low_water": st.sampled_from([None, None, 0.3]),
        "form": st.sampled_from([Form(), Form(), Form(alternate=True), Form(system=False)]),
        "summarised": st.booleans(),
    }
)


class Session:
    """A memory, and every entry that it ever took."""

    def __init__(self, memory: Memory, entries: Sequence[Entry] = ()) -> None:
        self.memory = memory
        self.entries = list(entries)

    def goes_on(self, step: Step) -> None:
        if not isinstance(step, str):
            if step["role"] == "tool" and step["tool_call_id"] not in self.memory.open_calls:
                return
            self.entries += self.memory.append(step)
        elif step == "compact":
            self.memory.compact()
        elif step == "force":
            self.memory.compact(force=True)
        elif step in {"0.7", "1.1"}:
            self.memory.scale = float(step)
        elif request := self.memory.summary_request():
            facts = "; ".join(request.literals) or "they talked of words"
            reply = "no" if step == "refuse" else f"Facts:\n- {facts}"
            considered = self.memory.consider(reply, request, later=step == "summarise later")
            if considered.summary:
                self.memory.apply(considered.summary)

    def opened_again(self, fresh: Callable[[], Memory]) -> Session:
        state = json.loads(json.dumps(self.memory.as_json()))
        memory = fresh()
        memory.scale = self.memory.scale
        standing = {seq for seq, _ in state["standing"]}
        memory.restore(state, [entry for entry in self.entries if entry.seq in standing])
        return Session(memory, self.entries)


def assert_the_same(one: Session, other: Session) -> None:
    assert json.dumps(one.memory.messages()) == json.dumps(other.memory.messages())
    assert one.memory.tokens == other.memory.tokens
    assert one.memory.limit == other.memory.limit
    assert one.memory.open_calls == other.memory.open_calls
    assert one.memory.newest == other.memory.newest
    assert json.dumps(one.memory.as_json()) == json.dumps(other.memory.as_json())


@given(options, steps, steps)
def test_a_restored_memory_has_the_same_prompt_now_and_after_the_same_steps(
    options: dict[str, Any], before: list[Step], after: list[Step]
) -> None:
    def fresh() -> Memory:
        return Memory(counter=COUNTER, **options)

    session = Session(fresh())
    session.goes_on(user("Go through all of it."))
    for step in before:
        session.goes_on(step)
    restored = session.opened_again(fresh)
    assert_the_same(restored, session)
    for step in after:
        session.goes_on(step)
        restored.goes_on(step)
        assert json.dumps(restored.memory.messages()) == json.dumps(session.memory.messages())
    assert_the_same(restored, session)


@given(histories, st.integers(2200, 6000))
def test_opening_again_after_every_message_changes_nothing(messages: list[Message], window: int) -> None:
    def fresh() -> Memory:
        return Memory(window, counter=COUNTER)

    always_open, reopened = Session(fresh()), Session(fresh())
    for message in messages:
        for session in (always_open, reopened):
            session.goes_on(message)
            session.goes_on("compact")
        reopened = reopened.opened_again(fresh)
        assert_the_same(reopened, always_open)


def test_a_long_session_keeps_a_state_that_does_not_grow() -> None:
    session = Session(Memory(3000, counter=COUNTER))
    sizes: list[int] = []
    for number in range(360):
        session.goes_on(user(f"question {number:05} about file_{number:05}.py " + "blah " * 30))
        session.goes_on("compact")
        session.goes_on(assistant(f"answer {number:05} " + "yes " * 30))
        session.goes_on("summarise")
        sizes.append(len(json.dumps(session.memory.as_json())))
    assert max(sizes[240:]) <= 1.2 * max(sizes[120:240])


def test_a_reply_that_comes_after_a_restart_is_taken_with_its_request() -> None:
    session = Session(Memory(3000, counter=COUNTER))
    for number in range(12):
        session.goes_on(user(f"question {number} " + "blah " * 60))
        session.goes_on("compact")
    request = session.memory.summary_request()
    assert request is not None
    restored = session.opened_again(lambda: Memory(3000, counter=COUNTER))
    reply = "Facts:\n- " + "; ".join(request.literals or ["they talked of words"])
    accepted = [each.memory.accept(reply, request) for each in (session, restored)]
    assert all(each.summary for each in accepted)
    assert_the_same(restored, session)


@pytest.mark.parametrize("window", [2500, 20_000])
def test_a_state_opens_in_a_window_of_another_size(window: int) -> None:
    session = Session(Memory(6000, counter=COUNTER))
    for number in range(30):
        session.goes_on(user(f"question {number} " + "blah " * 60))
        session.goes_on("compact")
    other = session.opened_again(lambda: Memory(window, counter=COUNTER))
    assert sum(map(COUNTER.message, other.memory.prompt())) <= other.memory.budget.tokens
    assert "question 29" in other.memory.prompt()[-1]["content"]
