"""What a run may spend: no request begins that would pass it, and what was used is told by purpose."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.running import Bench, calls
from perdure.agent.judge import Judge
from perdure.agent.spending import LimitReached, Spending, dollars
from perdure.agent.summarizing import Summarizer
from perdure.chat.events import RunFinished
from perdure.chat.tokens import Usage
from perdure.models.client import ModelRequest, Reply
from perdure.models.scripted import ScriptedModel
from perdure.store.journal import Recorded
from perdure.store.sqlite import SqliteJournal

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def a_dollar_a_thousand(usage: Usage) -> float | None:
    return None if usage.cached > usage.prompt else usage.total / 1000


def counting(request: ModelRequest) -> list[tuple[str, str]]:
    """Calls that never give the same result."""
    return calls(f"{len(request.messages)}+1")


def of(bench: Bench, type: str) -> list[Any]:
    return list(bench.of(type))


def used(bench: Bench) -> list[Any]:
    journal = SqliteJournal(bench.path)
    try:
        return [
            each.body for each in journal.records("s") if isinstance(each, Recorded) and each.type == "usage"
        ]
    finally:
        journal.close()


def sums(finished: RunFinished) -> int:
    return finished.usage.total


@pytest.mark.parametrize("limit", [{"max_tokens": 3000}, {"max_cost": 3.0}])
async def test_a_limit_ends_the_turn_in_order_and_says_what_was_used(
    bench: Bench, limit: dict[str, Any]
) -> None:
    model = ScriptedModel(counting)
    finished = await bench.turn(model, spending=Spending(**limit), price=a_dollar_a_thousand)
    assert finished.status == "limit"
    assert finished.steps == len(model.requests) > 1
    assert sums(finished) <= 3000
    assert finished.cost == pytest.approx(sums(finished) / 1000)
    said = f"${finished.cost:.2f} is spent" if "max_cost" in limit else f"{sums(finished):,} are used"
    assert said in finished.reason
    assert "go on in the same session" in finished.reason
    went_on = await bench.turn(ScriptedModel(["done"]), "go on")
    assert (went_on.status, went_on.answer) == ("answered", "done")


async def test_a_request_that_cannot_be_afforded_at_all_is_not_sent(bench: Bench) -> None:
    model = ScriptedModel(["never"])
    finished = await bench.turn(model, spending=Spending(max_tokens=10))
    assert (finished.status, finished.steps, finished.cost, model.requests) == ("limit", 0, 0.0, [])
    assert finished.usage == Usage()
    assert [entry.kind.value for entry in bench.entries()] == ["user"]


async def test_the_last_answer_so_far_is_handed_out(bench: Bench) -> None:
    model = ScriptedModel(
        [Reply("half an", finish_reason="length", usage=Usage(500, 400)), "answer"],
        verdict='{"satisfied": true}',
    )
    finished = await bench.turn(model, judge=Judge(model, mode="on"), spending=Spending(max_tokens=950))
    assert (finished.status, finished.answer) == ("limit", "half an")


async def test_an_answer_stands_unjudged_where_the_judge_would_pass_the_limit(bench: Bench) -> None:
    plain = await bench.turn(ScriptedModel(["4"]), "What is 2+2?")
    model = ScriptedModel(["4"])
    judge = Judge(model, mode="on", price=a_dollar_a_thousand)
    limited = Spending(max_tokens=sums(plain) + 20)
    finished = await bench.turn(model, "What is 2+2?", judge=judge, spending=limited)
    assert (finished.status, finished.answer, finished.judged) == ("answered", "4", "unjudged")
    (judged,) = of(bench, "judge")
    assert (judged.reason, judged.usage, judged.cost) == ("limit", Usage(), 0.0)
    assert "limit of the run" in of(bench, "notice")[-1].text
    assert "judge" not in finished.usage_by_purpose


async def test_code_writes_the_notes_where_a_summary_would_pass_the_limit(tmp_path: Path) -> None:
    bench = Bench(tmp_path, window=3000)
    asked: list[str] = []
    events: list[Any] = []

    def play(request: ModelRequest) -> str:
        asked.append(request.purpose)
        return f"entry {len(asked)}: " + "it goes on for many words, " * 60

    model = ScriptedModel(play, context_window=3000)
    summarizer = Summarizer(model, own=False, price=lambda usage: 1.0)
    for _ in range(12):
        spending = Spending(max_cost=0.5)
        finished = await bench.turn(
            model, "tell me more", summarizer=summarizer, spending=spending, price=lambda usage: 0.0
        )
        assert finished.status == "answered"
        assert finished.cost_by_purpose == {"think": 0.0}
        events += bench.events
    assert set(asked) == {"think"}
    last = [event for event in events if event.type == "compaction"][-1]
    assert (last.refused, last.gist_by, last.cost) == (("limit",), "code", 0.0)
    codes = {event.code for event in events if event.type == "notice"}
    assert "summary.failed" in codes
    assert "summary.rests" not in codes, "it isn't the summariser's failure"


async def test_tokens_and_money_are_told_by_purpose_and_journaled(bench: Bench) -> None:
    model = ScriptedModel([calls("2+2"), "4"])
    judge = Judge(model, mode="on", price=lambda usage: 0.5)
    finished = await bench.turn(model, "What is 2+2?", judge=judge, price=a_dollar_a_thousand)
    assert finished.usage_by_purpose.keys() == finished.cost_by_purpose.keys() == {"think", "judge"}
    assert finished.cost_by_purpose["judge"] == 0.5
    assert finished.cost == pytest.approx(finished.usage_by_purpose["think"].total / 1000 + 0.5)
    events = of(bench, "usage")
    assert [each.purpose for each in events] == ["think", "think", "judge"]
    told = Spending.recorded(used(bench))
    assert (told.usages, told.cost) == (finished.usage_by_purpose, pytest.approx(finished.cost))
    assert sum((each.usage for each in events), Usage()) == finished.usage


async def test_a_sum_with_an_unknown_part_is_unknown(bench: Bench) -> None:
    model = ScriptedModel(["4"])
    judge = Judge(model, mode="on", price=lambda usage: None)
    finished = await bench.turn(model, judge=judge, price=a_dollar_a_thousand)
    assert finished.cost is None
    assert finished.cost_by_purpose["think"] is not None
    assert finished.cost_by_purpose["judge"] is None


async def test_what_is_not_reported_counts_towards_the_limit_and_has_no_price(bench: Bench) -> None:
    model = ScriptedModel(lambda request: Reply("", tuple(_call(request)), finish_reason="tool_calls"))
    finished = await bench.turn(model, spending=Spending(max_tokens=3000), price=a_dollar_a_thousand)
    assert (finished.status, finished.usage, finished.cost) == ("limit", Usage(), None)
    free = await bench.turn(ScriptedModel([Reply("done")]), price=lambda usage: 0.0)
    assert free.cost == 0.0


def _call(request: ModelRequest) -> Any:
    from perdure.chat.calls import ToolCall

    yield ToolCall(f"c{len(request.messages)}", "calculator", f'{{"expression": "{len(request.messages)}"}}')


async def test_more_cached_than_there_was_counts_towards_the_limit_all_the_same(bench: Bench) -> None:
    def odd(request: ModelRequest) -> Reply:
        return Reply("", tuple(_call(request)), finish_reason="tool_calls", usage=Usage(900, 10, cached=2000))

    finished = await bench.turn(
        ScriptedModel(odd), spending=Spending(max_cost=3.0), price=a_dollar_a_thousand
    )
    assert (finished.status, finished.cost, finished.steps) == ("limit", None, 3)


async def test_a_limit_is_said_in_the_sessions_language(bench: Bench) -> None:
    journal = SqliteJournal(bench.path)
    journal.create("s", {"system": "简短", "lang": "zh"})
    journal.close()
    model = ScriptedModel(counting)
    tokens = await bench.turn(model, "数", spending=Spending(max_tokens=2000))
    assert "个 token 的上限" in tokens.reason
    money = await bench.turn(model, "数", spending=Spending(max_cost=1.0), price=lambda usage: 0.4)
    assert "费用上限：已花费 $0.8000" in money.reason


async def test_a_request_that_broke_off_counts_with_its_prompt() -> None:
    spending = Spending(max_tokens=100)
    with anyio.move_on_after(0.01), spending.underway(60, lambda usage: None):
        await anyio.sleep(10)
    assert spending.usage == Usage()
    assert spending.allows(40, lambda usage: None)
    assert not spending.allows(41, lambda usage: None)


def test_a_request_that_failed_took_nothing() -> None:
    spending = Spending(max_tokens=100)
    with pytest.raises(ValueError, match="refused"), spending.underway(60, lambda usage: None):
        raise ValueError("refused")
    assert spending.allows(100, lambda usage: None)


def test_what_is_asked_side_by_side_counts_from_its_beginning() -> None:
    spending = Spending(max_tokens=100)
    with spending.underway(60, lambda usage: None):
        assert spending.allows(40, lambda usage: None)
        with pytest.raises(LimitReached), spending.underway(41, lambda usage: None):
            pass
    assert spending.allows(100, lambda usage: None)


prices = st.floats(0, 100).map(lambda rate: lambda usage: usage.total * rate / 1_000_000)
requests = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 5000), st.integers(0, 3)), max_size=40)


@given(requests, st.none() | st.integers(1, 20_000), st.none() | st.floats(0.001, 2), prices)
def test_a_sum_passes_its_limit_by_the_replies_that_were_underway_at_most(
    asked: list[tuple[int, int, int]],
    max_tokens: int | None,
    max_cost: float | None,
    price: Callable[[Usage], float],
) -> None:
    spending = Spending(max_tokens, max_cost)
    underway: list[tuple[ExitStack, Usage]] = []

    def answered() -> None:
        stack, usage = underway.pop(0)
        spending.count(usage.total, price(usage))
        spending.add("think", usage, price(usage))
        stack.close()

    replies = most = 0
    for prompt, reply, wait in asked:
        while len(underway) > wait:
            answered()
        stack = ExitStack()
        allowed = spending.allows(prompt, price)
        try:
            stack.enter_context(spending.underway(prompt, price))
        except LimitReached:
            assert not allowed
            continue
        assert allowed
        underway.append((stack, Usage(prompt, reply)))
        replies = sum(usage.completion for _, usage in underway)
        most = max(most, replies)
    while underway:
        answered()
    if max_tokens is not None:
        assert spending.usage.total <= max_tokens + most
    if max_cost is not None:
        assert (spending.cost or 0.0) <= max_cost + price(Usage(0, most)) + 1e-9


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        (0.0, "$0"),
        (0.0123, "$0.0123"),
        (0.5, "$0.5000"),
        (0.000047, "$0.000047"),
        (1.239, "$1.24"),
        (1234.5, "$1,234.50"),
        (None, "unknown"),
    ],
)
def test_money_is_shown_as_people_read_it(cost: float | None, shown: str) -> None:
    assert dollars(cost, "en") == shown


def test_records_of_an_older_perdure_count_and_their_price_is_unknown() -> None:
    older = {"purpose": "think", "completion": 5, "cached": 1, "prompt": "digest"}
    told = Spending.recorded([older, {"purpose": "judge", "prompt": 7, "completion": 2, "cached": 0}])
    assert told.usages == {"think": Usage(0, 5, 1), "judge": Usage(7, 2)}
    assert told.cost is None
