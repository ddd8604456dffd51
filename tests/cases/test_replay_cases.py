"""Public reports on histories that are sent again: empty messages, null content, reasoning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.running import Bench
from perdure.chat.tokens import counter_for
from perdure.models.client import ModelRequest, Reply
from perdure.models.endpoint import EndpointClient
from scripted_endpoint import (
    Answer,
    ScriptedEndpoint,
    empty_content_beside_calls,
    null_content,
    unknown_field,
    wrong_messages,
)

pytestmark = pytest.mark.anyio


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


HISTORY = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": None, "tool_calls": [call("a1", "calculator", '{"expression":"2+2"}')]},
    {"role": "tool", "tool_call_id": "a1", "content": "4"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "and 3+3?"},
]


def neither_text_nor_calls(body: dict[str, Any]) -> str | None:
    bad = any(
        m["role"] == "assistant" and not m.get("content") and not m.get("tool_calls")
        for m in body["messages"]
    )
    return "assistant message must have either content or tool_calls" if bad else None


@pytest.mark.parametrize(
    "refuses",
    [
        [null_content],
        [empty_content_beside_calls],
        [neither_text_nor_calls],
        [null_content, empty_content_beside_calls, neither_text_nor_calls],
    ],
)
async def test_the_same_history_is_taken_by_each_strict_server(refuses: list[Any]) -> None:
    with ScriptedEndpoint([Answer("6")], refuses=refuses) as endpoint:
        client = EndpointClient(endpoint.base_url, "m", counter=counter_for(None))
        pieces = [piece async for piece in client.stream(ModelRequest(HISTORY))]
        await client.aclose()
    assert isinstance(pieces[-1], Reply)
    sent = endpoint.requests[-1].messages
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "user"]
    assert not wrong_messages({"messages": sent})
    assert len(endpoint.refusals) <= 2


@pytest.mark.parametrize("wanted", [True, False])
async def test_reasoning_of_a_tool_call_turn_survives_the_journal_and_goes_only_where_it_is_wanted(
    tmp_path: Path, wanted: bool
) -> None:
    script = [
        Answer(calls=[("r1", "calculator", {"expression": "1+1"})], reasoning="the user wants a sum"),
        Answer("2", reasoning="short"),
        Answer("again 2"),
    ]
    refuses = [] if wanted else [unknown_field("reasoning_content")]
    with ScriptedEndpoint(script, refuses=refuses) as endpoint:
        bench = Bench(tmp_path)
        for task in ("add", "again"):
            client = EndpointClient(
                endpoint.base_url, "m", counter=counter_for(None, reasoning=wanted), replay_reasoning=wanted
            )
            finished = await bench.turn(client, task)
            await client.aclose()
            assert "the user wants" not in finished.answer
    sent = [message.get("reasoning_content") for message in endpoint.requests[2].messages]
    assert sent == [None, None, "the user wants a sum" if wanted else None, None, None, None]
    call_entry = bench.entries()[1]
    assert call_entry.message["reasoning_content"] == "the user wants a sum"
    silent = counter_for(None).message(call_entry.message)
    assert (call_entry.tokens > silent) is wanted, "what is sent is counted"
