"""Public reports on loops without an end: calls that repeat, and a judge that is never satisfied."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from agent.running import Bench
from perdure.agent.judge import Judge
from perdure.chat.events import Notice, RunFinished
from perdure.chat.messages import Kind
from perdure.chat.tokens import counter_for
from perdure.models.endpoint import EndpointClient
from perdure.tools.registry import tool
from scripted_endpoint import Answer, Call, Plain, Request, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.anyio

polled = count(1)


@tool(effect="reads")
def bash(command: str, timeout: int = 0) -> str:
    """Shows the same for the same command, but for a status that changes."""
    return f"{next(polled)}%" if command == "cat status" else f"{command}: a b c"


@tool(effect="reads")
def read_file(page: int) -> str:
    """Shows a page."""
    return f"page {page}"


def called(number: int, name: str, arguments: object) -> Answer:
    call: Call = (f"c{number}", name, arguments)
    return Answer(calls=[call])


FOREVER: dict[str, Callable[[int], Answer]] = {
    "one call": lambda n: called(n, "bash", {"command": "ls"}),
    "two in turn": lambda n: called(n, "bash", {"command": ("ls", "pwd")[n % 2]}),
    "keys in another order": lambda n: called(
        n, "bash", ('{"command": "ls", "timeout": 5}', '{"timeout": 5, "command": "ls"}')[n % 2]
    ),
}
RUNS_FREE: dict[str, Callable[[int], Answer]] = {
    "page after page": lambda n: called(n, "read_file", {"page": n}),
    "a status that changes": lambda n: called(n, "bash", {"command": "cat status"}),
}


async def run(
    tmp_path: Path,
    script: Callable[[int], Answer],
    verdict: Callable[[Request], Scripted] | None = None,
) -> tuple[Bench, ScriptedEndpoint, RunFinished]:
    bench, numbers = Bench(tmp_path, [bash, read_file]), count(1)
    judged = {"verdict": verdict} if verdict else {}
    with ScriptedEndpoint(lambda _: script(next(numbers)), **judged) as endpoint:  # type: ignore[arg-type]
        client = EndpointClient(endpoint.base_url, "m", counter=counter_for(None))
        judge = Judge(client, mode="on") if verdict else None
        finished = await bench.turn(client, judge=judge)
        await client.aclose()
    assert not endpoint.refusals
    return bench, endpoint, finished


def notices(bench: Bench, code: str) -> list[int]:
    """Behind how many requests of the model each notice came."""
    told, asked = [], 0
    for event in bench.events:
        asked += event.type == "usage"
        if isinstance(event, Notice) and event.code == code:
            told.append(asked)
    return told


@pytest.mark.parametrize("script", FOREVER.values(), ids=FOREVER)
async def test_calls_that_repeat_are_told_and_end_the_turn_in_order(
    tmp_path: Path, script: Callable[[int], Answer]
) -> None:
    bench, endpoint, finished = await run(tmp_path, script)
    assert finished.status == "limit"
    assert finished.reason
    (told,) = notices(bench, "repeated")
    rounds = len(endpoint.requests)
    assert told in {3, 4}, "the third time that nothing new came"
    assert rounds <= 6
    assert rounds - told <= 2, "two more at most"
    warned = [entry for entry in bench.entries() if entry.kind is Kind.NOTICE]
    assert len(warned) == 1


@pytest.mark.parametrize("script", RUNS_FREE.values(), ids=RUNS_FREE)
async def test_what_brings_something_new_runs_free(tmp_path: Path, script: Callable[[int], Answer]) -> None:
    bench, endpoint, finished = await run(tmp_path, lambda n: script(n) if n < 12 else Answer("done"))
    assert (finished.status, finished.answer) == ("answered", "done")
    assert len(endpoint.requests) == 12
    assert not notices(bench, "repeated")


def revising(*missing: str) -> Answer:
    return Answer(json.dumps({"satisfied": False, "missing": missing, "contradicted": []}))


WORDS = ("apples", "bridges", "castles", "dragons", "engines")
JUDGES: dict[str, tuple[Callable[[int], Scripted], str, str, int]] = {
    # what it says; what comes of it; how that is told; rounds of the model
    "the same for ever": (lambda n: revising("no unit"), "unsatisfied", "judge.repeats", 2),
    "new for ever": (lambda n: revising(f"no {WORDS[n % 5]}"), "unsatisfied", "judge.limit", 3),
    "no JSON": (lambda n: Answer("~~~"), "unjudged", "answer.unjudged", 1),
    "both": (lambda n: Answer("This is a pass, and a fail."), "unjudged", "answer.unjudged", 1),
    "a tool": (lambda n: called(n, "bash", {"command": "ls"}), "unjudged", "answer.unjudged", 1),
    "an error": (lambda n: Plain(500, "oops"), "unjudged", "answer.unjudged", 1),
    "nothing": (lambda n: Answer(""), "unjudged", "answer.unjudged", 1),
}


@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
async def test_a_judge_that_never_agrees_ends_with_the_last_answer_and_says_so(
    tmp_path: Path, judge: tuple[Callable[[int], Scripted], str, str, int]
) -> None:
    says, judged, code, rounds = judge
    numbers = count(1)
    bench, endpoint, finished = await run(
        tmp_path, lambda n: Answer(f"draft {n}"), lambda _: says(next(numbers))
    )
    assert (finished.status, finished.judged) == ("answered", judged)
    assert finished.answer == f"draft {rounds}"
    assert len(endpoint.requests) == rounds
    assert len(notices(bench, code)) == 1
    kinds = [entry.kind for entry in bench.entries()]
    assert kinds.count(Kind.USER) == 1, "feedback is no word of the person"
    assert kinds[-1] is Kind.ASSISTANT
