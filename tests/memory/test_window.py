from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from memory.counting import CharacterCounter, entries
from memory.histories import assert_paired, histories, turns, user
from perdure.chat.messages import Entry, Kind, Message, kind_of
from perdure.memory.window import Compaction, Window

COUNTER = CharacterCounter()
#: The two blocks that never leave may need this much in their shortest form (four calls and a request).
SMALLEST_ROOM = 1400


def filled(messages: list[Message]) -> Window:
    window = Window(COUNTER)
    for entry in entries(*messages):
        window.append(entry)
    return window


def planned(window: Window, room: int) -> Compaction | None:
    return window.plan(room, room * 6 // 10)


@given(histories, st.integers(SMALLEST_ROOM, 9000))
def test_a_compacted_window_fits_is_paired_and_holds_the_request(messages: list[Message], room: int) -> None:
    window = filled(messages)
    request = [entry for entry in window.entries if entry.kind is Kind.USER][-1]
    if compaction := planned(window, room):
        window.apply(compaction)
        assert window.tokens == compaction.tokens_after
    assert window.tokens == sum(COUNTER.message(message) for message in window.messages()) <= room
    assert_paired(window.messages())
    assert request.seq in {entry.seq for entry in window.entries}


@given(turns(), st.lists(turns(), max_size=3), st.data())
def test_the_newest_plan_of_a_turn_is_whole_after_any_number_of_compactions(
    turn: list[Message], before: list[list[Message]], data: st.DataObject
) -> None:
    """Also in the window of a step, whose task is a plan and which has no request."""
    of_step = data.draw(st.booleans(), "of a step")
    window = Window(COUNTER)
    earlier = [] if of_step else [message for each in before for message in each]
    task = "[the plan] " + "do it " * 20
    told = [(kind_of(message), message) for message in (*earlier, *turn)]
    if of_step:
        told[0] = (Kind.PLAN, user(task))
    else:
        # A plan may change at any place where no call is open; older ones may go.
        for change in (f"{task} as it was", task):
            free = [
                at
                for at in range(len(earlier) + 1, len(told) + 1)
                if at == len(told) or told[at][0] is not Kind.TOOL_RESULT
            ]
            at = data.draw(st.sampled_from(free), "place")
            told = [*told[:at], *[(Kind.PLAN, user(change))], *told[at:]]
    for seq, (kind, message) in enumerate(told, 1):
        window.append(Entry(seq, kind, message, COUNTER.message(message)))
        if kind is Kind.PLAN:
            plan = seq
        if compaction := planned(window, data.draw(st.integers(SMALLEST_ROOM, 5000), "room")):
            window.apply(compaction)
    (stands,) = [entry for entry in window.entries if entry.seq == plan]
    assert stands.message == told[plan - 1][1]
    assert_paired(window.messages())


@given(histories, st.integers(SMALLEST_ROOM, 9000))
def test_a_window_with_room_is_left_alone_and_a_compaction_is_done_once(
    messages: list[Message], room: int
) -> None:
    window = filled(messages)
    if compaction := planned(window, room):
        window.apply(compaction)
        assert planned(window, room) is None
    else:
        assert window.messages() == messages


@given(histories, st.lists(st.integers(SMALLEST_ROOM, 6000), min_size=1, max_size=4))
def test_replaying_recorded_compactions_gives_the_same_window(
    messages: list[Message], rooms: list[int]
) -> None:
    once, replayed = Window(COUNTER), Window(COUNTER)
    part = max(1, len(messages) // len(rooms))
    every = entries(*messages)
    for index, entry in enumerate(every):
        once.append(entry)
        replayed.append(entry)
        if (index + 1) % part == 0 and (compaction := planned(once, rooms[(index // part) % len(rooms)])):
            once.apply(compaction)
            replayed.apply(_through_json(compaction))
    assert replayed.messages() == once.messages()
    assert replayed.tokens == once.tokens


def _through_json(compaction: Compaction) -> Compaction:
    text = json.dumps([compaction.left, list(compaction.shortened.items())])
    left, shortened = json.loads(text)
    return Compaction(tuple(left), dict(shortened), 0, 0)


@given(histories, st.integers(SMALLEST_ROOM, 9000))
def test_blocks_leave_oldest_first_and_whole_entries_are_unchanged(
    messages: list[Message], room: int
) -> None:
    window = filled(messages)
    before = {entry.seq: entry.message for entry in window.entries}
    compaction = planned(window, room)
    if compaction is None:
        return
    window.apply(compaction)
    staying = [entry.seq for entry in window.entries]
    request = max(seq for seq, message in before.items() if message["role"] == "user")
    newest_gone = max(compaction.left, default=0)
    assert staying == sorted(staying)
    assert all(seq > newest_gone or seq == request for seq in staying)
    for entry in window.entries:
        if entry.seq not in compaction.shortened:
            assert entry.message == before[entry.seq]


def test_an_entry_shortened_twice_names_what_is_left_out_of_the_whole() -> None:
    window = filled([user("x" * 10_000)])
    for room in (4000, 2000):
        compaction = planned(window, room)
        assert compaction is not None
        window.apply(compaction)
    (message,) = window.messages()
    kept = message["content"].count("x")
    assert f"[... {10_000 - kept} characters left out; entry 1 holds the whole ...]" in message["content"]
    assert message["content"].count("left out") == 1


def test_short_results_stay_whole_where_a_long_one_must_give_way() -> None:
    calls = [
        {"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for id in ("a", "b")
    ]
    window = filled(
        [
            user("what does big.log end with?"),
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "fine"},
            {"role": "tool", "tool_call_id": "b", "content": "line\n" * 10_000 + "exit=137"},
        ]
    )
    compaction = planned(window, 2000)
    assert compaction is not None
    window.apply(compaction)
    assert tuple(compaction.shortened) == (4,)
    assert window.messages()[2]["content"] == "fine"
    assert window.messages()[3]["content"].endswith("exit=137")
    assert window.messages()[3]["content"].startswith("line\n")
    assert window.tokens > 1500, "the room that is there is used"


def test_a_request_larger_than_the_room_keeps_its_head_and_tail() -> None:
    window = filled([user("BEGIN " + "y" * 9000 + " END")])
    compaction = planned(window, 1000)
    assert compaction is not None
    assert compaction.left == ()
    window.apply(compaction)
    (message,) = window.messages()
    assert message["content"].startswith("BEGIN ")
    assert message["content"].endswith(" END")


def test_long_arguments_of_a_call_are_shortened_inside_their_json() -> None:
    arguments = json.dumps({"path": "p", "text": "lorem ipsum " * 400})
    call = {"id": "w", "type": "function", "function": {"name": "write_file", "arguments": arguments}}
    window = filled(
        [
            user("write it"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "w", "content": "done"},
        ]
    )
    compaction = planned(window, 900)
    assert compaction is not None
    window.apply(compaction)
    assert window.tokens <= 900
    kept = json.loads(window.messages()[1]["tool_calls"][0]["function"]["arguments"])
    assert kept["path"] == "p"
    assert "entry 2 holds the whole" in kept["text"]


def test_unanswered_requests_leave_before_the_newest_one_does() -> None:
    window = filled([user(f"{number} " + "z" * 300) for number in range(20)])
    compaction = planned(window, 1000)
    assert compaction is not None
    window.apply(compaction)
    assert window.tokens <= 1000
    assert window.messages()[-1]["content"].startswith("19 ")
