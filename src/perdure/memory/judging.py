"""Judge a summariser's reply. A bad one never replaces a good gist.

Each way in which summaries were seen to go wrong is a named reason to refuse one: empty, cut, a
tool call, a refusal, the prompt echoed back, a skeleton without content, another language, exact
literals lost, longer than what it stands for. What passes is made into lines, each with the numbers
of the entries it rests on, given by the model or found by code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from perdure.chat.calls import CALL_MARK
from perdure.chat.language import Language, language_of, say
from perdure.chat.messages import Message, text_of, without_thoughts
from perdure.chat.secrets import masked
from perdure.memory.gist import (
    HEADINGS,
    KEEPER,
    SHORTER,
    TASK,
    Line,
    Section,
    SummaryRequest,
    rendered,
    spoken,
)

#: Characters that one line may have.
LONGEST_LINE = 400

#: Tokens up to which a summary may be longer than what it stands for: headings and numbers take some.
SHORT = 60

#: Why a summary was refused.
Refusal = Literal["empty", "cut", "tool_call", "refusal", "echo", "language", "literals", "longer", "stale"]

_FENCE = re.compile(r"^```\w*\n(.*?)\n?```$", re.S)
_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)、])\s+")
#: A heading of the model's own, or what it says before it begins.
_HEADING = re.compile(r"#{1,6} .*|(?![-*•–\d])[^.。!?！？]{1,80}[:：]\**")
_NUMBERS = re.compile(
    r"\s*[\[(（【]\s*(?:entr(?:y|ies)\s*)?(\d+(?:\s*[-–,，、]\s*\d+)*)\s*[\])）】]\s*[.。]?$", re.I
)
_NOTHING = re.compile(
    r"none|n/?a|nothing(?: \w+){0,3}|(?:no|not|none) (?:applicable|yet|data|information|items?)"
    r"|unknown|empty|tbd|无|没有|暂无|不适用|未知|空|",
    re.I,
)
_REFUSES = re.compile(
    r"^\W*(?:(?:i'?m|i am) (?:sorry|afraid|unable)|sorry,|i (?:can(?:'|no)?t|cannot|won't|am not able)"
    r"|as an ai\b|unfortunately,? i |抱歉|对不起|很抱歉|我无法|我不能|作为(?:一个)?(?:ai|人工智能))",
    re.I,
)
_HAN = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Judged:
    """The lines of a summary, or why it was refused. ``too_long``: it may be asked for again, shorter."""

    lines: tuple[Line, ...] = ()
    refusal: Refusal | None = None
    too_long: bool = False


def judged(
    reply: str | Message | None, request: SummaryRequest, count: Callable[[str], int], *, cut: bool = False
) -> Judged:
    """Whether a reply is a summary. ``reply``: its text, or the assistant message; ``cut``: the output
    limit ended it. Must not raise, whatever the reply."""
    message: Message = (
        reply if isinstance(reply, dict) else {"content": reply if isinstance(reply, str) else ""}
    )
    if message.get("tool_calls") or message.get("function_call"):
        return Judged(refusal="tool_call")
    if cut:
        return Judged(refusal="cut")
    text = without_thoughts(text_of(message)).strip()
    text = fenced.group(1).strip() if (fenced := _FENCE.match(text)) else text
    if refusal := _no_summary(text, request):
        return Judged(refusal=refusal)
    lines = _grounded(_parsed(text), request)
    tokens = count(rendered(lines, request.lang))
    if refusal := _bad_summary(lines, tokens, request, count):
        return Judged(refusal=refusal)
    return Judged(lines, too_long=tokens > request.limit)


def _no_summary(text: str, request: SummaryRequest) -> Refusal | None:
    """Why a text isn't a summary at all."""
    if _says_nothing(text):
        return "empty"
    if CALL_MARK.search(text):
        return "tool_call"
    if _REFUSES.match(text):
        return "refusal"
    return "echo" if _echoes(text, request) else None


def _bad_summary(
    lines: Sequence[Line], tokens: int, request: SummaryRequest, count: Callable[[str], int]
) -> Refusal | None:
    """Why a summary is worse than what it would take the place of."""
    said = "\n".join(line.text for line in lines)
    if not said:
        return "empty"
    if _other_language(said, request.lang):
        return "language"
    kept = sum(literal in said for literal in request.literals)
    if len(request.literals) > 2 * kept:
        return "literals"
    replaced = count(rendered(request.base, request.lang)) + sum(count(each.text) for each in request.sources)
    return "longer" if tokens > max(replaced, SHORT) else None


def _says_nothing(text: str) -> bool:
    bare = text.strip(" \t\r\n.,;:!?-*_#()[]。，；：！？（）")
    return _NOTHING.fullmatch(bare) is not None


def _echoes(text: str, request: SummaryRequest) -> bool:
    """The reply is the prompt: its instruction, or what was said, line by line."""
    if any(say(words, request.lang)[:40] in text for words in (TASK, KEEPER, SHORTER)):
        return True
    said = {spoken(source, request.lang) for source in request.sources}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return len(lines) >= 3 and 2 * sum(line in said for line in lines) > len(lines)


def _parsed(text: str) -> list[Line]:
    """The lines of a summary as JSON, under headings, or as plain text."""
    if text.startswith(("{", "[")):
        try:
            return _from_json(json.loads(text))
        except (ValueError, RecursionError):
            pass
    section: Section = "facts"
    lines: list[Line] = []
    for raw in map(str.strip, text.splitlines()):
        if headed := _headed(raw):
            section, rest = headed
            lines.append(_line(section, rest))
        elif raw and not _HEADING.fullmatch(raw):
            lines.append(_line(section, _BULLET.sub("", raw).strip().strip("*")))
    return lines


def _from_json(value: Any) -> list[Line]:
    lines: list[Line] = []
    if isinstance(value, dict):
        for key, items in value.items():
            section = _section(str(key)) or "facts"
            for item in items if isinstance(items, list) else [items]:
                if isinstance(item, dict):
                    entries = item.get("entries")
                    numbers = [n for n in entries if isinstance(n, int)] if isinstance(entries, list) else []
                    lines.append(replace(_line(section, str(item.get("text") or "")), entries=tuple(numbers)))
                elif isinstance(item, str):
                    lines.append(_line(section, item))
    return lines


def _headed(line: str) -> tuple[Section, str] | None:
    """The section whose heading stands at the line's beginning, and what is said behind it."""
    bare = line.strip("#*_ ").replace("：", ":")
    parts = bare.split(":")
    for words in range(len(parts), 0, -1):
        if section := _section(":".join(parts[:words]).strip("*_ ")):
            return section, ":".join(parts[words:]).strip("*_ ")
    return None


def _section(text: str) -> Section | None:
    """The section that a heading names, by its key or in either language."""
    lowered = text.lower().replace("：", ":")
    for section, (english, chinese) in HEADINGS.items():
        names = {section, english.lower(), chinese.replace("：", ":")}
        if lowered in names | {name.partition(":")[0] for name in names}:
            return section
    return None


def _line(section: Section, text: str) -> Line:
    numbers = _NUMBERS.search(text)
    entries: tuple[int, ...] = ()
    if numbers:
        entries = tuple(int(number) for number in re.findall(r"\d+", numbers.group(1)))
        text = text[: numbers.start()]
    flat = " ".join(masked(text).split())
    return Line(section, flat if len(flat) <= LONGEST_LINE else f"{flat[: LONGEST_LINE - 1]}…", entries)


def _grounded(lines: Sequence[Line], request: SummaryRequest) -> tuple[Line, ...]:
    """The lines that say something, each with entries that exist: those it names, else those that share
    most of its exact literals and rare words."""
    known = {number for source in request.sources for number in source.entries}
    known |= {number for line in request.base for number in line.entries}
    index: dict[str, list[tuple[int, ...]]] = {}
    for text, entries in (
        *((line.text, line.entries) for line in request.base),
        *((source.text, source.entries) for source in request.sources),
    ):
        for word in _terms(text):
            index.setdefault(word, []).append(entries)
    grounded: list[Line] = []
    for line in lines:
        if _says_nothing(line.text):
            continue
        named = tuple(dict.fromkeys(number for number in line.entries if number in known))
        grounded.append(replace(line, entries=named or _behind(line.text, index)))
    return tuple(dict.fromkeys(grounded))


def _behind(text: str, index: Mapping[str, Sequence[tuple[int, ...]]]) -> tuple[int, ...]:
    """The entries whose words the text uses most; a word that stands everywhere tells nothing."""
    votes: dict[tuple[int, ...], float] = {}
    for word in sorted(_terms(text)):
        for entries in index.get(word, ()):
            votes[entries] = votes.get(entries, 0.0) + 1 / len(index[word])
    best = max(votes.items(), key=lambda vote: (vote[1], vote[0]), default=None)
    return best[0] if best else ()


def _terms(text: str) -> set[str]:
    words = set(re.findall(r"[\w./@-]{3,}", text.lower(), re.A))
    chinese = _HAN.findall(text)
    return words | {first + second for first, second in pairwise(chinese)}


def _other_language(text: str, lang: Language) -> bool:
    """Chinese where the person writes another language, or none at all where the person writes Chinese."""
    if lang == "zh":
        return len(_HAN.findall(text)) * 10 < len(re.findall(r"[A-Za-z]{2,}", text))
    return language_of(text) == "zh"
