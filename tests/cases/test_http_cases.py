"""Public reports on HTTP: how long to wait, and when not to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.running import Bench
from perdure.chat.tokens import counter_for
from perdure.errors import EndpointRefused, RateLimited
from perdure.models.client import ModelRequest, Reply
from perdure.models.endpoint import FIRST_PAUSE, LONGEST_PAUSE, EndpointClient
from scripted_endpoint import Answer, Plain, Request, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.anyio
BUSY = {"error": {"message": "rate limited"}}


async def waits(*script: Plain) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    with ScriptedEndpoint([*script, Answer("ok")]) as endpoint:
        client = EndpointClient(endpoint.base_url, "m", counter=counter_for(None), sleep=sleep)
        try:
            pieces = [p async for p in client.stream(ModelRequest([{"role": "user", "content": "x"}]))]
            assert isinstance(pieces[-1], Reply)
        finally:
            await client.aclose()
    return slept


async def test_a_wait_that_the_endpoint_asks_for_is_waited() -> None:
    assert await waits(Plain(429, BUSY, {"Retry-After": "75"})) == [75]
    assert await waits(
        Plain(503, BUSY, {"Retry-After": "2"}), Plain(429, BUSY, {"retry-after-ms": "40"})
    ) == [2, 0.04]


async def test_a_day_is_not_slept_through_but_named() -> None:
    with pytest.raises(RateLimited, match="86400 s"):
        await waits(Plain(429, BUSY, {"Retry-After": "86400"}))


async def test_a_wait_that_cannot_be_read_is_a_bounded_backoff() -> None:
    (slept,) = await waits(Plain(429, BUSY, {"Retry-After": "soon"}))
    assert 0 <= slept <= FIRST_PAUSE * 2
    slept_all = await waits(*[Plain(500, BUSY)] * 4)
    assert len(slept_all) == 4
    assert all(
        0 <= seconds <= min(LONGEST_PAUSE, FIRST_PAUSE * 2**n) for n, seconds in enumerate(slept_all, 1)
    )


async def test_a_bad_request_is_not_sent_again() -> None:
    with pytest.raises(EndpointRefused):
        await waits(Plain(400, {"error": {"message": "no such parameter"}}))


def reads_only(window: int) -> Any:
    """A server that cuts a longer prompt in silence, behind a 200."""

    def play(request: Request) -> Scripted:
        counter = counter_for("o200k_base")
        sent = sum(map(counter.message, request.messages))
        usage = {"prompt_tokens": min(sent, window), "completion_tokens": 2}
        return Answer("cut" if sent > window else "whole", usage=usage)

    return play


@pytest.mark.parametrize(
    ("window", "encoding"),
    [(4096, "o200k_base"), (2050, "o200k_base"), (4500, "o200k_base"), (4096, None), (2050, None)],
)
async def test_a_prompt_cut_in_silence_is_noticed_learnt_and_sent_once_more(
    tmp_path: Path, window: int, encoding: str | None
) -> None:
    counter = counter_for(encoding)
    bench = Bench(tmp_path, window=16_384)
    with ScriptedEndpoint(reads_only(window)) as endpoint:
        client = EndpointClient(endpoint.base_url, "m", counter=counter)
        finished = await bench.turn(client, "end with OVER. " + "many words of a long request " * 1800)
        assert finished.answer == "whole"
        assert len(endpoint.requests) == 2
        assert len(bench.of("usage")) == 2, "the reply that was thrown away is paid for too"
        assert finished.usage.completion == 4
        (notice,) = [event for event in bench.of("notice") if getattr(event, "code", "") == "prompt.cut"]
        assert str(window) in getattr(notice, "text", "")
        await bench.turn(client, "and now?")
        assert len(endpoint.requests) == 3, "the window stays learnt"
        assert not bench.of("notice")
        await client.aclose()


@pytest.mark.parametrize("share", [0.76, 0.9, 1.0, 1.3])
async def test_a_count_that_is_a_little_off_is_no_cut(tmp_path: Path, share: float) -> None:
    counter = counter_for("o200k_base")

    def play(request: Request) -> Scripted:
        sent = sum(map(counter.message, request.messages))
        return Answer("ok", usage={"prompt_tokens": int(sent * share), "completion_tokens": 2})

    bench = Bench(tmp_path, window=16_384)
    with ScriptedEndpoint(play) as endpoint:
        client = EndpointClient(endpoint.base_url, "m", counter=counter)
        await bench.turn(client, "many words of a long request " * 1800)
        await client.aclose()
    assert len(endpoint.requests) == 1
    assert not bench.of("notice")
