"""What planners send in place of the form that was asked for, and what is read from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.plans import Plan, Step, read_plan, steps_in


def told(text: str, done: tuple[str, ...] = ()) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(step.id, step.what, step.after) for step in steps_in(text, done)]


def of_json(*steps: dict[str, Any]) -> str:
    return json.dumps({"steps": steps})


IN_A_ROW = [("1", "a", ()), ("2", "b", ("1",))]


@pytest.mark.parametrize(
    "text",
    [
        of_json(
            {"id": "find-all-the-services", "what": "a"}, {"what": "b", "after": ["find-all-the-services"]}
        ),
        of_json({"id": "1", "what": "a", "after": None}, {"id": "2", "what": "b", "after": "1"}),
        of_json({"id": "1", "what": "a", "after": []}, {"id": "2", "what": "b", "after": ["7"]}),
        of_json({"id": "1", "what": "a", "after": []}, {"id": "1", "what": "b", "after": []}),
        of_json({"id": "1", "what": "a", "after": ["2"]}, {"id": "2", "what": "b", "after": ["1"]}),
        json.dumps({"plan": {"steps": ["a", "b"]}}),
        "1、a\n2、b",
        "1. a\n2. b",
        "- [] a\n- [ ] b",
        "- [ ] 1、a\n- [ ] 2、b",
    ],
)
def test_a_reply_in_another_form_is_read_and_nothing_begins_too_early(text: str) -> None:
    assert told(text) == IN_A_ROW


def test_steps_that_are_counted_from_zero_come_after_those_they_name() -> None:
    steps = [{"id": at, "what": what, "after": [at - 1] if at else []} for at, what in enumerate("abc")]
    assert told(of_json(*steps)) == [("0", "a", ()), ("1", "b", ("0",)), ("2", "c", ("1",))]


def test_a_chinese_list_needs_no_space_behind_its_numbers() -> None:
    assert told("计划如下：\n1.找到服务\n2.写报告") == [("1", "找到服务", ()), ("2", "写报告", ("1",))]


def test_a_step_that_comes_after_several_may_say_so_in_one_text() -> None:
    steps = of_json(
        *({"id": id, "what": id, "after": []} for id in "ab"), {"id": "c", "what": "c", "after": "a, b"}
    )
    assert told(steps)[2] == ("c", "c", ("a", "b"))


def test_the_rest_may_come_after_what_is_done() -> None:
    steps = steps_in(of_json({"id": "a", "what": "other", "after": ["1", "2"]}), done=("1",))
    plan = Plan(
        (Step("1", "find", status="done"), Step("2", "go", ("1",), "failed"), Step("3", "end", ("2",)))
    ).with_rest(steps)
    assert [(step.id, step.after) for step in plan.steps] == [("1", ()), ("2", ("1",)), ("4", ("1",))]


def test_a_plan_that_is_said_again_as_a_whole_repeats_nothing_that_is_done() -> None:
    plan = Plan((Step("1", "find", status="done"), Step("2", "go", ("1",), "failed")))
    again = steps_in(
        of_json({"id": "1", "what": "find", "after": []}, {"id": "2", "what": "walk", "after": ["1"]}), ("1",)
    )
    now = plan.with_rest(again).steps
    assert [(step.id, step.what, step.status, step.after) for step in now] == [
        ("1", "find", "done", ()),
        ("2", "go", "failed", ("1",)),
        ("3", "walk", "pending", ("1",)),
    ]


ids = st.one_of(st.integers(0, 5), st.text(max_size=25), st.sampled_from(["a", "step 1", "1.2", None]))


@given(st.lists(st.tuples(ids, st.lists(ids, max_size=3)), min_size=1, max_size=6))
def test_whatever_the_ids_are_each_step_can_begin_and_the_plan_can_be_written_and_read(
    steps: list[tuple[Any, list[Any]]],
) -> None:
    found = steps_in(of_json(*({"id": id, "what": "look", "after": after} for id, after in steps)))
    assert len(found) == len(steps)
    assert read_plan(Plan(found).as_markdown())[1] == found
    plan = Plan(found)
    while ready := plan.ready():
        plan = plan.with_step(ready[0].id, status="done")
    assert plan.is_over
