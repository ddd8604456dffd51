from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory.histories import histories
from perdure.models.client import ModelRequest
from perdure.models.wire import SILENT_WORDS, Dialect, body_of, learn, wire_messages
from scripted_endpoint import empty_content_beside_calls, null_content, system_role, wrong_messages

CALLS = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


@given(
    histories,
    st.sampled_from(["null", "empty", "words"]),
    st.sampled_from(["system", "developer", "in_user"]),
)
def test_a_valid_history_stays_valid_in_every_dialect(
    history: list[dict[str, Any]], silent: Any, system: Any
) -> None:
    said = [m for m in history if m["role"] in {"tool"} or m.get("tool_calls") or m["content"].strip()]
    shaped = wire_messages([{"role": "system", "content": "s"}, *said], Dialect(silent=silent, system=system))
    body = {"messages": [m for m in shaped if m["role"] != "user" or m["content"]]}
    assert not wrong_messages(body)
    if silent == "words":
        calls = {"messages": [m for m in shaped if m.get("tool_calls")]}
        assert not null_content(calls)
        assert not empty_content_beside_calls(calls)
    if system == "in_user":
        assert not system_role(body)


def test_an_empty_assistant_message_is_not_sent() -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}]
    assert wire_messages(messages, Dialect()) == messages[:1]


def test_the_system_prompt_moves_into_the_first_request_where_there_is_no_such_role() -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert wire_messages(messages, Dialect(system="in_user")) == [
        {"role": "user", "content": "be brief\n\nhello"}
    ]


def test_reasoning_goes_back_only_beside_calls_and_only_where_it_is_wanted() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": CALLS, "reasoning_content": "hm"},
        {"role": "assistant", "content": "4", "reasoning_content": "short"},
    ]
    silent, wanted = (wire_messages(messages, Dialect(reasoning=each)) for each in (False, True))
    assert ["reasoning_content" in message for message in silent] == [False, False]
    assert ["reasoning_content" in message for message in wanted] == [True, False]


def test_each_thing_can_be_learnt_a_bounded_number_of_times() -> None:
    request = ModelRequest(
        [{"role": "system", "content": "s"}, {"role": "assistant", "content": None, "tool_calls": CALLS}],
        max_output_tokens=5,
        temperature=0.0,
        schema={"type": "object"},
    )
    said = (
        "streaming is not supported; stream_options max_tokens max_completion_tokens temperature "
        "response_format 'system' content reasoning_content"
    )
    dialect, learnt = Dialect(), 0
    while (better := learn(dialect, said, body_of(request, "m", dialect))) is not None:
        assert better != dialect
        dialect, learnt = better, learnt + 1
        assert learnt < 20
    assert dialect.silent == "words"
    body = body_of(request, "m", dialect)
    assert set(body) == {"model", "messages", "max_completion_tokens"}
    assert body["messages"][1]["content"] == SILENT_WORDS


def test_a_refusal_about_something_else_teaches_nothing() -> None:
    request = ModelRequest([{"role": "user", "content": "x"}])
    assert learn(Dialect(), "top_p must be below 1", body_of(request, "m", Dialect())) is None
