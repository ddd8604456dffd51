"""What a summariser can do to a conversation: give it a better gist, or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.running import Bench
from perdure.agent.conversation import Conversation
from perdure.agent.summarizing import FAILURES, REST, Summarizer
from perdure.chat.messages import Entry, Kind, text_of
from perdure.chat.tokens import Usage, counter_for
from perdure.errors import ContextOverflow, EndpointUnreachable
from perdure.memory.budget import Budget
from perdure.memory.ranges import covers
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
    """A good one: the last references that the request shows, up to where it is asked to go."""
    texts = [text_of(message) for message in request.messages]
    if until := re.search(r'message on that begins with "(.*?)" stays', texts[-1]):
        texts = texts[: texts.index(until[1])]
    said = "\n".join(texts)
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
    assert set(first.refused) == {"overflow"}
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
    events = await session(Bench(tmp_path, [look_up], 8192), model, 100)
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
    assert not any(covers(request.covered, source.entries) for source in record.pending)
    journal.close()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), TypeError(), ExceptionGroup("both", [OSError()])])
@pytest.mark.parametrize("background", [False, True])
async def test_whatever_a_summarisers_client_raises_costs_only_the_summary(
    tmp_path: Path, error: Exception, background: bool
) -> None:
    model = playing(lambda request: error)
    bench = Bench(tmp_path, [look_up], WINDOW)
    events = await session(bench, model, 18, background=background)
    assert of(events, "compaction")
    assert "summary.failed" in [event.code for event in of(events, "notice")]


async def test_what_a_summariser_never_read_is_not_summarised_and_it_is_asked_in_smaller_pieces(
    tmp_path: Path,
) -> None:
    counter, reads = counter_for("o200k_base"), 1_000
    asked: list[tuple[int, Any]] = []

    def summarize(request: ModelRequest) -> Any:
        sent = sum(map(counter.message, request.messages))
        asked.append((sent, summary(request)))
        return Reply(asked[-1][1], finish_reason="stop", usage=Usage(min(sent, reads), 20))

    model = playing(lambda request: "")
    writer = ScriptedModel(summarize, context_window=None, counter=counter)
    summarizer = Summarizer(writer, own=False)
    events: list[Any] = []
    bench = Bench(tmp_path, [look_up], 8192)
    model.context_window = 8192
    while len(of(events, "compaction")) < 3:
        events += await session(bench, model, 1, start=len(events), summarizer=summarizer)
    sizes = [sent for sent, _ in asked]
    assert sizes[0] > reads * 2
    assert all(sent <= reads for sent in sizes[1:]), "once is enough, at the next compaction too"
    compactions = of(events, "compaction")
    assert [event.refused for event in compactions] == [("unread",), (), ()]
    assert all((event.gist_by, event.pending) == ("model", 0) for event in compactions)
    assert [event.code for event in of(events, "notice")] == ["summary.cut"]


@pytest.mark.parametrize("window", [1_500, 2_500, 4_096, 9_000])
@pytest.mark.parametrize("encoding", ["llama2", "mistral_v1", None])
async def test_a_summariser_that_counts_otherwise_gets_what_fits_its_own_window(
    tmp_path: Path, window: int, encoding: str | None
) -> None:
    journal = SqliteJournal(tmp_path / "s.db")
    journal.create("s", {"system": "", "lang": "zh"})
    conversation = Conversation(journal, "s", counter_for("o200k_base"), Budget.of(16_384))
    for number in range(90):
        text = f"请把这份报告的第{number}部分整理成表格，并且检查其中的数字是否正确。" * 9
        conversation.add(Kind.USER, {"role": "user", "content": text})
        conversation.compact()
        conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": "好的，已经整理完毕。" * 9})
    counter = counter_for(encoding)
    writer = ScriptedModel([""], context_window=window, counter=counter)
    written = await Summarizer(writer, own=False).run(conversation)
    for request in writer.requests:
        needed = sum(map(counter.message, request.messages)) + (request.max_output_tokens or 0)
        assert needed <= window
    assert writer.requests or written.refused == ("room",)
    assert writer.requests or window < 2_000, "there is room for something"
    journal.close()
