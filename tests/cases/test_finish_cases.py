"""Public reports on how replies end: cut calls, and finish reasons that don't fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.running import Bench
from perdure.chat.tokens import counter_for
from perdure.models.endpoint import EndpointClient
from scripted_endpoint import Answer, ScriptedEndpoint

pytestmark = pytest.mark.anyio


async def run(tmp_path: Path, endpoint: ScriptedEndpoint) -> tuple[Bench, str]:
    bench = Bench(tmp_path)
    client = EndpointClient(endpoint.base_url, "m", counter=counter_for(None))
    finished = await bench.turn(client)
    await client.aclose()
    return bench, finished.status


async def test_a_call_cut_by_the_output_limit_is_not_run_and_the_model_is_told_why(tmp_path: Path) -> None:
    cut = Answer(calls=[("t1", "calculator", '{"expression":"1+1')], finish="length")
    with ScriptedEndpoint([cut, Answer("I see.")]) as endpoint:
        bench, status = await run(tmp_path, endpoint)
    assert (status, bench.of("tool.started"), endpoint.refusals) == ("answered", [], [])
    assert "cut by the output limit" in endpoint.requests[1].messages[-1]["content"]


async def test_whole_calls_beside_a_cut_one_are_run(tmp_path: Path) -> None:
    calls = [("a", "calculator", {"expression": "6*7"}), ("b", "calculator", '{"expres')]
    with ScriptedEndpoint([Answer(calls=calls, finish="length"), Answer("ok")]) as endpoint:
        _, status = await run(tmp_path, endpoint)
    results = [m["content"] for m in endpoint.requests[1].messages if m["role"] == "tool"]
    assert (status, results[0]) == ("answered", "42")
    assert "cut" in results[1]


async def test_cut_calls_end_the_run_after_a_few(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer(calls=[("t", "calculator", '{"exp')], finish="length")]) as endpoint:
        _, status = await run(tmp_path, endpoint)
    assert (status, len(endpoint.requests), endpoint.refusals) == ("failed", 3, [])


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "end_turn"])
async def test_calls_decide_and_not_the_finish_reason(tmp_path: Path, finish: str) -> None:
    script = [Answer(calls=[("s1", "calculator", {"expression": "3*3"})], finish=finish), Answer("9")]
    with ScriptedEndpoint(script) as endpoint:
        bench, status = await run(tmp_path, endpoint)
    assert (status, len(bench.of("tool.finished"))) == ("answered", 1)


async def test_an_answer_cut_by_the_output_limit_is_said_to_be(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("half an ans", finish="length")]) as endpoint:
        bench, status = await run(tmp_path, endpoint)
    (notice,) = bench.of("notice")
    assert status == "answered"
    assert "--max-output-tokens" in getattr(notice, "text", "")
