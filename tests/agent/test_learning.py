"""What an endpoint's refusals and reports teach a session, and whom they teach of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.agent.conversation import Conversation
from perdure.chat.messages import Kind
from perdure.chat.tokens import ScaledCounter, TokenCounter, Usage, counter_for
from perdure.memory.budget import Budget
from perdure.memory.calibration import LEAST_WINDOW, Learnt
from perdure.store.sqlite import SqliteJournal

EXACT, ESTIMATE = counter_for("o200k_base"), counter_for(None)


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    journal = SqliteJournal(tmp_path / "s.db")
    journal.create("s", {"system": "be brief", "lang": "en"})
    return journal


def opened(
    journal: SqliteJournal, counter: TokenCounter = EXACT, window: int = 8192, model: str = "a"
) -> Conversation:
    return Conversation(journal, "s", counter, Budget.of(window), model=model)


def asked(conversation: Conversation, words: int = 100) -> None:
    conversation.add(Kind.USER, {"role": "user", "content": "hello there my friend " * (words // 4)})
    conversation.compact()


def answered(conversation: Conversation, ratio: float) -> None:
    conversation.learn_usage(conversation.tokens, Usage(int(conversation.tokens * ratio), 1))
    conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": "ok"})


@given(
    prompt=st.integers(1, 300_000),
    window=st.integers(1024, 300_000),
    output=st.none() | st.integers(1, 100_000),
    limit=st.none() | st.integers(16, 300_000),
    requested=st.none() | st.integers(16, 400_000),
    read=st.integers(0, 4_000),
)
def test_no_refusal_leaves_a_session_without_a_window(
    prompt: int, window: int, output: int | None, limit: int | None, requested: int | None, read: int
) -> None:
    budget, learnt = Budget.of(window, output), Learnt()
    prompt = min(prompt, budget.tokens)
    for _ in range(40):
        learnt = learnt.refused(prompt, budget, limit, requested, read=read)
        now = learnt.within(budget)
        assert now.window <= budget.window
        if not requested:
            assert now.window >= min(budget.window, limit or window, max(LEAST_WINDOW, read))
        budget = now
        prompt = min(prompt, budget.tokens)


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.0, 1.4])
def test_a_refusal_without_figures_makes_the_next_prompt_smaller_whatever_the_count_says(
    journal: SqliteJournal, scale: float
) -> None:
    conversation, real, refused = opened(journal, ESTIMATE), 5_000, 0
    for _ in range(4):
        conversation.learn_usage(1000, Usage(int(1000 * scale), 1))
    for _ in range(300):
        asked(conversation, 160)
        if conversation.tokens * scale > real:
            refused += 1
            assert conversation.learn_window(None, None)
            conversation.compact()
            assert conversation.tokens * scale <= real
        answered(conversation, scale)
    assert refused <= 2
    assert conversation.budget.window >= 4_000, "no less than it was seen to read"


def test_a_count_in_a_refusal_mends_a_scale_that_was_too_low(journal: SqliteJournal) -> None:
    conversation = opened(journal, ESTIMATE)
    for _ in range(4):
        conversation.learn_usage(1000, Usage(500, 1))
    for _ in range(30):
        asked(conversation, 400)
        conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": "ok"})
    asked(conversation)
    assert conversation.learn_window(8192, max(conversation.tokens, 8200))
    conversation.compact()
    assert conversation.memory.scale == 1
    assert conversation.tokens <= conversation.budget.tokens


def test_an_answer_that_has_no_room_costs_the_answer_and_not_the_window(journal: SqliteJournal) -> None:
    conversation = opened(journal)
    asked(conversation, 200)
    assert conversation.learn_window(4096, 204)
    for each in (conversation, opened(journal)):
        assert (each.budget.window, each.answers_limited) == (4096, True)
        assert each.budget.output + 204 < 4096
    assert not opened(journal, model="b").answers_limited


def test_what_was_read_whole_is_no_window_that_is_smaller(journal: SqliteJournal) -> None:
    conversation = opened(journal)
    conversation.learn_usage(4_000, Usage(4_000, 1))
    assert conversation.learn_cut(2_050)
    assert conversation.budget.window == 4_000
    assert not conversation.learn_cut(2_050)


@pytest.mark.parametrize(
    "other", [("b", EXACT), ("a", EXACT), ("a", ScaledCounter(ESTIMATE, 1.5)), ("b", ESTIMATE)]
)
@pytest.mark.parametrize("compacted", [False, True])
def test_what_one_model_taught_is_not_believed_of_another_and_is_there_when_it_comes_back(
    journal: SqliteJournal, other: tuple[str, TokenCounter], compacted: bool
) -> None:
    model, counter = other
    conversation = opened(journal, ESTIMATE)
    for _ in range(4):
        conversation.learn_usage(1000, Usage(500, 1))
    asked(conversation)
    conversation.learn_window(4096, None)
    conversation.compact(force=compacted)
    taught = conversation.memory.scale, conversation.budget.window
    assert taught < (1.0, 5_000)
    second = opened(journal, counter, 6000, model)
    assert (second.memory.scale, second.budget) == (1.0, Budget.of(6000))
    for _ in range(60):
        asked(second)
        second.add(Kind.ASSISTANT, {"role": "assistant", "content": "ok"})
    assert sum(map(counter.message, second.prompt())) <= second.budget.tokens
    third = opened(journal, ESTIMATE)
    assert (third.memory.scale, third.budget.window) == taught


def test_a_scale_that_the_session_knows_gives_way_to_a_higher_one_from_another_session(
    journal: SqliteJournal,
) -> None:
    conversation = opened(journal, ESTIMATE)
    for _ in range(4):
        conversation.learn_usage(1000, Usage(600, 1))
    journal.create("t", {"system": "", "lang": "en"})
    Conversation(journal, "t", ESTIMATE, Budget.of(8192), model="a").learn_usage(1000, Usage(1200, 1))
    assert opened(journal, ESTIMATE).memory.scale > 1.2


def test_a_refusal_that_teaches_nothing_says_so(journal: SqliteJournal) -> None:
    conversation = opened(journal, window=LEAST_WINDOW)
    asked(conversation, 40)
    assert not conversation.learn_window(None, None)
    assert (conversation.budget.window, opened(journal, window=9000).budget.window) == (LEAST_WINDOW, 9000)


@pytest.mark.parametrize("model", ["a", ""])
def test_what_a_refusal_teaches_of_the_count_and_of_the_window_stand_together(
    journal: SqliteJournal, model: str
) -> None:
    conversation = opened(journal, ESTIMATE, model=model)
    for _ in range(4):
        conversation.learn_usage(1000, Usage(500, 1))
    asked(conversation, 4000)
    sent = conversation.tokens
    assert conversation.learn_window(sent * 8 // 10, sent * 9 // 10)
    for each in (conversation, opened(journal, ESTIMATE, model=model)):
        assert each.memory.scale > 0.9
        assert each.budget.window == pytest.approx(sent * 0.8, abs=2)
