from __future__ import annotations

import json
from typing import Any

import pytest

from memory.counting import entries
from perdure.chat.messages import Message
from perdure.memory.deeds import MOST, Deeds


def done(*calls: tuple[str, dict[str, Any], str]) -> Deeds:
    return Deeds().after(entries(*(message for call in calls for message in round_of(*call))))


def round_of(name: str, arguments: dict[str, Any], result: str) -> list[Message]:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]


def test_files_read_and_changed_and_commands_with_their_exit_codes_are_kept() -> None:
    deeds = done(
        ("read_file", {"path": "src/a.py"}, "..."),
        ("edit_file", {"path": "src/b.py", "old": "x", "new": "y"}, "ok"),
        ("bash", {"command": "make test"}, "3 failed\n[exit code 2]"),
    )
    said = deeds.within(500, len, "en")
    assert said.splitlines() == [
        "Files changed: src/b.py",
        "Commands run: `make test` (exit code 2, entry 6)",
        "Files read: src/a.py",
    ]
    assert "退出码 2" in deeds.within(500, len, "zh")


def test_a_file_that_was_changed_once_stays_a_changed_one_and_the_last_exit_code_counts() -> None:
    deeds = done(
        ("write_file", {"path": "a"}, "ok"),
        ("read_file", {"path": "a"}, "..."),
        ("bash", {"command": "t"}, "exit code 1"),
        ("bash", {"command": "t"}, "fine\nexit code 0"),
    )
    assert dict(deeds.files) == {"a": True}
    assert deeds.commands["t"].code == 0


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ("done\n[exit code 0]", 0),
        ('{"stdout": "", "exit_code": 127}', 127),
        ("Process exited with 3", 3),
        ("exit status 1", 1),
        ("退出码：2", 2),
        ("no word of it", None),
        ("exit code 0 is what one wants\n" + "x" * 900, None),
    ],
)
def test_the_exit_code_is_read_from_the_end_of_a_result(result: str, code: int | None) -> None:
    assert done(("sh", {"cmd": "x"}, result)).commands["x"].code == code


def test_only_the_newest_are_kept_and_only_what_fits_is_said() -> None:
    deeds = done(*(("read_file", {"path": f"file_{n:03}"}, "") for n in range(MOST + 20)))
    assert len(deeds.files) == MOST
    said = deeds.within(60, len, "en")
    assert len(said) <= 60
    assert said.endswith(f"file_{MOST + 19:03}")


def test_json_gives_the_same_deeds_back() -> None:
    deeds = done(("edit", {"path": "a"}, ""), ("bash", {"command": "ls"}, "exit code 0"))
    assert Deeds.from_json(json.loads(json.dumps(deeds.as_json()))) == deeds


def test_arguments_that_are_no_object_or_no_text_are_passed_over() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "x", "arguments": "[1]"}}
    broken: list[Message] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    assert Deeds().after(entries(*broken)) == Deeds()
    assert done(("x", {"path": 3, "command": " "}, "")) == Deeds()
