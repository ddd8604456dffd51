"""What a project tells agents that work in it: AGENTS.md, and perdure.md for this one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from perdure.chat.language import Language, say
from perdure.errors import Words

NAMES = ("AGENTS.md", "perdure.md")
#: Bytes of a file that are read at most.
LONGEST = 256 * 1024

HEAD: Words = ("Instructions of the project, of {file}:", "项目说明，来自 {file}：")
CUT: Words = ("[... the rest has no room here: read the file]", "[……其余部分放不下：请读取该文件]")


def instructions(workspace: Path, room: int, count: Callable[[str], int], lang: Language) -> str:
    """The instructions for a workspace, those of folders above it first, up to the one that holds `.git` (of
    none above where there is no such folder), in at most ``room`` tokens, as ``count`` counts them: the
    nearest are kept. Empty where there are none."""
    kept: list[str] = []
    for path in reversed(list(_files(workspace))):
        text = _read(path)
        if not text:
            continue
        head = say(HEAD, lang, file=path)
        whole = f"{head}\n{text}"
        if count(whole) > room:
            whole = _cut(head, text, room, count, say(CUT, lang))
        if not whole:
            break
        kept.append(whole)
        room -= count(whole)
    return "\n\n".join(reversed(kept))


def _files(workspace: Path) -> Iterator[Path]:
    folders = [workspace, *workspace.parents]
    top = next((at for at, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    for folder in reversed(folders[: top + 1]):
        yield from (folder / name for name in NAMES)


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(LONGEST).decode("utf-8-sig", "replace").replace("\x00", "").strip()
    except OSError:
        return ""


def _cut(head: str, text: str, room: int, count: Callable[[str], int], note: str) -> str:
    """The beginning, in whole lines, that has room with the note; empty where none has."""
    lines = text.splitlines()
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        if count("\n".join([head, *lines[:middle], note])) <= room:
            low = middle
        else:
            high = middle - 1
    return "\n".join([head, *lines[:low], note]) if low else ""
