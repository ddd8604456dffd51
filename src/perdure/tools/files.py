"""Reading files: text with line numbers, a page at a time, in whatever encoding it is."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path

from perdure.chat.calls import Example
from perdure.errors import ToolError
from perdure.tools.contract import Tool, Touch
from perdure.tools.decoding import SAMPLE, encoding_of
from perdure.tools.registry import tool
from perdure.tools.workspace import open_inside, paths_touched

#: A page: lines, characters in all, characters of one line.
PAGE_LINES, PAGE_CHARACTERS, LINE_CHARACTERS = 1_000, 24_000, 2_000

READ_EXAMPLES = (
    Example("Read the file letter.txt", {"path": "letter.txt"}),
    Example("Please read pyproject.toml", {"path": "pyproject.toml"}),
    Example("Show me src/main.py", {"path": "src/main.py"}),
    Example("What does the file docs/guide.md say?", {"path": "docs/guide.md"}),
    Example("Open the file tests/conftest.py", {"path": "tests/conftest.py"}),
    Example("Print config/settings.json", {"path": "config/settings.json"}),
    Example("Show me /var/log/syslog", {"path": "/var/log/syslog"}),
    Example("Summarise LICENSE", {"path": "LICENSE"}),
    Example("读取文件 data/users.csv", {"path": "data/users.csv"}),
    Example("请读一下 日记.txt", {"path": "日记.txt"}),
    Example("看看 src/server.go 里写了什么", {"path": "src/server.go"}),
)


def read_file_tool(workspace: Path) -> Tool:
    """The tool `read_file` for files in ``workspace``."""

    @tool(effect="reads", examples=READ_EXAMPLES)
    def read_file(path: str, start_line: int = 1, end_line: int | None = None) -> str:
        """Read a text file, with line numbers; long files page by page.

        Args:
            path: the file, relative to the workspace
            start_line: first line to read, from 1
            end_line: last line to read; by default as many as fit a page
        """
        return page_of(workspace, path, start_line, end_line)

    return replace(read_file, touches=lambda given: Touch(paths=paths_touched(workspace, given.get("path"))))


def page_of(workspace: Path, path: str, start_line: int = 1, end_line: int | None = None) -> str:
    """Lines of a file as `read_file` shows them. Raises `ToolError`."""
    if start_line < 1 or (end_line is not None and end_line < start_line):
        raise ToolError("error: lines count from 1, and end_line must not be before start_line")
    with os.fdopen(open_inside(workspace, path), "rb") as file:
        sample = file.read(SAMPLE)
        size = os.fstat(file.fileno()).st_size
        encoding = encoding_of(sample)
        if encoding is None:
            raise ToolError(f"error: {path!r} is a binary file of {size} bytes")
        file.seek(0)
        text = io.TextIOWrapper(file, encoding.codec, errors="replace")
        lines, more = _lines(text, start_line, end_line)
    notes = [encoding.note, "CRLF line ends" if b"\r\n" in sample else ""]
    head = [f"[{note}]" for note in notes if note]
    if not lines:
        empty = f"(the file has no line {start_line})" if size and start_line > 1 else "(the file is empty)"
        return "\n".join([*head, empty])
    if more:
        last = start_line + len(lines) - 1
        lines.append(f"[more lines follow; read on with start_line={last + 1}]")
    return "\n".join([*head, *lines])


def _lines(text: io.TextIOWrapper, start_line: int, end_line: int | None) -> tuple[list[str], bool]:
    """Numbered lines of one page, and whether more follow."""
    for _ in islice(iter(lambda: _line(text), None), start_line - 1):
        pass
    wanted = PAGE_LINES if end_line is None else min(PAGE_LINES, end_line - start_line + 1)
    lines: list[str] = []
    room = PAGE_CHARACTERS
    for number in range(start_line, start_line + wanted):
        line = _line(text)
        if line is None:
            return lines, False
        if len(line) > room and lines:
            return lines, True
        room -= len(line) + 8
        lines.append(f"{number}\t{line}")
    ended = end_line is not None and end_line - start_line + 1 <= PAGE_LINES
    return lines, not ended and _line(text) is not None


def _line(text: io.TextIOWrapper) -> str | None:
    """The next line without its end, at most `LINE_CHARACTERS` of it; None at the end of the file."""
    line = text.readline(LINE_CHARACTERS + 1)
    if not line:
        return None
    if line.endswith("\n"):
        return line[:-1]
    left_out = 0
    if len(line) > LINE_CHARACTERS:
        left_out = 1
        while (rest := text.readline(65_536)) and not rest.endswith("\n"):
            left_out += len(rest)
        left_out += len(rest.removesuffix("\n"))
        return f"{line[:LINE_CHARACTERS]} [... {left_out} characters of this line left out]"
    return line
