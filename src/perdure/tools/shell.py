"""The shell that runs a command, and the folder in which it ends, where the next one begins.

A folder can only be told by the shell itself, at its end. It does so by an EXIT trap, over a descriptor
that nothing else uses, so that neither output nor exit code tells of it. The command is evaluated as a word
of its own: else the trap would stand in the error messages of the shell, and in the count of their lines.
A command that sets an EXIT trap itself, or replaces the shell (`exec`), tells no folder; then the next one
begins where this one did.

At its beginning it tells that it began: a sandbox around it may fail before that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perdure.errors import ToolError
from perdure.tools.sandbox import Sandbox
from perdure.tools.watcher import TELLS

#: The value that a tool leaves for its next call.
FOLDER = "folder"

BEGAN = "began"

_TELLING = (
    f"{{ echo {BEGAN} >&{TELLS}; }} 2>/dev/null; "
    f"trap '{{ command pwd -P >&{TELLS}; }} 2>/dev/null' EXIT; __command=$1; shift; eval -- \"$__command\""
)


@dataclass(frozen=True, slots=True)
class Shell:
    """Its full path; ``tells``: it says where it ended; ``note``: what the model must know about it."""

    path: str
    tells: bool = True
    note: str = ""

    def argv(self, command: str) -> list[str]:
        if self.tells:
            return [self.path, "-c", _TELLING, self.path, command]
        # After -c, a command that begins with a dash would be taken for an option.
        return [self.path, "-c", f" {command}" if command[0] in "-+" else command]


def shell_of(path: str) -> Shell:
    """The one that is found in these folders (as in ``PATH``). Raises `ToolError` where there is none."""
    if bash := shutil.which("bash", path=path):
        return Shell(str(Path(bash).absolute()))
    if sh := shutil.which("sh", path=path) or shutil.which("sh", path=os.defpath):
        # It may know no descriptor above 9, and those are a script's own.
        note = "bash was not found, so sh ran this, and cd doesn't last"
        return Shell(str(Path(sh).absolute()), tells=False, note=note)
    raise ToolError("error: neither bash nor sh is installed, so no command can be run")


class Memo(Protocol):
    """What a tool's last call in a conversation left for the next one."""

    @property
    def session(self) -> str:
        """Of which session the conversation is."""
        ...

    def left(self) -> Mapping[str, Any]:
        """Empty where there was none."""
        ...


class OwnMemo:
    """Of a tool that is used without a conversation."""

    def __init__(self) -> None:
        self.session = ""
        self.last: Mapping[str, Any] = {}

    def left(self) -> Mapping[str, Any]:
        return self.last


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a command begins, and what the model must know about that."""

    folder: Path
    note: str = ""


def beginning(memo: Memo, workspace: Path, sandbox: Sandbox | None) -> Beginning:
    """Where the last command ended, or in the workspace, where that is no more."""
    last = memo.left().get(FOLDER)
    if not isinstance(last, str) or last == str(workspace):
        return Beginning(workspace)
    if not _can_be_entered(Path(last)):
        return Beginning(workspace, f"{last} is gone, so this ran in the workspace")
    if sandbox is not None and not sandbox.shows(Path(last)):
        return Beginning(workspace, f"{last} can't be reached any more, so this ran in the workspace")
    return Beginning(Path(last))


def has_begun(told: str | None) -> bool:
    """The command began, by what its shell told. Of a shell that tells nothing this can't be known."""
    return told is not None and told.partition("\n")[0] == BEGAN


def ending(told: str | None, began: Path, workspace: Path, sandbox: Sandbox | None) -> Beginning:
    """Where the next command begins. ``told``: by the shell, which may have told nothing."""
    _, _, told = (told or "").partition("\n")
    if not told.startswith("/") or not _can_be_written_down(told):
        folder = began
    elif sandbox is not None and not sandbox.shows(Path(told)):
        # It was the sandbox's own, and is gone with it.
        return Beginning(began, f"{told} is gone with this call; the next begins in {began}")
    else:
        folder = Path(told)
    if folder.resolve() == workspace.resolve():
        return Beginning(workspace)
    return Beginning(folder, f"now in {folder}")


def _can_be_entered(folder: Path) -> bool:
    return os.access(folder, os.X_OK) and folder.is_dir()


def _can_be_written_down(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return text.isprintable()
