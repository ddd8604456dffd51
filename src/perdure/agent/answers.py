"""Look at an answer by code, before a model is asked about it: free of charge, and certain. Pure.

Small models and servers with the wrong template write a tool call as text; and a model that has read much
in one language answers in it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from perdure.chat.calls import CALL_MARK, ToolCall
from perdure.chat.language import language_of
from perdure.chat.messages import without_thoughts

#: What calls stand between, as models were taught to write them: Hermes and Qwen, Llama, Mistral, fences.
_WRAPPED = re.compile(
    r"<(?P<tag>tool_call|function_call|tool_calls|function_calls)>\s*(?P<hermes>.*?)\s*</(?P=tag)>"
    r"|<function=(?P<name>[\w.-]+)>\s*(?P<llama>.*?)\s*</function>"
    r"|<\|python_tag\|>\s*(?P<tagged>.*)"
    r"|\[TOOL_CALLS\]\s*(?P<mistral>.*)"
    r"|```(?:json|tool_call|tool_code)?\s*\n(?P<fenced>.*?)\n?```",
    re.S,
)
#: By which names a call's own name and its arguments go.
_NAMES, _ARGUMENTS = ("name", "tool", "function"), ("arguments", "parameters", "args", "input")
#: Beyond these characters a text has a language.
TELLING = 12
#: Characters that the end of a part and the beginning of the next have in common where these were said twice.
LEAST_OVERLAP, LONGEST_OVERLAP = 12, 400
_HAN = re.compile(r"[\u3400-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]{2,}")
_NOT_PROSE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|\S*[/\\_=<>{}()\[\]]\S*", re.S)
#: A request in several parts: two questions, two points of a list, or one thing and then another.
_QUESTION = re.compile(r"[?？](?=\s|$|[^\s?？])")
_POINT = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)、）])\s*\S", re.M)
_AND_THEN = re.compile(
    r"\b(?:and then|then also|after that|afterwards|as well as|finally|secondly)\b|[;；]\s*\S"
    r"|然后|接着|之后再|并且|同时|最后|其次|以及",
    re.I,
)


def written_calls(text: str, known: Collection[str]) -> tuple[ToolCall, ...]:
    """The calls that an answer consists of, of tools that are ``known``; none where it says anything else."""
    bare = without_thoughts(text).strip()
    calls: list[ToolCall] = []
    for part in _wrapped(bare):
        found = _calls(part, known)
        if not found:
            return ()
        calls += found
    return tuple(calls)


def joined(parts: Sequence[str]) -> str:
    """An answer that was cut and went on; what a part says again of the one before stands there once."""
    whole = ""
    for part in parts:
        longest = min(len(whole), len(part), LONGEST_OVERLAP)
        again = next((n for n in range(longest, LEAST_OVERLAP, -1) if whole.endswith(part[:n])), 0)
        whole += part[again:]
    return whole


def looks_like_a_call(text: str) -> bool:
    """It is written as a call of a tool, as far as one can see, although none can be read from it."""
    bare = without_thoughts(text).strip()
    return bool(CALL_MARK.match(bare))


def is_in_another_language(request: str, answer: str) -> bool:
    """The answer is in the other one of the two languages. What is too short to tell, isn't."""
    asked, answered = _prose(request), _prose(answer)
    if min(_weight(asked), _weight(answered)) < TELLING:
        return False
    return language_of(asked) != language_of(answered)


def has_parts(request: str) -> bool:
    """It asks for more than one thing."""
    several = len(_QUESTION.findall(request)) > 1 or len(_POINT.findall(request)) > 1
    return several or bool(_AND_THEN.search(request))


def _wrapped(text: str) -> Iterator[Any]:
    """The values that a text consists of; one that can't be read where anything else stands in it."""
    if not _WRAPPED.search(text):
        yield _value(text)
        return
    if _WRAPPED.sub("", text).strip():
        yield None
    for match in _WRAPPED.finditer(text):
        inside = next(
            each
            for name, each in match.groupdict().items()
            if each is not None and name not in ("tag", "name")
        )
        value = _value(inside)
        yield {"name": match["name"], "arguments": value} if match["name"] else value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _calls(value: Any, known: Collection[str]) -> list[ToolCall]:
    """The calls of a value; none where a part of it is none."""
    parts = value if isinstance(value, list) else [value]
    calls = [_call(part, known) for part in parts]
    return [call for call in calls if call] if all(calls) else []


def _call(value: Any, known: Collection[str]) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[each] for each in _NAMES if isinstance(value.get(each), str)), "")
    arguments = next((value[each] for each in _ARGUMENTS if each in value), None)
    if isinstance(arguments, str):
        arguments = _value(arguments)
    if name not in known or not isinstance(arguments, dict):
        return None
    return ToolCall(f"call_{secrets.token_hex(8)}", name, json.dumps(arguments, ensure_ascii=False))


def _prose(text: str) -> str:
    return _NOT_PROSE.sub(" ", text)


def _weight(text: str) -> int:
    """Characters that tell a language; a Chinese one says as much as two others."""
    return 2 * len(_HAN.findall(text)) + sum(map(len, _LATIN.findall(text)))
