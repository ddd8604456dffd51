"""The gist: a short record of what left the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perdure.chat.language import Language, say
from perdure.errors import Words

Section = Literal["goals", "facts", "tools", "constraints", "open"]

HEADINGS: dict[Section, Words] = {
    "goals": ("Goals and requests", "目标与请求"),
    "facts": ("Facts, decisions, answers", "事实、决定与回答"),
    "tools": ("Tools and what they showed", "工具及其结果"),
    "constraints": ("Constraints: paths, environment, preferences", "约束：路径、环境、偏好"),
    "open": ("Still open", "尚未完成"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a gist. ``entries``: the numbers of the entries it rests on."""

    section: Section
    text: str
    entries: tuple[int, ...] = ()


def rendered(lines: Sequence[Line], lang: Language) -> str:
    """The lines under their headings, each with the numbers of its entries."""
    parts: list[str] = []
    for section, heading in HEADINGS.items():
        under = [line for line in lines if line.section == section]
        if under:
            parts.append(f"{say(heading, lang)}:")
            parts += [f"- {line.text} [{', '.join(map(str, line.entries))}]" for line in under]
    return "\n".join(parts)
