"""Where a file is to be written: inside the workspace, whatever the path says, and whatever is swapped for a
link meanwhile.

Where the system can, each folder on the way is opened from the one before it without following links, so
that what was checked is what is written to. A file is written beside its place and then takes it, whole.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.errors import ToolError
from perdure.tools.workspace import kind_of, why_not

#: Folders can be opened and used as they are, not by their names.
_BY_DESCRIPTOR = {os.open, os.mkdir, os.rename, os.unlink, os.access} <= os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
#: Bytes of the largest file that is read whole, to be changed or to be kept for an undo.
LARGEST = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """A place for a file. ``path`` is relative to the workspace, with forward slashes; ``folder`` the
    descriptor of its folder, or None where ``name`` is the whole path."""

    path: str
    name: str
    folder: int | None


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds, and its permissions."""

    data: bytes
    mode: int


@contextmanager
def place_inside(workspace: Path, path: str, *, makes_folders: bool = False) -> Iterator[Place]:
    """The place that ``path`` names, links followed. Raises `ToolError` where it is outside the workspace or
    can't be one, and, unless ``makes_folders``, where its folder isn't there."""
    root = workspace.resolve()
    real = real_path(root, path)
    if not real.is_relative_to(root):
        raise ToolError(f"error: {path!r} is outside the workspace {root}")
    if real == root:
        raise ToolError(f"error: {path!r} is a folder")
    relative = real.relative_to(root)
    try:
        if _BY_DESCRIPTOR:
            folder = _opened(root, relative.parts[:-1], makes_folders)
            place = Place(relative.as_posix(), relative.name, folder)
        else:
            if makes_folders:
                real.parent.mkdir(parents=True, exist_ok=True)
            place = Place(relative.as_posix(), str(real), None)
    except FileNotFoundError:
        raise ToolError(f"error: there is no folder {relative.parent.as_posix()!r}") from None
    except OSError as error:
        raise ToolError(f"error: {path!r} cannot be written: {why_not(error)}") from None
    try:
        yield place
    finally:
        if place.folder is not None:
            os.close(place.folder)


def _opened(root: Path, parts: Iterable[str], makes_folders: bool) -> int:
    folder = os.open(root, _FOLDER)
    for part in parts:
        try:
            if makes_folders:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            inner = os.open(part, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def real_path(root: Path, path: str) -> Path:
    """Where ``path``, seen from the workspace ``root``, leads. Raises `ToolError` where it can't be one."""
    if not path.strip() or "\x00" in path:
        raise ToolError("error: the path is empty or holds a NUL character")
    try:
        path.encode()
        return Path(os.path.realpath(root / Path(path).expanduser()))
    except (OSError, RuntimeError, ValueError) as error:
        raise ToolError(f"error: {path!r} cannot be opened: {why_not(error)}") from None


def read(place: Place) -> Content | None:
    """What stands there; None where nothing does. Raises `ToolError` where it is no regular file, too large,
    or can't be read."""
    flags = os.O_RDONLY | os.O_NONBLOCK | _NO_LINK if hasattr(os, "O_NONBLOCK") else os.O_RDONLY | _NO_LINK
    try:
        descriptor = os.open(place.name, flags | getattr(os, "O_BINARY", 0), dir_fd=place.folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = why_not(error) if error.errno != errno.ENXIO else "it is not a regular file"
        raise ToolError(f"error: {place.path!r} cannot be read: {why}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ToolError(f"error: {place.path!r} is {kind_of(status.st_mode)}")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > LARGEST:
            raise ToolError(
                f"error: {place.path!r} has {status.st_size} bytes; only files of up to {LARGEST >> 20} MiB "
                "can be changed whole: use a command"
            )
        return Content(file.read(), stat.S_IMODE(status.st_mode))


def write(place: Place, data: bytes, mode: int | None) -> None:
    """Let ``data`` stand there, durably, and whole or not at all; ``mode``: its permissions, or None for
    those of a new file. Raises `ToolError`."""
    if mode is not None and not os.access(place.name, os.W_OK, dir_fd=place.folder):
        raise ToolError(f"error: {place.path!r} is read-only")
    beside = _beside(place)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_BINARY", 0)
        descriptor = os.open(beside, flags, 0o666, dir_fd=place.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(descriptor, mode)
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.replace(beside, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside, dir_fd=place.folder)
            raise
        _settle(place)
    except OSError as error:
        raise ToolError(f"error: {place.path!r} cannot be written: {why_not(error)}") from None


def remove(place: Place) -> None:
    """Let no file stand there. Raises `ToolError`."""
    try:
        os.unlink(place.name, dir_fd=place.folder)
        _settle(place)
    except OSError as error:
        raise ToolError(f"error: {place.path!r} cannot be removed: {why_not(error)}") from None


def _beside(place: Place) -> str:
    folder, name = os.path.split(place.name)
    # Names have 255 bytes at most; that of what is beside it is its own.
    return os.path.join(folder, f".{name[:40]}.{secrets.token_hex(6)}.tmp")  # noqa: PTH118 -- may be no path


def _settle(place: Place) -> None:
    """The folder knows its new entry even after the power failed."""
    if place.folder is not None:
        with suppress(OSError):
            os.fsync(place.folder)
