"""The published algorithm, written again from its description, beside the faithful mode.

While history and summary together are more than the limit, the oldest block goes. A block is one
message; but an assistant's message with tool calls and the results that follow it are one together.
A result that follows no such message is a block of its own.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory.counting import CharacterCounter, entries
from memory.histories import assistant, histories, long_words, tool_rounds, turns, user
from perdure.chat.messages import Message
from perdure.memory.faithful import popped
from perdure.memory.memory import Memory

COUNTER = CharacterCounter()


class Published:
    """What the description says, and no more. ``summary``: tokens of the summary that stands before the
    history; ``limit``: tokens of both."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.history: list[Message] = []

    def truncate(self, summary: int) -> list[Message]:
        """Pops until it fits; what was popped, oldest first."""
        gone: list[Message] = []
        while self.history and sum(map(COUNTER.message, self.history)) + summary > self.limit:
            length = 1
            if self.history[0]["role"] == "assistant" and self.history[0].get("tool_calls"):
                while length < len(self.history) and self.history[length]["role"] == "tool":
                    length += 1
            gone += self.history[:length]
            self.history = self.history[length:]
        return gone


orphans = st.builds(
    lambda id, text: [{"role": "tool", "tool_call_id": id, "content": text}],
    st.text("xyz", min_size=1, max_size=3),
    long_words,
)
#: Any order of requests, rounds of tools, answers, and results that nobody asked for.
broken = st.lists(turns() | tool_rounds() | orphans, max_size=14).map(
    lambda parts: [message for part in parts for message in part]
)


@given(broken, st.integers(0, 8000))
def test_the_same_blocks_stay_of_any_history(messages: list[Message], limit: int) -> None:
    published = Published(limit)
    published.history = list(messages)
    gone = published.truncate(0)
    left = popped(entries(*messages), limit)
    assert list(left) == list(range(1, len(gone) + 1)), "the oldest leave, in order"
    assert messages[len(left) :] == published.history


@given(histories, st.integers(700, 6000), st.sampled_from(["", "Be brief. " * 20]), st.data())
def test_a_faithful_memory_holds_what_the_published_one_would(
    messages: list[Message], window: int, system: str, data: st.DataObject
) -> None:
    memory = Memory(window, counter=COUNTER, system=system, faithful=True)
    published = Published(memory.budget.tokens - memory.fixed)
    for message in messages:
        memory.append(message)
        published.history.append(message)
        if memory.open_calls:
            continue
        notes = COUNTER.message(user(memory.notes)) if memory.notes else 0
        gone = published.truncate(notes)
        trimmed = memory.compact(data.draw(st.sampled_from([None, summary])))
        assert [entry.message for entry in memory.entries] == published.history
        assert bool(gone) == (trimmed is not None)
        if trimmed:
            assert len(trimmed.window.left) == len(gone)
            assert not trimmed.window.shortened


def summary(request: Any) -> str:
    return "Facts:\n- " + "; ".join(request.literals or ["they talked about words"])


def test_nothing_is_anchored_shortened_or_kept_beside_the_summary() -> None:
    memory = Memory(1500, counter=COUNTER, faithful=True)
    memory.extend([user("Keep INV-4711. " + "a" * 500), assistant("b" * 500), user("c" * 2000)])
    memory.prompt()
    assert list(memory.entries) == [], "the newest message alone is larger than the window, so it goes too"
    assert "entries 1" not in memory.notes
    assert "Exact values" not in memory.notes
    assert "Request 1" not in memory.notes


def test_without_a_limit_nothing_leaves_and_with_none_at_all_everything_does() -> None:
    every = entries(user("a"), assistant("b"))
    assert popped(every, 10_000) == ()
    assert popped(every, 0) == (1, 2)
    assert popped([], 0) == ()
