"""Limits of tokens and money, and going on behind them, as a person or a script meets them."""

from __future__ import annotations

import json
import signal
import time
from itertools import count
from pathlib import Path

import pytest

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Plain, Request, Scripted, ScriptedEndpoint

GO_ON = "Go on with the last request."
PRICES = '[prices."scripted"]\ninput = 1000\noutput = 2000\ncached = 100\n'


class Endless:
    """Calls a tool for ever, until it is told to go on."""

    def __init__(self, going_on: str = GO_ON) -> None:
        self.numbers = count(1)
        self.going_on = going_on

    def __call__(self, request: Request) -> Scripted:
        if request.messages[-1]["content"] == self.going_on:
            return Answer("there it ends")
        number = next(self.numbers)
        return Answer(calls=[(f"c{number}", "calculator", {"expression": f"{number}+1"})])


def priced(command: Command, text: str = PRICES) -> None:
    folder = command.folder / ".config" / "perdure"
    folder.mkdir(parents=True)
    (folder / "perdure.toml").write_text(text)


def run(*arguments: str, task: tuple[str, ...] = ("count for ever",)) -> tuple[str, ...]:
    return ("run", "--tools", "calculator", "--context-window", "60000", *arguments, *task)


def test_a_limit_of_tokens_exits_3_and_continue_alone_goes_on(tmp_path: Path) -> None:
    with ScriptedEndpoint(Endless()) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command(*run("--session", "s", "--max-tokens", "12000"))
        assert ran.code == 3, ran.err
        assert "limit of 12,000 tokens was reached" in ran.err
        assert "go on in the same session" in ran.err
        before = len(endpoint.requests)
        assert before > 1
        again = command(*run("--continue", task=()))
        assert (again.code, again.out) == (0, "there it ends\n"), again.err
        shown = command("sessions", "show", "s", "--json").events
        assert [each["message"]["content"] for each in shown if each["kind"] == "user"] == [
            "count for ever",
            GO_ON,
        ]
        assert len(endpoint.requests) == before + 1
        nothing = command(*run("--continue", task=()))
        assert nothing.code == 2
        assert "left nothing undone" in nothing.err
    assert not endpoint.refusals


def test_a_chinese_session_goes_on_in_chinese(tmp_path: Path) -> None:
    with ScriptedEndpoint(Endless("请继续完成上一个请求。")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command(*run("--session", "s", "--max-tokens", "9000", task=("一直数下去",)))
        assert ran.code == 3, ran.err
        assert "已达到 9,000 个 token 的上限" in ran.err
        again = command(*run("--session", "s", task=()))
        assert (again.code, again.out) == (0, "there it ends\n"), again.err


def test_a_limit_of_money_is_kept_and_told_by_purpose(tmp_path: Path) -> None:
    with ScriptedEndpoint(Endless()) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        priced(command)
        ran = command(*run("--session", "s", "--max-cost", "9", "--json"))
        assert ran.code == 3, ran.err
        (finished,) = ran.of("run.finished")
        assert finished["status"] == "limit"
        assert "limit of $9.00 was reached" in finished["reason"]
        assert 0 < finished["cost"] <= 9
        usage = finished["usage"]
        assert finished["cost"] == pytest.approx(usage["prompt"] / 1000 + usage["completion"] / 500)
        assert finished["cost_by_purpose"] == {"think": finished["cost"]}
        assert sum(each["cost"] for each in ran.of("usage")) == pytest.approx(finished["cost"])
        context = json.loads(command("context", "s", "--json").out)
        assert context["usage_by_purpose"] == {"think": usage}
        assert (context["usage"], context["cost"]) == (usage, finished["cost"])
        assert f"${finished['cost']:,.2f}" in command("context", "s").out
        (listed,) = command("sessions", "list", "--json").events
        assert (listed["usage"], listed["cost"]) == (usage, finished["cost"])
        total = usage["prompt"] + usage["completion"]
        assert f"{total:,} tokens, ${finished['cost']:.2f}" in command("sessions", "list").out
        whole = command("sessions", "show", "s").out.splitlines()[-1]
        assert whole == f"=== {usage['prompt']:,} + {usage['completion']:,} tokens, ${finished['cost']:.2f}"
        shown = command("sessions", "show", "s", "--json").events
        costs = [each["cost"] for each in shown if each["kind"] == "tool_call"]
        assert sum(costs) == pytest.approx(finished["cost"])
        assert all(each["usage"] is None for each in shown if each["kind"] == "tool_result")
        told = command(*run("--continue", "--verbose", task=()))
        assert "cached), $" in told.err


def test_what_a_judge_took_is_told_apart(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("4")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        priced(command)
        ran = command(*run("--session", "s", "--judge", "on", "--json", task=("What is 2+2?",)))
        (finished,) = ran.of("run.finished")
        assert finished["cost_by_purpose"].keys() == {"think", "judge"}
        assert sum(finished["cost_by_purpose"].values()) == pytest.approx(finished["cost"])
        told = command("context", "s").out
        assert "used in the whole session" in told
        for name in ("think", "judge", "in all"):
            assert f"  {name}" in told


def test_money_is_not_limited_by_a_price_that_nobody_knows(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("hi")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--max-cost", "1", "hello")
        assert ran.code == 2
        assert '[prices."scripted"]' in ran.err
        assert str(tmp_path / ".config" / "perdure" / "perdure.toml") in ran.err
        assert "无法遵守 max_cost" in command("run", "--lang", "zh", "--max-cost", "1", "hello").err
        priced(command)
        ran = command("run", "--max-cost", "100", "--judge", "on", "--judge-model", "dear", "hello")
        assert ran.code == 2
        assert '[prices."dear"]' in ran.err
        assert not endpoint.requests
        assert command("sessions", "list").out == ""
        assert command("run", "--max-cost", "100", "hello").out == "hi\n"


def test_an_unknown_price_is_unknown_and_not_nothing(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("hi")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        ran = command("run", "--session", "s", "--json", "hello")
        (finished,) = ran.of("run.finished")
        assert (finished["cost"], finished["cost_by_purpose"]) == (None, {"think": None})
        assert command("sessions", "list", "--json").events[0]["cost"] is None
        assert "unknown" in command("context", "s").out
        assert command("sessions", "show", "s").out.endswith("tokens, unknown\n")


def test_an_interrupted_turn_goes_on_and_one_that_failed_does_not(tmp_path: Path) -> None:
    def slow(request: Request) -> Scripted:
        return Answer("there it ends", delay=0 if request.messages[-1]["content"] == GO_ON else 8)

    with ScriptedEndpoint(slow) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        process = command.start("run", "--session", "s", "wait")
        for _ in range(300):
            if endpoint.requests:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130
        assert command("run", "--session", "s").out == "there it ends\n"
    with ScriptedEndpoint([Plain(401, {"error": {"message": "bad key"}})]) as endpoint:
        command.base_url = endpoint.base_url
        assert command("run", "--session", "s", "hello").code == 2
        ran = command("run", "--session", "s")
        assert (ran.code, ran.out) == (2, "")
        assert "left nothing undone" in ran.err


@pytest.mark.parametrize("arguments", [("run",), ("run", "--session", "new")])
def test_without_a_turn_to_go_on_with_a_task_is_needed(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = Command(tmp_path, "http://127.0.0.1:9/v1")(*arguments)
    assert ran.code == 2
    assert "task" in ran.err
