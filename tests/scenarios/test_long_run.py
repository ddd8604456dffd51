"""A session of many turns against a strict endpoint with a small window: nothing is ever refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.running import Bench
from perdure.chat.tokens import counter_for
from perdure.models.endpoint import EndpointClient
from perdure.tools.registry import tool
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.anyio
TURNS, WINDOW = 100, 4096


@tool(effect="reads")
def look_up(name: str) -> str:
    """Looks something up."""
    return f"{name}: " + "a long and winding description of it, with many words " * 12 + f"ref REF-{name}"


async def test_a_hundred_turns_in_a_small_window_are_never_refused_and_forget_no_literal(
    tmp_path: Path,
) -> None:
    counter = counter_for("o200k_base")

    def count(body: dict[str, Any]) -> int:
        return sum(map(counter.message, body["messages"])) + counter.tools([look_up.spec])

    def play(request: Request) -> Scripted:
        last = request.messages[-1]
        if last["role"] == "user" and "turn" in last["content"]:
            number = last["content"].split()[1]
            return Answer(calls=[(f"c{number}", "look_up", {"name": f"N{number}"})])
        return Answer("done " * 20)

    with ScriptedEndpoint(play, window=WINDOW, count=count) as endpoint:
        bench = Bench(tmp_path, [look_up], window=WINDOW)
        client = EndpointClient(endpoint.base_url, "gpt-4o", counter=counter, context_window=WINDOW)
        for number in range(TURNS):
            task = "turn 0 the password hint is HINT-7714" if number == 0 else f"turn {number} go on"
            finished = await bench.turn(client, task)
            assert finished.status == "answered"
        await client.aclose()
    assert not endpoint.refusals
    assert len(endpoint.requests) == 2 * TURNS
    assert bench.window == WINDOW
    last = "\n".join(str(message["content"]) for message in endpoint.requests[-1].messages)
    assert "HINT-7714" in last
    assert f"REF-N{TURNS - 2}" in last
    assert len(bench.entries()) == 4 * TURNS
