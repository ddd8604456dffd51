"""Public reports on streams: what providers really sent, over real HTTP, chunk by chunk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.chat.tokens import counter_for
from perdure.errors import StreamCut
from perdure.models.client import ModelRequest, Reply, Retrying, Text
from perdure.models.endpoint import EndpointClient
from scripted_endpoint import Answer, Raw, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.anyio

DONE = "data: [DONE]\n\n"


def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'r1', 'choices': [choice], **more})}\n\n"


def call(name: Any = None, arguments: Any = None, **identity: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**identity, "function": function}


def stream(*deltas: list[dict[str, Any]], finish: str | None = "tool_calls") -> list[str]:
    """Each list of call fragments as one chunk, then the end."""
    return [*(event({"tool_calls": fragments}) for fragments in deltas), event({}, finish), DONE]


async def replied(*script: Scripted, pieces: list[Any] | None = None) -> Reply:
    async def no_wait(seconds: float) -> None:
        pass

    with ScriptedEndpoint(list(script)) as endpoint:
        client = EndpointClient(endpoint.base_url, "m", counter=counter_for(None), sleep=no_wait)
        try:
            seen = [p async for p in client.stream(ModelRequest([{"role": "user", "content": "go"}]))]
        finally:
            await client.aclose()
    if pieces is not None:
        pieces += seen
    assert isinstance(seen[-1], Reply)
    return seen[-1]


READ, CALC = '{"path": "notes.txt"}', '{"expression": "6*7"}'
ONE = [("c1", "read_file", READ)]
TWO = [("c1", "read_file", READ), ("c2", "calculator", CALC)]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param(
            stream(
                [call("read_file", "", index=0, id="c1")],
                [call(arguments=READ[:9], index=0)],
                [call(arguments=READ[9:], index=0)],
            ),
            ONE,
            id="id and name first, then arguments by index",
        ),
        pytest.param(
            stream(
                [call("read_file", "", index=0, id="c1")],
                [call("read_file", READ[:9], index=0, id="c1")],
                [call("read_file", READ[9:], index=0, id="c1")],
            ),
            ONE,
            id="id and name repeated in each",
        ),
        pytest.param(
            stream([call("read_file", READ[:9], index=0)], [call(arguments=READ[9:], index=0)]),
            [(None, "read_file", READ)],
            id="no id at all",
        ),
        pytest.param(stream([call("read_file", READ, index=0, id="c1")]), ONE, id="whole call in one chunk"),
        pytest.param(
            stream([call("read_file", READ, index=0, id="c1"), call("calculator", CALC, index=1, id="c2")]),
            TWO,
            id="two whole calls in one chunk",
        ),
        pytest.param(
            stream(
                [call("read_file", "", index=0, id="c1")],
                [call(arguments=READ, index=0)],
                [call("calculator", "", index=1, id="c2")],
                [call(arguments=CALC, index=1)],
            ),
            TWO,
            id="two calls one after the other",
        ),
        pytest.param(
            stream(
                [call("read_file", "", index=1, id="c1")],
                [call(arguments=READ, index=1)],
                [call("calculator", CALC, index=2, id="c2")],
            ),
            TWO,
            id="index starts at 1",
        ),
        pytest.param(
            stream(
                [call("read_file", "", index=0, id="c1")],
                [call("calculator", "", index=0, id="c2")],
                [call(arguments=READ[:9], index=0, id="c1")],
                [call(arguments=CALC[:9], index=0, id="c2")],
                [call(arguments=READ[9:], index=0, id="c1")],
                [call(arguments=CALC[9:], index=0, id="c2")],
            ),
            TWO,
            id="all indices 0, told apart by id, interleaved",
        ),
        pytest.param(
            stream([call("read_file", READ, index=0, id="c1")], [call("calculator", CALC, index=0, id="c2")]),
            TWO,
            id="all indices 0, whole calls",
        ),
        pytest.param(
            stream(
                [call("read_file", "", id="c1")],
                [call(arguments=READ)],
                [call("calculator", "", id="c2")],
                [call(arguments=CALC)],
            ),
            TWO,
            id="no index anywhere",
        ),
        pytest.param(
            stream([call("read_file", READ)], [call("calculator", CALC)]),
            [(None, "read_file", READ), (None, "calculator", CALC)],
            id="neither index nor id, whole calls",
        ),
        pytest.param(
            stream([call("read_file", READ)], [call("read_file", '{"path": "other.txt"}')]),
            [(None, "read_file", READ), (None, "read_file", '{"path": "other.txt"}')],
            id="neither index nor id, the same tool twice",
        ),
        pytest.param(
            stream(
                [call("calculator", "", index=0, id="z0")],
                [call("", CALC[:9], index=0, id="z1")],
                [call("", CALC[9:], index=0, id="z2")],
            ),
            [("z0", "calculator", CALC)],
            id="a new id each time, with an empty name",
        ),
        pytest.param(
            stream(
                [call("calculator", CALC[:-1], index=0, id="c1")],
                [{"index": None, "id": None, "function": {"name": "calculator", "arguments": "}"}}],
            ),
            [("c1", "calculator", CALC)],
            id="a closing bracket that bears the name and no id",
        ),
        pytest.param(
            stream([call("calculator", "", index=2, id="c1")], [call(arguments=CALC, index=1)]),
            [("c1", "calculator", CALC)],
            id="id under one index, arguments under another",
        ),
        pytest.param(
            stream([call("bash", '{"command":"ec', index=0, id="q"), call(arguments='ho hi"}', index=0)]),
            [("q", "bash", '{"command":"echo hi"}')],
            id="two fragments of one call in one chunk",
        ),
        pytest.param(
            stream([call("calculator", {"expression": "6*7"}, index=0, id="c1")]),
            [("c1", "calculator", CALC)],
            id="arguments already an object",
        ),
        pytest.param(
            stream([{"index": 0, "id": "c1", "function": {"name": "now", "arguments": None}}]),
            [("c1", "now", "{}")],
            id="arguments null",
        ),
        pytest.param(
            stream([call("now", "", index=0, id="c1")]), [("c1", "now", "{}")], id="arguments empty"
        ),
        pytest.param(
            stream([call("calculator", "{}", index=0, id="c1")], [call(arguments=CALC, index=0)]),
            [("c1", "calculator", CALC)],
            id="an empty object ahead of the arguments",
        ),
        pytest.param(
            stream([call("calculator", CALC, index=0, id="c1")], finish="stop"),
            [("c1", "calculator", CALC)],
            id="finish_reason stop although there are calls",
        ),
        pytest.param(
            stream([call("calculator", CALC, index=0, id="c1")], finish=None),
            [("c1", "calculator", CALC)],
            id="finish_reason null at the end",
        ),
        pytest.param(
            [
                event({"function_call": {"name": "calculator", "arguments": CALC}}),
                event({}, "function_call"),
                DONE,
            ],
            [(None, "calculator", CALC)],
            id="the function_call field of old",
        ),
        pytest.param(
            [
                event({"tool_calls": [call("calculator", CALC, index=0, id="c1")]}, "tool_calls"),
                event({"content": ""}, "tool_calls", usage={"prompt_tokens": 9, "completion_tokens": 3}),
                DONE,
            ],
            [("c1", "calculator", CALC)],
            id="finish_reason twice",
        ),
    ],
)
async def test_a_call_is_whole_however_its_pieces_come(
    chunks: list[str], expected: list[tuple[str | None, str, str]]
) -> None:
    reply = await replied(Raw(chunks))
    assert [(c.name, json.loads(c.arguments)) for c in reply.calls] == [
        (n, json.loads(a)) for _, n, a in expected
    ]
    assert all(id is None or call.id == id for call, (id, _, _) in zip(reply.calls, expected, strict=True))
    assert all(call.id for call in reply.calls)
    assert len({call.id for call in reply.calls}) == len(reply.calls)


async def test_two_calls_with_one_id_are_two_calls_and_the_second_is_renamed() -> None:
    fragments = [call("calculator", '{"expression":"1+1"}', index=0, id="same")]
    again = [call("calculator", '{"expression":"2+2"}', index=1, id="same")]
    reply = await replied(Raw(stream(fragments, again)))
    assert [json.loads(call.arguments)["expression"] for call in reply.calls] == ["1+1", "2+2"]
    assert len({call.id for call in reply.calls}) == 2
    assert any("same" in note for note in reply.notes)


async def test_the_same_call_twice_is_two_calls() -> None:
    fragments = [call("bash", '{"command":"echo $RANDOM"}', index=n, id=f"d{n}") for n in (0, 1)]
    assert len((await replied(Raw(stream(fragments)))).calls) == 2


async def test_content_and_calls_in_one_message_are_both_kept() -> None:
    chunks = [event({"content": "Let me look. "}), *stream([call("read_file", READ, index=0, id="c1")])]
    reply = await replied(Raw(chunks))
    assert (reply.content, len(reply.calls)) == ("Let me look. ", 1)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
async def test_reasoning_is_no_answer(name: str) -> None:
    pieces: list[Any] = []
    chunks = [event({name: "hm, "}), event({name: "yes"}), event({"content": "Yes."}, "stop"), DONE]
    reply = await replied(Raw(chunks), pieces=pieces)
    assert (reply.content, reply.reasoning) == ("Yes.", "hm, yes")
    assert [p.text for p in pieces if isinstance(p, Text) and not p.reasoning] == ["Yes."]


@pytest.mark.parametrize("size", [1, 3, 50])
@pytest.mark.parametrize(
    ("said", "thought", "answer"),
    [
        ("<think>why < not</think>\n\nBecause.", "why < not", "Because."),
        ("\n<think></think>Hi", "", "Hi"),
        ("a <think> in the middle </think> stays", "", "a <think> in the middle </think> stays"),
        ("<thin ice", "", "<thin ice"),
        ("<think>never closed", "never closed", ""),
    ],
)
async def test_thoughts_in_tags_are_no_answer_however_they_are_cut(
    size: int, said: str, thought: str, answer: str
) -> None:
    chunks = [event({"content": said[at : at + size]}) for at in range(0, len(said), size)]
    reply = await replied(Raw([*chunks, event({}, "stop"), DONE]))
    assert (reply.reasoning, reply.content) == (thought, answer)


async def test_content_may_be_null_or_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]
    chunks = [event({"role": "assistant", "content": None}), event({"content": parts}, "stop"), DONE]
    assert (await replied(Raw(chunks))).content == "in parts"


@pytest.mark.parametrize(
    ("chunks", "content"),
    [
        (
            [
                ": WARMING UP\n\n",
                ":\n\n",
                "data:\n\n",
                "event: ping\ndata: \n\n",
                event({"content": "ok"}, "stop"),
                DONE,
            ],
            "ok",
        ),
        (
            [
                "id: 1\n" + event({"content": "a"}),
                ": beat\n\n",
                "id: 2\n" + event({"content": "b"}, "stop"),
                DONE,
            ],
            "ab",
        ),
        ([event({"content": "crlf"}, "stop").replace("\n", "\r\n"), DONE.replace("\n", "\r\n")], "crlf"),
        ([event({"content": "cr"}, "stop").replace("\n", "\r"), "data: [DONE]\r\r"], "cr"),
        (
            [
                'data: {"choices": [{"index": 0,\ndata:  "delta": {"content": "two lines"},\n'
                'data: "finish_reason": "stop"}]}\n\n'
            ],
            "two lines",
        ),
        ([event({"content": "no end line"}, "stop").rstrip("\n")], "no end line"),
        ([event({"content": "no DONE"}, "stop")], "no DONE"),
        ([event({"content": "Done."}), 'data: {"choices": []}\n\n', DONE], "Done."),
        ([event({"content": "x"}, "stop"), 'data: {"id":"r1","usage":null}\n\n', DONE], "x"),
        (["data:" + event({"content": "no space"}, "stop")[6:], DONE], "no space"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_framing_is_read_as_the_standard_says_and_as_servers_do(
    chunks: list[str], content: str
) -> None:
    assert (await replied(Raw(chunks))).content == content


async def test_line_separators_of_unicode_are_no_line_ends() -> None:
    content = "left\u2028right\u0085end\u2029!"
    raw = f'data: {{"choices": [{{"delta": {{"content": "{content}"}}, "finish_reason": "stop"}}]}}\n\n'
    assert (await replied(Raw([raw, DONE]))).content == content


async def test_a_character_may_be_split_over_chunks_at_every_place() -> None:
    data = event({"content": "天气🌧"}, "stop").encode()
    whole = json.dumps(
        {"choices": [{"delta": {"content": "天气🌧"}, "finish_reason": "stop"}]}, ensure_ascii=False
    )
    data = f"data: {whole}\n\n".encode()
    for at in range(1, len(data)):
        reply = await replied(Raw([data[:at], data[at:], DONE]))
        assert reply.content == "天气🌧", f"split at {at}"


@pytest.mark.parametrize(
    "ending",
    [
        [
            event({}, "stop"),
            'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n\n',
            DONE,
        ],
        [event({}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1}), DONE],
        [
            event({}, None, usage={"prompt_tokens": 3, "completion_tokens": 0}),
            event({}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1}),
            DONE,
        ],
        [
            event({}, "stop"),
            'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n\n',
            'data: {"usage": null}\n\n',
            DONE,
        ],
    ],
    ids=["a chunk of its own", "the last content chunk", "running", "without choices, then null"],
)
async def test_usage_is_found_wherever_it_comes(ending: list[str]) -> None:
    reply = await replied(Raw([event({"content": "4"}), *ending]))
    assert (reply.content, reply.usage.prompt, reply.usage.completion) == ("4", 3, 1)


async def test_nothing_of_a_stream_that_was_cut_is_kept_when_it_is_asked_for_again() -> None:
    begun = event({"tool_calls": [call("bash", '{"command":"rm -rf build', index=0, id="c1")]})
    first = Raw([event({"content": "I will clean up. "}), begun], cut=True)
    second = Answer("I will clean up. ", calls=[("c9", "bash", '{"command":"rm -rf build/tmp"}')])
    pieces: list[Any] = []
    reply = await replied(first, second, pieces=pieces)
    assert reply.content == "I will clean up. "
    assert [call.arguments for call in reply.calls] == ['{"command":"rm -rf build/tmp"}']
    assert [p.restart for p in pieces if isinstance(p, Retrying)] == [True]


@pytest.mark.parametrize(
    "chunks",
    [
        [event({"content": "half an ans"})],
        [event({"tool_calls": [call("bash", '{"comm', index=0, id="c")]})],
        [],
    ],
)
async def test_a_stream_that_ends_without_its_end_is_no_answer(chunks: list[str]) -> None:
    with pytest.raises(StreamCut):
        await replied(Raw(chunks))
