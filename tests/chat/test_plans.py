"""Plans as values: read from what models and people write, written as a check list, and always finite."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.plans import (
    BOXES,
    LONGEST_STEP,
    MOST_STEPS,
    Plan,
    Step,
    lane_of,
    read_plan,
    request_of,
    step_of,
    steps_in,
    steps_of,
)
from perdure.errors import ConfigError

TWO = (Step("1", "look"), Step("2", "mend", ("1",)))


@pytest.mark.parametrize(
    "said",
    [
        '{"steps": [{"id": "1", "what": "look", "after": []}, {"id": "2", "what": "mend", "after": ["1"]}]}',
        'Here is the plan:\n```json\n{"steps": [{"id": 1, "what": "look"}, {"id": 2, "what": "mend"}]}\n```',
        '[{"id": "1", "task": "look"}, {"id": "2", "task": "mend", "depends_on": ["1"]}]',
        '{"plan": ["look", "mend"]}',
        '{"todos": [{"content": "look", "status": "pending"}, {"content": "mend", "status": "pending"}]}',
        "- [ ] 1. look\n- [ ] 2. mend",
        "- [ ] look\n- [ ] mend",
        "The plan:\n\n1. look\n2. mend\n\nThat is all.",
        "计划：\n1、 look\n2、 mend",
        "* look\n* mend",
    ],
)
def test_a_plan_is_read_in_all_the_forms_in_which_models_write_one(said: str) -> None:
    assert steps_in(said) == TWO


@pytest.mark.parametrize(
    "said", ["", "I would rather not.", "{}", '{"steps": []}', '{"steps": [1, 2]}', "[[1]]", "null"]
)
def test_what_is_no_plan_gives_none(said: str) -> None:
    assert steps_in(said) == ()


@pytest.mark.parametrize(
    ("steps", "after"),
    [
        ([{"id": "1", "what": "a", "after": ["2"]}, {"id": "2", "what": "b", "after": ["1"]}], [(), ("1",)]),
        ([{"id": "1", "what": "a", "after": ["1"]}], [()]),
        ([{"id": "1", "what": "a", "after": ["9"]}, {"id": "2", "what": "b", "after": []}], [(), ()]),
        ([{"id": "x", "what": "a"}, {"id": "x", "what": "b", "after": []}], [(), ("1",)]),
        ([{"id": "1", "what": "a"}, {"id": "2", "what": "b", "after": "1"}], [(), ("1",)]),
    ],
)
def test_what_does_not_hold_together_is_mended(steps: Any, after: list[tuple[str, ...]]) -> None:
    assert [step.after for step in steps_of(steps)] == after


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["steps", "what", "id", "after", "status", "result"]) | st.text(), inner
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_whatever_a_model_sends_every_step_can_come_to_its_turn(value: Any) -> None:
    plan = Plan(steps_of(value))
    for _ in plan.steps:
        for step in plan.ready():
            plan = plan.with_step(step.id, status="done")
    assert not plan.ready()
    told = {step.status for step in plan.steps}
    assert told <= {"done", "failed", "skipped", "running", "pending"}
    stuck = [step for step in plan.steps if step.status == "pending"]
    over = {step.id for step in plan.steps if step.status in {"failed", "running"}}
    assert all(over or not stuck for _ in stuck)
    assert all(len(step.what) <= LONGEST_STEP for step in plan.steps)
    assert len(plan.steps) <= MOST_STEPS


words = st.text("abc xyz,.-_/计划步骤", min_size=1, max_size=30)
words = words.map(lambda text: " ".join(text.split())).filter(bool)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps: list[Step] = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        before = [step.id for step in steps]
        after = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        status: Any = draw(st.sampled_from(sorted(BOXES)))
        steps.append(Step(str(number), draw(words), tuple(after), status, draw(st.just("") | words)))
    return Plan(tuple(steps))


@given(plans(), st.sampled_from(["en", "zh"]))
def test_a_check_list_says_what_the_plan_is(plan: Plan, lang: Any) -> None:
    title, steps = read_plan(f"# the task\n\n{plan.as_markdown(lang)}\n")
    assert title == "the task"
    assert Plan(steps) == plan
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


@given(plans(), st.integers(1, 400))
def test_results_give_way_before_steps_and_ids_stay(plan: Plan, room: int) -> None:
    text = plan.within(room, len, "en")
    _, steps = read_plan(text)
    assert [(step.id, step.status, step.after) for step in steps] == [
        (step.id, step.status, step.after) for step in plan.steps
    ]
    if "→" in text:
        assert all(step.what in text for step in plan.steps)


def test_a_plan_made_anew_keeps_what_is_over_and_gives_new_numbers() -> None:
    plan = Plan(
        (
            Step("1", "look", (), "done", "seen"),
            Step("2", "mend", ("1",), "failed", "no"),
            Step("3", "test", ("2",)),
        )
    )
    again = plan.with_rest([Step("a", "mend otherwise", ("1",)), Step("b", "test", ("a", "2", "9"))])
    assert again.steps[:2] == plan.steps[:2]
    assert again.steps[2:] == (Step("4", "mend otherwise", ("1",)), Step("5", "test", ("4",)))
    assert again.revision == 1
    assert steps_of([{"id": "a", "what": "mend", "after": ["1", "2"]}], done=["1"])[0].after == ("1",)


def test_a_lane_tells_request_and_step() -> None:
    lane = lane_of(Plan((Step("a/1", "look"),), request=12), Step("a/1", "look"))
    assert (request_of(lane), step_of(lane)) == (12, "a/1")


def test_a_file_with_more_than_a_list_is_read(tmp_path: Any) -> None:
    text = """# Tidy up

Some words before.

- [x] 1. find what is old
  → three files
- [ ] 2. remove `old/*.py`

```markdown
- [ ] not a step
```

* [ ] then run the tests (at any time)
"""
    title, steps = read_plan(text)
    assert title == "Tidy up"
    assert [(step.id, step.what, step.after, step.status, step.result) for step in steps] == [
        ("1", "find what is old", (), "done", "three files"),
        ("2", "remove `old/*.py`", ("1",), "pending", ""),
        ("3", "then run the tests", (), "pending", ""),
    ]


def test_a_file_with_too_many_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most"):
        read_plan("\n".join(f"- [ ] do {n}" for n in range(MOST_STEPS + 1)))


@pytest.mark.parametrize(
    "what",
    [
        "Clean up (after lunch)",
        "查看日志（在服务器上）",
        "查看日志（在 Linux 上）",
        "Deploy (after the release)",
    ],
)
def test_what_a_step_says_in_brackets_stays_where_it_names_no_step(what: str) -> None:
    assert read_plan(f"- [ ] {what}")[1] == (Step("1", what),)


@pytest.mark.parametrize(
    "after",
    [
        "(after 1, 2)",
        "(after 1 and 2)",
        "(after steps 1 and 2)",
        "（在 1、2 之后）",
        "（在步骤 1 和步骤 2 之后）",
    ],
)
def test_after_which_steps_one_comes_is_read_however_it_is_said(after: str) -> None:
    steps = read_plan(f"- [ ] a\n- [ ] b (at any time)\n- [ ] c {after}")[1]
    assert steps[2] == Step("3", "c", ("1", "2"))


def test_a_long_plan_in_chinese_gives_way_until_it_fits() -> None:
    plan = Plan(tuple(Step(str(n), "说明服务的名称端口" * 50, (str(n - 1),)) for n in range(1, 41)))
    assert len(plan.within(900, len, "zh")) <= 900
