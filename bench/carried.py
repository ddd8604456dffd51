"""Does the prompt still hold what the agent's next call needs? What `tau.py` and `files.py` share.

A transcript is replayed message by message. At every tool call: does each string of four characters or
more in its arguments, that stood word for word in an earlier message, stand in the prompt? Asked of
three prompts of the same budget: our memory's, the plain sliding window, and the window over a history
whose tool results, all but the last two, have been masked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.chat.messages import Message, text_of
from perdure.chat.tokens import TextCounter
from perdure.memory.memory import Memory

SLIDING, MASKED, MEMORY = "sliding window", "old results masked", "memory"
METHODS = (SLIDING, MASKED, MEMORY)
#: Characters of the shortest string that counts, and newest tool results that are not masked.
SHORTEST, UNMASKED = 4, 2
GAP = "[old tool result left out]"


@dataclass(frozen=True)
class Call:
    """One tool call. ``at``: index of its message in the transcript; ``needed``: the strings in its
    arguments that had stood before; ``lost``: by method, those that its prompt doesn't hold; ``over``:
    our prompt is more than the budget."""

    at: int
    function: Mapping[str, Any]
    needed: tuple[str, ...]
    lost: Mapping[str, tuple[str, ...]]
    over: bool


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def spoken(message: Message) -> str:
    """What a message says: its text, and its calls as they are sent and as they are meant, so that a quote
    which JSON escapes counts as said."""
    parts = [text_of(message)]
    for call in message.get("tool_calls") or ():
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        parts += [f"{name} {arguments}", *strings(json.loads(arguments))]
    return "\n".join(parts)


@dataclass(frozen=True)
class Counted:
    """A message of the history with its text and its tokens, counted once."""

    message: Message
    text: str
    tokens: int

    @classmethod
    def of(cls, message: Message, counter: TextCounter) -> Counted:
        return cls(message, spoken(message), counter.message(message))


def sliding(history: Sequence[Counted], budget: int) -> str:
    """What the newest messages that fit the budget say; a result doesn't stand without its call."""
    start, tokens = len(history), 0
    while start and tokens + history[start - 1].tokens <= budget:
        start -= 1
        tokens += history[start].tokens
    while start < len(history) and history[start].message["role"] == "tool":
        start += 1
    return "\n".join(each.text for each in history[start:])


def replay(messages: Sequence[Message], window: int, counter: TextCounter) -> Iterator[Call]:
    """The tool calls of a transcript, without its system prompt, at a window of so many tokens."""
    memory, seen = Memory(window, counter=counter), ""
    history: list[Counted] = []
    masked: list[Counted] = []
    results: list[int] = []
    for at, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if calls := message.get("tool_calls"):
            prompt = memory.prompt()
            budget = memory.budget.tokens
            shown = {
                SLIDING: sliding(history, budget),
                MASKED: sliding(masked, budget),
                MEMORY: "\n".join(map(spoken, prompt)),
            }
            over = sum(map(counter.message, prompt)) > budget
            for call in calls:
                said = strings(json.loads(call["function"]["arguments"]))
                needed = tuple(each for each in said if len(each) >= SHORTEST and each in seen)
                lost = {name: tuple(e for e in needed if e not in text) for name, text in shown.items()}
                yield Call(at, call["function"], needed, lost, over)
        memory.append(message)
        history.append(Counted.of(message, counter))
        masked.append(history[-1])
        if message["role"] == "tool":
            results.append(len(masked) - 1)
            if len(results) > UNMASKED:
                old = results.pop(0)
                masked[old] = Counted.of({**masked[old].message, "content": GAP}, counter)
        seen += "\n" + history[-1].text
