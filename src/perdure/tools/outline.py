"""Many paths as a list that fits: folders that have no room are told by how much is in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class _Folder:
    folders: dict[str, _Folder] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    count: int = 0


def outline(paths: Sequence[str], lines: int, characters: int, *, more: bool = False) -> str:
    """Paths with forward slashes, one a line, those of a folder together. Where that takes more than
    ``lines`` or ``characters``, the deepest folders are told by their number of files, level by level.
    ``more``: there are others, which weren't taken in."""
    top = _tree(paths)
    deepest = max((path.count("/") for path in paths), default=0)
    depth = next(
        (depth for depth in range(deepest, -1, -1) if _fits(_shown(top, depth), lines, characters)), 0
    )
    shown = list(_shown(top, depth))
    kept: list[str] = []
    room = characters
    for line in shown[:lines]:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    left = len(shown) - len(kept)
    notes = []
    if depth < deepest:
        notes.append("folders that end with their number of files can be listed by their path")
    if left:
        notes.append(f"{left} more lines: narrow it by path or pattern")
    if more:
        notes.append(f"only the first {len(paths)} files were looked at")
    count = f"{len(paths)} file{'' if len(paths) == 1 else 's'}"
    return "\n".join([*kept, f"[{'; '.join([count, *notes])}]"])


def _tree(paths: Iterable[str]) -> _Folder:
    top = _Folder()
    for path in sorted(paths):
        *folders, name = path.split("/")
        at = top
        at.count += 1
        for each in folders:
            at = at.folders.setdefault(each, _Folder())
            at.count += 1
        at.files.append(name)
    return top


def _shown(folder: _Folder, depth: int, path: str = "") -> Iterable[str]:
    for name, inner in folder.folders.items():
        if depth > 0:
            yield from _shown(inner, depth - 1, f"{path}{name}/")
        else:
            yield f"{path}{name}/ ({inner.count} file{'' if inner.count == 1 else 's'})"
    yield from (f"{path}{name}" for name in folder.files)


def _fits(shown: Iterable[str], lines: int, characters: int) -> bool:
    size = 0
    for count, line in enumerate(shown, 1):
        size += len(line) + 1
        if count > lines or size > characters:
            return False
    return True
