from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.histories import histories
from perdure.chat.repair import INTERRUPTED, repair
from scripted_endpoint import wrong_messages

ids = st.sampled_from(["a", "b", "c", ""])
texts = st.sampled_from(["", " ", "said", None])
broken_calls = st.lists(
    st.fixed_dictionaries(
        {
            "function": st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["f", ""]),
                    "arguments": st.sampled_from(["{}", "", "[1]", '{"x":', None, {"x": 1}]),
                }
            )
        },
        optional={"id": ids, "type": st.just("function")},
    ),
    max_size=3,
)
broken_messages = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "assistant", "function", None]), "content": texts}
    ),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": texts, "tool_calls": broken_calls}),
    st.fixed_dictionaries(
        {"role": st.just("tool"), "content": texts}, optional={"tool_call_id": ids, "name": st.just("f")}
    ),
)


def call(id: str | None, name: str = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call(id) for id in ids]}


def result(id: str | None, text: str = "shown") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


@given(st.lists(broken_messages, max_size=12))
def test_any_history_comes_back_valid_and_is_then_left_alone(messages: list[dict[str, Any]]) -> None:
    mended, repairs = repair(messages)
    if mended:
        assert not wrong_messages({"messages": mended})
    assert repair(mended) == (mended, [])
    assert bool(repairs) or mended == messages
    assert all(0 <= each.at < len(messages) and each.what for each in repairs)
    assert all(each.say("zh") not in ("", each.what) for each in repairs)
    every = [call["id"] for message in mended for call in message.get("tool_calls") or ()]
    assert len(set(every)) == len(every)


@given(st.lists(broken_messages, max_size=12))
def test_what_tools_showed_never_stands_among_the_persons_words(messages: list[dict[str, Any]]) -> None:
    marked = [{**m, "content": f"{m['role']} {n}"} for n, m in enumerate(messages) if m["role"]]
    mended, _ = repair(marked)
    assert all(m["content"].startswith("user") for m in mended if m["role"] == "user")
    shown = {m["content"] for m in mended if m["role"] == "tool"} - {INTERRUPTED}
    from_tools = {m["content"] for m in marked if m["role"] in {"tool", "function"}}
    assert shown == from_tools, "nothing is lost"


@given(histories)
def test_a_valid_history_comes_back_equal_with_no_repairs(messages: list[dict[str, Any]]) -> None:
    valid = [m for m in messages if m.get("tool_calls") or m["role"] == "tool" or m["content"].strip()]
    renamed = repair(valid)[0]
    assert repair(renamed) == (renamed, [])


@pytest.mark.parametrize(
    ("messages", "roles", "said"),
    [
        ([calling("a", "b"), result("b"), result("a")], ["assistant", "tool", "tool"], "moved"),
        ([calling("a", "b"), result("a")], ["assistant", "tool", "tool"], "never answered"),
        ([{"role": "user", "content": "x"}, result("z")], ["user", "assistant", "tool"], "stand-in"),
        ([calling("a"), result("a"), calling("a"), result("a")], ["assistant", "tool"] * 2, "used before"),
        ([calling("a", "a"), result("a"), result("a")], ["assistant", "tool", "tool"], "used before"),
        (
            [calling("a"), {"role": "user", "content": "x"}, result("a")],
            ["assistant", "tool", "user"],
            "moved",
        ),
        ([calling("a"), result(None)], ["assistant", "tool"], ""),
        ([calling("a"), {**result("a"), "tool_calls": [{"type": "text"}]}], ["assistant", "tool"], ""),
        ([{"role": "tool", "content": "x", "function_call": {}}], ["assistant", "tool"], "stand-in"),
        ([{"role": "assistant", "content": ""}, {"role": "user", "content": "x"}], ["user"], "empty"),
        ([calling("a"), result("a"), result("a")], ["assistant", "tool", "assistant", "tool"], "stand-in"),
    ],
)
def test_each_break_is_mended_and_named(messages: list[dict[str, Any]], roles: list[str], said: str) -> None:
    mended, repairs = repair(messages)
    assert [message["role"] for message in mended] == roles
    assert any(said in each.what for each in repairs) or not said


def test_arguments_become_json_objects() -> None:
    messages = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("a", arguments={"x": 1}), call("b", arguments="oops")],
        },
        result("a"),
        result("b"),
    ]
    mended, repairs = repair(messages)
    arguments = [json.loads(each["function"]["arguments"]) for each in mended[0]["tool_calls"]]
    assert arguments == [{"x": 1}, {}]
    assert any("'oops'" in each.what for each in repairs)


ODD_IDS = st.sampled_from(["a", "b", "a-2", "call-2", "", None, 7, ["x"]])
ODD_CONTENT = st.sampled_from(
    [
        *[None, "", "  ", "said", [], 5, {"a": 1}, [None], ["bare"]],
        *[[{"type": "text", "text": "said"}], [{"type": "text", "text": ""}], [{"type": "text"}]],
        [{"type": "image_url", "image_url": {"url": "x"}}],
    ]
)
ODD_ARGUMENTS = st.sampled_from(
    [None, "{}", '{"a":1}', "[]", "{bad", "", '"x"', "null", '{"a":NaN}', "[" * 5000, {"a": 1}, 3, [1]]
)
ODD_FUNCTIONS = (
    st.none()
    | st.just("f")
    | st.fixed_dictionaries(
        {}, optional={"name": st.sampled_from(["f", "", None, 3]), "arguments": ODD_ARGUMENTS}
    )
)
ODD_CALLS = st.sampled_from([None, "bad"]) | st.fixed_dictionaries(
    {},
    optional={"id": ODD_IDS, "type": st.sampled_from(["function", "x", None]), "function": ODD_FUNCTIONS},
)
ODD_MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(
            ["user", "assistant", "tool", "system", "developer", "function", "", None, 5]
        ),
        "content": ODD_CONTENT,
        "tool_calls": st.sampled_from([None, [], "no", {}]) | st.lists(ODD_CALLS, max_size=3),
        "tool_call_id": ODD_IDS,
        "name": st.sampled_from(["n", "", None, 4]),
        "function_call": st.none() | ODD_FUNCTIONS,
        "refusal": st.sampled_from([None, "", "I can't.", 3]),
    },
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ODD_MESSAGES | st.sampled_from([None, "text", 3]), max_size=8))
def test_whatever_a_list_holds_it_comes_back_pair_whole(messages: list[Any]) -> None:
    before = json.dumps(messages)
    mended, repairs = repair(messages)
    assert json.dumps(messages) == before, "what came in is not changed"
    assert not mended or not wrong_messages({"messages": mended})
    assert repair(mended) == (mended, [])
    assert repairs or mended == messages
    assert all(0 <= each.at < len(messages) and each.what for each in repairs)


def test_the_form_of_before_2023_becomes_calls_and_results() -> None:
    asked = {"role": "user", "content": "weather?"}
    old = [
        asked,
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "weather", "arguments": '{"at": "x"}'},
        },
        {"role": "function", "name": "weather", "content": "rain"},
    ]
    mended, repairs = repair(old)
    assert [message["role"] for message in mended] == ["user", "assistant", "tool"]
    assert mended[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"at": "x"}'}
    assert mended[2]["content"] == "rain"
    assert mended[2]["tool_call_id"] == mended[1]["tool_calls"][0]["id"]
    assert {each.at for each in repairs} == {1, 2}


def test_ids_that_are_numbers_still_belong_together() -> None:
    mended, _ = repair(
        [{**calling("x"), "tool_calls": [{**call("x"), "id": 7}]}, {**result("x"), "tool_call_id": 7}]
    )
    assert [message["content"] for message in mended] == [None, "shown"]


def test_a_refusal_is_something_said() -> None:
    mended, _ = repair([{"role": "assistant", "content": None, "refusal": "I can't."}])
    assert mended[0]["content"] == "I can't."


def test_ten_thousand_breaks_are_mended_in_one_go() -> None:
    calls = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}] * 10_000
    mended, repairs = repair([*calls, *[result(None)] * 10_000])
    assert not wrong_messages({"messages": mended})
    assert len(mended) == 2 * 10_000 + 2 * 9_999
    assert len(repairs) >= 20_000
