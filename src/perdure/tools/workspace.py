"""Open a file inside the workspace, and nothing else, whatever the path says.

The path is resolved first and checked again on what was opened, so that a link swapped in
between doesn't lead outside; a pipe or a device is never waited for.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from itertools import islice
from pathlib import Path

from perdure.errors import ToolError

_KINDS = (
    (stat.S_ISDIR, "a folder; list it with a tool for that (list_files, or bash with ls)"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_inside(workspace: Path, path: str) -> int:
    """A descriptor of the regular file at ``path``, for reading; the caller closes it.

    Raises `ToolError` that says what is in the way: outside, missing (with near names), a folder,
    a pipe, a device, no permission, a loop of links, a name that can't be.
    """
    root = workspace.resolve()
    if not path.strip() or "\x00" in path:
        raise ToolError("error: the path is empty or holds a NUL character")
    try:
        real = Path(os.path.realpath(root / Path(path).expanduser(), strict=True))
    except FileNotFoundError:
        raise ToolError(f"error: there is no file {path!r}{_near(root, path)}") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ToolError(f"error: {path!r} cannot be opened: {why_not(error)}") from None
    _check_inside(root, real, path)
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ToolError(f"error: {path!r} cannot be opened: {_opened_badly(real, error)}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise ToolError(f"error: {path!r} is {kind_of(mode)}")
        _check_inside(root, _where(descriptor, real), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_inside(root: Path, real: Path, path: str) -> None:
    if not real.is_relative_to(root):
        raise ToolError(f"error: {path!r} is outside the workspace {root}")


def _where(descriptor: int, real: Path) -> Path:
    """Where the opened file really lies, on systems that tell."""
    link = f"/proc/self/fd/{descriptor}"
    return Path(os.readlink(link)) if os.path.islink(link) else real  # noqa: PTH114, PTH115 -- no Path for it


def _opened_badly(real: Path, error: OSError) -> str:
    try:
        mode = real.stat().st_mode
    except OSError:
        return why_not(error)
    # A socket, and some devices, can't be opened at all.
    return why_not(error) if stat.S_ISREG(mode) else f"it is {kind_of(mode)}"


def kind_of(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "not a regular file")


def why_not(error: Exception) -> str:
    told = {
        errno.ELOOP: "its links lead round in a circle",
        errno.EACCES: "no permission",
        errno.ENAMETOOLONG: "the name is too long",
        errno.ENOTDIR: "a part of it is a file, not a folder",
    }
    number = getattr(error, "errno", None)
    return told.get(number or 0, os.strerror(number) if number else str(error))


def _near(root: Path, path: str) -> str:
    """Names in the same folder that look like the missing one."""
    folder = (root / path).parent
    if not folder.resolve().is_relative_to(root) or not folder.is_dir():
        return ""
    names = {each.name.lower(): each.name for each in islice(folder.iterdir(), 2000)}
    near = difflib.get_close_matches(Path(path).name.lower(), names, 3, 0.5)
    return f"; near it: {', '.join(names[name] for name in near)}" if near else ""


def paths_touched(workspace: Path, path: object) -> tuple[str, ...]:
    """A path as rules see it, relative to the workspace with forward slashes where it lies inside, else
    whole: as it was given and, where links lead elsewhere, where it leads. Nothing for what is no path."""
    if not isinstance(path, str) or not path.strip() or "\x00" in path:
        return ()
    root = workspace.resolve()
    try:
        given = Path(os.path.normpath(root / Path(path).expanduser()))
        real = Path(os.path.realpath(given))
    except (OSError, RuntimeError, ValueError):
        return (path,)
    return tuple(dict.fromkeys(_seen_from(root, each) for each in (given, real)))


def _seen_from(root: Path, path: Path) -> str:
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()
