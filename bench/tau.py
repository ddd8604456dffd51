"""Does the prompt still hold what the agent's next call needs?

    python bench/tau.py TRANSCRIPTS.json [WINDOW ...]

The transcripts are a list of {"traj": [messages]} with OpenAI-format tool calls, such as tau-bench's
`historical_trajectories` (sierra-research/tau-bench, MIT license). Each is replayed through `Memory`
without its system prompt. At every tool call: does each string of four characters or more in its
arguments, that stood word for word in an earlier message, stand in the prompt? In the same run, the
plain sliding window of the same budget.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.chat.messages import Message, text_of
from perdure.chat.tokens import TextCounter, counter_for
from perdure.memory.memory import Memory

WINDOWS = (1024, 2048, 4096)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def spoken(message: Message) -> str:
    calls = message.get("tool_calls") or ()
    return "\n".join(
        [text_of(message), *(f"{c['function']['name']} {c['function']['arguments']}" for c in calls)]
    )


def sliding(messages: list[Message], budget: int, counter: TextCounter) -> list[Message]:
    start, tokens = len(messages), 0
    while start and tokens + counter.message(messages[start - 1]) <= budget:
        start -= 1
        tokens += counter.message(messages[start])
    while start < len(messages) and messages[start]["role"] == "tool":
        start += 1
    return messages[start:]


def main() -> None:
    transcripts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    counter = counter_for("o200k_base")
    print("window  calls  sliding window  memory  prompts over budget")
    for window in [int(each) for each in sys.argv[2:]] or WINDOWS:
        calls = slid = held = over = 0
        for transcript in transcripts:
            memory, seen, before = Memory(window, counter=counter), "", []
            for message in transcript["traj"]:
                if message["role"] == "system":
                    continue
                for call in message.get("tool_calls") or ():
                    needed = [
                        s
                        for s in strings(json.loads(call["function"]["arguments"]))
                        if len(s) >= 4 and s in seen
                    ]
                    prompt = memory.prompt()
                    ours = "\n".join(map(spoken, prompt))
                    theirs = "\n".join(map(spoken, sliding(before, memory.budget.tokens, counter)))
                    calls += 1
                    held += all(each in ours for each in needed)
                    slid += all(each in theirs for each in needed)
                    over += sum(map(counter.message, prompt)) > memory.budget.tokens
                memory.append(message)
                before.append(message)
                seen += "\n" + spoken(message)
        print(f"{window:6} {calls:6} {slid / calls:15.1%} {held / calls:7.1%} {over:20}")


if __name__ == "__main__":
    main()
