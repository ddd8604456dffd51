"""Commands that go on while the agent does something else: a server, a watcher of files, a long build.

Each has a process that watches over it, as every command has (`perdure.tools.watcher`), which sends what the
command prints as it comes. A thread takes it in, so that nobody waits for anybody, and keeps a bounded part
of what wasn't read yet. All are stopped when the agent closes; when it dies, its end of the pipe closes, and
they are stopped all the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.errors import ToolError
from perdure.tools import watcher
from perdure.tools.processes import PATIENCE, Ran, ran_of, request_of

#: Commands that run at once in a session, at most.
MOST = 8
#: Seconds after which one is stopped unless it was given another time.
LONGEST = 24 * 3600.0
#: Seconds that a look at one waits, at most.
LONGEST_WAIT = 60.0
#: Seconds between two looks at whether something was printed.
LOOK = 0.05


class Job:
    """One command in the background."""

    def __init__(self, id: str, command: str, argv: Sequence[str], options: _Options) -> None:
        self.id, self.command = id, command
        self.began = time.monotonic()
        #: The person or the model was told that it ended.
        self.told = False
        self.wrapped, self.limit = options.wrapped, options.seconds
        self._mark = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._unread = watcher.Kept()
        self._ended = threading.Event()
        self._report: dict[str, Any] = {}
        request = request_of(argv, options.seconds, self._mark, wrapped=options.wrapped, streams=True)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the program is our own
                [sys.executable, "-I", "-S", watcher.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=options.folder,
                env={**options.environment, watcher.MARK: self._mark},
                start_new_session=True,
            )
        except OSError as error:
            told = error.strerror or error
            raise ToolError(f"error: no process can be started in {options.folder}: {told}") from error
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(request)
            self._process.stdin.flush()
        threading.Thread(target=self._listen, name=f"background {id}", daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    @property
    def unread(self) -> int:
        """Bytes that were printed since the last look."""
        return self._unread.total

    @property
    def printed(self) -> bytes:
        """The head of what was printed since the last look."""
        return bytes(self._unread.head)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    async def waited(self, seconds: float, *, output: bool = False) -> None:
        """Wait until it ends, or with ``output`` until it prints something, but no longer."""
        import anyio

        end = time.monotonic() + seconds
        # What it waits for happens in a thread, which outlives any event loop.
        while not (self.ended or (output and self.unread)) and time.monotonic() < end:  # noqa: ASYNC110
            await anyio.sleep(LOOK)

    def taken(self) -> tuple[bytes, bytes, int]:
        """Head, tail and size of what was printed since the last look."""
        with self._lock:
            kept, self._unread = self._unread, watcher.Kept()
        return bytes(kept.head), kept.tail, kept.total

    def ran(self) -> Ran:
        """How it went, once it has ended. Raises `ToolError` where it never began."""
        return ran_of(self._report, b"", len(os.fsencode(self.command)))

    def let_go(self) -> None:
        """Have it stopped, without waiting for that."""
        assert self._process.stdin
        with contextlib.suppress(ProcessLookupError):
            # It may have been stopped by its command: see `perdure.tools.processes`.
            os.kill(self._process.pid, signal.SIGCONT)
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def stop(self) -> None:
        """Stop it, with all that it started; blocking."""
        self.let_go()
        if not self._ended.wait(PATIENCE):
            self._process.kill()
            watcher.stop_marked(self._mark)
            self._ended.wait(1)

    def _listen(self) -> None:
        assert self._process.stdout
        out = self._process.stdout
        while len(length := out.read(4)) == 4:
            size = int.from_bytes(length, "big")
            if size == 0:
                with contextlib.suppress(ValueError):
                    self._report = json.loads(out.read())
                break
            piece = out.read(size)
            with self._lock:
                self._unread.add(piece)
        code = self._process.wait()
        out.close()
        self.let_go()
        if code != 0 or not self._report:
            watcher.stop_marked(self._mark)
        self._ended.set()


class _Options:
    """How a command is run."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], seconds: float | None, *, wrapped: bool
    ) -> None:
        self.folder, self.environment, self.wrapped = folder, environment, wrapped
        self.seconds = min(seconds or LONGEST, LONGEST)


class Jobs:
    """The commands in the background of an agent's sessions."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Job]] = {}
        self._numbers: dict[str, itertools.count[int]] = {}

    def start(
        self,
        session: str,
        command: str,
        argv: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        seconds: float | None,
        wrapped: bool,
    ) -> Job:
        """Raises `ToolError` where too many run already, or it can't be started."""
        jobs = self._jobs.setdefault(session, {})
        running = [each.id for each in jobs.values() if not each.ended]
        if len(running) >= MOST:
            names = ", ".join(running)
            raise ToolError(f"error: {MOST} commands run in the background already ({names}); stop one first")
        id = f"b{next(self._numbers.setdefault(session, itertools.count(1)))}"
        options = _Options(folder, environment, seconds, wrapped=wrapped)
        jobs[id] = Job(id, command, argv, options)
        return jobs[id]

    def jobs(self, session: str) -> list[Job]:
        return list(self._jobs.get(session, {}).values())

    def job(self, session: str, id: str) -> Job:
        """Raises `ToolError` where there is none."""
        jobs = self._jobs.get(session, {})
        if id not in jobs:
            known = ", ".join(jobs) or "none"
            raise ToolError(f"error: no command in the background is named {id[:20]!r} (there are: {known})")
        return jobs[id]

    def drop(self, session: str, job: Job) -> None:
        """Forget one that has ended, and was read to its end."""
        self._jobs.get(session, {}).pop(job.id, None)

    def news(self, session: str) -> list[str]:
        """What ended since the last time that was asked, in words for the model."""
        new = [each for each in self.jobs(session) if each.ended and not each.told]
        for each in new:
            each.told = True
        return [f'{each.id} in the background ended: background("{each.id}") shows how' for each in new]

    def stop_all(self) -> None:
        """Stop all, of all sessions; blocking."""
        every = [each for jobs in self._jobs.values() for each in jobs.values()]
        for each in every:
            each.let_go()
        for each in every:
            each.stop()
        self._jobs.clear()
