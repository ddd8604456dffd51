"""Public reports on HTTP: how long to wait, and when not to."""

from __future__ import annotations

import pytest

from perdure.chat.tokens import counter_for
from perdure.errors import EndpointRefused, RateLimited
from perdure.models.client import ModelRequest, Reply
from perdure.models.endpoint import FIRST_PAUSE, LONGEST_PAUSE, EndpointClient
from scripted_endpoint import Answer, Plain, ScriptedEndpoint

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
