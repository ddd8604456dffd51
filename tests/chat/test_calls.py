from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.calls import Example, ToolCall, ToolSpec


@given(st.text(max_size=60) | st.dictionaries(st.text(), st.integers() | st.text()).map(json.dumps))
def test_arguments_go_out_as_an_object_whatever_the_model_wrote(written: str) -> None:
    sent = ToolCall("call_1", "f", written).on_the_wire()["function"]["arguments"]
    assert isinstance(json.loads(sent), dict)
    assert sent in {written, "{}"}


@pytest.mark.parametrize(
    "written", ["", "null", "[]", "3", '"x"', '{"a": ', "not json", "[" * 100_000, '{"a":' * 100_000]
)
def test_what_is_no_object_goes_out_empty(written: str) -> None:
    assert ToolCall("call_1", "f", written).on_the_wire() == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }


def test_arguments_that_are_an_object_go_out_as_they_were_written() -> None:
    for written in ("{}", '{ "a" : 1 }', '{"text": "天气 \\ud83d\\ude00"}'):
        assert ToolCall("x", "f", written).on_the_wire()["function"]["arguments"] == written


def test_a_tool_goes_out_without_its_examples() -> None:
    parameters = {"type": "object", "properties": {"q": {"type": "string"}}}
    spec = ToolSpec("search", "Find things.", parameters, (Example("find x", {"q": "x"}),))
    assert spec.on_the_wire() == {
        "type": "function",
        "function": {"name": "search", "description": "Find things.", "parameters": parameters},
    }
