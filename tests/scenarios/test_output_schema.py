"""`--output-schema`: an answer as JSON that fits, over real HTTP and with the real small model."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.errors import ConfigError
from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
#: The endpoint counts characters as tokens; all tools would leave its window no room.
ASKED = ("run", "--tools", "calculator")
CALLED = Answer(calls=[("c1", "calculator", {"expression": "23*47+11"})])


def schema_file(folder: Path, schema: Any = SCHEMA) -> str:
    file = folder / "schema.json"
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return str(file)


def told(request: Request) -> str:
    return "\n".join(str(message["content"]) for message in request.messages)


def test_the_answer_is_json_that_fits_and_nothing_else(tmp_path: Path) -> None:
    script = [CALLED, Answer('The result:\n```json\n{"n": 1092}\n```\nDone.')]
    with ScriptedEndpoint(script) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--output-schema", schema_file(tmp_path), "What is 23*47+11?"
        )
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, '{"n": 1092}\n')
    assert json.dumps(SCHEMA) in told(endpoint.requests[0])
    # Many endpoints let a model that is held to a schema call no tools.
    assert not any("response_format" in request.body for request in endpoint.requests)


def test_one_that_does_not_fit_goes_back_with_the_reason_and_then_under_the_schema(tmp_path: Path) -> None:
    script = [CALLED, Answer("It is 1092."), Answer('{"n": "1092"}'), Answer('{"n": 1092}')]
    with ScriptedEndpoint(script) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--output-schema", schema_file(tmp_path), "What is 23*47+11?"
        )
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, '{"n": 1092}\n')
    assert "! the answer does not fit the schema (no JSON stands in it); it is asked for again" in ran.err
    assert "'1092' is not of type 'integer'" in told(endpoint.requests[-1])
    formats = [request.body.get("response_format") for request in endpoint.requests]
    assert [form and form["json_schema"]["schema"] for form in formats] == [None, None, SCHEMA, SCHEMA]


def test_where_none_fits_the_run_fails_and_stdout_stays_empty(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("It is 1092.")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        asked = (*ASKED, "--output-schema", schema_file(tmp_path), "--session", "s", "What is 23*47+11?")
        ran = command(*asked)
        assert len(endpoint.requests) == 3
    assert (ran.code, ran.out) == (1, "")
    assert "No answer fits the schema, after 3 tries: no JSON stands in it." in ran.err
    assert "It is 1092." in ran.err
    assert "It is 1092." in command("sessions", "show", "s").out


def test_events_carry_the_value(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer('{"n": 1}'), Answer("no")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        asked = (*ASKED, "--json", "--output-schema", schema_file(tmp_path), "One?")
        (fits,) = command(*asked).of("run.finished")
        misfit = command(*asked)
    assert (fits["answer"], fits["output"], fits["status"]) == ('{"n": 1}', {"n": 1}, "answered")
    (finished,) = misfit.of("run.finished")
    assert (finished["output"], finished["status"], finished["error"]) == (None, "failed", "AnswerUnfit")
    assert [notice["code"] for notice in misfit.of("notice")] == ["answer.unfit", "answer.unfit"]
    assert misfit.of("error")[-1]["error"] == "AnswerUnfit"


def test_the_judge_sees_only_what_fits_and_what_it_sends_back_must_fit_again(tmp_path: Path) -> None:
    def verdict(request: Request) -> Scripted:
        wrong = '"n": 1192' in told(request)
        objections = ["the calculator showed 1092, not 1192"] if wrong else []
        return Answer(json.dumps({"satisfied": not wrong, "missing": [], "contradicted": objections}))

    script = [CALLED, Answer('{"n": 1192}'), Answer("1092 then"), Answer('{"n": 1092}')]
    with ScriptedEndpoint(script, verdict=verdict) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--output-schema", schema_file(tmp_path), "What is 23*47+11?"
        )
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, '{"n": 1092}\n')
    assert len(endpoint.judged) == 2


def test_an_answer_that_the_output_limit_cut_goes_on_judge_or_not(tmp_path: Path) -> None:
    script = [Answer('{"n":', finish="length"), Answer(" 1092}")]
    with ScriptedEndpoint(script) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--judge", "off", "--output-schema", schema_file(tmp_path), "What is 23*47+11?"
        )
    assert (ran.code, ran.out) == (0, '{"n": 1092}\n')


def test_an_answer_that_looks_like_a_call_is_one_where_it_fits(tmp_path: Path) -> None:
    call = {"name": "calculator", "arguments": {"expression": "1+1"}}
    schema = {"type": "object", "required": ["name", "arguments"]}
    with ScriptedEndpoint([Answer(json.dumps(call))]) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--output-schema", schema_file(tmp_path, schema), "Which call?"
        )
    assert ran.code == 0
    assert json.loads(ran.out) == call


@pytest.mark.parametrize(
    "said",
    [
        "Function calling with a response mime type: 'application/json' is unsupported",
        "json mode cannot be combined with tool/function calling",
        '"tools" is incompatible with "response_format"',
        "Cannot use custom grammar constraints with tools.",
        "response_format is not supported with tools",
    ],
)
def test_an_endpoint_that_takes_no_schema_beside_tools_is_asked_without_it(tmp_path: Path, said: str) -> None:
    def refuses(body: dict[str, Any]) -> str | None:
        return said if "response_format" in body and "tools" in body else None

    script = [Answer("It is 1092."), Answer('{"n": 1092}')]
    with ScriptedEndpoint(script, refuses=[refuses]) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--judge", "on", "--output-schema", schema_file(tmp_path), "What is 23*47+11?"
        )
    assert (ran.code, ran.out) == (0, '{"n": 1092}\n')
    assert endpoint.refusals == [said]
    # The judge calls no tools, so that its schema stays.
    assert "response_format" in endpoint.judged[-1].body


def test_only_a_closed_schema_is_called_strict(tmp_path: Path) -> None:
    """OpenAI refuses any other one as strict."""
    opened = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {}}, "required": ["n"]}
    for schema, strict in ((SCHEMA, True), (opened, False)):
        with ScriptedEndpoint([Answer("no"), Answer('{"n": 1}')]) as endpoint:
            Command(tmp_path, endpoint.base_url)(
                *ASKED, "--output-schema", schema_file(tmp_path, schema), "One?"
            )
        assert endpoint.requests[-1].body["response_format"]["json_schema"]["strict"] is strict


def test_a_list_is_never_asked_for_as_an_object(tmp_path: Path) -> None:
    def refuses(body: dict[str, Any]) -> str | None:
        form = body.get("response_format") or {}
        return "response_format: json_schema is not supported" if form.get("type") == "json_schema" else None

    schema = {"type": "array", "items": {"type": "integer"}}
    with ScriptedEndpoint([Answer("no"), Answer("[1, 2]")], refuses=[refuses]) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--output-schema", schema_file(tmp_path, schema), "Which?"
        )
    assert (ran.code, ran.out) == (0, "[1, 2]\n")
    assert "response_format" not in endpoint.requests[-1].body


def test_it_holds_for_one_request_and_the_next_one_is_free(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer('{"n": 1}'), Answer("Hello!")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        command(*ASKED, "--session", "s", "--output-schema", schema_file(tmp_path), "One?")
        ran = command(*ASKED, "--session", "s", "Say hello.")
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, "Hello!\n")


def test_of_a_plan_only_the_answer_must_fit(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("# Count\n\n- [ ] 1. look\n- [ ] 2. count\n")
    script = [Answer("looked"), Answer("counted two"), Answer('{"n": 2}')]
    with ScriptedEndpoint(script) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--plan-file", str(tmp_path / "plan.md"), "--output-schema", schema_file(tmp_path)
        )
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, '{"n": 2}\n')


def test_at_a_limit_stdout_holds_no_half_answer(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("It is 1092.")]) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            *ASKED, "--max-steps", "1", "--output-schema", schema_file(tmp_path), "What is 23*47+11?"
        )
    assert (ran.code, ran.out) == (3, "")


def test_at_a_terminal_only_what_fits_is_written_to_stdout(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("It is 1092."), Answer('{"n": 1092}')]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        reading, writing = pty.openpty()
        arguments = (*ASKED, "--output-schema", schema_file(tmp_path), "--session", "s", "What is 23*47+11?")
        process = subprocess.Popen(
            [sys.executable, "-m", "perdure.faces.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=command.workspace,
            env=command.environment,
        )
        _, said = process.communicate(timeout=60)
        os.close(writing)
        shown = os.read(reading, 10_000).decode()
        os.close(reading)
    assert process.returncode == 0, said
    assert shown.strip() == '{"n": 1092}'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no such file"),
        ("{", "no JSON"),
        ("[]", "a schema is a JSON object"),
        ('{"type": "strin"}', "it is no JSON schema"),
        ('{"$ref": "https://example.com/x.json"}', "nothing is fetched"),
    ],
)
def test_a_file_that_holds_no_schema_is_told_before_anything_is_asked(
    tmp_path: Path, content: str | None, why: str
) -> None:
    file = str(tmp_path / "none.json") if content is None else schema_file(tmp_path, content)
    with ScriptedEndpoint([Answer("x")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command(*ASKED, "--output-schema", file, "One?")
        zh = command(*ASKED, "--lang", "zh", "--output-schema", file, "One?")
        assert not endpoint.requests
    assert (ran.code, ran.out, zh.code) == (2, "", 2)
    assert ran.err.startswith(f"perdure: the schema in {file} cannot be used: ")
    assert content is None or why in ran.err
    assert "无法使用" in zh.err
    assert "Traceback" not in ran.err


def test_a_plan_only_has_no_answer_to_fit(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("x")]) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)(
            "run", "--plan-only", "--output-schema", schema_file(tmp_path), "One?"
        )
        assert not endpoint.requests
    assert ran.code == 2
    assert "a plan only has no answer" in ran.err


@pytest.mark.embedded
def test_with_the_embedded_model_the_result_comes_as_json(tmp_path: Path) -> None:
    ran = Command(tmp_path)(
        *ASKED, "--output-schema", schema_file(tmp_path), "What is 23*47+11? Use the calculator."
    )
    assert ran.code == 0, ran.err
    assert isinstance(json.loads(ran.out)["n"], int)


def test_a_program_gets_the_value(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer('{"n": 1}')]) as endpoint:
        agent = Agent(base_url=endpoint.base_url, model="scripted", workspace=str(tmp_path))
        assert agent.run_sync("One?", output_schema=SCHEMA).output == {"n": 1}
        with pytest.raises(ConfigError, match="no JSON schema"):
            agent.run_sync("One?", output_schema={"type": "strin"})
