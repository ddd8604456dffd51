"""What a small model's garbled, missing or invented arguments come to; and what is sent to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.embedded_model import ask, encoder
from perdure.chat.calls import Example, ToolSpec
from perdure.chat.messages import Message
from perdure.models.choosing import Chooser
from perdure.models.client import ModelRequest, Reply
from perdure.models.fitting import fits
from perdure.models.grounding import grounded
from perdure.models.scripted import ScriptedModel
from perdure.models.small import SmallModelClient
from perdure.tools.bash import bash_tool
from perdure.tools.calculator import calculator
from perdure.tools.files import read_file_tool

TOOLS = (calculator.spec, read_file_tool(Path()).spec, bash_tool(Path()).spec)
READ = TOOLS[1:2]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def asked(inner: ScriptedModel, request: ModelRequest) -> Reply:
    return ask(request, lambda: SmallModelClient(inner, encoder()))


@pytest.mark.parametrize(
    ("written", "request_text", "meant"),
    [
        ("letter.txt", "读一下 我的文件.txt", "我的文件.txt"),
        ("data/user", "读取文件data/用户.csv", "data/用户.csv"),
        ("data/用户.csv", "读取文件data/用户.csv", "data/用户.csv"),
        ("src/server.go", "看看src/server.go里写了什么", "src/server.go"),
        ("my_notes.txt", 'Read the file "my notes.txt"', "my notes.txt"),
        ("notes.txt", "Read the file 'my notes.txt' today", "my notes.txt"),
        ("passwd", "Read /etc/passwd", "/etc/passwd"),
        ("hosts", "Read /hosts", "/hosts"),
    ],
)
def test_paths_are_found_in_any_script_and_in_quotation_marks(
    written: str, request_text: str, meant: str
) -> None:
    assert grounded({"path": written}, request_text, ["path"]) == {"path": meant}


@pytest.mark.parametrize(
    ("written", "request_text", "ending", "meant"),
    [
        ("python -V", "Run python --version", "python --version", "python --version"),
        ("echo hello world", 'Run echo "hello world"', 'echo "hello world"', 'echo "hello world"'),
        ("git status", "Run git status please", "git status please", "git status"),
        ('echo "a b"', 'Run echo "a b"', 'echo "a b"', 'echo "a b"'),
        ("make test", "Run the tests", "the tests", "make test"),
    ],
)
def test_a_miscopied_command_is_put_back_from_the_end_of_the_request(
    written: str, request_text: str, ending: str, meant: str
) -> None:
    assert grounded({"command": written}, request_text, [], {"command": [ending]}) == {"command": meant}


@pytest.mark.parametrize(
    "line", ["-" * 5_000, "- " * 3_000, "|" + "-" * 4_000 + "|", "9" * 5_000, "." * 5_000]
)
def test_a_ruled_line_in_a_request_costs_no_time(line: str) -> None:
    """It took the cube of its length: minutes."""
    assert grounded({"x": "3*5"}, f"What is 3*4?\n{line} x", []) == {"x": "3*4"}


@pytest.mark.embedded
@pytest.mark.parametrize("text", ["Read the file", "Show me the file please", "请读一下文件", "Print it"])
def test_an_example_s_argument_is_never_passed_on_as_the_persons(text: str) -> None:
    shown = {str(value) for example in READ[0].examples for value in example.arguments.values()}
    for call in ask(ModelRequest([user(text)], tools=TOOLS)).calls:
        assert not shown & {str(value) for value in json.loads(call.arguments).values()}


@pytest.mark.embedded
def test_what_stands_in_quotation_marks_is_one_piece() -> None:
    (wish,) = Chooser(encoder()).wishes('Run the command echo "a and then b"', TOOLS)
    assert wish.tool.name == "bash"


TREE = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/Tree"}},
    "required": ["tree"],
    "additionalProperties": False,
    "$defs": {
        "Tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "maxItems": 2},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}


@pytest.mark.embedded
def test_a_tool_whose_schema_refers_to_itself_can_be_called() -> None:
    plant = ToolSpec("plant", "Plant a tree", TREE, (Example("Plant an oak", {"tree": {"name": "oak"}}),))
    (call,) = ask(ModelRequest([user("Plant a birch")], tools=[plant])).calls
    assert json.loads(call.arguments)["tree"]["name"]


@pytest.mark.embedded
@pytest.mark.parametrize(
    "said", ['{"path": 5}', '{"path": ["notes.txt"]}', '{"path": null}', "[]", "no", "{}"]
)
def test_an_endpoint_that_overlooks_the_schema_leads_to_no_invalid_call(said: str) -> None:
    assert not asked(ScriptedModel([said]), ModelRequest([user("Read notes.txt")], tools=READ)).calls


@pytest.mark.embedded
@pytest.mark.parametrize("filler", ["blah ", "𪚥龘", "😀🜁"])
@pytest.mark.parametrize("window", [2048, 4096])
def test_what_is_sent_for_arguments_fits_a_small_window(filler: str, window: int) -> None:
    inner = ScriptedModel(['{"path": "notes.txt"}'], context_window=window)
    text = "Read the file notes.txt. " + filler * 3_000 + " Read the file notes.txt."
    asked(inner, ModelRequest([user(text)], tools=READ))
    sent = inner.requests[0]
    assert sent.schema is not None
    tokens = sum(map(inner.counter.message, sent.messages))
    assert tokens + (sent.max_output_tokens or 0) <= window


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("result", "sentence", "answer"),
    [
        ("5", "3 - 8 is -5.", "5"),
        ("5", "The value is 5.", "The value is 5."),
        ("5", "8 - 3 等于 5。", "8 - 3 等于 5。"),
        ("8", "The value is 8/3.", "8"),
        ("-5", "The value is -5.", "The value is -5."),
        ("v18.2.0", "It is v18.2.0.", "It is v18.2.0."),
    ],
)
def test_a_sentence_with_another_number_than_the_result_is_not_the_answer(
    result: str, sentence: str, answer: str
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "calculator", "arguments": "{}"}}
    turn: list[Message] = [
        user("What is 8 - 3 (or 3 - 8)?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]
    assert asked(ScriptedModel([sentence]), ModelRequest(turn, tools=TOOLS)).content == answer


@pytest.mark.embedded
@pytest.mark.parametrize("chosen", [{}, {"GOMP_SPINCOUNT": "77"}, {"OMP_WAIT_POLICY": "passive"}])
def test_starting_the_model_leaves_the_environment_as_it_was(chosen: dict[str, str]) -> None:
    program = (
        "import os\nbefore = dict(os.environ)\n"
        "from perdure.models.embedded import EmbeddedServer\n"
        "server = EmbeddedServer(); server.stop()\n"
        "assert os.environ == before"
    )
    names = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    clean = {name: value for name, value in os.environ.items() if name not in names}
    subprocess.run([sys.executable, "-c", program], env={**clean, **chosen}, check=True, timeout=60)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and isinstance(value, int | float) and value == value // 1
    ),
    "number": lambda value: not isinstance(value, bool) and isinstance(value, int | float),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


@given(_VALUES, st.sampled_from(sorted(_IS)))
def test_a_value_fits_exactly_its_kinds(value: Any, kind: str) -> None:
    assert fits(value, {"type": kind}) == _IS[kind](value)
    assert fits([value], {"type": "array", "items": {"type": kind}}) == _IS[kind](value)
    assert fits({"x": value}, {"anyOf": [{"properties": {"x": {"type": kind}}}, {"const": 1}]}) == _IS[kind](
        value
    )
    assert not fits({}, {"type": "object", "required": ["x"]})
    assert fits(value, {}) and fits(value, True)
    assert fits(value, {"enum": [value]})
