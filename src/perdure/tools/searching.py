"""The tools that find things in the workspace: `list_files` and `search_files`.

ripgrep looks where it is installed, else a program of our own with the same rules: what ignore files name is
left out, hidden files aren't, links are not followed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

from perdure.chat.calls import Example
from perdure.errors import ToolError
from perdure.tools import walking
from perdure.tools.contract import Tool, Touch
from perdure.tools.outline import outline
from perdure.tools.places import real_path
from perdure.tools.registry import tool
from perdure.tools.workspace import paths_touched

#: What is shown at most: lines of a list, lines of files, characters.
LISTED, LINES, CHARACTERS = 300, 200, 20_000
#: Files that are taken in at most for a list.
FILES = 100_000
#: Lines around each match, at most.
MOST_CONTEXT = 10

RIPGREP = (
    "--no-config",
    "--no-messages",
    "--color=never",
    "--hidden",
    "--no-require-git",
    "--no-ignore-global",
    "--glob=!.git",
    "--sort=path",
    "--null",
)

LINE_BY_LINE = ("--with-filename", "--no-heading", "--line-number", "--crlf")

LIST_EXAMPLES = (
    Example("Which files are in this project?", {}),
    Example("List the Python files in src", {"path": "src", "pattern": "*.py"}),
    Example("src 目录里有哪些文件？", {"path": "src"}),
)
SEARCH_EXAMPLES = (
    Example("Where is parse_config defined?", {"pattern": "def parse_config"}),
    Example("Find TODO in the Markdown files", {"pattern": "TODO", "files": "*.md"}),
    Example("在代码里搜索 timeout", {"pattern": "timeout"}),
)


def ripgrep() -> str | None:
    """The path of ripgrep; None where it isn't installed."""
    return shutil.which("rg")


def list_files_tool(workspace: Path, found: Callable[[], str | None] = ripgrep) -> Tool:
    """The tool `list_files` for a ``workspace``."""

    @tool(effect="reads", examples=LIST_EXAMPLES)
    async def list_files(path: str = ".", pattern: str | None = None) -> str:
        """List the files in a folder and below it, without what .gitignore names; of a large one an outline.

        Args:
            path: the folder, relative to the workspace
            pattern: only files that fit, as *.py or src/**/*.ts
        """
        folder = _inside(workspace, path)
        fits = _fitting(pattern)
        program = found()
        argv = [program, "--files", *RIPGREP, "--", folder] if program else _walking("files", folder)
        paths: list[str] = []
        async with aclosing(_pieces(argv, workspace, b"\0")) as pieces:
            async for each in pieces:
                name = _relative(each.decode("utf-8", "surrogateescape"))
                if fits(name):
                    paths.append(name)
                if len(paths) >= FILES:
                    break
        if not paths:
            what = f"no file fits {pattern!r}" if pattern else "no files"
            return f"({what} in {_relative(folder)!r}, or all are ignored)"
        return outline(paths, LISTED, CHARACTERS, more=len(paths) >= FILES)

    return _touching(list_files, workspace)


def search_files_tool(workspace: Path, found: Callable[[], str | None] = ripgrep) -> Tool:
    """The tool `search_files` for a ``workspace``."""

    @tool(effect="reads", examples=SEARCH_EXAMPLES)
    async def search_files(
        pattern: str,
        path: str = ".",
        files: str | None = None,
        ignore_case: bool = False,
        context: int = 0,
    ) -> str:
        """Search the lines of text files for a regular expression, without what .gitignore names.

        Args:
            pattern: the regular expression, for one line at a time
            path: the folder or file to search, relative to the workspace
            files: only files that fit, as *.py or src/**/*.ts
            ignore_case: upper and lower case are the same
            context: lines to show around each match
        """
        folder, fits = _inside(workspace, path), _fitting(files)
        wanted, note = _regex(pattern)
        around = str(max(0, min(context, MOST_CONTEXT)))
        flags = ["ignore_case"] if ignore_case else []
        own = _walking("search", folder, wanted, around, *flags)
        program = found()
        if program is None:
            return note + await _found(own, workspace, fits)
        case = "--ignore-case" if ignore_case else "--case-sensitive"
        argv = [program, *RIPGREP, *LINE_BY_LINE, case, f"--context={around}"]
        argv += [f"--max-columns={walking.LINE}", "--max-columns-preview", "-e", wanted, "--", folder]
        try:
            return note + await _found(argv, workspace, fits)
        except _Refused:  # a pattern that Python takes and ripgrep doesn't, as one that looks ahead
            return note + await _found(own, workspace, fits)

    return _touching(search_files, workspace)


class _Refused(Exception):
    pass


async def _found(argv: Sequence[str], workspace: Path, fits: Callable[[str], bool]) -> str:
    """The lines that a search writes, by file, within what is shown."""
    shown: list[str] = []
    matches, room, files = 0, CHARACTERS, dict[str, None]()
    last = (".", 0)
    cut = False
    async with aclosing(_pieces(argv, workspace, b"\n", may_refuse=True)) as pieces:
        async for piece in pieces:
            name, separator, rest = piece.decode("utf-8", "replace").partition("\0")
            line = re.match(r"(\d+)([:-])(.*)", rest, re.DOTALL)
            path = _relative(name)
            if not separator or line is None or not fits(path):
                continue
            number, is_match, text = int(line[1]), line[2] == ":", line[3].rstrip("\r")[: walking.LINE]
            if len(shown) >= LINES or room < 0:
                cut = True
                break
            matches += is_match
            if path not in files:
                files[path] = None
                shown.append(path)
            elif number != last[1] + 1 and last[0] == path and not is_match:
                shown.append("  …")
            shown.append(f"  {number}{line[2]} {text}")
            room -= len(shown[-1])
            last = (path, number)
    if not matches:
        return "(no line fits)"
    count = f"{_count(matches, 'line', 'lines')} in {_count(len(files), 'file', 'files')}"
    last_line = f"[the first {count}; more fit: narrow it by path, files or pattern]" if cut else f"[{count}]"
    return "\n".join([*shown, last_line])


async def _pieces(
    argv: Sequence[str], workspace: Path, end: bytes, *, may_refuse: bool = False
) -> AsyncGenerator[bytes]:
    """What a program writes, piece by piece, as long as somebody wants more. Raises `_Refused` where it says
    that it can't do that, if it may."""
    import anyio

    try:
        process = await anyio.open_process(argv, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, cwd=workspace)
    except OSError as error:
        raise ToolError(f"error: nothing can be searched in {workspace}: {error.strerror or error}") from None
    assert process.stdout
    rest, any_came = b"", False
    try:
        async for received in process.stdout:
            *whole, rest = (rest + received).split(end)
            for each in whole:
                any_came = True
                yield each
        if rest:
            yield rest
        code = await process.wait()
        if may_refuse and code == 2 and not any_came:
            raise _Refused
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


def _walking(*arguments: str) -> list[str]:
    return [sys.executable, "-I", walking.__file__, *arguments]


def _regex(pattern: str) -> tuple[str, str]:
    """A regular expression of what was asked for, and what the model must know about it."""
    if not pattern:
        raise ToolError("error: the pattern is empty; list_files lists files")
    if "\0" in pattern:
        raise ToolError("error: the pattern holds a NUL character")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return re.escape(pattern), f"(searched as plain text, since it is no regular expression: {error})\n"
    if "\n" in pattern or "\\n" in pattern:
        return pattern, "(a pattern fits within one line, so one with a line end finds nothing)\n"
    return pattern, ""


def _inside(workspace: Path, path: str) -> str:
    """A folder or file of the workspace, relative to it. Raises `ToolError`."""
    root = workspace.resolve()
    real = real_path(root, path)
    if not real.is_relative_to(root):
        raise ToolError(f"error: {path!r} is outside the workspace {root}")
    if not real.exists():
        raise ToolError(f"error: there is no folder or file {path!r}")
    return str(real.relative_to(root))


def _fitting(pattern: str | None) -> Callable[[str], bool]:
    """Whether a path fits what was asked for: without a slash a name in any folder, else a path from the
    workspace on; braces name alternatives."""
    if not pattern or not pattern.strip():
        return lambda path: True
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(_without_braces(pattern.strip().removeprefix("./")))
    except ValueError:
        raise ToolError(f"error: {pattern!r} is no pattern of files") from None
    return lambda path: bool(spec.match_file(path))


def _without_braces(pattern: str, most: int = 64) -> list[str]:
    """The patterns that one with braces stands for."""
    waiting, plain = [pattern], list[str]()
    while waiting and len(waiting) + len(plain) <= most:
        each = waiting.pop()
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if braces is None:
            plain.append(each)
        else:
            waiting += [each[: braces.start()] + one + each[braces.end() :] for one in braces[1].split(",")]
    return plain


def _relative(path: str) -> str:
    return path.replace(os.sep, "/").removeprefix("./")


def _touching(made: Tool, workspace: Path) -> Tool:
    def touches(arguments: Mapping[str, Any]) -> Touch:
        return Touch(paths=paths_touched(workspace, arguments.get("path", ".")))

    return replace(made, touches=touches)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
