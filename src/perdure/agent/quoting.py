"""A conversation told to somebody who is not in it: the Judge, the planner.

Each entry stands between marks, as data, and as much of it as fits: what must give way is chosen as for
any window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from perdure.chat.language import Language, say
from perdure.chat.messages import Entry, Kind, Message, text_of
from perdure.chat.tokens import TokenCounter
from perdure.errors import Words
from perdure.memory.window import Window

#: Sizes that are tried until a request fits.
MOST_TRIES = 8

REQUEST: Words = ("the request", "请求")
CALLED: Words = ("called", "调用")
SHOWED: Words = ("the tool showed", "工具显示")
ANSWER: Words = ("the answer", "回答")
LEFT_OUT: Words = (
    "(Earlier calls and results of this turn are left out, {left} of them.)",
    "（本轮较早的 {left} 条调用与结果已略去。）",
)
#: What stands above an entry's text; the agent's own bookkeeping isn't told.
TITLES: Mapping[Kind, Words] = {
    Kind.USER: REQUEST,
    Kind.PLAN: REQUEST,
    Kind.TOOL_RESULT: SHOWED,
    Kind.ASSISTANT: ANSWER,
}

_MARKS = re.compile(r"<<<|>>>")


def within(
    entries: Sequence[Entry],
    told: Callable[[Sequence[Entry], int], list[Message]],
    counter: TokenCounter,
    room: int,
) -> list[Message] | None:
    """The messages that ``told`` makes of the entries, and of how many were left out, in at most ``room``
    tokens: the newest request stays, the oldest of the rest goes first. None where not even that fits."""
    window = Window(counter)
    for entry in entries:
        window.append(replace(entry, tokens=counter.message(entry.message)))
    left = room
    for _ in range(MOST_TRIES):
        plan = window.plan(left, left) if entries else None
        cut = window.after(plan) if plan else window
        messages = told(cut.entries, len(plan.left) if plan else 0)
        needed = sum(map(counter.message, messages))
        if needed <= room:
            return messages
        left -= max(needed - room, room // 50)
        if left <= 0:
            return None
    return None


def quoted(entries: Sequence[Entry], lang: Language) -> Iterator[str]:
    """What people, the model and tools said, each between marks."""
    for entry in entries:
        if entry.kind is Kind.TOOL_CALL:
            for call in entry.message["tool_calls"]:
                yield marked(say(CALLED, lang), f"{call['function']['name']} {call['function']['arguments']}")
        elif entry.kind in TITLES:
            yield marked(say(TITLES[entry.kind], lang), text_of(entry.message))


def marked(title: str, text: str) -> str:
    """The text between marks, under its title. It can't end where it does not, nor begin another."""
    return f"<<< {title}\n{_MARKS.sub(' ', text)}\n>>>"
