"""`perdure run --plan` as a person sees it, over real HTTP, killed in the middle, and in a small window."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perdure.chat.messages import Entry, Kind, text_of
from perdure.store.sqlite import SqliteJournal
from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Plain, Request, Scripted, ScriptedEndpoint

TASK = "Write the report on the two services and check it"
STEPS: list[dict[str, Any]] = [
    {"id": "1", "what": "find the two services", "after": []},
    {"id": "2", "what": "describe the service alpha", "after": ["1"]},
    {"id": "3", "what": "describe the service beta", "after": ["1"]},
    {"id": "4", "what": "write the report", "after": ["2", "3"]},
    {"id": "5", "what": "check the report", "after": ["4"]},
]
#: The tools are few, since the endpoint counts their schemas for more than they are.
FEW_TOOLS = ("--tools", "calculator,read_file,bash,recall,update_plan")
QUIET = ("--embedder", "none", "--judge", "off", "--store", "sessions.db", *FEW_TOOLS)


def step_of(request: Request) -> str:
    """Which step of a plan a request is about; empty where it is about none."""
    for message in request.messages:
        if message["role"] == "user" and (found := re.search(r"Your step is (\w+):", message["content"])):
            return found[1]
    return ""


@dataclass
class Model:
    """Plans ``steps``; in each of them calls a tool and then tells a result, in the end the answer.
    ``answers`` takes the place of what is said in a step, by its id."""

    steps: list[dict[str, Any]]
    answers: dict[str, Callable[[Request], Scripted | None]] = field(default_factory=dict)
    plans: list[Request] = field(default_factory=list)
    of_step: list[tuple[str, Request]] = field(default_factory=list)
    finals: list[Request] = field(default_factory=list)
    again: list[list[dict[str, Any]]] = field(default_factory=list)

    def __call__(self, request: Request) -> Scripted:
        purpose = request.headers["x-perdure-purpose"]
        if purpose == "summarize":
            return Answer("- The person wants a report on two services.")
        if purpose == "plan":
            self.plans.append(request)
            steps = self.steps if len(self.plans) == 1 else self.again[len(self.plans) - 2]
            return Answer(json.dumps({"steps": steps}))
        step = step_of(request)
        if not step:
            self.finals.append(request)
            return Answer("The report is written.")
        self.of_step.append((step, request))
        if step in self.answers and (said := self.answers[step](request)):
            return said
        if any(message["role"] == "tool" for message in request.messages):
            return Answer(f"Result of step {step}: found R{step}.")
        return Answer(calls=[(f"c{step}", "bash", {"command": f"echo {step} >> done.txt"})])

    def asked(self) -> Counter[str]:
        return Counter(step for step, _ in self.of_step)


def test_a_plan_is_made_carried_out_and_answered_from(tmp_path: Path) -> None:
    model = Model(STEPS)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--plan", "--yes", "--session", "s", *QUIET, TASK)
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, "The report is written.\n")
    assert (command.workspace / "done.txt").read_text().split() == ["1", "2", "3", "4", "5"]
    assert "[x] 3. describe the service beta (after 1) → Result of step 3: found R3." in ran.err
    (plan,) = model.plans
    assert TASK in plan.messages[-1]["content"]
    assert "tools" not in plan.body
    # A step sees the request, the plan, and the results of the steps that it comes after.
    fourth = next(request for step, request in model.of_step if step == "4").messages[-1]["content"]
    assert TASK in fourth
    assert "<<< the result of step 2\nResult of step 2: found R2.\n>>>" in fourth
    assert "- [ ] 5. check the report" in fourth
    # Its window is its own: nothing of what other steps called.
    assert all(
        request.messages[-1]["role"] != "tool" or step in json.dumps(request.messages[-2])
        for step, request in model.of_step
    )
    (final,) = model.finals
    assert "Result of step 5: found R5." in final.messages[-1]["content"]
    assert all(message["role"] != "tool" for message in final.messages)


def test_steps_that_do_not_depend_on_each_other_run_side_by_side(tmp_path: Path) -> None:
    meet = threading.Barrier(2)

    def together(request: Request) -> Scripted | None:
        return None if request.messages[-1]["role"] == "tool" else Answer("found", meets=meet)

    model = Model(STEPS, {"2": together, "3": together})
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--plan", "--parallel", "2", "--yes", *QUIET, "--json", TASK)
        assert not endpoint.refusals
    assert ran.code == 0
    states = [[step["status"] for step in event["steps"]] for event in ran.of("plan")]
    assert ["done", "running", "running", "pending", "pending"] in states
    assert states[-1] == ["done"] * 5
    assert ran.of("plan")[-1]["over"]
    in_steps = {event["plan_step"] for event in ran.events if "plan_step" in event}
    assert in_steps == {"1", "2", "3", "4", "5"}
    finished = ran.of("run.finished")[0]
    assert (finished["answer"], finished["steps"]) == ("The report is written.", 9)
    assert set(finished["usage_by_purpose"]) == {"think", "plan"}


def test_a_plan_that_is_killed_in_a_step_goes_on_there_and_repeats_nothing(tmp_path: Path) -> None:
    stalled = threading.Event()

    def stalls(request: Request) -> Scripted | None:
        if request.messages[-1]["role"] != "tool" or stalled.is_set():
            return None
        # The other one is done meanwhile, and the tool of this one has run.
        stalled.set()
        return Answer("never read", delay=60)

    model = Model(STEPS, {"3": stalls})
    arguments = ("run", "--plan", "--parallel", "2", "--yes", "--session", "s", *QUIET, TASK)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        running = command.start(*arguments)
        assert stalled.wait(60)
        end = time.monotonic() + 30
        while status_of(command)["2"] != "done" and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert status_of(command) == {
            "1": "done",
            "2": "done",
            "3": "running",
            "4": "pending",
            "5": "pending",
        }
        asked = model.asked()
        ran = command(*arguments)
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, "The report is written.\n")
    assert len(model.plans) == 1
    assert Counter((command.workspace / "done.txt").read_text().split()) == dict.fromkeys("12345", 1)
    now = model.asked()
    assert [now[step] - asked[step] for step in "12345"] == [0, 0, 1, 2, 2]
    # The step that goes on sees what its tool showed before it was killed.
    goes_on = next(request for step, request in model.of_step[::-1] if step == "3").messages
    assert "was interrupted and goes on" in goes_on[-1]["content"]
    assert goes_on[-2]["role"] == "tool"
    checked = command("sessions", "verify", "s", "--store", "sessions.db", "--json")
    assert (checked.code, json.loads(checked.out)["different"]) == (0, [])


def status_of(command: Command) -> dict[str, str]:
    """How far each step is, by what the journal says."""
    path = command.workspace / "sessions.db"
    journal = SqliteJournal(path)
    try:
        plans = [each for each in journal.records("s") if not isinstance(each, Entry) and each.type == "plan"]
    finally:
        journal.close()
    return {step["id"]: step["status"] for step in plans[-1].body["steps"]}


def test_the_plan_is_whole_after_three_compactions(tmp_path: Path) -> None:
    """Of a model that keeps its plan itself, and of a step of one that was made first."""
    notes = "the service writes its log lines to a file and rotates it each night; " * 24

    def reads_on(request: Request) -> Scripted | None:
        rounds = sum(message["role"] == "tool" for message in request.messages)
        seen = len([step for step, _ in model.of_step if step == "2"])
        if seen > 14:
            return None
        call = {"command": f"echo {seen} {rounds}; cat notes.txt"}
        return Answer(calls=[(f"r{seen}", "bash", call)])

    model = Model(STEPS, {"2": reads_on})
    with ScriptedEndpoint(model, window=4096, count=lambda body: len(json.dumps(body)) // 4) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "notes.txt").write_text(notes)
        window = ("--context-window", "4096", "--max-output-tokens", "600")
        ran = command("run", "--plan", "--yes", "--json", *window, *QUIET, TASK, timeout=120)
        assert not endpoint.refusals
    assert ran.code == 0, ran.err
    assert len([event for event in ran.of("compaction") if event.get("plan_step") == "2"]) >= 3
    last = [request for step, request in model.of_step if step == "2"][-1]
    shown = next(message["content"] for message in last.messages if "Your step is 2" in message["content"])
    for step in STEPS:
        assert f"{step['id']}. {step['what']}" in shown
    assert TASK in shown
    assert "characters left out" not in shown


def test_a_plan_of_the_models_own_stays_whole_through_compactions(tmp_path: Path) -> None:
    steps = [{"id": str(n), "what": f"look at file number {n}", "status": "pending"} for n in range(1, 7)]
    notes = "the service writes its log lines to a file and rotates it each night; " * 24
    rounds = 0

    def script(request: Request) -> Scripted:
        nonlocal rounds
        if request.headers["x-perdure-purpose"] == "summarize":
            return Answer("- The person wants files to be looked at.")
        rounds += 1
        if rounds == 1:
            return Answer(calls=[("p", "update_plan", {"steps": steps})])
        if rounds > 40:
            return Answer("All looked at.")
        return Answer(calls=[(f"r{rounds}", "bash", {"command": f"echo {rounds}; cat notes.txt"})])

    with ScriptedEndpoint(script, window=8192, count=lambda body: len(json.dumps(body)) // 4) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "notes.txt").write_text(notes)
        window = ("--context-window", "8192", "--max-output-tokens", "600")
        ran = command("run", "--yes", "--json", *window, *QUIET, "Look at six files", timeout=120)
        assert not endpoint.refusals
    assert ran.code == 0, ran.err
    assert len(ran.of("compaction")) >= 3
    (plan,) = ran.of("plan")
    assert (plan["by"], len(plan["steps"])) == ("model", 6)
    last = json.dumps(endpoint.requests[-1].messages)
    assert all(f"- [ ] {n}. look at file number {n}" in last for n in range(1, 7))
    assert all(
        message.get("tool_calls", [{}])[0].get("id") != "p" for message in endpoint.requests[-1].messages
    )


def test_a_step_that_fails_leads_to_another_plan_for_the_rest(tmp_path: Path) -> None:
    model = Model(STEPS, {"2": lambda request: Answer("FAILED: there is no service alpha")})
    model.again = [
        [
            {"id": "a", "what": "describe the service gamma instead", "after": ["1"]},
            {"id": "b", "what": "write the report on beta and gamma", "after": ["a", "3"]},
        ]
    ]
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--plan", "--yes", "--json", *QUIET, TASK)
        assert not endpoint.refusals
    assert ran.code == 0, ran.err
    again = model.plans[1].messages[-1]["content"]
    assert "- [!] 2. describe the service alpha" in again
    assert "there is no service alpha" in again
    last = {step["what"]: step for step in ran.of("plan")[-1]["steps"]}
    assert [(step["id"], step["status"]) for step in last.values()] == [
        ("1", "done"),
        ("2", "failed"),
        ("6", "done"),
        ("7", "done"),
    ]
    assert last["write the report on beta and gamma"]["after"] == ["6"]
    assert model.asked() == {"1": 2, "2": 1, "6": 2, "7": 2}


SAY_FAILURE = (
    "FAILED: it is not there",
    "**FAILED:** it is not there",
    "Failed: it is not there",
    "[FAILED] it is not there",
    "FAILED - it is not there",
    "FAILED\n\nit is not there",
    "<thinking>FAILED or not?</thinking>\nFAILED: it is not there",
    "失败：it is not there",
    "【失败】it is not there",
    "任务失败，it is not there",
)
SAY_RESULT = (
    "Failed: 0 of 30 tests, all pass",
    "FAILED tests/test_a.py is the line that is written",
    "失败：0 个",
    "失败的测试有两个",
    "It is done. FAILED: is no longer there",
)


@pytest.mark.parametrize(("texts", "status"), [(SAY_FAILURE, "failed"), (SAY_RESULT, "done")])
def test_a_step_says_its_failure_in_any_usual_form_and_a_result_is_none(
    tmp_path: Path, texts: tuple[str, ...], status: str
) -> None:
    steps = [{"id": str(at), "what": f"look {at}", "after": []} for at in range(1, len(texts) + 1)]
    answers = {str(at): Answer(text) for at, text in enumerate(texts, 1)}
    model = Model(steps, {id: lambda request: answers[step_of(request)] for id in answers}, again=[[]])
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--plan", "--parallel", "10", "--yes", "--json", *QUIET, TASK)
    last = ran.of("plan")[-1]["steps"]
    assert {step["id"]: step["status"] for step in last} == dict.fromkeys(answers, status)
    if status == "failed":
        assert {step["result"] for step in last} == {"it is not there"}


def test_a_plan_that_goes_on_failing_is_left_and_told(tmp_path: Path) -> None:
    fails = dict.fromkeys("123456789", lambda request: Answer("FAILED: no network"))
    model = Model(STEPS[:1], fails, again=[STEPS[:1]] * 5)
    with ScriptedEndpoint(model) as endpoint:
        ran = Command(tmp_path, endpoint.base_url)("run", "--plan", "--yes", "--json", *QUIET, TASK)
    assert ran.code == 0
    assert [event["code"] for event in ran.of("notice")] == ["plan.limit"]
    assert len(model.plans) == 4
    assert [step["status"] for step in ran.of("plan")[-1]["steps"]] == ["failed"] * 4
    assert "no network" in model.finals[0].messages[-1]["content"]


def test_a_plan_only_is_printed_edited_and_carried_out_from_its_file(tmp_path: Path) -> None:
    model = Model(STEPS)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        printed = command("run", "--plan-only", *QUIET, TASK)
        assert printed.code == 0
        assert printed.out == (
            "- [ ] 1. find the two services\n- [ ] 2. describe the service alpha\n"
            "- [ ] 3. describe the service beta (after 1)\n- [ ] 4. write the report (after 2, 3)\n"
            "- [ ] 5. check the report\n"
        )
        assert not model.of_step
        edited = printed.out.replace("alpha", "omega").replace("- [ ] 5. check the report\n", "")
        (command.workspace / "plan.md").write_text(f"# {TASK}\n\n{edited}")
        ran = command("run", "--plan-file", "plan.md", "--yes", "--json", *QUIET)
        assert not endpoint.refusals
    assert ran.code == 0, ran.err
    assert len(model.plans) == 1
    assert ran.of("run.started")[0]["task"] == TASK
    last = ran.of("plan")[-1]
    assert last["by"] == "person"
    assert [(step["what"], step["after"], step["status"]) for step in last["steps"]] == [
        ("find the two services", [], "done"),
        ("describe the service omega", ["1"], "done"),
        ("describe the service beta", ["1"], "done"),
        ("write the report", ["2", "3"], "done"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no list at all", "there is no step in it"),
        ("- [ ] 1. a\n- [ ] 1. b", "two steps have the number 1"),
        ("- [ ] 1. a (after 7)", "comes after 7, which there isn't"),
        ("- [ ] 1. a (after 2)\n- [ ] 2. b", "wait for each other"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_before_anything_is_sent(
    tmp_path: Path, text: str, told: str
) -> None:
    with ScriptedEndpoint([Answer("never")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "plan.md").write_text(text)
        ran = command("run", "--plan-file", "plan.md", *QUIET, TASK)
        missing = command("run", "--plan-file", "none.md", *QUIET, TASK)
    assert (ran.code, missing.code) == (2, 2)
    assert told in ran.err
    assert "none.md" in missing.err
    assert not endpoint.requests


def test_where_no_plan_comes_the_request_is_worked_on_without_one(tmp_path: Path) -> None:
    def script(request: Request) -> Scripted:
        planning = request.headers["x-perdure-purpose"] == "plan"
        return Answer("I would rather not." if planning else "Here is the answer.")

    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--plan", *QUIET, TASK)
        alone = command("run", "--plan-only", *QUIET, TASK)
    assert (ran.code, ran.out) == (0, "Here is the answer.\n")
    assert "no plan came of it (the reply was no plan)" in ran.err
    assert (alone.code, alone.out) == (1, "")


def test_an_endpoint_that_fails_in_a_step_ends_the_run_and_the_step_goes_on(tmp_path: Path) -> None:
    broken = True

    def fails(request: Request) -> Scripted | None:
        return Plain(400, {"error": {"message": "no such thing"}}) if broken else None

    model = Model(STEPS, {"3": fails})
    arguments = ("run", "--plan", "--yes", "--session", "s", *QUIET, TASK)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command(*arguments)
        assert ran.code == 1
        assert "[~] 3. describe the service beta" in ran.out
        broken = False
        again = command(*arguments)
    assert (again.code, again.out) == (0, "The report is written.\n")
    assert model.asked()["1"] == model.asked()["2"] == 2


@pytest.mark.parametrize("where", ["in a step", "in the answer"])
def test_a_time_limit_in_a_plan_says_what_was_done_and_it_goes_on(tmp_path: Path, where: str) -> None:
    slow = True

    def script(request: Request) -> Scripted:
        step = step_of(request)
        late = step == "2" if where == "in a step" else not step
        if slow and late and request.headers["x-perdure-purpose"] == "think":
            return Answer("never read", delay=60)
        return model(request)

    model = Model(STEPS[:2])
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--plan", "--yes", "--session", "s", "--max-time", "4", *QUIET, TASK)
        assert ran.code == 3
        assert "- [x] 1. find the two services\n  → Result of step 1: found R1.\n" in ran.out
        asked, slow = model.asked(), False
        again = command("run", "--yes", "--continue", *QUIET)
    assert (again.code, again.out) == (0, "The report is written.\n")
    assert model.asked()["1"] == asked["1"] == 2


def test_another_request_leaves_an_interrupted_plan_alone_and_it_goes_on_after_that(tmp_path: Path) -> None:
    broken = True

    def fails(request: Request) -> Scripted | None:
        return Plain(400, {"error": {"message": "no such thing"}}) if broken else None

    model = Model(STEPS, {"3": fails})
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        command("run", "--plan", "--yes", "--session", "s", *QUIET, TASK)
        broken = False
        other = command("run", "--yes", "--session", "s", *QUIET, "What is 2+2?")
        (final,) = model.finals
        assert other.code == 0
        assert final.messages[-1] == {"role": "user", "content": "What is 2+2?"}
        assert status_of(command)["3"] == "running"
        ran = command("run", "--yes", "--continue", *QUIET)
    assert (ran.code, len(model.plans)) == (0, 1)
    assert set(status_of(command).values()) == {"done"}


def test_another_request_is_not_answered_from_a_plan_that_was_carried_out_and_killed(tmp_path: Path) -> None:
    asked = threading.Event()

    def script(request: Request) -> Scripted:
        if request.headers["x-perdure-purpose"] == "think" and not step_of(request) and not asked.is_set():
            asked.set()
            return Answer("never read", delay=60)
        return model(request)

    model = Model(STEPS[:2])
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        running = command.start("run", "--plan", "--yes", "--session", "s", *QUIET, TASK)
        assert asked.wait(60)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        command("run", "--yes", "--session", "s", *QUIET, "What is 2+2?")
        assert model.finals[-1].messages[-1] == {"role": "user", "content": "What is 2+2?"}
        command("run", "--yes", "--continue", *QUIET)
    assert "Answer it now from these results" in model.finals[-1].messages[-1]["content"]


@pytest.mark.parametrize("secret_of", ["the result of a step", "the request", "a tool in a step"])
def test_what_is_forgotten_is_gone_from_the_plan_and_from_all_to_whom_it_was_shown(
    tmp_path: Path, secret_of: str
) -> None:
    secret = "zanzibarswordfish"
    told = Answer(f"The password is {secret}.")
    model = Model(STEPS, {"2": lambda request: told if request.messages[-1]["role"] == "tool" else None})
    task = f"{TASK} with {secret}" if secret_of == "the request" else TASK
    if secret_of == "the request":
        model.answers.clear()
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        command("run", "--yes", "--session", "s", *QUIET, "an earlier request")
        command("run", "--plan", "--yes", "--session", "s", *QUIET, task)
        command("run", "--yes", "--session", "s", *QUIET, "a later request")
        path = command.workspace / "sessions.db"
        journal = SqliteJournal(path)
        entries = [each for each in journal.records("s") if isinstance(each, Entry)]
        journal.close()
        kind = Kind.USER if secret_of == "the request" else Kind.ASSISTANT
        number = next(each.seq for each in entries if each.kind is kind and secret in text_of(each.message))
        # What a tool showed comes right before what was said of it.
        numbers = f"{number - 1}-{number}" if secret_of == "a tool in a step" else str(number)
        forgotten = command("forget", "s", "--entries", numbers, "--yes", "--store", "sessions.db")
        assert forgotten.code == 0, forgotten.err
        assert not [
            file.name for file in path.parent.glob("sessions.db*") if secret.encode() in file.read_bytes()
        ]
        shown = command("sessions", "show", "s", "--store", "sessions.db")
        assert "an earlier request" in shown.out
        assert "a later request" in shown.out
        checked = command("sessions", "verify", "s", "--store", "sessions.db", "--json")
        assert json.loads(checked.out)["different"] == []
        again = command("run", "--yes", "--continue", *QUIET)
        assert (again.code, again.out) == (2, "")


def test_what_steps_said_is_kept_found_and_exported(tmp_path: Path) -> None:
    model = Model(STEPS)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        command("run", "--plan", "--parallel", "2", "--yes", "--session", "s", *QUIET, TASK)
        found = command("recall", "s", "R3", "--json", "--embedder", "none", "--store", "sessions.db")
        journal = SqliteJournal(command.workspace / "sessions.db")
        entries = [each for each in journal.records("s") if isinstance(each, Entry)]
        journal.close()
    assert json.loads(found.out)[0]["text"] == "Result of step 3: found R3."
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    lanes = Counter(entry.lane for entry in entries)
    assert lanes == {"": 3, "1/1": 4, "1/2": 4, "1/3": 4, "1/4": 4, "1/5": 4}
    kinds = [entry.kind for entry in entries if not entry.lane]
    assert kinds == [Kind.USER, Kind.PLAN, Kind.ASSISTANT]
    assert "Result of step 5" in text_of(
        next(each for each in entries if each.kind is Kind.PLAN and not each.lane).message
    )


def test_a_session_with_steps_goes_through_export_and_import(tmp_path: Path) -> None:
    meet = threading.Barrier(2)

    def together(request: Request) -> Scripted | None:
        last = request.messages[-1]
        return Answer("found", meets=meet) if last["role"] == "tool" else None

    model = Model(STEPS, {"2": together, "3": together})
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        command("run", "--plan", "--parallel", "2", "--yes", "--session", "s", *QUIET, TASK)
        store = ("--store", "sessions.db")
        command("sessions", "export", "s", "--output", "s.jsonl", *store)
        brought = command("sessions", "import", "s.jsonl", "--session", "t", "--json", *store)
        page = command("sessions", "export", "s", *store)
        listed = command("sessions", "show", "t", *store)
        again = command("run", "--session", "t", *QUIET, "And now?")
        assert not endpoint.refusals
    assert json.loads(brought.out)["repairs"] == []
    journal = SqliteJournal(command.workspace / "sessions.db")
    ours, theirs = (
        [
            (each.seq, each.kind, each.message, each.lane)
            for each in journal.records(name)
            if isinstance(each, Entry)
        ]
        for name in ("s", "t")
    )
    journal.close()
    assert theirs[: len(ours)] == ours
    assert "Assistant (step 3)" in page.out
    assert "assistant (step 3)" in re.sub(r" 20\S+", "", listed.out)
    assert again.code == 0


def test_what_a_plan_quotes_is_forgotten_with_it(tmp_path: Path) -> None:
    model = Model(STEPS)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        command("run", "--plan", "--yes", "--session", "s", *QUIET, TASK)
        gone = command("forget", "s", "--query", "R2", "--yes", "--store", "sessions.db")
    assert gone.code == 0, gone.err
    assert b"found R2" not in b"".join(each.read_bytes() for each in command.workspace.glob("sessions.db*"))


def test_a_plan_that_met_its_limit_goes_on_without_a_word(tmp_path: Path) -> None:
    model = Model(STEPS)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--plan", "--yes", "--max-tokens", "25000", "--json", *QUIET, TASK)
        assert ran.code == 3, ran.err
        finished = ran.of("run.finished")[0]
        assert finished["status"] == "limit"
        assert "25,000 tokens" in finished["reason"]
        done = [step["id"] for step in ran.of("plan")[-1]["steps"] if step["status"] == "done"]
        assert "1" in done
        assert "5" not in done
        asked = model.asked()
        again = command("run", "--continue", "--yes", *QUIET)
        assert not endpoint.refusals
    assert (again.code, again.out) == (0, "The report is written.\n")
    assert all(model.asked()[step] == asked[step] for step in done)
    assert TASK in model.finals[0].messages[-1]["content"]


def test_an_interrupted_step_goes_on(tmp_path: Path) -> None:
    reached = threading.Event()

    def slow(request: Request) -> Scripted | None:
        if reached.is_set():
            return None
        reached.set()
        return Answer("never heard", delay=30)

    model = Model(STEPS, {"2": slow})
    arguments = ("run", "--yes", "--session", "s", *QUIET)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        running = command.start(*arguments, "--plan", TASK)
        assert reached.wait(60)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)
        assert running.returncode == 130
        assert status_of(command)["2"] == "running"
        ran = command(*arguments)
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, "The report is written.\n")
    assert model.asked()["1"] == 2


def test_another_request_leaves_a_plan_that_was_interrupted(tmp_path: Path) -> None:
    model = Model(STEPS, {"2": lambda request: Plain(400, {"error": {"message": "no"}})})
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "--plan", "--yes", "--session", "s", *QUIET, TASK).code == 1
        asked = model.asked()
        ran = command("run", "--session", "s", *QUIET, "What is left to do?")
        assert not endpoint.refusals
    assert ran.code == 0
    assert model.asked() == asked
    seen = command("context", "s", "--store", "sessions.db")
    assert "a plan that is not finished:" in seen.out
    assert "[~] 2. describe the service alpha (after 1)" in seen.out
    # It waits, and can still go on.
    assert model.finals[-1].messages[-1]["content"] == "What is left to do?"
    model.answers.clear()
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--session", "s", "--yes", *QUIET)
    assert (ran.code, ran.out) == (0, "The report is written.\n")
    assert model.asked()["1"] == 2
    assert set(status_of(command).values()) == {"done"}


def test_a_plan_from_a_file_that_was_interrupted_goes_on_and_an_edited_one_begins_anew(
    tmp_path: Path,
) -> None:
    broken = True

    def fails(request: Request) -> Scripted | None:
        return Plain(400, {"error": {"message": "no"}}) if broken else None

    model = Model([], {"2": fails})
    arguments = ("run", "--plan-file", "plan.md", "--yes", "--session", "s", *QUIET)
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        file = command.workspace / "plan.md"
        file.write_text(f"# {TASK}\n\n- [ ] find the services\n- [ ] describe alpha\n")
        assert command(*arguments).code == 1
        broken = False
        again = command(*arguments)
        assert model.asked() == {"1": 2, "2": 3}
        file.write_text(f"# {TASK}\n\n- [x] find the services\n- [ ] describe omega\n")
        other = command(*arguments)
    assert (again.code, other.code) == (0, 0)
    assert model.asked() == {"1": 2, "2": 5}


def test_what_was_done_is_told_where_the_time_is_up(tmp_path: Path) -> None:
    model = Model(STEPS, {"2": lambda request: Answer("too late", delay=60)})
    with ScriptedEndpoint(model) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--plan", "--yes", "--max-time", "6", *QUIET, TASK)
    assert ran.code == 3
    assert "- [x] 1. find the two services" in ran.out
    assert "- [~] 2. describe the service alpha" in ran.out


@pytest.mark.parametrize("failing", ["the last step", "beside one at work"])
def test_a_failure_whose_new_plan_was_killed_leads_to_it_when_the_plan_goes_on(
    tmp_path: Path, failing: str
) -> None:
    steps = [{"id": "1", "what": "find", "after": []}, {"id": "2", "what": "look", "after": []}]
    stalled = threading.Event()
    beside = failing == "beside one at work"

    def script(request: Request) -> Scripted:
        anew = request.headers["x-perdure-purpose"] == "plan" and bool(model.plans)
        late = step_of(request) == "1" and request.messages[-1]["role"] == "tool" if beside else anew
        if late and not stalled.is_set():
            stalled.set()
            return Answer("never read", delay=60)
        return model(request)

    model = Model(steps, {"2": lambda request: Answer("FAILED: not there")})
    model.again = [[{"id": "a", "what": "look elsewhere", "after": []}]]
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        running = command.start("run", "--plan", "--parallel", "2", "--yes", "--session", "s", *QUIET, TASK)
        assert stalled.wait(60)
        end = time.monotonic() + 30
        while status_of(command)["2"] != "failed" and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert status_of(command) == {"1": "running" if beside else "done", "2": "failed"}
        ran = command("run", "--yes", "--continue", *QUIET)
        assert not endpoint.refusals
    assert (ran.code, ran.out) == (0, "The report is written.\n")
    assert status_of(command) == {"1": "done", "2": "failed", "3": "done"}
    assert (command.workspace / "done.txt").read_text().split() == ["1", "3"]


def test_a_plan_of_the_models_own_does_not_replace_one_that_waits(tmp_path: Path) -> None:
    broken = True
    other = "What is 2+2?"

    def script(request: Request) -> Scripted:
        if not broken and request.messages[-1]["content"] == other:
            return Answer(calls=[("p", "update_plan", {"steps": [{"id": "1", "what": "own"}]})])
        return model(request)

    model = Model(STEPS, {"3": lambda request: Plain(400, {"error": {"message": "no"}}) if broken else None})
    window = ("--context-window", "16000")
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        command("run", "--plan", "--yes", "--session", "s", *window, *QUIET, TASK)
        broken = False
        ran = command("run", "--yes", "--session", "s", *window, *QUIET, other)
        assert (ran.code, status_of(command)["3"]) == (0, "running")
        assert "a plan was made for the person already" in endpoint.requests[-1].messages[-1]["content"]
        again = command("run", "--yes", "--continue", *window, *QUIET)
        assert not endpoint.refusals
    assert again.code == 0, again.err
    assert set(status_of(command).values()) == {"done"}
