"""AGENTS.md and perdure.md: the nearest first, within their room, and in the prompt of a new session."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.app.instructions import instructions
from scenarios.perdure_command import Command
from scripted_endpoint import Answer, ScriptedEndpoint


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "top/project/part"
    folder.mkdir(parents=True)
    (tmp_path / "top/AGENTS.md").write_text("above the repository")
    (tmp_path / "top/project/.git").mkdir()
    (tmp_path / "top/project/AGENTS.md").write_text("of the project")
    (folder / "perdure.md").write_text("of this part")
    return folder


def test_those_of_the_repository_are_read_from_above(workspace: Path) -> None:
    told = instructions(workspace, 10_000, len, "en")
    assert told.index("of the project") < told.index("of this part")
    assert "above the repository" not in told
    assert "项目说明" in instructions(workspace, 10_000, len, "zh")


def test_without_a_repository_only_the_workspace_is_read(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    (tmp_path / "work").mkdir()
    assert instructions(tmp_path / "work", 10_000, len, "en") == ""


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=300), st.integers(0, 400))
def test_they_keep_to_their_room(workspace: Path, text: str, room: int) -> None:
    (workspace / "AGENTS.md").write_bytes(text.encode("utf-8", "replace"))
    assert len(instructions(workspace, room, len, "en")) <= room + 2, "the blank line between two"


def test_they_stand_in_the_prompt_and_can_be_left_out(tmp_path: Path) -> None:
    with ScriptedEndpoint([Answer("one"), Answer("two")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "AGENTS.md").write_text("Always use tabs.")
        assert command("run", "hello", "--session", "a").code == 0
        (command.workspace / "perdure.toml").write_text('instructions = "off"\n')
        assert command("run", "hello", "--session", "b").code == 0
    first, second = (str(request.messages[0]["content"]) for request in endpoint.requests)
    assert "Always use tabs." in first
    assert "Always use tabs." not in second
