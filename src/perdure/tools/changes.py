"""Changing files of the workspace: each change is told before it is made, so that it can be taken back."""

from __future__ import annotations

import difflib
import hashlib
import io
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from perdure.errors import ToolError
from perdure.tools import places
from perdure.tools.places import Content, place_inside
from perdure.tools.texts import text_of_bytes

#: Lines of both sides of a difference that are still compared line by line.
COMPARED = 20_000


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's content before and after, None where there is no file; ``path`` relative to the workspace."""

    path: str
    before: Content | None
    after: Content | None


class ChangeLog(Protocol):
    """Is told of each change of a file right before it is made, durably. May raise `StoreError`, and then
    nothing is changed."""

    def will_change(self, change: FileChange) -> None: ...


#: A file's new content, made of its present one; None: it is to be removed. May raise `ToolError`.
Making = Callable[[Content | None], bytes | None]

#: A file is read and written back by one at a time, whatever runs side by side in this process.
_WRITING = threading.Lock()


def change_file(
    workspace: Path, path: str, making: Making, tell: Callable[[FileChange], None], *, new: bool = False
) -> FileChange:
    """Change the file at ``path``; ``new``: folders on the way are made. Raises `ToolError`, and what
    ``tell`` raises; then nothing is changed."""
    with _WRITING, place_inside(workspace, path, makes_folders=new) as place:
        before = places.read(place)
        data = making(before)
        mode = before.mode if before else None
        after = None if data is None else Content(data, mode if mode is not None else 0)
        change = FileChange(place.path, before, after)
        if data == (before.data if before else None):
            return change
        tell(change)
        if data is None:
            places.remove(place)
        else:
            places.write(place, data, mode)
        return change


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a change, to take it back: the content before it, if that is still known, whether there
    was a file (``existed``), and what the content after it is known by (empty: no file)."""

    path: str
    existed: bool
    before: Content | None
    after: str


Restored = Literal["restored", "unchanged", "changed since", "forgotten"]


def restore(workspace: Path, kept: Iterable[Kept]) -> dict[str, Restored | str]:
    """Take changes, in the order in which they were made, back. For each path: `restored`; `unchanged` where
    it is as before already; `changed since`, by somebody else, so that it stays; `forgotten`, where the
    content is no longer known; or why it can't be written."""
    first: dict[str, Kept] = {}
    last: dict[str, Kept] = {}
    for each in kept:
        first.setdefault(each.path, each)
        last[each.path] = each
    return {path: _restored(workspace, each, last[path].after) for path, each in first.items()}


def _restored(workspace: Path, kept: Kept, after: str) -> Restored | str:
    try:
        with _WRITING, place_inside(workspace, kept.path, makes_folders=kept.existed) as place:
            there = places.read(place)
            if kept.existed and kept.before is None:
                return "forgotten"
            before = kept.before.data if kept.before else None
            if (there.data if there else None) == before:
                return "unchanged"
            if digest(there) != after:
                return "changed since"
            if kept.before is None:
                places.remove(place)
            else:
                places.write(place, kept.before.data, kept.before.mode)
            return "restored"
    except ToolError as error:
        return str(error).removeprefix("error: ")


def digest(content: Content | None) -> str:
    """What a content is known by; empty where there is no file."""
    return hashlib.sha256(content.data).hexdigest() if content else ""


def difference(path: str, before: bytes | None, after: bytes | None) -> str:
    """What differs, as a unified diff; in a word where it is no text or too long."""
    try:
        old, new = (_lines(data, path) for data in (before, after))
    except ToolError:
        return f"(binary: {len(before or b'')} bytes → {len(after or b'')} bytes)\n"
    if len(old) + len(new) > COMPARED:
        return f"({len(old)} lines → {len(new)} lines)\n"
    names = (
        f"a/{path}" if before is not None else "/dev/null",
        f"b/{path}" if after is not None else "/dev/null",
    )
    return "".join(_marked(difflib.unified_diff(old, new, *names, n=3)))


def _lines(data: bytes | None, path: str) -> list[str]:
    text = text_of_bytes(data, path)[0] if data else ""
    return list(io.StringIO(text.replace("\r\n", "\n"), newline="\n"))


def _marked(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def added_and_removed(diff: str) -> tuple[int, int]:
    """How many lines a unified diff adds and removes."""
    lines = [line for line in diff.split("\n") if not line.startswith(("+++ ", "--- "))]
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)
