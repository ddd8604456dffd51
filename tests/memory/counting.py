"""A counter for tests of pure memory: one token a character, four a message, no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from perdure.chat.calls import ToolSpec
from perdure.chat.messages import Entry, Message, kind_of


class CharacterCounter:
    name = "characters"

    def text(self, text: str) -> int:
        return len(text)

    def message(self, message: Message) -> int:
        calls = message.get("tool_calls")
        spoken = json.dumps(calls, ensure_ascii=False) if calls else ""
        return 4 + len(message.get("content") or "") + len(spoken)

    def tools(self, tools: Sequence[ToolSpec]) -> int:
        return sum(len(json.dumps(tool.on_the_wire())) for tool in tools)


def entries(*messages: Message, start: int = 1) -> list[Entry]:
    counter = CharacterCounter()
    return [
        Entry(seq, kind_of(message), message, counter.message(message))
        for seq, message in enumerate(messages, start)
    ]
