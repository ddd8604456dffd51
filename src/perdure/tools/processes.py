"""Runs a program so that it always ends, and nothing of it is left: the agent's side of the watcher.

`perdure.tools.watcher` says why a process stands between. Here it is started, asked, and, when the
call is cancelled, told to stop by closing the pipe; a shielded scope waits until everything is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import TYPE_CHECKING, Any, Literal

from perdure.errors import ToolError
from perdure.tools import watcher

if TYPE_CHECKING:
    from anyio.abc import Process

#: Seconds the watcher may take to stop everything, which it does in `GRACE` + `KILLING` at most,
#: and to answer, on a busy machine.
PATIENCE = watcher.GRACE + watcher.KILLING + 6.0

Why = Literal["ended", "timed out", "flooded", "abandoned"]


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program went. ``code`` is its exit code, minus the signal where one ended it, or None
    where it could not be stopped. ``head`` and ``tail`` are what was kept of ``total`` bytes of
    output. ``stopped`` are the command lines of processes that were still there, in the
    background, and were stopped; ``left`` those that could not be (another user's). ``told`` is what
    it wrote to the descriptor `watcher.TELLS`."""

    why: Why
    code: int | None
    head: bytes
    tail: bytes
    total: int
    stopped: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    told: str | None = None


async def run_watched(
    argv: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    wrapped: bool = False,
) -> Ran:
    """Run a program, given by its full path, for at most ``seconds``. ``wrapped``: it is a sandbox, which
    runs another one and ends as that does.

    It has no terminal, and its input is at its end. Cancelling stops it and all its descendants
    before the cancellation goes on. Raises `ToolError` where it can't be started.
    """
    import anyio

    if os.name != "posix":
        raise ToolError("error: programs can be run on Linux, macOS and other POSIX systems only")
    mark = secrets.token_hex(8)
    request = request_of(argv, seconds, mark, wrapped=wrapped)
    try:
        process = await anyio.open_process(
            [sys.executable, "-I", "-S", watcher.__file__],
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=folder,
            env={**environment, watcher.MARK: mark},
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"error: no process can be started in {folder}: {error.strerror or error}") from error
    answer = b""
    try:
        with anyio.move_on_after(seconds + PATIENCE):
            answer = await _asked(process, request)
    finally:
        await _gone(process, mark)
    return _report(answer, len(os.fsencode(argv[-1])))


def request_of(
    argv: Sequence[str], seconds: float, mark: str, *, wrapped: bool, streams: bool = False
) -> bytes:
    """What the watcher is asked."""
    request = {
        "argv": list(argv),
        "seconds": seconds,
        "mark": mark,
        "agent": os.getpid(),
        "wrapped": wrapped,
        "streams": streams,
    }
    return json.dumps(request).encode() + b"\n"


async def _asked(process: Process, request: bytes) -> bytes:
    """Everything the watcher writes; bounded, since the watcher keeps a bounded part."""
    import anyio

    assert process.stdin and process.stdout
    with contextlib.suppress(anyio.BrokenResourceError):  # it is gone already, and may say why
        await process.stdin.send(request)
    answer = bytearray()
    async for piece in process.stdout:
        answer += piece
    return bytes(answer)


async def _gone(process: Process, mark: str) -> None:
    """Close the pipe and wait until the watcher has stopped everything, whatever is cancelled."""
    import anyio
    import anyio.to_thread

    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            # A command may have stopped it (`kill -STOP $PPID`). Not by `send_signal`, which looks
            # for the exit code first and so takes it away from asyncio.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
        with anyio.move_on_after(PATIENCE):  # leaving it kills the watcher
            await process.aclose()
        if process.returncode != 0:
            await anyio.to_thread.run_sync(watcher.stop_marked, mark)


def _report(answer: bytes, length: int) -> Ran:
    line, _, output = answer.partition(b"\n")
    try:
        report: dict[str, Any] = json.loads(line)
    except ValueError:
        report = {"said": answer[-500:].decode("utf-8", "replace").strip()}
    return ran_of(report, output, length)


def ran_of(report: Mapping[str, Any], output: bytes, length: int) -> Ran:
    """How a command of so many bytes went, by the watcher's report. Raises `ToolError` where it didn't begin,
    or there is no report."""
    if "error" in report:
        raise ToolError(_not_started(report["error"], report["message"], length))
    if "why" not in report:
        said = report.get("said", "")
        raise ToolError(
            "error: the process that watches over commands was stopped, and the command with it; what it did "
            f"until then is not known{': ' if said else ''}{said}"
        )
    head = report["head"]
    return Ran(
        why=report["why"],
        code=report["code"],
        head=output[:head],
        tail=output[head:],
        total=report["total"],
        stopped=tuple(report["stopped"]),
        left=tuple(report["left"]),
        told=report["told"],
    )


def _not_started(number: int, message: str, length: int) -> str:
    import errno

    if number == errno.E2BIG:
        return (
            f"error: the command is too long: {length} bytes, and the system takes about 128 KiB; "
            "write a large text to a file in several pieces"
        )
    return f"error: the command could not be started: {message}"
