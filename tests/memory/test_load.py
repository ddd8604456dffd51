"""A history that is over, taken in at once: what stands, what the notes say, and how little is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.counting import CharacterCounter
from memory.histories import assert_paired, assistant, histories, tool_rounds, turns, user
from perdure.chat.messages import Message
from perdure.chat.tokens import counter_for
from perdure.memory.growth import LOW_WATER
from perdure.memory.memory import Memory
from scripted_endpoint import wrong_messages

COUNTER = CharacterCounter()
WINDOW = 6000


class Watched(Sequence[Message]):
    """A history that knows which of its places were read."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.read: set[int] = set()

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...
    def __getitem__(self, at: int | slice) -> Any:
        places = range(len(self.messages))[at]
        self.read.update([places] if isinstance(places, int) else places)
        return self.messages[at]

    def __iter__(self) -> Iterator[Message]:
        return (self[at] for at in range(len(self.messages)))

    def __len__(self) -> int:
        return len(self.messages)


def loaded(history: Sequence[Message], window: int = WINDOW, **options: Any) -> Memory:
    memory = Memory(window, counter=COUNTER, **options)
    memory.load(history)
    return memory


def tokens(prompt: list[Message]) -> int:
    return sum(map(COUNTER.message, prompt))


def conversation(requests: int) -> list[Message]:
    """Requests with their answers, each of the same length."""
    return [
        message
        for number in range(1, requests + 1)
        for message in (
            user(f"question {number:06} " + "blah " * 30),
            assistant(f"answer {number:06} " + "yes " * 20),
        )
    ]


def call(id: str, arguments: str = "{}") -> Message:
    made = {"id": id, "type": "function", "function": {"name": "tool", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def result(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


def said(messages: list[Message]) -> list[Message]:
    """Without messages that say nothing, which no provider takes."""
    return [m for m in messages if m["role"] == "tool" or m.get("tool_calls") or m["content"].strip()]


@given(histories.map(said), st.integers(2200, 12_000), st.sampled_from(["", "Be brief. " * 12]))
def test_what_fits_stands_as_it_does_where_the_history_is_streamed(
    messages: list[Message], window: int, system: str
) -> None:
    whole = [{"role": "system", "content": system}, *messages] if system else messages
    streamed = Memory(window, counter=COUNTER)
    repairs = streamed.extend(whole)
    at_once = Memory(window, counter=COUNTER)
    named = at_once.load(whole)
    if sum(map(COUNTER.message, messages)) < int((at_once.limit - at_once.fixed) * LOW_WATER):
        assert at_once.notes == ""
        assert at_once.messages() == streamed.messages()
        assert at_once.tokens == streamed.tokens
        assert [entry.seq for entry in at_once.entries] == [entry.seq for entry in streamed.entries]
        assert named == repairs


@given(histories.map(said), st.integers(2200, 6000))
def test_the_newest_stand_and_their_numbers_are_their_places(messages: list[Message], window: int) -> None:
    memory = Memory(window, counter=COUNTER)
    repairs = memory.load(messages)
    if repairs or not messages:
        return
    standing = list(memory.entries)
    first = standing[0].seq
    assert [entry.message for entry in standing] == messages[first - 1 :]
    assert [entry.seq for entry in standing] == list(range(first, len(messages) + 1))
    assert memory.record.left == (((1, first - 1),) if first > 1 else ())
    assert memory.newest == len(messages)


wild = st.one_of(
    st.builds(lambda text: [user(text)], st.text(max_size=30)),
    st.just([{"role": "assistant", "content": None}]),
    st.just([{"role": "alien", "content": "hello"}]),
    st.builds(lambda id: [result(id, "who asked?" * 9)], st.sampled_from("abc")),
    st.builds(lambda id: [call(id, '{"broken')], st.sampled_from("abc")),
    st.builds(lambda id: [result(id, "late " * 40), call(id)], st.sampled_from("abc")),
    st.just([{"role": "tool", "content": "no id at all"}]),
    st.just([{"role": "system", "content": "And be polite."}]),
)
broken = st.lists(wild | turns() | tool_rounds(), max_size=30).map(
    lambda parts: [message for part in parts for message in part]
)


@given(broken, st.lists(turns(), max_size=3), st.integers(4000, 12_000))
def test_whatever_is_loaded_the_prompt_fits_and_is_valid_and_so_is_what_follows(
    messages: list[Message], later: list[list[Message]], window: int
) -> None:
    memory = Memory(window, counter=COUNTER)
    repairs = memory.load(messages)
    assert all(0 <= each.at < len(messages) and each.what for each in repairs)
    if memory.entries:
        assert_sendable(memory)
    for message in (message for turn in later for message in said(turn)):
        memory.append(message)
        assert_sendable(memory)


def assert_sendable(memory: Memory) -> None:
    prompt = memory.prompt()
    assert tokens(prompt) <= memory.budget.tokens
    assert_paired(prompt)
    assert wrong_messages({"messages": prompt}) is None


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool", None])
@pytest.mark.parametrize("at", [0, -4, 400])
@pytest.mark.parametrize("content", [None, 7, ["text"], [{"type": "text", "text": "parts"}], {"text": "x"}])
def test_contents_of_the_wrong_type_are_repaired_wherever_they_stand(
    at: int, role: str | None, content: Any
) -> None:
    every = conversation(200)
    memory = Memory(3000, counter=counter_for(None))
    memory.load([*every[:at], {"role": role, "content": content}, *every[at:]])
    assert_paired(memory.prompt())
    assert wrong_messages({"messages": memory.prompt()}) is None


def test_repairs_are_named_by_their_place_in_the_whole_history() -> None:
    history = [
        {"role": "system", "content": "be brief"},
        *conversation(60),
        user("look it up"),
        call("c"),
        assistant("I gave up."),
    ]
    memory = Memory(WINDOW, counter=COUNTER)
    (repair,) = memory.load(history)
    assert (repair.at, history[repair.at]) == (len(history) - 2, call("c"))
    assert "never answered" in repair.what


def test_a_call_does_not_stand_without_its_results_nor_they_without_it() -> None:
    """The place where the window begins falls on each message of a long round once."""
    calls = [call(f"c{nth}")["tool_calls"][0] for nth in range(8)]
    shown = [result(f"c{nth}", "line " * 40) for nth in range(8)]
    rounds = [user("read them all"), {"role": "assistant", "content": None, "tool_calls": calls}, *shown]
    for behind in range(0, 3600, 120):
        memory = Memory(WINDOW, counter=COUNTER)
        repairs = memory.load([*conversation(12), *rounds, assistant("x" * behind or "-")])
        assert repairs == [], f"a round was cut with {behind} characters behind it"
        assert_paired(memory.prompt())


@pytest.mark.parametrize("begins", ["with the person", "with an assistant"])
def test_as_little_is_read_of_a_thousand_windows_as_of_ten(begins: str) -> None:
    pair = tokens(conversation(1))
    read: list[int] = []
    for windows in (10, 1000):
        messages = conversation(windows * WINDOW // pair)
        history = Watched(messages[1:] if begins == "with an assistant" else messages)
        memory = loaded(history)
        memory.prompt()
        read.append(len(history.read))
        assert memory.entries[0].seq > 1
        assert memory.newest == len(history)
    few, many = read
    assert abs(many - few) <= 2
    assert many * pair / 2 <= 3 * WINDOW, "the window, what is looked back at, and little else"


def test_the_first_request_is_kept_with_the_answer_that_it_had() -> None:
    history = [user("Rename the module billing to invoices."), assistant("Renamed it."), *conversation(400)]
    streamed = Memory(WINDOW, counter=COUNTER)
    for message in history:
        streamed.append(message)
        streamed.compact()
    line = "Request 1 (answered in 2: Renamed it.): Rename the module billing to invoices."
    assert line in streamed.prompt()[0]["content"]
    assert line in loaded(history).prompt()[0]["content"]


def test_a_first_request_that_nobody_answered_stays_open_until_somebody_does() -> None:
    history = [user("Rename the module."), *(user(f"and {n:04} " + "blah " * 30) for n in range(400))]
    memory = loaded(history)
    assert "Request 1 (not answered yet): Rename the module." in memory.prompt()[0]["content"]


def test_no_request_is_called_open_whose_answer_is_there() -> None:
    """Wherever the window begins, between a request and its answer too."""
    for more in range(0, 400, 25):
        memory = loaded([*conversation(200), user("q" * (more + 1)), assistant("fine")])
        assert "not answered yet" not in memory.prompt()[0]["content"]


def test_the_request_of_a_turn_that_broke_off_stays_in_the_prompt() -> None:
    """A run that was killed in the middle of a long turn leaves a history that ends so."""
    rounds = [message for n in range(200) for message in (call(f"c{n}"), result(f"c{n}", "line " * 40))]
    memory = loaded([*conversation(20), user("Fix the build of the module invoices."), *rounds])
    assert "Fix the build of the module invoices." in json.dumps(memory.prompt())


def test_exact_values_of_what_is_looked_back_at_stay_in_the_prompt() -> None:
    room = int((Memory(WINDOW, counter=COUNTER).limit) * LOW_WATER)
    behind = conversation(room // tokens(conversation(1)) + 3)
    told = [user("The invoice is INV-4711, due 2026-03-01."), assistant("It is in /srv/shop/VERSION, then.")]
    memory = loaded([*conversation(400), *told, *behind])
    assert not any("INV-4711" in str(entry.message) for entry in memory.entries)
    prompt = json.dumps(memory.prompt())
    for literal in ("INV-4711", "2026-03-01", "/srv/shop/VERSION"):
        assert literal in prompt


def test_the_notes_say_that_everything_before_has_left_in_the_language_of_the_first_request() -> None:
    for first, heading in (("Rename the module.", "not instructions"), ("请重命名这个模块。", "不是指令")):
        memory = loaded([user(first), assistant("ok"), *conversation(300)])
        notes = memory.prompt()[0]["content"]
        assert heading in notes.splitlines()[0]
        assert f"1-{memory.entries[0].seq - 1}" in notes


def test_nothing_loaded_is_nothing() -> None:
    memory = Memory(WINDOW, counter=COUNTER)
    assert memory.load([]) == []
    assert memory.messages() == []
    assert memory.load([{"role": "system", "content": "be brief"}]) == []
    assert memory.messages() == [{"role": "system", "content": "be brief"}]


def test_what_is_loaded_waits_for_a_summary_and_the_summary_is_taken() -> None:
    memory = loaded([user("Rename the module billing to invoices."), *conversation(300)])
    request = memory.summary_request()
    assert request is not None
    answer = "Facts:\n- " + "; ".join(request.literals or ["the module is called invoices now"])
    accepted = memory.accept(answer, request)
    assert accepted.summary is not None
    assert tokens(memory.prompt()) <= memory.budget.tokens
