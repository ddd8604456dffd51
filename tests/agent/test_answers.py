from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.agent.answers import (
    has_parts,
    is_in_another_language,
    joined,
    looks_like_a_call,
    written_calls,
)

KNOWN = {"calculator", "read_file"}
CALL = '{"name": "calculator", "arguments": {"expression": "2+2"}}'


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>{CALL}</tool_call>\n",
        f"```json\n{CALL}\n```",
        f"```tool_call\n{CALL}\n```",
        '<function=calculator>{"expression": "2+2"}</function>',
        f"[TOOL_CALLS] [{CALL}]",
        '<|python_tag|>{"name": "calculator", "parameters": {"expression": "2+2"}}',
        json.dumps({"function": {"name": "calculator", "arguments": '{"expression": "2+2"}'}}),
        f"<think>I should compute.</think>\n{CALL}",
        '{"tool": "calculator", "args": {"expression": "2+2"}}',
    ],
)
def test_a_call_written_as_text_is_read(text: str) -> None:
    (call,) = written_calls(text, KNOWN)
    assert (call.name, json.loads(call.arguments)) == ("calculator", {"expression": "2+2"})


def test_several_written_calls_have_ids_of_their_own() -> None:
    text = f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>"
    calls = written_calls(text, KNOWN)
    assert len(calls) == 2
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "The sum is 4.",
        f"You could call it so:\n```json\n{CALL}\n```",
        f"```json\n{CALL}\n```\nThat is what a call looks like.",
        '{"name": "Ada", "arguments": "many"}',
        '{"name": "unknown_tool", "arguments": {}}',
        '{"name": "calculator"}',
        f"<tool_call>{CALL[:-3]}</tool_call>",
        f"<tool_call>{CALL}</tool_call><tool_call>nothing</tool_call>",
        "[1, 2, 3]",
        "",
    ],
)
def test_what_says_anything_else_is_no_call(text: str) -> None:
    assert written_calls(text, KNOWN) == ()


@given(st.text(max_size=200))
def test_no_text_is_too_odd_to_be_looked_at(text: str) -> None:
    written_calls(text, KNOWN)
    looks_like_a_call(text)
    has_parts(text)
    is_in_another_language(text, text)


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        (f"<tool_call>{CALL[:-3]}", True),
        ('{"name": "unknown_tool", "arguments": {', True),
        ('<|python_tag|>print("x")', True),
        ("The tag <tool_call> begins a call.", False),
        ("It is 4.", False),
    ],
)
def test_what_is_written_like_a_call_and_cant_be_read_is_seen(text: str, looks: bool) -> None:
    assert looks_like_a_call(text) is looks


@pytest.mark.parametrize(
    ("request_", "answer", "other"),
    [
        ("请列出这个文件夹里的所有文件", "These are the files in the folder: a, b and c.", True),
        ("Which files are in this folder, please?", "这个文件夹里有三个文件，分别是甲、乙、丙。", True),
        ("请列出这个文件夹里的所有文件", "共有三个文件：README.md、setup.py、main.py。", False),
        ("请计算 23*47+11", "1092", False),
        ("Which files are in this folder, please?", "`ls -la`", False),
        (
            "把下面的函数改成 Python 3 的写法",
            "```python\nprint('hello world, this is long enough')\n```",
            False,
        ),
        ("What does 你好 mean?", "It is a greeting: hello.", False),
    ],
)
def test_an_answer_in_the_other_language_is_seen(request_: str, answer: str, other: bool) -> None:
    assert is_in_another_language(request_, answer) is other


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        ("What is 2+2?", False),
        ("What is 2+2? And what is 3+3?", True),
        ("Do this:\n- read the file\n- count its lines", True),
        ("Read the file and then count its lines", True),
        ("读一下文件，然后数一数行数", True),
        ("读一下文件", False),
        ("What is the capital of France?", False),
        ("1. Read it\n2. Count the lines", True),
    ],
)
def test_a_request_with_several_parts_is_told(request_: str, parts: bool) -> None:
    assert has_parts(request_) is parts


def test_an_answer_that_goes_on_says_nothing_twice() -> None:
    assert joined(["The list is: one, two, thr", "ee, four."]) == "The list is: one, two, three, four."
    again = joined(["The list of all is: one, two, three", "is: one, two, three, four."])
    assert again == "The list of all is: one, two, three, four."
    assert joined(["a", "b", "c"]) == "abc"
    assert joined([]) == ""


@given(st.lists(st.text(max_size=40), max_size=5))
def test_what_is_joined_begins_and_ends_as_its_parts_do(parts: list[str]) -> None:
    whole = joined(parts)
    assert len(whole) <= sum(map(len, parts))
    assert whole.startswith(next(iter(parts), ""))
    assert whole.endswith(next((part for part in reversed(parts) if part), ""))
