"""What a summariser can do to a conversation: give it a better gist, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.running import Bench
from perdure.agent.conversation import Conversation
from perdure.agent.summarizing import FAILURES, REST, Summarizer
from perdure.chat.messages import Entry, text_of
from perdure.chat.tokens import Usage, counter_for
from perdure.errors import ContextOverflow, EndpointUnreachable
from perdure.memory.budget import Budget
from perdure.models.client import ModelRequest, Reply
from perdure.models.scripted import ScriptedModel
from perdure.store.sqlite import SqliteJournal
from perdure.tools.registry import tool

pytestmark = pytest.mark.anyio
WINDOW = 3000


@tool(effect="reads")
def look_up(name: str) -> str:
    """Looks something up."""
    return f"{name} has the reference REF-{name}. " + "It is described at length, with many words. " * 12


def summary(request: ModelRequest) -> str:
    """A good one: each reference that the request shows."""
    said = "\n".join(text_of(message) for message in request.messages)
    names = list(dict.fromkeys(part.split()[0].strip(".,]") for part in said.split("REF-")[1:]))
    facts = [{"text": f"the reference is REF-{name}", "entries": []} for name in names[-8:]]
    return json.dumps({"facts": facts, "goals": [{"text": "look things up", "entries": [1]}]})


def playing(summarize: Callable[[ModelRequest], Any]) -> ScriptedModel:
    """A model that looks up what each turn names, and summarises as it is told to."""

    def play(request: ModelRequest) -> Any:
        if request.purpose == "summarize":
            answer = summarize(request)
            if isinstance(answer, Exception):
                raise answer
            return answer
        last = request.messages[-1]
        return [("look_up", json.dumps({"name": last["content"]}))] if last["role"] == "user" else "done"

    return ScriptedModel(play, context_window=WINDOW, counter=counter_for("o200k_base"))


async def session(
    bench: Bench, model: ScriptedModel, turns: int, *, start: int = 0, **options: Any
) -> list[Any]:
    """Events of so many turns."""
    summarizer = options.pop("summarizer", None) or Summarizer(model)
    events: list[Any] = []
    for number in range(start, start + turns):
        finished = await bench.turn(model, f"N{number}", summarizer=summarizer, **options)
        assert finished.status == "answered"
        events += bench.events
    return events


def of(events: list[Any], type: str) -> list[Any]:
    return [event for event in events if event.type == type]


async def test_a_good_summary_stands_in_the_next_prompt_and_in_the_event(tmp_path: Path) -> None:
    model = playing(summary)
    events = await session(Bench(tmp_path, [look_up], WINDOW), model, 20)
    compactions = of(events, "compaction")
    assert compactions
    for event in compactions:
        assert (event.gist_by, event.pending, event.model) == ("model", 0, "scripted")
        assert "the reference is REF-N" in event.gist
        assert event.usage.total > 0
    last = model.requests[-1].messages[1]["content"]
    assert compactions[-1].gist in last
    assert of(events, "run.finished")[-1].usage_by_purpose["think"].total > 0


async def test_a_summary_is_asked_for_once_a_compaction_before_the_next_call_of_the_model(
    tmp_path: Path,
) -> None:
    model = playing(summary)
    events = await session(Bench(tmp_path, [look_up], WINDOW), model, 30)
    asked = [index for index, each in enumerate(model.requests) if each.purpose == "summarize"]
    assert len(asked) == len(of(events, "compaction"))
    assert all(model.requests[index + 1].purpose == "think" for index in asked)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (EndpointUnreachable("nobody there", url="http://x"), "EndpointUnreachable"),
        ("", "empty"),
        ("I'm sorry, I can't do that.", "refusal"),
        ("They talked about a number of things.", "literals"),
        (Reply("half a summa", finish_reason="length"), "cut"),
        ([("look_up", "{}")], "tool_call"),
    ],
)
async def test_whatever_the_summariser_does_the_work_goes_on_and_what_left_stays_pending(
    tmp_path: Path, answer: Any, why: str
) -> None:
    model = playing(lambda request: answer)
    bench = Bench(tmp_path, [look_up], WINDOW)
    events = await session(bench, model, 18)
    compaction = of(events, "compaction")[0]
    assert (compaction.gist_by, compaction.refused[-1]) == ("code", why)
    assert compaction.pending > 0
    assert "REF-N0" in json.dumps([*model.requests[-1].messages]), "the notes by code stand"
    assert [event.code for event in of(events, "notice")].count("summary.failed") == len(
        of(events, "compaction")
    )
    assert not any("summar" in text_of(entry.message) for entry in bench.entries()), "nothing is left behind"


async def test_the_next_success_covers_all_that_was_pending(tmp_path: Path) -> None:
    answers = iter([EndpointUnreachable("down", url="http://x")] * 2)
    seen: list[str] = []

    def summarize(request: ModelRequest) -> Any:
        if failure := next(answers, None):
            return failure
        seen.append(text_of(request.messages[-1]))
        return summary(request)

    events = await session(Bench(tmp_path, [look_up], WINDOW), playing(summarize), 40)
    by = [event.gist_by for event in of(events, "compaction")]
    assert by[:3] == ["code", "code", "model"]
    assert all(f"N{number})" in seen[0] or f'"N{number}"' in seen[0] for number in range(6))


async def test_a_summariser_that_stalls_is_left_after_its_time(tmp_path: Path) -> None:
    class Stalling(ScriptedModel):
        async def stream(self, request: ModelRequest) -> Any:
            if request.purpose == "summarize":
                await anyio.sleep(60)
            async for piece in super().stream(request):
                yield piece

    model = playing(summary)
    model.__class__ = Stalling
    summarizer = Summarizer(model, seconds=0.05)
    events = await session(Bench(tmp_path, [look_up], WINDOW), model, 18, summarizer=summarizer)
    assert of(events, "compaction")[0].refused == ("timeout",)


async def test_a_summariser_that_keeps_failing_rests_says_so_and_is_tried_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def summarize(request: ModelRequest) -> Any:
        asked.append(1)
        return EndpointUnreachable("down", url="http://x") if len(asked) <= FAILURES else summary(request)

    bench = Bench(tmp_path, [look_up], WINDOW)
    model = playing(summarize)
    events: list[Any] = []
    while len(of(events, "compaction")) < FAILURES + REST + 1:
        events += await session(bench, model, 1, start=len(events))
    compactions = of(events, "compaction")
    assert [event.gist_by for event in compactions] == ["code"] * (FAILURES + REST) + ["model"]
    assert len(asked) >= FAILURES + 1
    assert [event.code for event in of(events, "notice")].count("summary.rests") == 1


async def test_a_request_that_is_too_large_is_sent_with_less_and_the_rest_stays_pending(
    tmp_path: Path,
) -> None:
    sizes: list[int] = []

    def summarize(request: ModelRequest) -> Any:
        size = sum(len(text_of(message)) for message in request.messages)
        sizes.append(size)
        return (
            ContextOverflow(limit=None, requested=None, url="x", detail="")
            if size > 3500
            else summary(request)
        )

    events = await session(Bench(tmp_path, [look_up], WINDOW), playing(summarize), 18)
    first = of(events, "compaction")[0]
    assert first.refused == ("overflow",)
    assert (first.gist_by, first.pending) == ("model", 0), "folded in pieces"
    assert len(sizes) >= 3


async def test_where_prompts_are_cached_the_request_repeats_the_conversations_prefix(tmp_path: Path) -> None:
    counter = counter_for("o200k_base")

    def play(request: ModelRequest) -> Any:
        if request.purpose == "summarize":
            said = summary(request)
            lines = [f"- {fact['text']}" for fact in json.loads(said)["facts"]]
            return "Facts, decisions, answers:\n" + "\n".join(lines)
        last = request.messages[-1]
        if last["role"] != "user":
            read = sum(map(counter.message, request.messages))
            return Reply("done", usage=Usage(read, 5, read * 9 // 10))
        return [("look_up", json.dumps({"name": last["content"]}))]

    model = ScriptedModel(play, context_window=8192, counter=counter)
    events = await session(Bench(tmp_path, [look_up], 8192), model, 60)
    aligned = 0
    for before, request in pairwise(model.requests):
        if request.purpose == "summarize" and request.tools:
            aligned += 1
            shared = min(len(before.messages), len(request.messages) - 1)
            assert shared > 50
            assert list(request.messages[:shared]) == list(before.messages[:shared])
            assert request.messages[-1]["role"] == "user"
    compactions = of(events, "compaction")
    assert aligned == len(compactions) > 1
    assert {event.gist_by for event in compactions} == {"model"}


async def test_in_the_background_the_work_goes_on_and_the_prefix_stays_until_the_next_compaction(
    tmp_path: Path,
) -> None:
    model = playing(summary)
    events = await session(Bench(tmp_path, [look_up], WINDOW), model, 40, background=True)
    compactions = of(events, "compaction")
    assert len(compactions) >= 3
    assert "the reference is REF-N" in compactions[-1].gist
    thought = [each for each in model.requests if each.purpose == "think"]
    changes = sum(
        list(after.messages[: len(before.messages)]) != list(before.messages)
        for before, after in pairwise(thought)
    )
    assert changes == len(compactions), "the beginning changes at a compaction and at no other time"


async def test_a_summary_that_comes_late_stands_for_the_range_that_it_saw(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "s.db")
    journal.create("s", {"system": "", "lang": "en"})
    counter = counter_for("o200k_base")
    conversation = Conversation(journal, "s", counter, Budget.of(WINDOW), model="m")
    entries: list[Entry] = []

    def say(number: int) -> None:
        from perdure.chat.messages import Kind

        entries.append(
            conversation.add(Kind.USER, {"role": "user", "content": f"request {number} " + "x " * 60})
        )
        entries.append(
            conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": f"FACT-{number} " * 9})
        )

    for number in range(40):
        say(number)
        conversation.compact()
    request = conversation.summary_request()
    assert request is not None
    prompt = conversation.prompt()
    for number in range(40, 43):
        say(number)
    accepted = conversation.accept(
        {"role": "assistant", "content": "Facts:\n" + "\n".join(f"- {each}" for each in request.literals)},
        request,
        cut=False,
        about={},
        later=True,
    )
    assert accepted.summary is not None
    assert accepted.summary.covered == request.covered
    assert conversation.prompt()[: len(prompt)] == prompt, "the prompt's beginning stays"
    record = conversation.memory.record
    assert all(source.entries[-1] > request.covered for source in record.pending)
    journal.close()
