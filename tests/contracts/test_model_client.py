"""What every model client must do, held against each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest

from models.embedded_model import client as embedded
from perdure.chat.calls import ToolSpec
from perdure.chat.tokens import counter_for
from perdure.errors import EndpointError, EndpointRefused
from perdure.models.client import ModelClient, ModelRequest, Piece, Reply, Text
from perdure.models.endpoint import EndpointClient
from perdure.models.scripted import ScriptedModel
from scripted_endpoint import Answer, Plain, ScriptedEndpoint, unknown_field

pytestmark = pytest.mark.anyio

Opened = Callable[[str], AbstractAsyncContextManager[ModelClient]]
#: With a limit, as the loop sends it: nothing here asks how much a real model has to say.
ASKED = ModelRequest([{"role": "user", "content": "Say something."}], session="s", max_output_tokens=64)
ADD = ToolSpec("add", "Adds", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


@asynccontextmanager
async def endpoint(
    does: str, refuses: Sequence[Callable[[dict[str, Any]], str | None]] = ()
) -> AsyncIterator[ModelClient]:
    script = {
        "speaks": Answer("Something\nin lines."),
        "calls": Answer(calls=[("c", "add", {"n": 1})]),
        "fails": Plain(400, {"error": {"message": "no"}}),
    }
    with ScriptedEndpoint([script[does]], refuses=refuses) as served:
        client = EndpointClient(served.base_url, "scripted", counter=counter_for(None), context_window=8192)
        yield client
        await client.aclose()


def unstreamed(does: str) -> AbstractAsyncContextManager[ModelClient]:
    return endpoint(does, [unknown_field("stream", "streaming is not supported")])


@asynccontextmanager
async def scripted(does: str) -> AsyncIterator[ModelClient]:
    script = {
        "speaks": "Something\nin lines.",
        "calls": [("add", '{"n": 1}')],
        "fails": EndpointRefused("no", url="u", status=400),
    }
    client = ScriptedModel([script[does]])
    yield client
    await client.aclose()


@asynccontextmanager
async def small(does: str) -> AsyncIterator[ModelClient]:
    if does != "speaks":
        pytest.skip("the real model can't be told to")
    client = embedded()
    yield client
    await client.aclose()


@pytest.fixture(params=[endpoint, unstreamed, scripted, pytest.param(small, marks=pytest.mark.embedded)])
def opened(request: pytest.FixtureRequest) -> Opened:
    made: Opened = request.param
    return made


async def pieces(client: ModelClient, request: ModelRequest = ASKED) -> list[Piece]:
    return [piece async for piece in client.stream(request)]


async def test_a_stream_ends_in_exactly_one_reply_that_holds_its_text(opened: Opened) -> None:
    async with opened("speaks") as client:
        for _ in range(2):
            seen = await pieces(client)
            assert [isinstance(piece, Reply) for piece in seen] == [False] * (len(seen) - 1) + [True]
            reply = seen[-1]
            assert isinstance(reply, Reply)
            shown = "".join(piece.text for piece in seen if isinstance(piece, Text) and not piece.reasoning)
            assert reply.content == shown != ""
            assert reply.usage.prompt > 0


async def test_calls_have_ids_and_become_a_message_that_providers_take(opened: Opened) -> None:
    async with opened("calls") as client:
        reply = (await pieces(client, ModelRequest(ASKED.messages, tools=[ADD])))[-1]
    assert isinstance(reply, Reply)
    message = reply.as_message()
    (call,) = message["tool_calls"]
    assert call["id"]
    assert call["function"] == {"name": "add", "arguments": '{"n": 1}'}


async def test_only_errors_of_the_endpoint_are_raised(opened: Opened) -> None:
    async with opened("fails") as client:
        with pytest.raises(EndpointError):
            await pieces(client)


async def test_cancellation_passes_through(opened: Opened) -> None:
    async with opened("speaks") as client:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await pieces(client)
            await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught


async def test_a_stream_may_be_left_in_the_middle(opened: Opened) -> None:
    async with opened("speaks") as client:
        async with aclosing(client.stream(ASKED)) as some:
            async for _ in some:
                break
        assert isinstance((await pieces(client))[-1], Reply)


async def test_requests_may_run_side_by_side(opened: Opened) -> None:
    ends: list[Piece] = []
    async with opened("speaks") as client:

        async def ask() -> None:
            ends.append((await pieces(client))[-1])

        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(ask)
    assert [type(end) for end in ends] == [Reply, Reply]


async def test_it_may_be_closed_twice(opened: Opened) -> None:
    async with opened("speaks") as client:
        await client.aclose()


async def test_it_says_what_it_is(opened: Opened) -> None:
    async with opened("speaks") as client:
        assert client.model
        assert client.counter.name
        assert client.context_window == 8192
