"""Public reports on tool calls: empty arguments, unknown tools, one id for two calls, order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.running import Bench
from perdure.chat.messages import Kind
from perdure.chat.tokens import counter_for
from perdure.models.endpoint import EndpointClient
from perdure.tools.bash import bash_tool
from perdure.tools.calculator import calculator
from perdure.tools.registry import tool
from scripted_endpoint import Answer, ScriptedEndpoint

pytestmark = pytest.mark.anyio


@tool(effect="reads")
def no_arg_tool() -> str:
    """Takes nothing."""
    return "ran"


async def turn(tmp_path: Path, *script: Answer) -> tuple[Bench, ScriptedEndpoint]:
    bench = Bench(tmp_path, [calculator, no_arg_tool, bash_tool(tmp_path)])
    with ScriptedEndpoint(list(script)) as endpoint:
        client = EndpointClient(endpoint.base_url, "m", counter=counter_for(None))
        await bench.turn(client)
        await client.aclose()
    assert not endpoint.refusals
    return bench, endpoint


def results(bench: Bench) -> dict[str, str]:
    return {
        entry.message["tool_call_id"]: entry.message["content"]
        for entry in bench.entries()
        if entry.kind is Kind.TOOL_RESULT
    }


async def test_empty_arguments_are_none_and_wrong_ones_are_named(tmp_path: Path) -> None:
    calls = [
        ("e1", "no_arg_tool", ""),
        ("e2", "no_arg_tool", None),
        ("e3", "no_arg_tool", "   "),
        ("e4", "no_arg_tool", "null"),
        ("e5", "no_arg_tool", "[]"),
        ("e6", "calculator", ""),
        ("e7", "calculator", '{"expression": 5'),
        ("e8", "calculator", '{"expression": ["1"]}'),
        ("e9", "calculator", '{"expression": "1", "unit": "m"}'),
        ("e10", "no_arg_tool", '"text"'),
        ("e11", "no_arg_tool", "5"),
    ]
    bench, endpoint = await turn(tmp_path, Answer(calls=calls), Answer("ok"))
    said = results(bench)
    assert list(said) == [id for id, _, _ in calls]
    assert [said[f"e{n}"] for n in (1, 2, 3, 4)] == ["ran"] * 4
    for id in ("e5", "e10", "e11"):
        assert "arguments must be an object" in said[id]
    assert "'expression' is missing" in said["e6"]
    assert "not valid JSON" in said["e7"]
    assert "'expression'" in said["e8"]
    assert "'unit'" in said["e9"]
    stored = endpoint.requests[1].messages[-len(calls) - 1]["tool_calls"]
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in stored)


async def test_an_unknown_tool_beside_a_known_one_is_told_the_known_ones(tmp_path: Path) -> None:
    calls = [("u1", "web_search", {"q": "tides"}), ("u2", "calculator", {"expression": "5-2"})]
    said = results((await turn(tmp_path, Answer(calls=calls), Answer("ok")))[0])
    assert "calculator, no_arg_tool, bash" in said["u1"]
    assert said["u2"] == "3"


async def test_a_misspelt_tool_is_told_the_near_one(tmp_path: Path) -> None:
    said = results((await turn(tmp_path, Answer(calls=[("u", "calculater", {})]), Answer("ok")))[0])
    assert "Did you mean calculator?" in said["u"]


async def test_two_calls_with_one_id_both_run_and_each_has_its_own_answer(tmp_path: Path) -> None:
    calls = [("same", "calculator", {"expression": "1+1"}), ("same", "calculator", {"expression": "2+2"})]
    bench, _ = await turn(tmp_path, Answer(calls=calls), Answer("ok"))
    assert list(results(bench).values()) == ["2", "4"]


async def test_equal_calls_in_one_message_both_run(tmp_path: Path) -> None:
    calls = [
        ("d1", "bash", {"command": "echo $RANDOM$RANDOM"}),
        ("d2", "bash", {"command": "echo $RANDOM$RANDOM"}),
    ]
    said = results((await turn(tmp_path, Answer(calls=calls), Answer("ok")))[0])
    assert said["d1"] != said["d2"]


async def test_results_stand_in_call_order_whichever_finishes_first(tmp_path: Path) -> None:
    calls = [("o1", "bash", {"command": "sleep 0.3; echo slow"}), ("o2", "bash", {"command": "echo fast"})]
    bench, _ = await turn(tmp_path, Answer(calls=calls), Answer("ok"))
    assert [text.splitlines()[0] for text in results(bench).values()] == ["slow", "fast"]
    finished = [getattr(event, "id", "") for event in bench.of("tool.finished")]
    assert finished == ["o2", "o1"]
