"""What a person is asked before a tool acts, as text: what would run, what it would change, and what each
answer means. The terminal and the chat show the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perdure.chat.language import Language, say
from perdure.errors import Words
from perdure.tools.contract import Question

#: Lines of a preview, and characters of one argument, that are shown.
PREVIEW, ARGUMENT = 200, 2_000

MORE: Words = ("… {count} more lines", "……还有 {count} 行")
ALWAYS: Words = (
    "[a] always {always} in this session  [w] in this workspace",
    "[a] 本会话总是允许 {always}  [w] 本工作区总是允许",
)
ANSWERS: Words = (
    "[y] yes{always}  [n] no  [r] no, and say why",
    "[y] 是{always}  [n] 否  [r] 否，并说明原因",
)


def shown_call(question: Question) -> str:
    """What would run, on lines: a command as it is, else the tool with its arguments."""
    call, tool = question.call, question.tool
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return f"{call.name} {call.arguments[:ARGUMENT]}"
    touch = tool.touches(arguments)
    if touch.command is not None:
        others = {name: value for name, value in arguments.items() if name != "command"}
        return "\n".join([f"{call.name}: {_short(touch.command)}", *_arguments(others)])
    if question.preview and touch.paths:
        return f"{call.name} {touch.paths[-1]}"
    lines = list(_arguments(arguments))
    return (
        "\n".join([call.name, *lines]) if len(lines) > 1 else f"{call.name} {''.join(lines).strip()}".rstrip()
    )


def shown_preview(question: Question, lang: Language) -> list[str]:
    """The lines of what it would change, and how many more there are."""
    lines = question.preview.splitlines()
    more = len(lines) - PREVIEW
    return lines if more <= 0 else [*lines[:PREVIEW], say(MORE, lang, count=more)]


def shown_answers(question: Question, lang: Language) -> str:
    """What can be answered, each by its letter."""
    always = f"  {say(ALWAYS, lang, always=question.always)}" if question.always else ""
    return say(ANSWERS, lang, always=always)


def _arguments(arguments: dict[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"  {name}: {_short(text)}"


def _short(text: str) -> str:
    return text if len(text) <= ARGUMENT else f"{text[:ARGUMENT]}… (+{len(text) - ARGUMENT})"
