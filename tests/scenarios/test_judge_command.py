"""`perdure run` with the Judge, as a person sees it, over real HTTP and with the real small model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Plain, Request, Scripted, ScriptedEndpoint

CALLED = Answer(calls=[("c1", "calculator", {"expression": "23*47+11"})])


def wrong(request: Request) -> Scripted:
    """Objects to 1192, and to nothing else."""
    is_wrong = "1192" in json.dumps(request.messages)
    objections = ["the calculator showed 1092, not 1192"] if is_wrong else []
    return Answer(json.dumps({"satisfied": not is_wrong, "missing": [], "contradicted": objections}))


def test_a_wrong_answer_is_mended_before_a_person_gets_it(tmp_path: Path) -> None:
    script = [CALLED, Answer("It is 1192."), Answer("It is 1092.")]
    with ScriptedEndpoint(script, verdict=wrong) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "What is 23*47+11?")
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, "It is 1092.\n")
    assert "✗ checked: the calculator showed 1092, not 1192" in ran.err
    assert "✓ checked: the answer does what was asked" in ran.err
    (judge, again) = endpoint.judged
    assert judge.headers["x-perdure-session"] == again.headers["x-perdure-session"]
    assert "tools" not in judge.body


def test_what_was_judged_is_told_in_the_language_of_the_request(tmp_path: Path) -> None:
    script = [CALLED, Answer("结果是 1192。"), Answer("结果是 1092。")]
    with ScriptedEndpoint(script, verdict=wrong) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "请计算 23*47+11 等于多少？")
    assert (ran.code, ran.out) == (0, "结果是 1092。\n")
    assert "✗ 已检查：the calculator showed 1092, not 1192" in ran.err
    assert "✓ 已检查：回答符合请求" in ran.err
    assert "请重新核对" in json.dumps(endpoint.requests[-1].messages, ensure_ascii=False)


@pytest.mark.parametrize(
    ("options", "task", "judged"),
    [
        ((), "Hello there", 0),
        ((), "What is 2+2? And what is 3+3?", 1),
        (("--judge", "on"), "Hello there", 1),
        (("--judge", "off"), "What is 2+2? And what is 3+3?", 0),
    ],
)
def test_who_is_judged_is_the_persons_choice(
    tmp_path: Path, options: tuple[str, ...], task: str, judged: int
) -> None:
    with ScriptedEndpoint([Answer("Here you are.")]) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", task, "--json", *options)
    assert ran.code == 0
    assert len(endpoint.judged) == judged
    (finished,) = ran.of("run.finished")
    assert finished["judged"] == ("satisfied" if judged else "")
    assert [event["satisfied"] for event in ran.of("judge")] == [True] * judged


def test_another_model_may_judge(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("Here you are.")]) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "x", "--judge", "on", "--judge-model", "wiser")
    assert ran.code == 0
    assert [request.body["model"] for request in endpoint.judged] == ["wiser"]
    assert {request.body["model"] for request in endpoint.requests} == {"scripted"}


@pytest.mark.parametrize(
    "verdict", [Plain(500, "oops"), Answer("~~~"), Plain(404, "<html>", {}, "text/html")]
)
def test_a_judge_that_fails_costs_a_line_and_nothing_else(tmp_path: Path, verdict: Scripted) -> None:
    with ScriptedEndpoint([Answer("Here you are.")], verdict=verdict) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "x", "--judge", "on")
    assert (ran.code, ran.out) == (0, "Here you are.\n")
    assert "the answer was not checked" in ran.err


def test_an_endpoint_that_knows_no_schema_still_judges(tmp_path: Path) -> None:
    def refused(request: Request) -> Scripted:
        if "response_format" in request.body:
            error = {"message": "Unrecognized request argument supplied: response_format"}
            return Plain(400, {"error": error})
        return Answer('```json\n{"satisfied": true}\n```')

    with ScriptedEndpoint([Answer("Here you are.")], verdict=refused) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "x", "--judge", "on", "--json")
    assert [event["satisfied"] for event in ran.of("judge")] == [True]


def test_wrong_settings_of_the_judge_are_named(tmp_path: Path) -> None:
    command = Command(tmp_path, "http://127.0.0.1:9/v1")
    assert "judge_rounds must be 0 or more" in command("run", "x", "--judge-rounds", "-1").err
    assert command("run", "x", "--judge", "sometimes").code == 2


def test_the_embedded_model_judges_end_to_end_whatever_its_verdict(tmp_path: Path) -> None:
    command = Command(tmp_path)
    ran = command(
        "run", "What is 23*47+11? Use the calculator.", "--judge", "on", "--json", "--yes", timeout=180
    )
    assert ran.code in {0, 3}
    (finished,) = ran.of("run.finished")
    assert finished["judged"] in {"satisfied", "unsatisfied", "unjudged"}
    assert ran.of("tool.finished")[0]["output"] == "1092", (
        "what it looked up is right, whatever it says of it"
    )
    assert finished["answer"].strip()
    assert ran.of("judge")
    off = command("run", "What is 23*47+11? Use the calculator.", "--json", "--yes", timeout=180)
    assert not off.of("judge"), "by itself it is too small to judge"


def test_what_goes_on_is_judged_by_the_request_and_all_that_was_done_for_it(tmp_path: Path) -> None:
    with ScriptedEndpoint([CALLED, Answer("It is 1092.")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        options = ("--session", "s", "--json")
        assert command("run", "What is 23*47+11?", "--max-steps", "1", *options).code == 3
        ran = command("run", *options)
        assert (ran.code, [each["satisfied"] for each in ran.of("judge")]) == (0, [True]), "a tool was used"
        (judged,) = endpoint.judged
    sent = str(judged.body["messages"])
    assert "What is 23*47+11?" in sent
    assert "Go on with the last request" not in sent
    assert "23*47+11" in sent.replace("What is 23*47+11?", "")
    assert "1092" in sent
    assert "{{" not in sent


def test_the_steps_of_a_plan_that_was_never_made_get_the_request_that_goes_on(tmp_path: Path) -> None:
    plan = Answer(json.dumps({"steps": [{"id": "1", "what": "look at A", "after": []}]}))

    def play(request: Request) -> Scripted:
        if request.headers["x-perdure-purpose"] != "plan":
            return Answer("done")
        return replace(plan, delay=30) if len(endpoint.requests) == 1 else plan

    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        options = ("--session", "s", "--json", "--plan", "--judge", "off")
        assert command("run", "Find A and read B", "--max-time", "1.5", *options).code == 3
        assert command("run", *options).code == 0
    (step, *_) = [
        str(request.body["messages"])
        for request in endpoint.requests
        if "[A step of a plan]" in str(request.body["messages"])
    ]
    assert "Find A and read B" in step
    assert "Go on with the last request" not in step
