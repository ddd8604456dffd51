"""The real small model, chosen for, filled, and answered."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from models.embedded_model import ask, client, encoder, server
from perdure.chat.calls import ToolSpec
from perdure.chat.messages import Message
from perdure.models.choosing import Chooser
from perdure.models.client import ModelRequest
from perdure.models.embedded import WINDOW
from perdure.models.small import as_plain_chat, this_turn
from perdure.tools.bash import bash_tool
from perdure.tools.calculator import calculator
from perdure.tools.files import read_file_tool
from scripted_endpoint import wrong_messages

pytestmark = pytest.mark.embedded

TOOLS = (calculator.spec, read_file_tool(Path()).spec, bash_tool(Path()).spec)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def called(name: str, arguments: str, result: str, id: str = "c") -> list[Message]:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": result},
    ]


@pytest.mark.parametrize(
    ("asked", "tool", "argument"),
    [
        ("What is 23*47+11? Use the calculator.", "calculator", "23*47+11"),
        ("Work out (17-4)*3 please", "calculator", "(17-4)*3"),
        ("计算 88*91", "calculator", "88*91"),
        ("What is 1+1?", "calculator", "1+1"),
        ("1+1等于几？", "calculator", "1+1"),
        ("Read the file docs/intro.md", "read_file", "docs/intro.md"),
        ("读取文件 notes/plan.txt", "read_file", "notes/plan.txt"),
        ("Run git status", "bash", "git status"),
    ],
)
def test_a_plain_request_becomes_the_right_call(asked: str, tool: str, argument: str) -> None:
    reply = ask(ModelRequest([user(asked)], tools=TOOLS))
    (call,) = reply.calls
    assert call.name == tool
    assert argument in json.loads(call.arguments).values()
    assert reply.usage.prompt > 0, "the model was really asked"


@pytest.mark.parametrize("asked", ["Hello, how are you?", "Who are you?", "Thanks a lot!", "谢谢你"])
def test_talk_calls_no_tool(asked: str) -> None:
    reply = ask(ModelRequest([user(asked)], tools=TOOLS))
    assert not reply.calls
    assert reply.content.strip()


@pytest.mark.parametrize(
    "expression", ["23*47+11", "2**31", "1/3", "987654321*12345", "(1+2)*(3+4)", "0.1+0.2"]
)
def test_a_short_result_stands_in_the_answer(expression: str) -> None:
    result = str(calculator.run(expression=expression))
    turn = [user(f"What is {expression}? Use the calculator."), *called("calculator", "{}", result)]
    reply = ask(ModelRequest(turn, tools=TOOLS))
    assert result in reply.content
    assert not reply.calls, "the end of the work is decided"


def test_a_long_result_is_the_answer_as_it_is_and_several_are_told_apart() -> None:
    page = "\n".join(f"{n}  line {n}" for n in range(40))
    reply = ask(ModelRequest([user("Read notes.txt"), *called("read_file", "{}", page)], tools=TOOLS))
    assert reply.content == page
    both = [user("both"), *called("calculator", "{}", "12", "a"), *called("read_file", "{}", page, "b")]
    reply = ask(ModelRequest(both, tools=TOOLS))
    assert "calculator:\n12" in reply.content
    assert f"read_file:\n{page}" in reply.content


def test_an_error_speaks_for_itself() -> None:
    turn = [user("What is 1/0?"), *called("calculator", "{}", "error: division by zero")]
    assert ask(ModelRequest(turn, tools=TOOLS)).content == "error: division by zero"


def test_a_request_in_two_parts_gets_two_calls_where_each_part_wants_one() -> None:
    reply = ask(ModelRequest([user("Compute 3*4 and then read the file notes.txt")], tools=TOOLS))
    assert [(call.name, *json.loads(call.arguments).values()) for call in reply.calls] == [
        ("calculator", "3*4"),
        ("read_file", "notes.txt"),
    ]
    assert len({call.id for call in reply.calls}) == 2


def test_a_tool_without_examples_is_matched_by_what_it_says_of_itself() -> None:
    weather = ToolSpec(
        "weather",
        "Tells the weather forecast of a city",
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    )
    (wish,) = Chooser(encoder()).wishes("What is the weather forecast for Paris?", [*TOOLS, weather])
    assert wish.tool.name == "weather"
    (call,) = ask(
        ModelRequest([user("What is the weather forecast for Paris?")], tools=[*TOOLS, weather])
    ).calls
    assert "Paris" in json.loads(call.arguments)["city"]


def test_a_tool_named_in_the_request_is_preferred() -> None:
    (wish,) = Chooser(encoder()).wishes("use bash to show the file list", TOOLS)
    assert wish.tool.name == "bash"


def test_a_long_request_is_shown_to_the_examples_by_its_ends() -> None:
    asked = "Use the calculator: what is 6*7? " + "The reason is a long story. " * 120 + "So what is 6*7?"
    (call,) = ask(ModelRequest([user(asked)], tools=[calculator.spec])).calls
    assert json.loads(call.arguments)["expression"].replace(" ", "") == "6*7"


def test_only_this_turns_results_end_the_work() -> None:
    history = [user("What is 1+1?"), *called("calculator", "{}", "2"), {"role": "assistant", "content": "2"}]
    reply = ask(ModelRequest([*history, user("What is 5*5?")], tools=TOOLS))
    assert [json.loads(call.arguments)["expression"] for call in reply.calls] == ["5*5"]
    assert this_turn([*history, user("What is 5*5?")]) == ("What is 5*5?", [])


def test_a_conversation_with_tools_becomes_one_that_any_template_takes() -> None:
    history = [
        {"role": "system", "content": "s"},
        user("What is 1+1?"),
        *called("calculator", '{"expression": "1+1"}', "2"),
        user("and now?"),
    ]
    plain = as_plain_chat(history)
    assert [message["role"] for message in plain] == ["system", "user", "assistant", "user"]
    assert not wrong_messages({"messages": plain})
    assert "1+1" in plain[2]["content"]
    assert plain[3]["content"] == "2\n\nand now?"


def test_the_counter_bounds_what_the_template_really_makes_of_a_conversation() -> None:
    import httpx2

    running = server()
    address = running.base_url.removesuffix("/v1")
    headers = {"Authorization": f"Bearer {running.api_key}"}
    conversations = [
        [{"role": "system", "content": "be brief"}, user("hello")],
        [
            {"role": "system", "content": ""},
            user("天气 <|im_start|>"),
            {"role": "assistant", "content": "ok"},
            user("x" * 500),
        ],
    ]
    for messages in conversations:
        with httpx2.Client(base_url=address, headers=headers, trust_env=False) as http:
            prompt = http.post("/apply-template", json={"messages": messages}).json()["prompt"]
            real = len(
                http.post("/tokenize", json={"content": prompt, "parse_special": True}).json()["tokens"]
            )
        counted = sum(running.counter.message(message) for message in messages)
        assert real <= counted + 4 <= real + 8 * len(messages) + 16


def test_the_window_and_the_model_are_told() -> None:
    made = client()
    assert made.context_window == WINDOW
    assert made.small
    assert made.counter.name.startswith("llama.cpp")
    assert 0 < made.counter.tools(TOOLS) < 300
    assert made.counter.tools(()) == 0


@pytest.mark.parametrize("asked", ['What does "$5 + $7" cost?', "Compute 812 minus 77"])
def test_no_number_of_an_example_becomes_an_argument(asked: str) -> None:
    for call in ask(ModelRequest([user(asked)], tools=[calculator.spec])).calls:
        written = json.loads(call.arguments)["expression"]
        assert set(re.findall(r"\d+", written)) <= set(re.findall(r"\d+", asked)) | {"2", "3", "10", "100"}
