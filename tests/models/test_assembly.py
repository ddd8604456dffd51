"""Any calls, cut anywhere, in the style of any provider, come back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.assembly import Assembly, read_usage

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(min_size=1, max_size=6), values, min_size=1, max_size=4).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
names = st.sampled_from(["bash", "read_file", "calculator"])
call_lists = st.lists(st.tuples(names, arguments), min_size=1, max_size=4)


def openai(nth: int, id: str, name: str, piece: str, first: bool) -> dict[str, Any]:
    function = {"name": name, "arguments": piece} if first else {"arguments": piece}
    return {"index": nth, "function": function, **({"id": id, "type": "function"} if first else {})}


def repeating(nth: int, id: str, name: str, piece: str, first: bool) -> dict[str, Any]:
    return {"index": nth, "id": id, "function": {"name": name, "arguments": piece}}


def without_id(nth: int, id: str, name: str, piece: str, first: bool) -> dict[str, Any]:
    return {"index": nth, "function": {"name": name if first else None, "arguments": piece}}


def without_index(nth: int, id: str, name: str, piece: str, first: bool) -> dict[str, Any]:
    return {"id": id if first else None, "function": {"name": name if first else "", "arguments": piece}}


def from_one(nth: int, id: str, name: str, piece: str, first: bool) -> dict[str, Any]:
    return openai(nth + 1, id, name, piece, first)


def all_zero(nth: int, id: str, name: str, piece: str, first: bool) -> dict[str, Any]:
    return {
        **repeating(0, id, name, piece, first),
        "function": {"name": name if first else "", "arguments": piece},
    }


styles = st.sampled_from([openai, repeating, without_id, without_index, from_one, all_zero])


@given(call_lists, styles, st.data())
def test_calls_come_back_as_they_were(
    calls: list[tuple[str, str]], style: Callable[..., dict[str, Any]], data: st.DataObject
) -> None:
    assembly = Assembly()
    for nth, (name, text) in enumerate(calls):
        cuts = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=4)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        if data.draw(st.booleans()):
            pieces.insert(0, "")
        for at, piece in enumerate(pieces):
            delta = {"tool_calls": [style(nth, f"id{nth}", name, piece, at == 0)]}
            assembly.add({"choices": [{"index": 0, "delta": delta}]})
    reply = assembly.reply()
    assert [(call.name, call.arguments) for call in reply.calls] == calls
    assert len({call.id for call in reply.calls}) == len(calls)


@given(call_lists, st.data())
def test_parallel_calls_may_be_interleaved(calls: list[tuple[str, str]], data: st.DataObject) -> None:
    queues = []
    for nth, (name, text) in enumerate(calls):
        cut = data.draw(st.integers(0, len(text)))
        parts = [
            openai(nth, f"id{nth}", name, "", True),
            *(openai(nth, "", "", p, False) for p in (text[:cut], text[cut:])),
        ]
        queues.append(parts)
    assembly = Assembly()
    for nth in range(len(queues)):
        assembly.add({"choices": [{"index": 0, "delta": {"tool_calls": [queues[nth].pop(0)]}}]})
    while any(queues):
        nth = data.draw(st.sampled_from([n for n, queue in enumerate(queues) if queue]))
        assembly.add({"choices": [{"index": 0, "delta": {"tool_calls": [queues[nth].pop(0)]}}]})
    assert [(call.name, call.arguments) for call in assembly.reply().calls] == calls


@given(st.text(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_text_comes_back_as_it_was_wherever_it_is_cut(text: str, cuts: list[int]) -> None:
    if text.lstrip().startswith("<think>"):
        return
    assembly = Assembly()
    shown = ""
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for a, b in pairwise(places):
        for piece in assembly.add({"choices": [{"delta": {"content": text[a:b]}}]}):
            shown += piece.text
    shown += "".join(piece.text for piece in assembly.end())
    assert shown == text == assembly.reply().content


@given(call_lists, st.data())
def test_a_name_may_come_in_pieces_where_the_index_says_whose_they_are(
    calls: list[tuple[str, str]], data: st.DataObject
) -> None:
    assembly = Assembly()
    for nth, (name, text) in enumerate(calls):
        cut = data.draw(st.integers(1, len(name)))
        sofar = data.draw(st.booleans())
        rest = name if sofar else name[cut:]
        for fragment in (
            openai(nth, f"id{nth}", name[:cut], "", True),
            {"index": nth, "function": {"name": rest}},
            openai(nth, "", "", text, False),
        ):
            assembly.add({"choices": [{"delta": {"tool_calls": [fragment]}}]})
    assert [(call.name, call.arguments) for call in assembly.reply().calls] == calls


@given(call_lists)
def test_calls_said_again_as_a_whole_are_not_made_twice(calls: list[tuple[str, str]]) -> None:
    assembly = Assembly()
    for again in (False, True):
        for nth, (name, text) in enumerate(calls):
            respaced = json.dumps(json.loads(text)) if again else text
            fragment = repeating(nth, f"id{nth}", name, respaced, True)
            assembly.add({"choices": [{"delta": {"tool_calls": [fragment]}}]})
    assert [(call.name, call.arguments) for call in assembly.reply().calls] == calls


def test_a_call_that_ended_is_not_gone_on_with_by_another_name_under_its_index() -> None:
    assembly = Assembly()
    for name, text in (("bash", '{"command": "ls"}'), ("calculator", '{"expression": "1+1"}')):
        for function in ({"name": name, "arguments": ""}, {"arguments": text}):
            fragment = {"index": 0, "function": function}
            assembly.add({"choices": [{"delta": {"tool_calls": [fragment]}}]})
    assert [call.name for call in assembly.reply().calls] == ["bash", "calculator"]


def test_a_name_may_come_behind_the_arguments() -> None:
    assembly = Assembly()
    for fragment in (
        {"index": 0, "id": "c", "function": {"arguments": '{"a": 1}'}},
        {"index": 0, "function": {"name": "bash"}},
    ):
        assembly.add({"choices": [{"delta": {"tool_calls": [fragment]}}]})
    assert [(call.id, call.name) for call in assembly.reply().calls] == [("c", "bash")]


@pytest.mark.parametrize(
    "tool_calls",
    [
        [None, {"id": "c", "function": {"name": "bash", "arguments": "{}"}}],
        {"id": "c", "function": {"name": "bash", "arguments": "{}"}},
        [{"id": "c", "name": "bash", "arguments": {}}],
    ],
    ids=["null among them", "no list", "no inner object"],
)
def test_calls_in_a_wrong_shape_are_still_calls(tool_calls: Any) -> None:
    assembly = Assembly()
    assembly.add({"choices": [{"delta": {"tool_calls": tool_calls}}]})
    assert [(c.id, c.name, c.arguments) for c in assembly.reply().calls] == [("c", "bash", "{}")]


KEYS = (
    "choices delta message content tool_calls function name arguments id index usage model "
    "finish_reason reasoning_content function_call prompt_tokens prompt_tokens_details"
)
keys = st.sampled_from(KEYS.split())
shapes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(keys, shapes, max_size=4), max_size=4))
def test_no_chunk_makes_it_fail(chunks: list[dict[str, Any]]) -> None:
    assembly = Assembly()
    for chunk in chunks:
        assembly.add(chunk)
    assembly.end()
    assert assembly.reply().as_message()["role"] == "assistant"


def test_arguments_nested_beyond_reading_do_not_break_the_message() -> None:
    deep = '{"a":' * 100_000
    assembly = Assembly()
    assembly.add({"choices": [{"delta": {"tool_calls": [openai(0, "c", "bash", deep, True)]}}]})
    assert assembly.reply().as_message()["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_refusal_in_its_own_field_is_the_answer() -> None:
    assembly = Assembly()
    assembly.add({"choices": [{"delta": {"content": None, "refusal": "I can't do that."}}]})
    assert assembly.reply().content == "I can't do that."


def test_empty_usage_behind_the_real_one_says_nothing() -> None:
    assembly = Assembly()
    for usage in ({"prompt_tokens": 3, "completion_tokens": 1}, {}, {"prompt_tokens": 0}, None):
        assembly.add({"choices": [], "usage": usage})
    assert assembly.usage.total == 4


def test_only_the_first_choice_counts() -> None:
    assembly = Assembly()
    for index in (0, 1):
        assembly.add({"choices": [{"index": index, "delta": {"content": f"choice {index}"}}]})
    assert assembly.reply().content == "choice 0"


def test_a_message_behind_deltas_repeats_nothing() -> None:
    assembly = Assembly()
    assembly.add({"choices": [{"delta": {"content": "once"}}]})
    assembly.add({"choices": [{"delta": {}, "message": {"content": "once"}, "finish_reason": "stop"}]})
    assert assembly.reply().content == "once"


def test_cached_tokens_are_known_under_each_name() -> None:
    for names in (
        {"prompt_tokens_details": {"cached_tokens": 7}},
        {"prompt_cache_hit_tokens": 7},
        {"cache_read_input_tokens": 7},
    ):
        assert read_usage({"prompt_tokens": 10, "completion_tokens": 2, **names}).cached == 7
    assert (
        read_usage({"prompt_tokens": None, "completion_tokens": -1, "prompt_tokens_details": None}).total == 0
    )


def test_anthropics_form_counts_the_cache_apart() -> None:
    usage = read_usage({"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 10})
    assert (usage.prompt, usage.cached) == (105, 90)
