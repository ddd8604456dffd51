from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from perdure.chat.calls import ToolSpec
from perdure.chat.tokens import Usage, counter_for
from perdure.errors import (
    AuthenticationRefused,
    ContextOverflow,
    EndpointBroken,
    EndpointRefused,
    EndpointUnreachable,
    ModelUnknown,
    RateLimited,
    StreamCut,
)
from perdure.models.client import ModelRequest, Piece, Reply, Retrying, Text
from perdure.models.endpoint import EndpointClient, window_of
from scripted_endpoint import (
    Answer,
    Plain,
    Raw,
    Scripted,
    ScriptedEndpoint,
    empty_content_beside_calls,
    null_content,
    system_role,
    unknown_field,
)

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
CALLED = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "2+2?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "calculator", "arguments": "{}"}}
        ],
        "reasoning_content": "I should add.",
    },
    {"role": "tool", "tool_call_id": "a", "content": "4"},
]
CHUNK = 'data: {"choices": [{"index": 0, "delta": {"content": "partial "}}]}\n\n'


class Asked:
    """A client with no patience for pauses, and everything that one request yielded."""

    def __init__(self, endpoint: ScriptedEndpoint, **options: Any) -> None:
        self.waits: list[float] = []
        options = {"counter": counter_for(None), "sleep": self._sleep, **options}
        self.client = EndpointClient(endpoint.base_url, options.pop("model", "scripted"), **options)
        self.pieces: list[Piece] = []

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def __call__(self, messages: list[dict[str, Any]] = HELLO, **request: Any) -> Reply:
        self.pieces = []
        try:
            async for piece in self.client.stream(ModelRequest(messages, **request)):
                self.pieces.append(piece)
        finally:
            await self.client.aclose()
        (reply,) = [piece for piece in self.pieces if isinstance(piece, Reply)]
        assert self.pieces[-1] is reply
        return reply

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces if isinstance(piece, Text) and not piece.reasoning)


async def test_an_answer_streams_and_ends_in_one_reply_with_its_usage() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    with ScriptedEndpoint([Answer("Hello, you there.", usage=usage)]) as endpoint:
        asked = Asked(endpoint)
        reply = await asked()
    assert (reply.content, asked.text, reply.usage) == ("Hello, you there.",) * 2 + (Usage(9, 3, 4),)
    assert len(asked.pieces) > 2


async def test_every_request_names_its_purpose_and_session_and_the_key_goes_nowhere_else() -> None:
    with ScriptedEndpoint([Answer("ok")], api_key="sk-secret-1234") as endpoint:
        asked = Asked(endpoint, api_key="sk-secret-1234")
        await asked(purpose="judge", session="天气 1")
    (request,) = endpoint.judged
    assert request.headers["x-perdure-purpose"] == "judge"
    assert request.headers["x-perdure-session"] == "%E5%A4%A9%E6%B0%94%201"
    assert request.headers["user-agent"].startswith("perdure/")
    assert "sk-secret" not in repr(asked.client)


async def test_without_a_key_none_is_sent() -> None:
    with ScriptedEndpoint([Answer("ok")]) as endpoint:
        await Asked(endpoint)()
    assert "authorization" not in endpoint.requests[0].headers


async def test_a_proxy_in_the_environment_does_not_catch_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with ScriptedEndpoint([Answer("direct")]) as endpoint:
        assert (await Asked(endpoint)()).content == "direct"


async def test_lone_surrogates_are_sent_as_text() -> None:
    with ScriptedEndpoint([Answer("ok")]) as endpoint:
        await Asked(endpoint)([{"role": "user", "content": "a\ud800b 🌧"}])
    assert endpoint.requests[0].messages[0]["content"] == "a\ufffdb 🌧"


@pytest.mark.parametrize(
    ("refuses", "options", "messages"),
    [
        (unknown_field("stream_options"), {}, HELLO),
        (unknown_field("stream", "streaming is not supported by this model"), {}, HELLO),
        (
            unknown_field("max_tokens", "Unsupported parameter: use 'max_completion_tokens' instead."),
            {"max_output_tokens": 50},
            HELLO,
        ),
        (unknown_field("temperature"), {"temperature": 0.0}, HELLO),
        (unknown_field("response_format"), {"schema": {"type": "object"}}, HELLO),
        (null_content, {}, CALLED),
        (system_role, {}, CALLED),
    ],
)
async def test_what_an_endpoint_refuses_is_asked_again_without_it_and_remembered(
    refuses: Callable[[dict[str, Any]], str | None], options: dict[str, Any], messages: list[dict[str, Any]]
) -> None:
    with ScriptedEndpoint([Answer("fine")], refuses=[refuses]) as endpoint:
        asked = Asked(endpoint)
        client = asked.client
        for _ in range(2):
            replies = [each async for each in client.stream(ModelRequest(messages, **options))]
            assert isinstance(replies[-1], Reply)
            assert replies[-1].content == "fine"
            learnt = len(endpoint.refusals)
            assert learnt <= 2
        await client.aclose()
    assert len(endpoint.requests) == 2 + learnt, "the second time nothing is refused"


async def test_silent_calls_pass_the_strictest_three_at_once() -> None:
    refuses = [null_content, empty_content_beside_calls]
    with ScriptedEndpoint([Answer("4")], refuses=refuses) as endpoint:
        assert (await Asked(endpoint)(CALLED)).content == "4"
    assert endpoint.requests[-1].messages[2]["content"]


async def test_a_field_that_stays_refused_is_an_error_and_no_loop() -> None:
    with ScriptedEndpoint([Plain(400, {"error": {"message": "temperature is odd"}})]) as endpoint:
        with pytest.raises(EndpointRefused, match="temperature is odd"):
            await Asked(endpoint)(temperature=0.5)
    assert len(endpoint.requests) == 2


async def test_tools_and_their_calls_go_through() -> None:
    spec = ToolSpec("calculator", "computes", {"type": "object", "properties": {}})
    with ScriptedEndpoint([Answer(calls=[("c1", "calculator", {"expression": "1+1"})])]) as endpoint:
        reply = await Asked(endpoint)(tools=[spec])
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("c1", "calculator", '{"expression": "1+1"}')
    ]
    assert endpoint.requests[0].body["tools"] == [spec.on_the_wire()]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_passing_failure_is_tried_again_and_the_person_sees_it(status: int) -> None:
    script: list[Scripted] = [Plain(status, {"error": {"message": "overloaded"}})] * 2 + [Answer("at last")]
    with ScriptedEndpoint(script) as endpoint:
        asked = Asked(endpoint)
        assert (await asked()).content == "at last"
    assert [piece.restart for piece in asked.pieces if isinstance(piece, Retrying)] == [False, False]
    assert len(asked.waits) == 2


async def test_a_failure_that_stays_ends_after_a_bounded_number_of_tries() -> None:
    with ScriptedEndpoint([Plain(503, "busy", content_type="text/plain")]) as endpoint:
        with pytest.raises(EndpointBroken, match="busy"):
            await Asked(endpoint)()
    assert len(endpoint.requests) == 5


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "Invalid value for 'top_p'"}),
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (401, {"message": "bad key"}),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(status: int, error: dict[str, str]) -> None:
    with ScriptedEndpoint([Plain(status, {"error": error})]) as endpoint:
        with pytest.raises(EndpointRefused):
            await Asked(endpoint)()
    assert len(endpoint.requests) == 1


async def test_a_stream_cut_in_the_middle_is_retried_as_a_whole_once() -> None:
    with ScriptedEndpoint([Raw([CHUNK], cut=True), Answer("the whole answer")]) as endpoint:
        asked = Asked(endpoint)
        assert (await asked()).content == "the whole answer"
    assert [piece.restart for piece in asked.pieces if isinstance(piece, Retrying)] == [True]


@pytest.mark.parametrize("cut", [True, False])
async def test_a_second_cut_is_an_error(cut: bool) -> None:
    with ScriptedEndpoint([Raw([CHUNK], cut=cut)]) as endpoint:
        with pytest.raises(StreamCut):
            await Asked(endpoint)()
    assert len(endpoint.requests) == 2


async def test_silence_in_the_middle_counts_as_a_cut() -> None:
    with ScriptedEndpoint([Raw([CHUNK], stall=3.0), Answer("whole")]) as endpoint:
        assert (await Asked(endpoint, idle_timeout=0.3)()).content == "whole"


async def test_an_error_object_inside_a_stream_is_an_error() -> None:
    broken = Raw([CHUNK, 'data: {"error": {"message": "the GPU fell over", "code": 500}}\n\n'])
    with ScriptedEndpoint([broken, Answer("whole")]) as endpoint:
        assert (await Asked(endpoint)()).content == "whole"
    early = Raw(['data: {"error": {"message": "maximum context length is 4096 tokens", "code": 400}}\n\n'])
    with ScriptedEndpoint([early]) as endpoint:
        with pytest.raises(ContextOverflow) as raised:
            await Asked(endpoint)()
    assert raised.value.limit == 4096


@pytest.mark.parametrize("content_type", ["text/event-stream; charset=iso-8859-1", "text/plain", None])
async def test_a_stream_under_another_name_is_still_read_as_utf8(content_type: str | None) -> None:
    chunks = ['data: {"choices": [{"delta": {"content": "天气"}, "finish_reason": "stop"}]}']
    with ScriptedEndpoint([Raw(chunks, content_type=content_type)]) as endpoint:
        assert (await Asked(endpoint)()).content == "天气"


async def test_a_whole_completion_in_answer_to_a_streamed_request_is_taken() -> None:
    message = {"role": "assistant", "content": "whole", "tool_calls": None}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 7}}
    with ScriptedEndpoint([Plain(200, body)]) as endpoint:
        reply = await Asked(endpoint)()
    assert (reply.content, reply.usage.prompt) == ("whole", 7)


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (Plain(200, "<html><title>Sign in</title></html>", {}, "text/html"), "a web page (HTML) (Sign in)"),
        (Plain(404, "<html><title>404 Not Found</title></html>", {}, "text/html"), "usually ends in /v1"),
        (Plain(200, "not json at all", {}, "application/json"), "not JSON"),
        (Plain(302, "", {"Location": "http://127.0.0.1:9/"}, "text/html"), "HTTP 302"),
    ],
)
async def test_an_answer_that_is_no_completion_says_what_it_is(plain: Plain, said: str) -> None:
    with ScriptedEndpoint([plain]) as endpoint:
        with pytest.raises(EndpointBroken) as raised:
            await Asked(endpoint)()
    assert said in str(raised.value)


async def test_a_wrong_key_and_a_wrong_model_are_the_persons_to_mend() -> None:
    with ScriptedEndpoint([Answer("x")], api_key="right") as endpoint:
        with pytest.raises(AuthenticationRefused, match="OPENAI_API_KEY"):
            await Asked(endpoint, api_key="sk-wrong-key")()
    missing = Plain(404, {"error": {"message": "model 'nope' not found, try pulling it first"}})
    with ScriptedEndpoint([missing]) as endpoint:
        with pytest.raises(ModelUnknown, match="--model"):
            await Asked(endpoint, model="nope")()


async def test_a_key_that_the_endpoint_repeats_is_masked() -> None:
    echo = Plain(401, {"error": {"message": "Incorrect API key provided: sk-live-abcdef"}})
    with ScriptedEndpoint([echo]) as endpoint:
        with pytest.raises(AuthenticationRefused) as raised:
            await Asked(endpoint, api_key="sk-live-abcdef")()
    assert "sk-live" not in str(raised.value)
    assert "***" in str(raised.value)


async def test_an_endpoint_that_is_down_is_unreachable_in_a_line() -> None:
    with ScriptedEndpoint([Answer("x")]) as endpoint:
        pass
    with pytest.raises(EndpointUnreachable) as raised:
        await Asked(endpoint)()
    assert "No answer from http://127.0.0.1" in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_an_endpoint_that_says_nothing_is_not_waited_for_without_end() -> None:
    with ScriptedEndpoint([Raw([], stall=2.0)]) as endpoint:
        with pytest.raises(EndpointUnreachable, match=r"silence for 0\.2 s"):
            await Asked(endpoint, idle_timeout=0.2)()


async def test_cancelling_closes_the_connection_at_once() -> None:
    with ScriptedEndpoint([Raw([CHUNK] * 200, pause=0.05)]) as endpoint:
        asked = Asked(endpoint)
        with anyio.move_on_after(0.3):
            await asked()
        await asked.client.aclose()
        deadline = time.monotonic() + 5
        while not endpoint.closed_early and time.monotonic() < deadline:
            await anyio.sleep(0.05)
        assert endpoint.closed_early == 1


@pytest.mark.parametrize(
    ("described", "window"),
    [
        ({"id": "scripted", "max_model_len": 32768}, 32768),
        ({"id": "scripted", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}}, 8192),
        ({"id": "scripted", "context_length": 200000}, 200000),
        ({"id": "scripted", "loaded_context_length": 4096, "max_context_length": 131072}, 4096),
        ({"id": "scripted"}, None),
    ],
)
async def test_the_window_is_what_the_endpoint_tells(described: dict[str, Any], window: int | None) -> None:
    with ScriptedEndpoint([Answer("x")], models=[described]) as endpoint:
        client = Asked(endpoint).client
        (listed,) = await client.listed()
        await client.aclose()
    assert window_of(listed) == window


async def test_reasoning_goes_back_only_where_it_is_wanted() -> None:
    for wanted in (False, True):
        with ScriptedEndpoint([Answer("4", reasoning="hm")]) as endpoint:
            asked = Asked(endpoint, replay_reasoning=wanted)
            reply = await asked(CALLED)
        assert (reply.content, reply.reasoning, asked.text) == ("4", "hm", "4")
        assert ("reasoning_content" in endpoint.requests[0].messages[2]) is wanted


async def test_a_rate_limit_longer_than_our_patience_is_handed_to_the_person() -> None:
    with ScriptedEndpoint(
        [Plain(429, {"error": {"message": "slow down"}}, {"Retry-After": "86400"})]
    ) as endpoint:
        asked = Asked(endpoint)
        with pytest.raises(RateLimited, match="86400 s"):
            await asked()
    assert asked.waits == []


class CountingEndpoint(ScriptedEndpoint):
    """Counts the connections that are made to it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connections = 0
        accept = self._server.get_request

        def counted() -> Any:
            self.connections += 1
            return accept()

        self._server.get_request = counted  # type: ignore[method-assign]


async def test_a_connection_is_used_again_for_the_next_request() -> None:
    usage_last = Raw([CHUNK, 'data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\n'])
    script = [Answer("streamed"), Answer(calls=[("c", "f", {})]), usage_last, Answer("at last")]
    with CountingEndpoint(script) as endpoint:
        client = Asked(endpoint).client
        for _ in script:
            replies = [each async for each in client.stream(ModelRequest(HELLO))]
            assert isinstance(replies[-1], Reply)
        await client.aclose()
    assert len(endpoint.requests) == len(script)
    assert endpoint.connections == 1


class HeldOpen(list[str]):
    """Chunks of an answer, behind which the server waits until somebody lets it go; ``let_go`` says
    whether somebody did."""

    def __init__(self, chunks: list[str]) -> None:
        super().__init__(chunks)
        self.release, self.let_go = threading.Event(), False
        self.over = threading.Event()

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        self.let_go = self.release.wait(30)
        self.over.set()


async def test_a_server_that_leaves_the_answer_open_behind_its_end_does_not_hold_the_turn_up() -> None:
    held = HeldOpen([CHUNK, "data: [DONE]\n\n"])
    with CountingEndpoint([Raw(held), Answer("the next one")]) as endpoint:
        client = Asked(endpoint).client
        first = [each async for each in client.stream(ModelRequest(HELLO))][-1]
        second = [each async for each in client.stream(ModelRequest(HELLO))][-1]
        held.release.set()
        await client.aclose()
        assert held.over.wait(30)
    assert held.let_go, "both answers were there while the server still held the first one open"
    assert isinstance(first, Reply)
    assert isinstance(second, Reply)
    assert (first.content, second.content) == ("partial ", "the next one")
    assert endpoint.connections == 2, "the connection that hangs is not used again"
