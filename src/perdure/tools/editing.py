"""Replacing a piece of a text: exactly what was named, once, or an answer that helps to name it. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.errors import ToolError
from perdure.tools.texts import TextForm

#: Lines of a file that are compared with a text that isn't found, and how many of them are shown.
COMPARED, SHOWN = 20_000, 12
#: Likeness, from 0 to 1, from which on a place is worth showing.
LIKE = 0.6
#: Characters from which on a text doesn't stand in a file by chance.
TELLING = 12
#: `read_file` shows lines with their numbers, which models copy.
_NUMBERED = re.compile(r"^\s*\d+\t")


@dataclass(frozen=True, slots=True)
class Edit:
    """A new text, and the numbers of the lines at which it differs, from 1."""

    text: str
    lines: tuple[int, ...]


def edited(text: str, old: str, new: str, form: TextForm, *, everywhere: bool = False) -> Edit:
    """The text with ``old`` replaced by ``new``. A line end in either is whatever the file has. Raises
    `ToolError`, which says what stands there instead, where ``old`` isn't found, or more than once and not
    ``everywhere``."""
    if not old:
        raise ToolError("error: old_text is empty; write_file writes a whole file")
    plain_old, plain_new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if plain_old == plain_new:
        raise ToolError("error: old_text and new_text are the same, so there is nothing to change")
    wanted = re.compile("\r?\n".join(re.escape(line) for line in plain_old.split("\n")))
    found = list(wanted.finditer(text))
    if not found:
        raise ToolError(_not_found(text, plain_old, plain_new))
    numbers = tuple(_line_number(text, match.start()) for match in found)
    if len(found) > 1 and not everywhere:
        raise ToolError(
            f"error: old_text stands {len(found)} times in the file, at lines {_some(numbers)}; add lines "
            "around it until it stands once, or set replace_all to change all of them"
        )
    pieces: list[str] = []
    end = 0
    for match in found:
        crlf = "\r\n" in match[0] or ("\n" not in match[0] and form.crlf)
        pieces += [text[end : match.start()], plain_new.replace("\n", "\r\n") if crlf else plain_new]
        end = match.end()
    return Edit("".join([*pieces, text[end:]]), numbers)


def _not_found(text: str, old: str, new: str) -> str:
    """Why a text that isn't there may have been thought to be."""
    said = "error: old_text is not in the file"
    old_lines = old.strip("\n").split("\n")
    if all(_NUMBERED.match(line) for line in old_lines if line.strip()):
        return f"{said}: leave out the line numbers and the tab behind them"
    plain = text.replace("\r\n", "\n")
    lines = plain.split("\n")
    if (first := _blanks_apart(lines, old_lines)) is not None:
        return f"{said}; this differs from it in blanks alone:\n{_shown(lines, first, len(old_lines))}"
    if len(new.strip()) >= TELLING and (at := plain.find(new)) >= 0:
        return (
            f"{said}, but new_text is, at line {_line_number(plain, at)}: perhaps it was changed already; "
            "read the file again"
        )
    if (first := _likest(lines, old_lines)) is not None:
        return f"{said}; the likest that is:\n{_shown(lines, first, len(old_lines))}"
    return f"{said}, nor anything like it; read the file again"


def _blanks_apart(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Where the same lines stand but for blanks: the index of the first."""
    bare = ["".join(line.split()) for line in wanted]
    if not any(bare):
        return None
    there = ["".join(line.split()) for line in lines]
    return next((at for at in _places(there, bare[0]) if there[at : at + len(bare)] == bare), None)


def _places(lines: Sequence[str], first: str) -> Iterator[int]:
    return (index for index, line in enumerate(lines) if line == first)


def _likest(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Where the most like ``wanted`` stands. Only places at which some line is like one of it are
    compared whole."""
    if len(lines) > COMPARED:
        return None
    there = [line.strip() for line in lines]
    starts: dict[int, None] = {}
    for offset, line in enumerate(wanted[:50]):
        if line.strip():
            for near in difflib.get_close_matches(line.strip(), dict.fromkeys(there), 2, LIKE):
                starts |= dict.fromkeys(max(0, at - offset) for at in list(_places(there, near))[:20])
    whole = "\n".join(line.strip() for line in wanted)

    def likeness(start: int) -> float:
        there_whole = "\n".join(there[start : start + len(wanted)])
        return difflib.SequenceMatcher(None, there_whole, whole, autojunk=False).ratio()

    best = max(list(starts)[:40], key=likeness, default=None)
    return best if best is not None and likeness(best) >= LIKE else None


def _shown(lines: Sequence[str], first: int, count: int) -> str:
    """Lines with their numbers, as `read_file` shows them."""
    last = min(len(lines), first + min(count, SHOWN))
    shown = [f"{number + 1}\t{lines[number][:400]}" for number in range(first, last)]
    return "\n".join([*shown, "…"] if count > SHOWN else shown)


def _line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _some(numbers: Sequence[int], most: int = 8) -> str:
    return ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")
