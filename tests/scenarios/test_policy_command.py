"""Rules given on the command line and in files, as a run goes by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, ScriptedEndpoint


def bash(command: str) -> Answer:
    return Answer(calls=[("a", "bash", {"command": command})])


@pytest.mark.parametrize(
    ("options", "command", "ran"),
    [
        (["--allow", "bash(touch *)"], "touch made", True),
        (["--allow", "bash(touch *)"], "touch made; id", False),
        (["--allow", "bash(touch *)", "--allow", "bash(id)"], "touch made; id", True),
        (["--yes", "--deny", "bash(touch *)"], "touch made", False),
        (["--read-only", "--allow", "bash"], "touch made", False),
        ([], "touch made", False),
    ],
)
def test_what_may_run_unasked(tmp_path: Path, options: list[str], command: str, ran: bool) -> None:
    with ScriptedEndpoint([bash(command), Answer("done")]) as endpoint:
        run = Command(tmp_path, endpoint.base_url)
        finished = run("run", "go", "--json", *options)
    assert [each["ok"] for each in finished.of("tool.finished")] == [ran]
    assert (run.workspace / "made").exists() is ran


def test_a_checkout_may_forbid_and_not_allow(tmp_path: Path) -> None:
    with ScriptedEndpoint([bash("touch made"), Answer("done")]) as endpoint:
        run = Command(tmp_path, endpoint.base_url)
        (run.workspace / "perdure.toml").write_text('deny = ["bash(touch *)"]\n')
        finished = run("run", "go", "--json", "--yes")
        assert [each["ok"] for each in finished.of("tool.finished")] == [False]
        (run.workspace / "perdure.toml").write_text('allow = ["bash"]\n')
        barred = run("run", "go")
    assert (barred.code, "may not set allow" in barred.err) == (2, True)
    assert not (run.workspace / "made").exists()


@pytest.mark.parametrize("option", ["--allow", "--deny"])
def test_what_is_no_rule_is_told_before_anything_runs(tmp_path: Path, option: str) -> None:
    run = Command(tmp_path, "http://127.0.0.1:9/v1")
    told = run("run", "go", option, "bash(", "--lang", "zh")
    assert (told.code, "不是规则" in told.err) == (2, True)
    assert "Traceback" not in told.err


def test_a_file_of_answers_that_is_damaged_is_told_and_kept(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("done")]) as endpoint:
        run = Command(tmp_path, endpoint.base_url)
        folder = tmp_path / ".config/perdure"
        folder.mkdir(parents=True)
        (folder / "allowed.json").write_text("{")
        told = run("run", "go")
    assert (told.code, "allowed.json" in told.err) == (2, True)
    assert (folder / "allowed.json").read_text() == "{"
