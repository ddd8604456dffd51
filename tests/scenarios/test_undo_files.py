"""What tools changed in files is taken back with its turn, by the command, over a real session."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint


def play(request: Request) -> Scripted:
    """Edits as the request says, and answers."""
    last = request.body["messages"][-1]
    if last["role"] == "tool":
        return Answer("done")
    if "old secret" in str(last["content"]):
        edit = {"path": "keep.txt", "old_text": "old secret", "new_text": "changed"}
        return Answer(
            calls=[("a", "edit_file", edit), ("b", "write_file", {"path": "n/new.txt", "content": "x"})]
        )
    return Answer("nothing to do")


def test_files_come_back_with_the_turn_but_not_what_was_changed_since(tmp_path: Path) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "keep.txt").write_bytes(b"old secret\r\n")
        assert command("run", "hello", "--session", "s").code == 0
        ran = command("run", "replace the old secret", "--session", "s", "--yes", "--json")
        assert [each["ok"] for each in ran.of("tool.finished")] == [True, True]
        assert (command.workspace / "keep.txt").read_bytes() == b"changed\r\n"
        (command.workspace / "n/new.txt").write_text("mine")
        undone = command("sessions", "undo", "s", "--files")
        assert undone.code == 0
        assert undone.out.splitlines()[:2] == [
            "keep.txt: as it was before",
            "n/new.txt: left alone, since it was changed again by something else",
        ]
        assert "what commands did stays done" in undone.out
        assert (command.workspace / "keep.txt").read_bytes() == b"old secret\r\n"
        assert (command.workspace / "n/new.txt").read_text() == "mine"
        again = command("sessions", "undo", "s", "--files", "--lang", "zh")
        assert "没有文件被" in again.out, "the turn before changed none"


def test_what_was_forgotten_is_not_kept_for_an_undo_either(tmp_path: Path) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "keep.txt").write_text("old secret\n")
        assert command("run", "replace the old secret", "--session", "s", "--yes").code == 0
        assert command("forget", "s", "--entries", "1", "--yes").code == 0
        undone = command("sessions", "undo", "s", "--files")
    assert "keep.txt: left alone, since what it held was forgotten" in undone.out
    assert (command.workspace / "keep.txt").read_text() == "changed\n"
    (store,) = tmp_path.rglob("*.db")
    events = sqlite3.connect(store).execute("SELECT body FROM record WHERE type = 'file.changed'").fetchall()
    assert len(events) == 2
    assert all('"before":null' in body.replace(" ", "") for (body,) in events)


def test_nothing_is_changed_where_nobody_approves(tmp_path: Path) -> None:
    with ScriptedEndpoint(play) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "keep.txt").write_text("old secret\n")
        ran = command("run", "replace the old secret", "--session", "s", "--json")
    assert [each["ok"] for each in ran.of("tool.finished")] == [False, False]
    assert [each.name for each in command.workspace.iterdir()] == ["keep.txt"]
    assert (command.workspace / "keep.txt").read_text() == "old secret\n"
