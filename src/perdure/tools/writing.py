"""The tools that change files: `write_file` and `edit_file`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.chat.calls import Example
from perdure.errors import ToolError
from perdure.tools.changes import ChangeLog, FileChange, Making, added_and_removed, change_file, difference
from perdure.tools.contract import Tool, Touch
from perdure.tools.editing import edited
from perdure.tools.places import Content, place_inside, read
from perdure.tools.registry import tool
from perdure.tools.texts import TextForm, text_of_bytes, with_ends_of
from perdure.tools.workspace import paths_touched

WRITE_EXAMPLES = (
    Example("Write 'hello' to greeting.txt", {"path": "greeting.txt", "content": "hello"}),
    Example("Create notes/today.md with a heading", {"path": "notes/today.md", "content": "# Today\n"}),
    Example("新建文件 说明.txt，内容为 你好", {"path": "说明.txt", "content": "你好"}),
)
EDIT_EXAMPLES = (
    Example(
        "In app.py, rename the function foo to bar",
        {"path": "app.py", "old_text": "def foo(", "new_text": "def bar("},
    ),
    Example(
        "把 config.toml 里的 debug = true 改成 false",
        {"path": "config.toml", "old_text": "debug = true", "new_text": "debug = false"},
    ),
)


class WithoutLog:
    """A `ChangeLog` where nothing is to be taken back."""

    def will_change(self, change: FileChange) -> None:
        pass


def write_file_tool(workspace: Path, log: ChangeLog | None = None) -> Tool:
    """The tool `write_file` for files in ``workspace``; ``log`` is told of each change."""
    kept_in = log or WithoutLog()

    @tool(effect="acts", examples=WRITE_EXAMPLES)
    async def write_file(path: str, content: str) -> str:
        """Write a whole file: a new one, with its folders, or in place of what is there. To change a part of
        one use edit_file.

        Args:
            path: the file, relative to the workspace
            content: all of its text
        """
        change = await _changed(workspace, path, _written(path, content), kept_in, new=True)
        if change.before is None:
            return f"wrote {change.path}, a new file ({_lines(content)})"
        if change.before.data == (change.after.data if change.after else None):
            return f"{change.path} holds just that already"
        added, removed = added_and_removed(_diff(change))
        return f"wrote {change.path} in place of what was there ({_lines(content)}; +{added} -{removed})"

    return _shown(write_file, workspace, lambda given: _written(str(given["path"]), str(given["content"])))


def edit_file_tool(workspace: Path, log: ChangeLog | None = None) -> Tool:
    """The tool `edit_file` for files in ``workspace``; ``log`` is told of each change."""
    kept_in = log or WithoutLog()

    @tool(effect="acts", examples=EDIT_EXAMPLES)
    async def edit_file(path: str, old_text: str, new_text: str, replace_all: bool = False) -> str:
        """Change a part of a text file: replaces old_text, which must stand in it exactly once, by new_text.

        Args:
            path: the file, relative to the workspace
            old_text: what stands there, with its blanks, without line numbers
            new_text: what is to stand there instead
            replace_all: replace it wherever it stands
        """
        lines: list[int] = []

        def making(before: Content | None) -> bytes:
            lines.clear()
            data, found = _edited(path, before, old_text, new_text, everywhere=replace_all)
            lines.extend(found)
            return data

        change = await _changed(workspace, path, making, kept_in)
        added, removed = added_and_removed(_diff(change))
        shown = ", ".join(map(str, lines[:8])) + (", …" if len(lines) > 8 else "")
        where = f"line {shown}" if len(lines) == 1 else f"{len(lines)} places: lines {shown}"
        return f"changed {change.path} at {where} (+{added} -{removed})"

    def making_of(given: Mapping[str, Any]) -> Making:
        path, old, new = (str(given[name]) for name in ("path", "old_text", "new_text"))
        everywhere = bool(given.get("replace_all"))
        return lambda before: _edited(path, before, old, new, everywhere=everywhere)[0]

    return _shown(edit_file, workspace, making_of)


def _written(path: str, content: str) -> Making:
    def making(before: Content | None) -> bytes:
        form = TextForm()
        if before is not None and before.data:
            try:
                form = text_of_bytes(before.data, path)[1]
            except ToolError:  # what was no text becomes one
                return _encoded(content, form, path)
        try:
            return form.encoded(with_ends_of(content, form) if form.crlf else content)
        except UnicodeEncodeError:  # the old encoding has no such characters
            return _encoded(content, TextForm(crlf=form.crlf), path)

    return making


def _edited(
    path: str, before: Content | None, old: str, new: str, *, everywhere: bool
) -> tuple[bytes, tuple[int, ...]]:
    if before is None:
        raise ToolError(f"error: there is no file {path!r}; write_file makes one")
    text, form = text_of_bytes(before.data, path)
    edit = edited(text, old, new, form, everywhere=everywhere)
    return _encoded(edit.text, form, path), edit.lines


def _encoded(text: str, form: TextForm, path: str) -> bytes:
    try:
        return form.encoded(text)
    except UnicodeEncodeError as error:
        raise ToolError(
            f"error: {path!r} is {form.codec.upper()}, which has no {text[error.start]!r}; "
            "convert it first, or leave that out"
        ) from None


async def _changed(
    workspace: Path, path: str, making: Making, log: ChangeLog, *, new: bool = False
) -> FileChange:
    """The change made in a thread, as a file system may be slow, and told where the journal lives."""
    import anyio.from_thread
    import anyio.to_thread

    def tell(change: FileChange) -> None:
        anyio.from_thread.run_sync(log.will_change, change)

    return await anyio.to_thread.run_sync(lambda: change_file(workspace, path, making, tell, new=new))


def _shown(made: Tool, workspace: Path, making_of: Callable[[Mapping[str, Any]], Making]) -> Tool:
    """The tool that tells what a call touches, and shows what it would change."""

    def preview(arguments: Mapping[str, Any]) -> str:
        try:
            with place_inside(workspace, str(arguments["path"])) as place:
                path, before = place.path, read(place)
        except (ToolError, KeyError):  # a new folder, or what the call itself will say
            path, before = str(arguments.get("path", "")), None
        try:
            after = making_of(arguments)(before)
        except (ToolError, KeyError):
            return ""
        return difference(path, before.data if before else None, after)

    def touches(arguments: Mapping[str, Any]) -> Touch:
        return Touch(paths=paths_touched(workspace, arguments.get("path")))

    return replace(made, preview=preview, touches=touches)


def _diff(change: FileChange) -> str:
    before, after = change.before, change.after
    return difference(change.path, before.data if before else None, after.data if after else None)


def _lines(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n") if text else 0)
    return "1 line" if count == 1 else f"{count} lines"
