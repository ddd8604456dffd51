"""The published design for a hand-made agent's memory, written from its description, to compare with.

`truncate()` counts the whole history, pops the oldest block, and counts again, until history and summary
fit. A block is one message, or an assistant's message with tool calls and the results that follow it. What
was popped goes to a summariser together with the summary before; its reply stands in a user message with a
prefix, ahead of the history. Its users append each message and ask for the prompt before each model call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from perdure.chat.messages import Message, text_of
from perdure.chat.tokens import TokenCounter

PREFIX = "[Summary of the earlier conversation]\n"
INSTRUCTION = (
    "Summarise the conversation below together with the summary so far. Keep: the person's goals; facts and "
    "decisions; tools used and what they showed; paths, environment and preferences; what is still open. "
    "At most 300 words."
)
#: Characters of a call's arguments and of a result that the summariser is shown.
ARGUMENTS_SHOWN, RESULT_SHOWN = 200, 300


class ShortMemory:
    """``budget``: tokens of system prompt, summary and history; ``summarise`` takes the messages of a
    request and gives the summary's text."""

    def __init__(
        self,
        budget: int,
        counter: TokenCounter,
        summarise: Callable[[list[Message]], str],
        *,
        system: str = "",
    ) -> None:
        self.budget = budget
        self.counter = counter
        self.summarise = summarise
        self.system: list[Message] = [{"role": "system", "content": system}] if system else []
        self.history: list[Message] = []
        self.summary = ""
        #: Times that something was popped.
        self.compactions = 0

    def append(self, message: Message) -> None:
        self.history.append(message)

    def prompt(self) -> list[Message]:
        """What is sent, after `truncate`."""
        self.truncate()
        return self._standing()

    def truncate(self) -> list[Message]:
        """Pop until it fits, and summarise what was popped. The newest block stays, however large it is."""
        popped: list[Message] = []
        while self.tokens() > self.budget and (length := self._oldest()) < len(self.history):
            popped += self.history[:length]
            del self.history[:length]
        if popped:
            self.compactions += 1
            self.summary = self.summarise(self._request(popped))
        return popped

    def tokens(self) -> int:
        """Of the whole prompt, counted from scratch."""
        return sum(map(self.counter.message, self._standing()))

    def _standing(self) -> list[Message]:
        summary: list[Message] = [{"role": "user", "content": PREFIX + self.summary}] if self.summary else []
        return [*self.system, *summary, *self.history]

    def _oldest(self) -> int:
        """Messages of the oldest block."""
        length = 1
        if self.history and self.history[0].get("tool_calls"):
            while length < len(self.history) and self.history[length]["role"] == "tool":
                length += 1
        return length

    def _request(self, popped: Sequence[Message]) -> list[Message]:
        said = "\n".join(map(_shown, popped))
        text = f"Summary so far:\n{self.summary or '(none)'}\n\nConversation:\n{said}"
        return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": text}]


def _shown(message: Message) -> str:
    text = text_of(message)
    if message["role"] == "tool":
        text = text[:RESULT_SHOWN]
    for call in message.get("tool_calls") or ():
        arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)[:ARGUMENTS_SHOWN]
        text += f"\ncalls {call['function']['name']} with {arguments}"
    return f"{message['role']}: {text}"
