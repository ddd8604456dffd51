"""A session of many turns against a strict endpoint with a small window: nothing is ever refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.running import Bench
from perdure.agent.summarizing import Summarizer
from perdure.chat.tokens import counter_for
from perdure.models.endpoint import EndpointClient
from perdure.tools.registry import tool
from scripted_endpoint import Answer, Plain, Request, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.anyio
TURNS, WINDOW = 300, 8192
#: What a summariser answers, one after the other: a third of it is no summary.
FAILURES: list[Scripted] = [
    Plain(500, {"error": {"message": "overloaded"}}),
    Answer(""),
    Answer("I'm sorry, I can't help with that."),
    Answer(calls=[("s1", "look_up", {"name": "x"})]),
    Answer("They worked on several", finish="length"),
    Answer("The person and the assistant talked about many things and looked some of them up."),
    Plain(200, "<html>gateway</html>", {}, "text/html"),
]


@tool(effect="reads")
def look_up(name: str) -> str:
    """Looks something up."""
    return f"{name}: " + "a long and winding description of it, with many words " * 12 + f"ref REF-{name}"


def summary_of(request: Request) -> Answer:
    """What a good summariser writes: each look-up with its reference, the newest first."""
    said = "\n".join(str(message["content"]) for message in request.messages)
    references = list(dict.fromkeys(re.findall(r"REF-N\d+", said)))[-12:]
    facts = [{"text": f"{name} was looked up and found", "entries": []} for name in references]
    goals = [{"text": "go through all turns", "entries": [1]}]
    return Answer(json.dumps({"goals": goals, "facts": facts, "tools": [], "constraints": [], "open": []}))


async def test_three_hundred_turns_with_a_summariser_that_fails_a_third_of_the_time_are_never_refused(
    tmp_path: Path,
) -> None:
    counter = counter_for("o200k_base")
    asked: list[Request] = []

    def count(body: dict[str, Any]) -> int:
        tools = counter.tools([look_up.spec]) if body.get("tools") else 0
        return sum(map(counter.message, body["messages"])) + tools

    def play(request: Request) -> Scripted:
        if request.headers["x-perdure-purpose"] == "summarize":
            asked.append(request)
            failing = len(asked) % 3 == 0
            return FAILURES[len(asked) // 3 % len(FAILURES)] if failing else summary_of(request)
        last = request.messages[-1]
        if last["role"] == "user" and "turn" in last["content"]:
            number = last["content"].split()[1]
            return Answer(calls=[(f"c{number}", "look_up", {"name": f"N{number}"})])
        return Answer("done " * 20)

    with ScriptedEndpoint(play, window=WINDOW, count=count) as endpoint:
        bench = Bench(tmp_path, [look_up], window=WINDOW)
        client = EndpointClient(endpoint.base_url, "gpt-4o", counter=counter, context_window=WINDOW)
        summarizer = Summarizer(client)
        compactions: list[Any] = []
        for number in range(TURNS):
            task = "turn 0 the password hint is HINT-7714" if number == 0 else f"turn {number} go on"
            finished = await bench.turn(client, task, summarizer=summarizer)
            assert finished.status == "answered"
            compactions += bench.of("compaction")
        await client.aclose()
    thought = [each for each in endpoint.requests if each.headers["x-perdure-purpose"] == "think"]
    assert not endpoint.refusals
    assert len(thought) == 2 * TURNS
    assert len(compactions) >= 10
    assert {each.gist_by for each in compactions} == {"model", "code"}
    last = "\n".join(str(message["content"]) for message in thought[-1].messages)
    assert "HINT-7714" in last
    assert f"REF-N{TURNS - 2}" in last
    assert len(bench.entries()) == 4 * TURNS, "nothing of a summary is an entry of the conversation"
