from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.running import Bench, calls
from perdure.agent.acting import Acting
from perdure.agent.conversation import Conversation, result_message
from perdure.agent.loop import Loop
from perdure.agent.states import Limits
from perdure.chat.calls import ToolCall
from perdure.chat.messages import Kind
from perdure.chat.tokens import Usage, counter_for
from perdure.errors import ContextOverflow, EndpointUnreachable, StoreError
from perdure.memory.budget import Budget
from perdure.models.client import ModelRequest, Reply, Text
from perdure.models.scripted import ScriptedModel
from perdure.store.sqlite import SqliteJournal
from perdure.tools.contract import AskThrough, Tool
from perdure.tools.policy import Policy
from perdure.tools.registry import Registry, tool
from scripted_endpoint import wrong_messages

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_call_is_run_and_its_result_leads_to_the_answer(bench: Bench) -> None:
    model = ScriptedModel([calls("23*47+11"), "It is 1092."])
    finished = await bench.turn(model, "What is 23*47+11?")
    assert (finished.status, finished.answer, finished.steps) == ("answered", "It is 1092.", 2)
    assert [entry.kind for entry in bench.entries()] == [
        Kind.USER,
        Kind.TOOL_CALL,
        Kind.TOOL_RESULT,
        Kind.ASSISTANT,
    ]
    assert model.requests[1].messages[-1]["content"] == "1092"
    types = [event.type for event in bench.events if event.type != "text.delta"]
    assert types == [
        "run.started",
        "state",
        "usage",
        "state",
        "tool.requested",
        "tool.started",
        "tool.finished",
        "state",
        "usage",
        "state",
        "run.finished",
    ]
    assert [event.seq for event in bench.events] == list(range(1, len(bench.events) + 1))
    for event in bench.events:
        assert json.loads(json.dumps(event.as_json(), default=str))["type"] == event.type


async def test_calls_of_one_message_run_side_by_side_and_are_answered_in_call_order(tmp_path: Path) -> None:
    both = anyio.Event()
    running = 0

    @tool(effect="reads")
    async def meet(name: str) -> str:
        """Waits until both are here."""
        nonlocal running
        running += 1
        if running == 2:
            both.set()
        with anyio.fail_after(10):
            await both.wait()
        if name == "first":
            await anyio.sleep(0.05)
        return name

    bench = Bench(tmp_path, [meet])
    await bench.turn(ScriptedModel([[("meet", '{"name": "first"}'), ("meet", '{"name": "second"}')], "met"]))
    results = [entry.message["content"] for entry in bench.entries() if entry.kind is Kind.TOOL_RESULT]
    assert results == ["first", "second"]
    finished = [getattr(event, "output", "") for event in bench.of("tool.finished")]
    assert finished == ["second", "first"]
    order = [event.type for event in bench.of("tool.started", "tool.finished")]
    assert order == ["tool.started", "tool.started", "tool.finished", "tool.finished"]


async def test_an_unknown_tool_is_a_result_and_the_run_goes_on(bench: Bench) -> None:
    model = ScriptedModel([[("web_search", "{}"), *calls("5-2")], "3"])
    assert (await bench.turn(model)).status == "answered"
    first, second = (m["content"] for m in model.requests[1].messages if m["role"] == "tool")
    assert "there is no tool 'web_search'" in first
    assert "calculator" in first
    assert second == "3"


async def test_three_messages_with_only_unknown_tools_end_the_run_with_a_reason(bench: Bench) -> None:
    finished = await bench.turn(ScriptedModel(lambda request: [("web_search", f'{{"q": "{id(request)}"}}')]))
    assert (finished.status, finished.steps) == ("failed", 3)
    assert "tools that don't exist" in finished.reason


async def test_a_call_cut_by_the_output_limit_is_not_run_and_three_of_them_end_the_run(bench: Bench) -> None:
    cut = Reply("", (ToolCall("c", "calculator", '{"expression": "1+'),), finish_reason="length")
    model = ScriptedModel([cut])
    finished = await bench.turn(model)
    assert (finished.status, finished.steps) == ("failed", 3)
    assert "output limit" in finished.reason
    assert not bench.of("tool.started")
    assert all(not wrong_messages({"messages": list(request.messages)}) for request in model.requests)
    assert "was cut by the output limit" in model.requests[-1].messages[-1]["content"]


async def test_an_empty_reply_is_asked_again_and_three_of_them_end_the_run(bench: Bench) -> None:
    assert (await bench.turn(ScriptedModel(["", "here"]))).answer == "here"
    kinds = [entry.kind for entry in bench.entries()]
    assert kinds == [Kind.USER, Kind.NOTICE, Kind.ASSISTANT]
    finished = await bench.turn(ScriptedModel([" \n"]))
    assert (finished.status, finished.steps) == ("failed", 3)


async def test_the_same_call_with_the_same_result_is_told_at_the_third_time_and_then_ends(
    bench: Bench,
) -> None:
    orders = ['{"expression": "1+1"}', '{ "expression" : "1+1" }']
    turn = iter(range(100))
    finished = await bench.turn(ScriptedModel(lambda _: [("calculator", orders[next(turn) % 2])]))
    assert (finished.status, finished.steps) == ("limit", 5)
    types = [event.type for event in bench.of("tool.finished", "notice")]
    assert types == ["tool.finished"] * 3 + ["notice"] + ["tool.finished"] * 2
    assert [entry.kind for entry in bench.entries()].count(Kind.NOTICE) == 1


async def test_a_step_limit_ends_the_turn_in_order_and_the_session_goes_on(bench: Bench) -> None:
    turn = iter(range(1, 100))
    endless = ScriptedModel(lambda _: calls(f"{next(turn)}+1"))
    finished = await bench.turn(endless, limits=Limits(steps=4))
    assert (finished.status, finished.steps) == ("limit", 4)
    again = ScriptedModel(["done now"])
    assert (await bench.turn(again, "go on")).answer == "done now"
    assert not wrong_messages({"messages": list(again.requests[0].messages)})
    assert len(again.requests[0].messages) == 1 + 1 + 8 + 1


async def test_a_time_limit_ends_a_turn_in_the_middle_of_a_tool(tmp_path: Path) -> None:
    @tool(effect="reads")
    async def sleep() -> str:
        """Sleeps."""
        await anyio.sleep(30)
        return "slept"

    bench = Bench(tmp_path, [sleep])
    finished = await bench.turn(ScriptedModel([[("sleep", "{}")]]), limits=Limits(seconds=0.2))
    assert finished.status == "limit"
    assert bench.entries()[-1].message["content"] == "interrupted, result unknown"


async def test_cancelling_answers_open_calls_keeps_finished_ones_and_leaves_a_session_that_goes_on(
    tmp_path: Path,
) -> None:
    @tool(effect="reads")
    async def wait(seconds: float) -> str:
        """Waits."""
        await anyio.sleep(seconds)
        return "waited"

    bench = Bench(tmp_path, [wait])
    model = ScriptedModel([[("wait", '{"seconds": 0}'), ("wait", '{"seconds": 60}')]])
    with anyio.move_on_after(0.3) as scope:
        await bench.turn(model)
    assert scope.cancelled_caught
    results = [entry.message["content"] for entry in bench.entries() if entry.kind is Kind.TOOL_RESULT]
    assert results == ["waited", "interrupted, result unknown"]
    (finished,) = bench.of("run.finished")
    assert getattr(finished, "status", "") == "interrupted"
    again = ScriptedModel(["fine"])
    await bench.turn(again, "and now?")
    assert not wrong_messages({"messages": list(again.requests[0].messages)})
    assert len(bench.entries()) == 4 + 2, "nothing is repaired twice"


async def test_an_endpoint_that_fails_ends_the_run_and_keeps_the_request(bench: Bench) -> None:
    failed = await bench.turn(ScriptedModel([EndpointUnreachable("refused", url="http://x")]), "remember me")
    assert failed.status == "failed"
    assert "No answer from http://x" in failed.reason
    (error,) = bench.of("error")
    assert getattr(error, "error", "") == "EndpointUnreachable"
    again = ScriptedModel(["ok"])
    await bench.turn(again, "go on")
    assert "remember me" in [message["content"] for message in again.requests[0].messages]


@pytest.mark.parametrize(("limit", "requested"), [(2000, None), (None, None), (3000, 6000)])
async def test_a_context_length_error_teaches_the_window_and_is_tried_once_more(
    bench: Bench, limit: int | None, requested: int | None
) -> None:
    for number in range(12):
        await bench.turn(ScriptedModel([f"answer {number} " * 60]), f"question {number} " * 60)
    overflow = ContextOverflow("too long", limit=limit, requested=requested)
    model = ScriptedModel([overflow, "it fits now"])
    finished = await bench.turn(model, "short question")
    assert finished.answer == "it fits now"
    before, after = (sum(map(model.counter.message, request.messages)) for request in model.requests)
    assert after < before * 0.8
    assert after < (limit or before)
    assert model.requests[1].messages[-1]["content"] == "short question"
    assert [event.type for event in bench.of("notice", "compaction")] == ["notice", "compaction"]
    later = ScriptedModel(["still fits"])
    await bench.turn(later, "and another")
    assert sum(map(later.counter.message, later.requests[0].messages)) < before, "the window stays learnt"


@pytest.mark.parametrize("wished", [None, 4096])
async def test_where_the_answer_has_no_room_it_is_the_answer_that_is_limited(
    bench: Bench, wished: int | None
) -> None:
    def play(request: ModelRequest) -> Any:
        prompt = sum(map(counter_for("o200k_base").message, request.messages))
        answer = request.max_output_tokens or 4096
        if prompt + answer > 2048:
            return ContextOverflow("too long", limit=2048, requested=prompt)
        return "ok"

    refused, told = 0, []
    for turn in range(8):
        model = ScriptedModel(play, counter=counter_for("o200k_base"))
        limits = Limits(output_tokens=wished)
        finished = await bench.turn(model, f"question {turn} " + "word " * 150, limits=limits)
        assert finished.answer == "ok"
        refused += len(model.requests) - 1
        told += [getattr(event, "code", "") for event in bench.of("notice")]
    assert refused == 1
    assert told == ["window.learnt", *(["answers.limited"] if wished is None else [])]


async def test_a_refusal_that_teaches_nothing_is_not_tried_again(bench: Bench) -> None:
    for _ in range(12):
        model = ScriptedModel([ContextOverflow("too long", limit=None, requested=None)])
        finished = await bench.turn(model, "a short question")
        assert (finished.status, finished.error) == ("failed", "ContextOverflow")
    assert len(model.requests) == 1
    assert not bench.of("notice")


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("x"), ExceptionGroup("both", [OSError()])])
async def test_whatever_a_models_client_raises_ends_the_run_in_order(bench: Bench, error: Exception) -> None:
    def play(request: ModelRequest) -> Any:
        raise error

    failed = await bench.turn(ScriptedModel(play), "remember me")
    assert (failed.status, failed.error) == ("failed", "EndpointError")
    assert type(error).__name__ in failed.reason
    finished = await bench.turn(ScriptedModel(["ok"]), "go on")
    assert finished.answer == "ok"


async def test_a_client_that_ends_without_a_reply_ends_the_run_in_order(bench: Bench) -> None:
    class Silent(ScriptedModel):
        async def stream(self, request: ModelRequest) -> Any:
            yield Text("half of ")

    failed = await bench.turn(Silent(["ok"]))
    assert (failed.status, failed.error) == ("failed", "EndpointError")


@pytest.mark.parametrize("failing", [1, 2, 3])
async def test_a_journal_that_fails_between_results_leaves_a_session_that_goes_on(
    bench: Bench, failing: int
) -> None:
    written = 0

    class Failing(SqliteJournal):
        def append(self, session: str, entries: Any, events: Any = (), *, lane: str = "") -> Any:
            nonlocal written
            for kind, _, _ in entries:
                written += kind is Kind.TOOL_RESULT
                if kind is Kind.TOOL_RESULT and written == failing:
                    raise StoreError("database is locked", path=self.path)
            return super().append(session, entries, events, lane=lane)

    journal = Failing(bench.path)
    journal.create("s", {"system": "be brief", "lang": "en"})
    registry = Registry(bench.tools)
    model = ScriptedModel([calls("1+1", "2+2", "3+3"), "done"])
    conversation = Conversation(journal, "s", model.counter, Budget.of(8192), registry.specs)

    async def nobody(call: ToolCall, tool: Tool) -> bool:
        return False

    acting = Acting(registry, Policy(approve_all=True), AskThrough(nobody))
    ended = [
        (await Loop(model, acting, conversation, Limits(), lambda event: None).run(task)).status
        for task in ("first", "second")
    ]
    journal.close()
    assert ended == ["failed", "answered"]
    last = ScriptedModel(["ok"])
    await bench.turn(last, "third")
    for request in (*model.requests, *last.requests):
        assert not wrong_messages({"messages": request.messages})


async def test_what_was_out_of_order_in_a_journal_is_told(bench: Bench) -> None:
    await bench.turn(ScriptedModel([calls("1+1"), "done"]))
    journal = SqliteJournal(bench.path)
    journal.append("s", [(Kind.TOOL_RESULT, result_message("call_1", "again"), 9)])
    journal.close()
    await bench.turn(ScriptedModel(["ok"]))
    assert [getattr(event, "code", "") for event in bench.of("notice")] == ["session.mended"]


async def test_a_second_context_length_error_ends_the_turn_with_everything_kept(bench: Bench) -> None:
    finished = await bench.turn(ScriptedModel([ContextOverflow("too long", limit=None, requested=None)]))
    assert finished.status == "failed"
    assert finished.steps == 1
    assert [entry.kind for entry in bench.entries()] == [Kind.USER]


async def test_a_tool_that_acts_is_asked_for_and_a_no_is_a_result(tmp_path: Path) -> None:
    done: list[str] = []

    @tool
    def act(what: str) -> str:
        """Acts."""
        done.append(what)
        return f"did {what}"

    asked: list[str] = []

    async def only_a(call: ToolCall, tool: Tool) -> bool:
        asked.append(call.arguments)
        return '"a"' in call.arguments

    bench = Bench(tmp_path, [act])
    model = ScriptedModel([[("act", '{"what": "a"}'), ("act", '{"what": "b"}')], "ok"])
    await bench.turn(model, policy=Policy(interactive=True), approve=only_a)
    assert done == ["a"]
    assert len(asked) == 2
    first, second = (m["content"] for m in model.requests[1].messages if m["role"] == "tool")
    assert first == "did a"
    assert "did not approve" in second
    model = ScriptedModel([[("act", '{"what": "c"}')], "ok"])
    await bench.turn(model, policy=Policy())
    assert "--yes" in model.requests[1].messages[-1]["content"]
    assert done == ["a"]


async def test_usage_is_summed_over_the_steps(bench: Bench) -> None:
    first = Reply("", (ToolCall("c", "calculator", '{"expression": "1+1"}'),), usage=Usage(100, 10, 50))
    second = Reply("2", usage=Usage(120, 5, 100))
    finished = await bench.turn(ScriptedModel([first, second]))
    assert finished.usage == Usage(220, 15, 150)


async def test_a_long_tool_loop_never_exceeds_the_budget_and_every_prompt_is_valid(tmp_path: Path) -> None:
    @tool(effect="reads")
    def page(number: int) -> str:
        """A page."""
        return f"page {number}: " + "lorem ipsum dolor " * 150

    window = 3000
    bench = Bench(tmp_path, [page], window=window)
    prompts: list[list[dict[str, Any]]] = []

    def play(request: ModelRequest) -> Any:
        prompts.append(list(request.messages))
        return "done" if len(prompts) > 60 else [("page", f'{{"number": {len(prompts)}}}')]

    model = ScriptedModel(play)
    finished = await bench.turn(model, "read all sixty pages", limits=Limits(steps=100))
    assert finished.status == "answered"
    assert bench.of("compaction")
    for prompt in prompts:
        assert sum(map(model.counter.message, prompt)) <= Budget.of(window).tokens
        assert not wrong_messages({"messages": prompt})
        assert "read all sixty pages" in [message["content"] for message in prompt]


async def test_between_two_compactions_each_prompt_begins_with_the_one_before(tmp_path: Path) -> None:
    @tool(effect="reads")
    def page(number: int) -> str:
        """A page."""
        return f"page {number}: " + "lorem ipsum dolor " * 60

    bench = Bench(tmp_path, [page], window=4000)
    count = iter(range(1, 200))
    model = ScriptedModel(lambda _: "done" if (n := next(count)) > 40 else [("page", f'{{"number": {n}}}')])
    await bench.turn(model, "read", limits=Limits(steps=100))
    prompts = [list(request.messages) for request in model.requests]
    breaks = sum(after[: len(before)] != before for before, after in pairwise(prompts))
    assert breaks == len(bench.of("compaction")) > 0


async def test_what_was_not_run_is_told_in_the_language_of_the_conversation(tmp_path: Path) -> None:
    @tool
    def act(what: str) -> str:
        """Acts."""
        return what

    for lang, said in (("en", "--yes"), ("zh", "没有人可以询问")):
        bench = Bench(tmp_path / lang, [act])
        model = ScriptedModel([[("act", '{"what": "a"}')], "ok"])
        await bench.turn(model, policy=Policy(lang=lang))
        assert said in model.requests[1].messages[-1]["content"]
