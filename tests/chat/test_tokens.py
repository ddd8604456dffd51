from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat.counted import COUNTS, TEXTS
from perdure.chat.calls import ToolSpec
from perdure.chat.images import Tiles
from perdure.chat.messages import Message
from perdure.chat.tokens import (
    ENCODINGS,
    ScaledCounter,
    TextCounter,
    TokenCounter,
    counter_for,
    most_tokens,
)

COUNTERS: list[TokenCounter] = [
    *(counter_for(encoding) for encoding in (*ENCODINGS, None)),
    ScaledCounter(counter_for("o200k_base"), 1.25),
    TextCounter("bytes", most_tokens),
]
every_counter = pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)

READ_FILE = ToolSpec(
    "read_file",
    "Read a text file with line numbers.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Path in the workspace."},
            "first_line": {"type": "integer"},
        },
        "required": ["path"],
    },
)
CALCULATOR = ToolSpec(
    "calculator",
    "Evaluate arithmetic.",
    {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
)


def calling(name: str, arguments: str, id: str = "call_1", **fields: Any) -> Message:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **fields}


def said(role: str, content: Any, **fields: Any) -> Message:
    return {"role": role, "content": content, **fields}


def test_an_exact_counter_counts_text_as_its_encoding_does() -> None:
    for kind, text in TEXTS.items():
        assert counter_for("o200k_base").text(text) == COUNTS[kind]["o200k_base"], kind


def test_a_counter_says_what_counts() -> None:
    assert [counter_for(name).name for name in ("glm4", None, "no-such")] == ["glm4", "estimate", "estimate"]
    assert ScaledCounter(counter_for(None), 1.5).name == "estimate x 1.5"


@every_counter
def test_a_message_has_at_least_the_tokens_of_what_it_says(counter: TokenCounter) -> None:
    for text in TEXTS.values():
        for role in ("system", "user", "assistant"):
            assert counter.message(said(role, text)) > counter.text(text)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (json.dumps({"path": "p", "text": "lorem ipsum " * 4000}), "words"),
        (json.dumps({"path": "p", "text": TEXTS["chinese"] * 200}, ensure_ascii=False), "Chinese"),
        (json.dumps({"path": "p", "text": TEXTS["chinese"] * 200}), "escaped Chinese"),
        (json.dumps({"path": "p", "text": TEXTS["python"] * 30}), "code"),
        (json.dumps({"rows": [[n, n * n, n / 7] for n in range(900)]}), "numbers"),
        (json.dumps({"data": TEXTS["base64"] * 30}), "base64"),
    ],
)
@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base", "qwen3", "mistral_v3", None])
def test_a_call_counts_as_its_json(arguments: str, kind: str, encoding: str | None) -> None:
    counter = counter_for(encoding)
    message = calling("write_file", arguments)
    sent = counter.text(json.dumps(message, ensure_ascii=False))
    assert sent > 2000, kind
    assert 0.9 * sent <= counter.message(message) <= 1.1 * sent


def test_all_calls_names_ids_and_results_are_counted() -> None:
    counter = counter_for("o200k_base")
    one = calling("calculator", '{"expression": "23*47+11"}')
    three = {**one, "tool_calls": one["tool_calls"] * 3}
    assert counter.message(three) - counter.message(one) == 2 * (
        counter.message(one) - counter.message(said("assistant", None))
    )
    plain = said("user", "x")
    assert counter.message({**plain, "name": "someone_by_name"}) > counter.message(plain)
    result = said("tool", "1092", tool_call_id="call_9f8e7d6c5b4a")
    assert counter.message(result) > counter.message(said("user", "1092")) + 5
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}" * 50}}
    assert counter.message(old) > 50


def test_schemas_of_n_tokens_add_about_n() -> None:
    words = [f"parameter {n} says how the thing is to be done" for n in range(40)]
    properties = {f"field_{n}": {"type": "string", "description": text} for n, text in enumerate(words)}
    large = ToolSpec("configure", "Set up.", {"type": "object", "properties": properties})
    for encoding in ("o200k_base", "cl100k_base", "qwen3", "deepseek_v3", None):
        counter = counter_for(encoding)
        tokens = counter.text(json.dumps([large.on_the_wire()]))
        assert tokens > 800
        assert 0.75 * tokens <= counter.tools([large]) <= 1.25 * tokens + 32
        assert counter.tools([]) == 0
        assert counter.tools([large, large]) > 1.6 * counter.tools([large])


#: The first lines of a session, and what they come to with the reply's opening, rendered with the
#: chat template published with the model and counted with its own tokenizer.
TALK = [
    said("system", "You are a helpful agent."),
    said("user", "What is in a.txt?"),
    said("assistant", "It says hello."),
    said("user", "And 2+2 and 3+3?"),
    said("assistant", "4 and 6."),
    said("user", "Thanks"),
]
WORK = [
    *TALK[:2],
    calling("read_file", '{"path": "a.txt"}') | {"content": ""},
    said("tool", "1\thello", tool_call_id="call_1"),
    *TALK[2:4],
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            *calling("calculator", '{"expression": "2+2"}', "call_2")["tool_calls"],
            *calling("calculator", '{"expression": "3+3"}', "call_3")["tool_calls"],
        ],
    },
    said("tool", "4", tool_call_id="call_2"),
    said("tool", "6", tool_call_id="call_3"),
    *TALK[4:],
]
TOOLS = [READ_FILE, CALCULATOR]
RENDERED = [
    ("qwen3", TALK[:2], [], 25),
    ("qwen3", TALK, [], 66),
    ("qwen3", WORK[:2], TOOLS, 232),
    ("qwen3", WORK, TOOLS, 372),
    ("deepseek_v3", TALK, [], 43),
    ("gemma3", TALK, [], 64),
    ("llama3", TALK, [], 69),
]


@pytest.mark.parametrize(("encoding", "messages", "tools", "rendered"), RENDERED)
def test_a_prompt_counts_at_least_what_the_models_own_template_makes_of_it(
    encoding: str, messages: Sequence[Message], tools: Sequence[ToolSpec], rendered: int
) -> None:
    counter = counter_for(encoding)
    counted = sum(counter.message(message) for message in messages) + counter.tools(tools)
    assert rendered <= counted <= 1.4 * rendered + 50


def test_openai_messages_count_by_the_published_formula() -> None:
    # The cookbook's example, without names: 3 a message, 1 its role, 3 for the reply's priming.
    counter = counter_for("cl100k_base")
    messages = [said("system", "You are a helpful, pattern-following assistant."), said("user", "hello")]
    counted = sum(counter.message(message) for message in messages)
    assert counted == sum(4 + counter.text(message["content"]) for message in messages) + 3


def test_parts_count_by_what_they_are() -> None:
    counter = counter_for("o200k_base", images=Tiles())

    def tokens(*parts: object) -> int:
        return counter.message(said("user", list(parts)))

    url = {"url": "https://example.org/a.png"}
    nothing = tokens()
    assert tokens({"type": "text", "text": "hello"}) == nothing + counter.text("hello")
    assert tokens({"type": "image_url", "image_url": {**url, "detail": "low"}}) == nothing + 85
    assert tokens({"type": "image_url", "image_url": url}) == nothing + 85 + 8 * 170
    second_of_sound = {"data": "A" * (48_000 * 4 // 3), "format": "wav"}
    assert nothing + 32 <= tokens({"type": "input_audio", "input_audio": second_of_sound}) < nothing + 2000
    document = {"file_data": "data:application/pdf;base64," + "A" * 4000, "filename": "a.pdf"}
    assert tokens({"type": "file", "file": document}) >= nothing + 4000
    for odd in ("just a text", None, 7, {"type": "new"}, {"type": "text"}, {"type": "image_url"}, []):
        assert tokens(odd) >= nothing


def test_reasoning_counts_only_where_it_is_sent() -> None:
    message = calling("f", "{}", reasoning_content="hm " * 50)
    assert counter_for(None, reasoning=True).message(message) > counter_for(None).message(message) + 40
    without_calls = said("assistant", "x", reasoning_content="hm " * 50)
    assert counter_for(None, reasoning=True).message(without_calls) == counter_for(None).message(
        without_calls
    )


def test_a_scaled_counter_rounds_up() -> None:
    inner = counter_for("o200k_base")
    scaled = ScaledCounter(inner, 1.1)
    assert (inner.text("hello"), scaled.text("hello"), scaled.text("")) == (1, 2, 0)
    assert scaled.message(TALK[0]) >= 1.1 * inner.message(TALK[0])
    assert scaled.tools(TOOLS) >= 1.1 * inner.tools(TOOLS)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("content", "name", "tool_call_id", "tool_calls", "refusal", "function_call", "reasoning_content")


@settings(deadline=None)
@given(
    st.sampled_from(["system", "user", "assistant", "tool", "developer", "other"]),
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=4),
)
def test_no_message_however_odd_makes_a_counter_fail(role: str, fields: dict[str, Any]) -> None:
    if not isinstance(fields.get("tool_calls"), list):
        fields.pop("tool_calls", None)
    for counter in (counter_for("o200k_base", reasoning=True), counter_for(None), COUNTERS[-1]):
        assert counter.message({"role": role, **fields}) > 0


@settings(deadline=None)
@given(st.text(st.characters(codec=None), max_size=200))
def test_bytes_bound_a_message_without_a_tokenizer(text: str) -> None:
    bound = TextCounter("bytes", most_tokens)
    for message in (said("user", text), calling("f", json.dumps({"x": text}))):
        for encoding in ("deepseek_v3", "mistral_v1", "kimi_k2", None):
            assert counter_for(encoding).message(message) <= bound.message(message)


def test_a_process_that_never_counts_never_loads_a_tokenizer() -> None:
    program = (
        "import sys; from perdure.chat.tokens import TextCounter, counter_for, most_tokens;"
        "counter_for('o200k_base'); counter_for(None); TextCounter('bytes', most_tokens).text('x');"
        "print('splintr' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
