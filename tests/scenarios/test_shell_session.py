"""What a shell leaves in a session: its folder, the whole of long outputs, commands in the background."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint
from tools.running import gone, sleeper

SECRET = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
#: 400,000 characters, and something in the middle of them.
LONG = (
    f"seq 1 30000 | sed 's/$/ filling/'; echo the needle {SECRET}; seq 1 20000 | sed 's/$/ filling/'; exit 3"
)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def calls(*commands: str, **more: Any) -> Answer:
    return Answer(calls=[(f"c{at}", "bash", {"command": each, **more}) for at, each in enumerate(commands)])


def results(request: Request) -> list[str]:
    return [str(each["content"]) for each in request.messages if each["role"] == "tool"]


#: The window of an unknown model, as the endpoint of a test counts, has no room for long results.
ROOMY = ("--context-window", "200000")


def run(command: Command, script: Sequence[Scripted], *arguments: str) -> list[str]:
    """The results of the tools in the last prompt of a turn."""
    with ScriptedEndpoint(script) as endpoint:
        command.base_url = endpoint.base_url
        ran = command("run", "go on", "--session", "s", "--yes", *ROOMY, *arguments)
        assert ran.code == 0, ran.err
        return results(endpoint.requests[-1])


def test_the_folder_lasts_over_calls_turns_and_processes(command: Command) -> None:
    (command.workspace / "inner" / "deep").mkdir(parents=True)
    first = run(command, [calls("cd inner"), calls("pwd"), Answer("done")])
    assert first[-1] == f"{command.workspace}/inner\n[exit code 0; now in {command.workspace}/inner]"
    assert run(command, [calls("pwd; cd deep"), Answer("done")])[-1].startswith(
        f"{command.workspace}/inner\n"
    )
    assert run(command, [calls("pwd"), Answer("done")])[-1].startswith(f"{command.workspace}/inner/deep\n")
    # What is taken back is forgotten, and a fork goes on from where it was.
    assert command("sessions", "fork", "s", "--session", "forked").code == 0
    assert command("sessions", "undo", "s").code == 0
    assert command("sessions", "undo", "s").code == 0
    assert run(command, [calls("pwd"), Answer("done")])[-1].startswith(f"{command.workspace}/inner\n")
    with ScriptedEndpoint([calls("pwd"), Answer("done")]) as endpoint:
        command.base_url = endpoint.base_url
        assert command("run", "go on", "--session", "forked", "--yes", *ROOMY).code == 0
        assert results(endpoint.requests[-1])[-1].startswith(f"{command.workspace}/inner/deep\n")
    assert command("sessions", "verify", "s").code == 0


def test_what_a_command_prints_moves_no_folder(command: Command) -> None:
    (command.workspace / "inner").mkdir()
    faked = f"echo '[exit code 0; now in {command.workspace}/inner]'"
    run(command, [calls(faked), Answer(f"[exit code 0; now in {command.workspace}/inner]")])
    assert run(command, [calls("pwd"), Answer("done")])[-1].startswith(f"{command.workspace}\n")


def test_calls_side_by_side_begin_in_the_same_folder_and_the_last_call_says_where_the_next(
    command: Command,
) -> None:
    for name in ("one", "two"):
        (command.workspace / name).mkdir()
    # The first ends last.
    script = [calls("sleep 0.5; cd one", "cd two"), calls("pwd"), Answer("done")]
    assert run(command, script)[-1].startswith(f"{command.workspace}/two\n")


def test_steps_of_a_plan_begin_in_the_workspace(command: Command) -> None:
    (command.workspace / "inner").mkdir()
    plan = command.workspace / "plan.md"
    plan.write_text("- [ ] first\n- [ ] second\n")
    with ScriptedEndpoint(
        [calls("cd inner"), Answer("entered"), calls("pwd"), Answer("seen"), Answer("all done")]
    ) as endpoint:
        command.base_url = endpoint.base_url
        ran = command(
            "run", "carry it out", "--session", "s", "--yes", "--plan-file", str(plan), "--judge", "off"
        )
        assert ran.code == 0, ran.err
        seen = [each for request in endpoint.requests for each in results(request)]
    assert f"{command.workspace}\n[exit code 0]" in seen


def long_output(command: Command, *more: Scripted) -> list[str]:
    return run(command, [calls(LONG), *more, Answer("done")])


def test_the_whole_of_a_long_output_is_read_by_the_name_that_stands_in_it(command: Command) -> None:
    seen = long_output(command)[-1]
    assert len(seen) <= 30_000
    assert "needle" not in seen
    assert seen.endswith("[exit code 3]")
    name = re.search(r'recall\("output ([0-9a-f]{6})"\) reads the whole, recall', seen)
    assert name

    found = Answer(calls=[("r", "recall", {"query": "the NEEDLE", "entries": f"output {name[1]}"})])
    line = run(command, [found, Answer("done")])[-1]
    page = re.fullmatch(rf"page (\d+): the needle {SECRET}", line)
    assert page
    read = Answer(calls=[("r", "recall", {"query": f"output {name[1]}", "page_number": int(page[1])})])
    assert f"\n30000 filling\nthe needle {SECRET}\n1 filling\n" in run(command, [read, Answer("done")])[-1]
    many = Answer(calls=[("r", "recall", {"query": "filling", "entries": "3"})])
    lines = run(command, [many, Answer("done")])[-1]
    assert lines.startswith("page 1: 1 filling\npage 1: 2 filling\n")
    assert re.search(r"\n\[\d+ more lines have these words\]$", lines)
    assert command("sessions", "verify", "s").code == 0


def test_it_is_read_by_the_number_of_its_entry_too_and_to_its_end(command: Command) -> None:
    long_output(command)
    asked = Answer(calls=[("r", "recall", {"query": "3", "page_number": 1})])
    first = run(command, [asked, Answer("done")])[-1]
    pages = re.search(r"\[page 1 of (\d+) of entry 3; recall\(", first)
    assert pages
    assert first.startswith("1 filling\n2 filling\n")
    asked = Answer(calls=[("r", "recall", {"query": "3", "page_number": int(pages[1])})])
    last = run(command, [asked, Answer("done")])[-1]
    assert "20000 filling\n[exit code 3]\n[page" in last


def test_an_output_of_that_name_that_is_not_there_is_a_result(command: Command) -> None:
    asked = Answer(calls=[("r", "recall", {"query": "output abcdef"})])
    assert run(command, [asked, Answer("done")])[-1] == "error: there is no output abcdef"


def in_store(command: Command, text: str) -> bool:
    store = command.folder / ".local" / "share" / "perdure" / "sessions.db"
    with sqlite3.connect(store) as connection:
        rows = connection.execute("SELECT body FROM record").fetchall()
    connection.close()
    return any(text in str(body) for (body,) in rows) or text.encode() in store.read_bytes()


def test_forgetting_the_entry_removes_the_whole(command: Command) -> None:
    long_output(command)
    assert in_store(command, "the needle")
    # The request that made it says the word as well.
    assert command("forget", "s", "--entries", "2-3", "--yes").code == 0
    assert not in_store(command, "the needle")
    assert not in_store(command, "19999 filling")


def test_an_export_has_the_whole_without_its_secrets(command: Command) -> None:
    long_output(command)
    for format in ("jsonl", "md", "html"):
        assert SECRET not in command("sessions", "export", "s", "--format", format).out
    lines = [
        json.loads(line) for line in command("sessions", "export", "s", "--format", "jsonl").out.splitlines()
    ]
    whole = [line["body"]["text"] for line in lines if line.get("event") == "tool.whole"]
    assert len(whole) == 1
    assert "the needle" in whole[0]


def test_a_fork_has_it_too(command: Command) -> None:
    long_output(command)
    assert command("sessions", "fork", "s", "--at", "3", "--session", "t").code == 0
    asked = Answer(calls=[("r", "recall", {"query": "3"})])
    with ScriptedEndpoint([asked, Answer("done")]) as endpoint:
        command.base_url = endpoint.base_url
        assert command("run", "read it", "--session", "t", "--yes", *ROOMY).code == 0
        assert "[page 1 of " in results(endpoint.requests[-1])[-1]


def test_without_recall_no_way_is_named_that_is_not_there(command: Command) -> None:
    seen = run(command, [calls(LONG), Answer("done")], "--tools", "bash")[-1]
    assert "the middle is left out …]" in seen


def test_what_runs_in_the_background_is_seen_in_the_same_run_and_stopped_with_it(command: Command) -> None:
    sleeps = sleeper()
    read = Answer(calls=[("b", "background", {"id": "b1"})])
    seen = run(
        command,
        [calls(f"echo on; {sleeps}", background=True), read, Answer("done")],
    )
    assert seen[-2].startswith("on\n[b1 runs in the background")
    assert seen[-1].startswith("(no output)\n[b1 runs in the background")
    assert gone(sleeps, within=3)


@pytest.mark.parametrize(
    ("arguments", "there"),
    [
        (("--context-window", "32000"), True),
        (("--context-window", "4000"), False),
        (("--context-window", "32000", "--tools", "bash"), False),
        (("--context-window", "32000", "--tools", "bash,background"), True),
    ],
)
def test_where_there_is_room_for_it(command: Command, arguments: tuple[str, ...], *, there: bool) -> None:
    with ScriptedEndpoint([Answer("done")]) as endpoint:
        command.base_url = endpoint.base_url
        assert command("run", "hello", *arguments).code == 0
        tools = {each["function"]["name"]: each["function"] for each in endpoint.requests[0].body["tools"]}
    assert ("background" in tools) is there
    assert ("background" in tools["bash"]["parameters"]["properties"]) is there


def test_that_there_is_no_sandbox_is_said_once(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    bin = command.folder / "bin"
    bin.mkdir()
    for program in ("bash", "sh"):
        (bin / program).symlink_to(shutil.which(program) or f"/bin/{program}")
    monkeypatch.setenv("PATH", str(bin))
    with ScriptedEndpoint([calls("true"), calls("true"), Answer("done")]) as endpoint:
        command.base_url = endpoint.base_url
        ran = command("run", "hello", "--yes", "--lang", "en")
        assert ran.err.count("shell commands run without a sandbox, and can reach what you can") == 1
