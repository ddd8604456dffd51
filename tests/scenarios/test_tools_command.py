"""`perdure tools` and `run --tool-file`: processes, files, and a package that is really there."""

from __future__ import annotations

from pathlib import Path

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, ScriptedEndpoint

MINE = '''from perdure import tool


@tool(effect="reads")
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"
'''


def test_tools_are_listed_with_where_they_are_from(tmp_path: Path) -> None:
    command = Command(tmp_path)
    (command.workspace / "mine.py").write_text(MINE)
    ran = command("tools", "--tool-file", "mine.py", "--json")
    rows = {row["name"]: row for row in ran.events}
    assert ran.code == 0
    assert (rows["weather"]["from"], rows["weather"]["source"]) == ("file", "mine.py")
    assert (rows["weather"]["effect"], rows["weather"]["verdict"]) == ("reads", "allow")
    assert (rows["bash"]["from"], rows["bash"]["effect"], rows["bash"]["verdict"]) == (
        "built in",
        "acts",
        "ask",
    )
    assert 10 < rows["weather"]["tokens"] < 200
    assert rows["weather"]["parameters"]["required"] == ["city"]
    shown = command("tools", "--tool-file", "mine.py")
    assert "file mine.py" in shown.out
    assert "The weather of a city." in shown.out
    assert "文件 mine.py" in command("tools", "--lang", "zh", "--tool-file", "mine.py").out
    assert not (tmp_path / ".local").exists()  # looking makes no store


def test_a_run_uses_the_tools_of_a_file(tmp_path: Path) -> None:
    script = [Answer(calls=[("c", "weather", {"city": "Lyon"})]), Answer("Sunny.")]
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "mine.py").write_text(MINE)
        ran = command("run", "--tool-file", "mine.py", "What is the weather in Lyon?")
    assert (ran.code, ran.out) == (0, "Sunny.\n")
    assert endpoint.requests[1].messages[-1]["content"] == "sunny in Lyon"


def test_a_broken_file_ends_before_anything_is_made(tmp_path: Path) -> None:
    command = Command(tmp_path, "http://127.0.0.1:9/v1")
    (command.workspace / "mine.py").write_text("import os\n1 / 0\n")
    ran = command("run", "--tool-file", "mine.py", "hello")
    assert (ran.code, ran.out) == (2, "")
    assert "mine.py cannot be loaded: line 2: ZeroDivisionError" in ran.err
    assert "Traceback" not in ran.err


def test_a_broken_package_is_a_notice_and_the_run_goes_on(tmp_path: Path) -> None:
    command = Command(tmp_path)
    about = command.workspace / "half-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[perdure.tools]\nh = not_there_at_all\n")
    with ScriptedEndpoint([Answer("Yes.")]) as endpoint:
        command.base_url = endpoint.base_url
        ran = command("run", "--json", "Is it?")
    told = [event["text"] for event in ran.of("notice")]
    assert ran.code == 0
    assert told == [
        "the tools of the package half are left out: ModuleNotFoundError: No module named 'not_there_at_all'"
    ]
