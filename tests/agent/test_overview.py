"""What is said of a session's window is what its next prompt consists of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.agent.conversation import Conversation
from perdure.agent.overview import overview
from perdure.chat.calls import ToolSpec
from perdure.chat.messages import Kind, Message
from perdure.chat.tokens import TokenCounter, counter_for
from perdure.errors import SessionUnknown
from perdure.memory.budget import Budget
from perdure.memory.gist import SummaryRequest
from perdure.models.catalog import counter_of
from perdure.store.sqlite import SqliteJournal

TOOL = ToolSpec("look_up", "Looks something up.", {"type": "object", "properties": {}})
COUNTERS = [counter_for(None), counter_for("o200k_base"), counter_for("qwen3")]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "s.db")
    journal.create("s", {"system": "be brief", "lang": "en"})
    yield journal
    journal.close()


def opened(
    journal: SqliteJournal,
    counter: TokenCounter | None = None,
    *,
    summarised: bool = True,
    window: int = 2500,
) -> Conversation:
    return Conversation(
        journal,
        "s",
        counter or counter_for(None),
        Budget.of(window),
        [TOOL],
        model="gpt-4o",
        summarised=summarised,
    )


def talks(conversation: Conversation, turns: int, start: int = 0) -> int:
    """Turns with a call each; how often they compacted."""
    compactions = 0
    for number in range(start, start + turns):
        conversation.add(Kind.USER, {"role": "user", "content": f"Look up file_{number}.py. " + "blah " * 40})
        compactions += conversation.compact() is not None
        lines = 500 if number % 4 == 1 else 90
        function = {"name": "look_up", "arguments": json.dumps({"name": f"file_{number}.py"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        asked: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
        shown: Message = {"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number}\n" * lines}
        conversation.add_all([(Kind.TOOL_CALL, asked), (Kind.TOOL_RESULT, shown)])
        compactions += conversation.compact() is not None
        conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": f"It is {number}. " * 8})
    return compactions


def summarised(conversation: Conversation, cost: float | None = 0.25) -> None:
    """Everything that waits, piece by piece."""
    request = conversation.summary_request()
    assert request is not None
    while request is not None:
        request = piece_summarised(conversation, request, cost)


def piece_summarised(
    conversation: Conversation, request: SummaryRequest, cost: float | None
) -> SummaryRequest | None:
    facts = "; ".join([*request.literals, "all of it was looked up"])
    reply: Message = {"role": "assistant", "content": f"Facts:\n- {facts}"}
    about = {"model": "gpt-4o-mini", "seconds": 1.5, "cost": cost}
    assert conversation.accept(reply, request, cut=False, about=about).summary
    return conversation.summary_request()


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
def test_the_parts_add_up_to_the_prompt_and_with_the_rest_to_the_window(
    journal: SqliteJournal, counter: TokenCounter
) -> None:
    conversation = opened(journal, counter)
    shortened = 0
    for number in range(14):
        talks(conversation, 1, start=number)
        seen = overview(journal, "s")
        counted = sum(map(counter.message, conversation.prompt())) + counter.tools([TOOL])
        assert sum(seen.parts.values()) == conversation.tokens == counted
        assert sum(seen.parts.values()) + seen.free + seen.reserve == seen.window == 2500
        assert seen.parts["system"] == counter.message({"role": "system", "content": "be brief"})
        assert seen.parts["tools"] == counter.tools([TOOL])
        assert [seq for seq, _ in seen.standing] == [entry.seq for entry in conversation.memory.entries]
        assert seen.entries == conversation.memory.newest
        shortened += sum(each.shortened for each in seen.compactions)
    assert seen.left == conversation.memory.record.left != ()
    assert {"notes", "gist", "user", "assistant", "tool_call", "tool_result"} <= seen.parts.keys()
    assert shortened, "there were entries of which head and tail stand"


def test_what_is_added_up_in_the_estimate_of_a_model_is_close(journal: SqliteJournal) -> None:
    conversation = opened(journal, counter_of("claude-sonnet-4-5"))
    talks(conversation, 14)
    seen = overview(journal, "s")
    assert sum(seen.parts.values()) == pytest.approx(conversation.tokens, rel=0.1)


def test_looking_writes_nothing_and_says_the_same_twice(journal: SqliteJournal) -> None:
    talks(opened(journal), 9)
    before, state = list(journal.records("s")), journal.since_checkpoint("s")[0]
    assert overview(journal, "s") == overview(journal, "s")
    assert list(journal.records("s")) == before
    assert journal.since_checkpoint("s")[0] == state


def test_what_waits_for_a_summary_is_counted_until_it_has_one(journal: SqliteJournal) -> None:
    conversation = opened(journal)
    assert overview(journal, "s").pending == 0
    assert talks(conversation, 9)
    assert overview(journal, "s").pending == len(conversation.memory.record.pending) > 0
    summarised(conversation)
    assert overview(journal, "s").pending == 0
    assert "all of it was looked up" in overview(journal, "s").gist


def test_where_code_writes_the_gist_nothing_waits(journal: SqliteJournal) -> None:
    assert talks(opened(journal, summarised=False), 9)
    seen = overview(journal, "s")
    assert seen.left
    assert seen.gist
    assert seen.pending == 0


def test_each_compaction_is_told_as_it_was(journal: SqliteJournal) -> None:
    conversation = opened(journal)
    turns = 0
    while not (trimmed := conversation.compact(force=turns > 4)):
        talks(conversation, 1, start=turns)
        turns += 1
        if overview(journal, "s").compactions:
            break
    (first,) = overview(journal, "s").compactions
    assert first.gist_by == "code"
    assert first.tokens_before > first.tokens_after
    assert first.left + first.shortened > 0
    summarised(conversation)
    (first,) = overview(journal, "s").compactions
    assert (first.gist_by, first.model, first.seconds, first.cost) == ("model", "gpt-4o-mini", 1.5, 0.25)
    conversation.add(Kind.USER, {"role": "user", "content": "more " * 200})
    conversation.compact(force=True)
    conversation.summary_failed("timeout", {"model": "gpt-4o-mini"})
    *_, failed = overview(journal, "s").compactions
    assert (failed.gist_by, failed.refused) == ("code", "timeout")
    assert trimmed is None or trimmed.tokens_before > trimmed.tokens_after


def test_what_pieces_of_a_summary_cost_is_added_up(journal: SqliteJournal) -> None:
    conversation = opened(journal)
    talks(conversation, 9)
    last = overview(journal, "s").compactions[-1]
    for cost in (0.25, 0.5):
        journal.record("s", "summary", {"lines": [], "covered": [], "notes": "", "seconds": 2, "cost": cost})
    told = overview(journal, "s").compactions[-1]
    assert (told.seconds, told.cost) == (last.seconds + 4, 0.75)
    journal.record("s", "summary", {"lines": [], "covered": [], "notes": "", "cost": None})
    assert overview(journal, "s").compactions[-1].cost is None, "a price that isn't known isn't nothing"


def test_an_undone_compaction_is_marked_and_a_later_summary_belongs_to_the_one_that_stands(
    journal: SqliteJournal,
) -> None:
    conversation = opened(journal)
    compactions = talks(conversation, 12)
    assert compactions > 1
    standing = [seq for seq, _ in overview(journal, "s").standing]
    back = conversation.undo_compaction()
    assert back
    seen = overview(journal, "s")
    assert [each.undone for each in seen.compactions] == [False] * (compactions - 1) + [True]
    assert set(back) == {seq for seq, _ in seen.standing} - set(standing)
    summarised(conversation)
    told = overview(journal, "s").compactions
    assert (told[-2].gist_by, told[-1].gist_by) == ("model", "code")
    assert overview(journal, "s").notes == conversation.memory.notes


def test_the_window_is_the_one_that_was_learnt_and_the_session_as_it_was_opened_last(
    journal: SqliteJournal,
) -> None:
    talks(opened(journal, window=4000), 9)
    conversation = opened(journal, counter_for("o200k_base"), window=3500)
    conversation.compact()
    conversation.learn_window(2600, None)
    conversation.compact()
    seen = overview(journal, "s")
    assert seen.window == conversation.budget.window <= 2600
    assert sum(seen.parts.values()) == conversation.tokens
    assert sum(seen.parts.values()) + seen.free + seen.reserve == seen.window


def test_it_is_one_json_object(journal: SqliteJournal) -> None:
    talks(opened(journal), 12)
    body = json.loads(json.dumps(overview(journal, "s").as_json()))
    assert set(body) >= {"session", "window", "parts", "free", "left", "pending", "compactions"}
    assert body["compactions"][0]["tokens_after"] > 0


def test_a_session_that_does_not_exist_is_named_and_a_new_one_is_empty(journal: SqliteJournal) -> None:
    with pytest.raises(SessionUnknown):
        overview(journal, "nobody")
    seen = overview(journal, "s")
    assert (seen.entries, seen.standing, seen.left, seen.compactions) == (0, [], (), [])
    assert seen.parts.keys() == {"system"}
