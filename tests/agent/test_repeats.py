from __future__ import annotations

import pytest

from perdure.agent.repeats import Repeats
from perdure.chat.calls import ToolCall


def told_and_ended(rounds: list[tuple[str, str]]) -> tuple[int | None, int | None]:
    """At which round, from 1, the model is told and the turn ends."""
    repeats, told, ended = Repeats(), None, None
    for number, (name, result) in enumerate(rounds, 1):
        repeats.after([(ToolCall(str(number), name, "{}"), result)])
        told = told or (number if repeats.tell else None)
        ended = ended or (number if repeats.end else None)
    return told, ended


@pytest.mark.parametrize(
    ("rounds", "told", "ended"),
    [
        ([("ls", "a b")] * 10, 3, 5),
        ([("ls", "a b"), ("pwd", "/x")] * 10, 4, 6),
        ([("a", "1"), ("b", "2"), ("c", "3")] * 10, 5, 7),
        ([("cat status", f"{n}%") for n in range(10)], None, None),
        (
            [
                ("test", "fails"),
                ("edit", "1"),
                ("test", "fails"),
                ("edit", "2"),
                ("test", "fails"),
                ("edit", "3"),
            ],
            None,
            None,
        ),
        ([("sleep", "busy")] * 2 + [("sleep", "ready")] + [("sleep", "ready")] * 9, 5, 7),
    ],
)
def test_circles_are_told_then_ended_and_progress_is_neither(
    rounds: list[tuple[str, str]], told: int | None, ended: int | None
) -> None:
    assert told_and_ended(rounds) == (told, ended)


def test_the_order_of_keys_makes_no_difference() -> None:
    repeats = Repeats()
    for arguments in ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{ "a":1,"b":2 }'):
        repeats.after([(ToolCall("x", "t", arguments), "same")])
    assert repeats.tell
