"""Bodies that aren't what they are said to be, and streams that end untidily, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from perdure.chat.tokens import counter_for
from perdure.errors import ConfigError, EndpointBroken, EndpointRefused, StreamCut
from perdure.models.client import ModelRequest, Piece, Reply, Retrying
from perdure.models.endpoint import EndpointClient
from scripted_endpoint import Answer, Plain, Raw, Request, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.anyio

WHOLE = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
PARTIAL = 'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
LAST = 'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
PAGE = "<!doctype html><html><title>Portal</title></html>"
TYPES = ["text/event-stream", "text/plain", "application/json", "text/html; charset=latin-1", None]


async def asked(script: list[Scripted] | Callable[[Request], Scripted], **options: Any) -> list[Piece]:
    async def no_wait(seconds: float) -> None:
        pass

    with ScriptedEndpoint(script) as endpoint:
        client = EndpointClient(endpoint.base_url, "m", counter=counter_for(None), sleep=no_wait, **options)
        try:
            return [p async for p in client.stream(ModelRequest([{"role": "user", "content": "go"}]))]
        finally:
            await client.aclose()


async def content(*script: Scripted, **options: Any) -> str:
    reply = (await asked(list(script), **options))[-1]
    assert isinstance(reply, Reply)
    return reply.content


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize(
    "chunks",
    [[LAST, "data: [DONE]\n\n"], ["\ufeff" + LAST], ["\r\n", LAST], [": c\n\n", LAST], [WHOLE]],
    ids=["events", "byte order mark", "empty line", "comment", "a whole completion"],
)
async def test_how_a_body_begins_decides_and_not_its_content_type(
    content_type: str | None, chunks: list[str]
) -> None:
    assert await content(Raw(chunks, content_type=content_type)) == "hi"


async def test_a_body_may_begin_one_byte_at_a_time() -> None:
    for text in (LAST, WHOLE):
        assert await content(Raw([text[at] for at in range(len(text))])) == "hi"


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize(
    ("body", "said"),
    [(PAGE, "a web page (HTML) (Portal)"), ("all good", "not JSON: all good"), ("{}", "no completion")],
)
async def test_what_is_no_answer_is_named_under_every_content_type(
    content_type: str | None, body: str, said: str
) -> None:
    with pytest.raises(EndpointBroken) as raised:
        await content(Raw([body], content_type=content_type))
    assert said in str(raised.value)
    assert not isinstance(raised.value, StreamCut)


@pytest.mark.parametrize("ending", [{"cut": True}, {"stall": 1.5}], ids=["reset", "silence"])
async def test_an_answer_with_its_finish_reason_is_whole_however_the_connection_ends(
    ending: dict[str, Any],
) -> None:
    pieces = await asked([Raw([LAST], **ending)], idle_timeout=0.4)
    assert not [piece for piece in pieces if isinstance(piece, Retrying)]
    assert isinstance(pieces[-1], Reply)


async def test_usage_alone_at_the_end_closes_a_stream() -> None:
    usage = 'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n\n'
    assert await content(Raw([PARTIAL, usage])) == "hi"
    with pytest.raises(StreamCut):
        await content(Raw([usage, PARTIAL]))


@pytest.mark.parametrize(
    "first",
    [
        Raw([PARTIAL, 'data: {"choices": [{"del']),
        Raw(["data: [DONE]\n\n"]),
        Raw([PARTIAL, "event: error\ndata: it broke\n\n"]),
        Raw([PARTIAL, 'data: {"choices": [{"finish_reason": "error", "error": {"code": 502}}]}\n\n']),
        Raw([PARTIAL, 'data: {"object": "error", "message": "it broke", "code": 500}\n\n']),
    ],
    ids=["half a chunk", "nothing in it", "an error event of words", "in the choice", "without 'error'"],
)
async def test_a_stream_that_broke_is_asked_for_again(first: Raw) -> None:
    pieces = await asked([first, Answer("whole")])
    assert len([piece for piece in pieces if isinstance(piece, Retrying)]) == 1
    assert isinstance(pieces[-1], Reply)
    assert pieces[-1].content == "whole"


@pytest.mark.parametrize(
    "refusal",
    [
        Plain(
            422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}
        ),
        Plain(400, "unknown field `stream_options`, expected one of `model`", content_type="text/plain"),
        Plain(400, {"error": {"message": "Unknown parameter", "param": "stream_options"}}),
    ],
    ids=["where FastAPI points", "plain words", "in param"],
)
async def test_a_refused_field_is_known_wherever_the_endpoint_names_it(refusal: Plain) -> None:
    pieces = await asked(lambda r: refusal if "stream_options" in r.body else Answer("fine"))
    assert isinstance(pieces[-1], Reply)


async def test_an_invalid_request_inside_a_stream_is_not_sent_again() -> None:
    asks: list[Request] = []

    def script(request: Request) -> Raw:
        asks.append(request)
        error = {"message": "bad schema", "type": "invalid_request_error", "code": None}
        return Raw([f"data: {json.dumps({'error': error})}\n\n"])

    with pytest.raises(EndpointRefused, match="bad schema"):
        await asked(script)
    assert len(asks) == 1


@pytest.mark.parametrize(
    "url", ["localhost:8080/v1", "", "ftp://x/v1", "http://[::1", "http://localhost:99999/v1", "http:///v1"]
)
def test_a_url_that_is_none_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        EndpointClient(url, "m", counter=counter_for(None))


async def test_a_key_with_a_line_end_is_sent_without_and_one_that_is_none_is_a_wrong_setting() -> None:
    with ScriptedEndpoint([Answer("ok")], api_key="sk-abcdef") as endpoint:
        client = EndpointClient(endpoint.base_url, "m", counter=counter_for(None), api_key="sk-abcdef\n")
        pieces = [p async for p in client.stream(ModelRequest([{"role": "user", "content": "go"}]))]
        await client.aclose()
    assert isinstance(pieces[-1], Reply)
    with pytest.raises(ConfigError) as raised:
        EndpointClient("http://127.0.0.1/v1", "m", counter=counter_for(None), api_key="sk-клюc\nx")
    assert "sk-" not in str(raised.value)
