"""Public reports on prompt caches (kind ``prefix``): a beginning that changes, so that nothing is served
from the cache, and a summary request that shares nothing with the conversation."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent.running import Bench
from perdure import tool
from perdure.agent.summarizing import Summarizer
from perdure.chat.calls import ToolSpec
from perdure.chat.tokens import counter_for
from perdure.models.endpoint import EndpointClient
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.anyio
COUNTER = counter_for("o200k_base")
WINDOW = 8192


@tool(effect="reads")
def read_log(number: int) -> str:
    """Reads a log; it is long enough to be shortened, once it is old."""
    return f"log {number}: " + "a line of the log, with its time and its place; " * 60 + f"REF-{number}"


def count(body: dict[str, Any]) -> int:
    tools = [ToolSpec(**each["function"]) for each in body.get("tools") or ()]
    return sum(map(COUNTER.message, body["messages"])) + COUNTER.tools(tools)


def purpose(request: Request) -> str:
    return request.headers["x-perdure-purpose"]


def bytes_of(request: Request) -> bytes:
    """What a cache compares: tools, then messages, as they came over the wire; the end stays open."""
    body = {"tools": request.body.get("tools"), "messages": request.messages}
    return json.dumps(body, ensure_ascii=False).encode().removesuffix(b"]}")


class Caching:
    """An endpoint that serves the longest beginning that it has seen from its cache and says how much.
    ``reports``: whether it does say so."""

    def __init__(self, *, reports: bool) -> None:
        self.reports = reports
        self.seen: list[list[Any]] = []
        #: Tokens of each request, and those of them that the cache had.
        self.served: list[tuple[Request, int, int]] = []
        self.endpoint = ScriptedEndpoint(self.play, window=WINDOW, count=count)

    def play(self, request: Request) -> Scripted:
        shared = max((_shared(each, request.messages) for each in self.seen), default=0)
        self.seen.append(request.messages)
        cached = count({**request.body, "messages": request.messages[:shared]}) if shared else 0
        self.served.append((request, count(request.body), cached))
        usage: dict[str, Any] = {"prompt_tokens": count(request.body), "completion_tokens": 9}
        if self.reports:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        if purpose(request) == "summarize":
            return Answer(self._summary(request), usage=usage)
        last = request.messages[-1]
        if last["role"] == "user":
            number = int(last["content"].split()[-1])
            return Answer(calls=[(f"c{number}", "read_log", {"number": number})], usage=usage)
        return Answer(f"It says {last['content'][-8:]}", usage=usage)

    def _summary(self, request: Request) -> str:
        said = json.dumps(request.messages)
        found = [f"REF-{number}" for number in range(60) if f"REF-{number}" in said][-20:]
        return "Facts, decisions, answers:\n" + "\n".join(f"- {each} was read" for each in found)

    def of(self, wanted: str) -> list[Request]:
        return [each for each in self.endpoint.requests if purpose(each) == wanted]


def _shared(one: list[Any], other: list[Any]) -> int:
    """Messages that two prompts begin with in common."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


async def session(folder: Path, caching: Caching, turns: int, **options: Any) -> list[Any]:
    bench = Bench(folder, [read_log], window=WINDOW)
    events: list[Any] = []
    with caching.endpoint as endpoint:
        for number in range(turns):
            client = EndpointClient(endpoint.base_url, "gpt-4o", counter=COUNTER, context_window=WINDOW)
            summarizer = Summarizer(client) if options.get("summarised", True) else None
            finished = await bench.turn(client, f"read log {number}", summarizer=summarizer)
            await client.aclose()
            assert finished.status == "answered"
            events += bench.events
    assert not endpoint.refusals
    return [event for event in events if event.type == "compaction"]


# --- prefix: a-cache-01


async def test_each_prompt_is_a_prefix_of_the_next_in_bytes_until_the_next_compaction(
    tmp_path: Path,
) -> None:
    caching = Caching(reports=False)
    compactions = await session(tmp_path, caching, 40, summarised=False)
    assert len(compactions) >= 2
    thought = caching.of("think")
    broken = [not bytes_of(after).startswith(bytes_of(before)) for before, after in pairwise(thought)]
    assert sum(broken) == len(compactions)
    first = broken.index(True)
    shown = [m["content"] for m in thought[first].messages if m["role"] == "tool"]
    assert len(shown) > 5
    assert all(each.endswith(f"REF-{number}") and len(each) > 2400 for number, each in enumerate(shown)), (
        "under high water nothing is shortened, however old"
    )


# --- prefix: a-cache-02


async def test_where_the_endpoint_says_it_caches_the_summary_request_repeats_the_conversation(
    tmp_path: Path,
) -> None:
    caching = Caching(reports=True)
    compactions = await session(tmp_path, caching, 40)
    asked = caching.of("summarize")
    assert len(asked) == len(compactions) >= 2
    assert {event.gist_by for event in compactions} == {"model"}
    for request in asked:
        at = caching.endpoint.requests.index(request)
        before = caching.endpoint.requests[at - 1]
        assert purpose(before) == "think"
        assert request.body["tools"] == before.body["tools"]
        assert request.messages[-1]["role"] == "user", "one instruction behind it"
        inner = {**request.body, "messages": request.messages[:-1]}
        prefix = json.dumps({"tools": inner["tools"], "messages": inner["messages"]}, ensure_ascii=False)
        sent = bytes_of(before)
        repeated = prefix.encode().removesuffix(b"]}")
        assert sent.startswith(repeated) or repeated.startswith(sent)
    shares = [cached / tokens for each, tokens, cached in caching.served if purpose(each) == "summarize"]
    assert min(shares) > 0.8


async def test_where_nothing_is_said_of_a_cache_the_summary_request_is_as_short_as_it_can_be(
    tmp_path: Path,
) -> None:
    caching = Caching(reports=False)
    compactions = await session(tmp_path, caching, 25)
    sizes = {
        wanted: [t for each, t, _ in caching.served if purpose(each) == wanted]
        for wanted in ("think", "summarize")
    }
    assert len(sizes["summarize"]) == len(compactions) >= 1
    assert max(sizes["summarize"]) < max(sizes["think"]) / 2
