"""The files of a folder without what its ignore files name; and, as a program of its own, the lines in them
that fit a pattern. For where ripgrep isn't installed, whose rules these are.

It is a program because a pattern can take for ever, and Python's `re` lets nothing else run meanwhile:
another process can be ended. It is started by its path, so it imports nothing of perdure.

    python -I walking.py files FOLDER
    python -I walking.py search FOLDER PATTERN CONTEXT [ignore_case]

writes `path NUL` for each file, or `path NUL number : line` for each line that fits (`-` instead of `:`
for one beside it), paths relative to the FOLDER that is worked in.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

#: Each later one wins, as in ripgrep.
IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
#: Bytes at a file's beginning in which a NUL says that it is no text.
SAMPLE = 65_536
#: Characters of a line that are shown.
LINE = 500

#: A folder and what its ignore file says: given a path relative to it, ignored, taken all the same, or None.
Rules = Sequence[tuple[str, Callable[[str], bool | None]]]


def files(root: str, folder: str = ".") -> Iterator[str]:
    """Paths, relative to ``root`` and in order, of the regular files in a folder of it."""
    start = os.path.normpath(os.path.join(root, folder))
    if os.path.isfile(start):
        yield os.path.relpath(start, root)
        return
    for path in _walked(start, [*_above(start)]):
        yield os.path.relpath(path, root)


def _walked(folder: str, rules: Rules) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    own = [*rules, *_rules(folder)]
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name == ".git" or _ignored(entry.path, own, is_folder=is_folder):
            continue
        if is_folder:
            yield from _walked(entry.path, own)
        elif entry.is_file(follow_symlinks=False):
            yield entry.path


def _above(start: str) -> Iterator[tuple[str, Callable[[str], bool | None]]]:
    """What the ignore files above a folder say, from the root on."""
    above: list[str] = []
    folder = start
    while (parent := os.path.dirname(folder)) != folder:
        above.append(folder := parent)
    for each in reversed(above):
        yield from _rules(each)


def _rules(folder: str) -> Iterator[tuple[str, Callable[[str], bool | None]]]:
    for name in (os.path.join(".git", "info", "exclude"), *IGNORE_FILES):
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines = file.read(1 << 20).splitlines()
        except OSError:
            continue
        yield folder, _spec(lines)


def _spec(lines: list[str]) -> Callable[[str], bool | None]:
    from pathspec import GitIgnoreSpec

    kept: list[str] = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
            kept.append(line)
        except ValueError:  # a line that is no pattern ignores nothing
            continue
    spec: Any = GitIgnoreSpec.from_lines(kept)
    return lambda path: spec.check_file(path).include


def _ignored(path: str, rules: Rules, *, is_folder: bool) -> bool:
    said: bool | None = None
    for folder, spec in rules:
        relative = os.path.relpath(path, folder).replace(os.sep, "/")
        found = spec(f"{relative}/" if is_folder else relative)
        said = said if found is None else found
    return bool(said)


def lines_found(
    root: str, folder: str, wanted: re.Pattern[str], context: int
) -> Iterator[tuple[str, int, bool, str]]:
    """Path, number, whether it fits (else it stands beside one that does), and text of lines."""
    for path in files(root, folder):
        try:
            with open(os.path.join(root, path), "rb") as file:
                data = file.read()
        except OSError:
            continue
        if (text := _text(data)) is None:
            continue
        for number, fits, line in _around(text.split("\n"), wanted, context):
            yield path, number, fits, line.removesuffix("\r")


def _text(data: bytes) -> str | None:
    for mark, codec in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8")):
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    return None if b"\0" in data[:SAMPLE] else data.decode("utf-8", "replace")


def _around(lines: list[str], wanted: re.Pattern[str], context: int) -> Iterator[tuple[int, bool, str]]:
    if lines and not lines[-1]:
        lines = lines[:-1]
    before: deque[tuple[int, str]] = deque(maxlen=context)
    after = 0
    for number, line in enumerate(lines, 1):
        if wanted.search(line.removesuffix("\r")):
            yield from ((at, False, text) for at, text in before)
            before.clear()
            yield number, True, line
            after = context
        elif after:
            yield number, False, line
            after -= 1
        else:
            before.append((number, line))


def main(arguments: list[str]) -> None:
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    what, folder, *rest = arguments
    if what == "files":
        for path in files(os.getcwd(), folder):
            sys.stdout.write(f"{path}\0")
        return
    pattern, context, *flags = rest
    wanted = re.compile(pattern, re.IGNORECASE if flags else 0)
    for path, number, fits, line in lines_found(os.getcwd(), folder, wanted, int(context)):
        sys.stdout.write(f"{path}\0{number}{':' if fits else '-'}{line[:LINE]}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
