"""The process that stands between the agent and a command, and lets nothing outlive the call.

It is started for each command as a program of its own (`python -I -S watcher.py`), because three
things can't be had from inside the agent:

- When the agent is killed, somebody must be left to stop the command. The watcher holds the other
  end of a pipe; when that end closes, however the agent died, everything is stopped. (The kernel's
  parent-death signal fires when the *thread* that forked ends, is lost by `setsid` children and
  needs code between fork and exec of a process with threads.)
- A process that left the group and the session (`setsid sleep 60 &`) must still be found. On Linux
  the watcher is a *subreaper*: orphans below it become its children, so nothing can slip away.
  Elsewhere processes are found by ancestry, by group, and by a mark in their environment, as far as
  `ps` shows it.
- Orphans must be reaped, and only a parent can. The agent's own children are not touched.

It has one thread, so there are no races with forks or signals. It imports little, since its start
is part of every call (some 15 ms of the 20 that `true` takes), and keeps a bounded part of the output, so
that `yes` costs time but no memory. Signals to it are ignored: `pkill python` in a command doesn't
stop the one that stops it.

A sandbox stands around a command as two processes of its own, which aren't asked to end but end with
it: else its exit code, and what it does on SIGTERM, would be lost.

The request is one line of JSON on stdin: ``argv``, ``seconds``, ``mark``, ``agent`` (its pid),
``wrapped`` (``argv`` is a sandbox with a command in it), ``streams``: the output is sent as it comes, in
pieces with their size before them (four bytes), and the report stands behind a size of 0.
The end of stdin means: stop. The report is one line of JSON on stdout, followed by the bytes of
the head and the tail of the output; `perdure.tools.processes` is the other side.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

#: The variable that marks the processes of a call.
MARK = "PERDURE_CALL"
#: The descriptor over which a command may tell where it ended, and the longest that it can tell. So high
#: that no script uses it for itself.
TELLS, LONGEST_TOLD = 198, 4096

#: Bytes of output kept from the beginning and from the end.
HEAD, TAIL = 3 << 20, 1 << 20
#: Bytes of output after which a command is stopped: nobody waits for the end of `yes`.
FLOOD = 1 << 30

#: Seconds that processes in the background have to end by themselves once the command has ended:
#: `cmd > >(tee log)` is still writing then.
SETTLE = 0.25
#: Seconds between SIGTERM and SIGKILL; less when the agent is gone or the call was cancelled.
GRACE, HASTE = 1.0, 0.3
#: Seconds for which SIGKILL is repeated for processes that fork meanwhile.
KILLING = 3.0
#: Seconds between two looks at processes that are to end, and at whether the agent is still there.
LOOK, HEARTBEAT = 0.01, 1.0

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
_ZOMBIE = "Z"


class Process:
    """A line of the process table; ``name`` is its command line, shortened."""

    __slots__ = ("group", "name", "parent", "pid")

    def __init__(self, pid: int, parent: int, group: int, name: str) -> None:
        self.pid, self.parent, self.group, self.name = pid, parent, group, name


class Kept:
    """The head and the tail of what was written, in bounded memory."""

    def __init__(self) -> None:
        self.head, self.total, self._tail = bytearray(), 0, bytearray()

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        room = HEAD - len(self.head)
        self.head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    @property
    def tail(self) -> bytes:
        return bytes(self._tail[-TAIL:])


class Streamed(Kept):
    """What was written, sent on as it comes."""

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        if piece:
            _send_on(len(piece).to_bytes(4, "big") + piece)


class Watch:
    """One command, from its start until nothing of it is left. Raises `OSError` when it can't start.

    ``adopts``: this process is a subreaper. ``agent`` is the pid of the parent; ``wrapped``: see above."""

    def __init__(
        self,
        argv: list[str],
        mark: str,
        agent: int,
        *,
        adopts: bool,
        wrapped: bool = False,
        streams: bool = False,
    ) -> None:
        self.kept = Streamed() if streams else Kept()
        self.status: int | None = None
        self.abandoned = False
        self._mark, self._agent = mark, agent
        self._adopts = adopts
        #: How the processes of the sandbox itself are called.
        self._wrapping = _short(" ".join(argv)) if wrapped else None
        self._poll = select.poll()
        self._poll.register(sys.stdin.fileno(), select.POLLIN)
        self._woken = _wake_on_child()
        self._poll.register(self._woken, select.POLLIN)
        self._output, writer = os.pipe()
        self._told, teller = os.pipe()
        # Whoever fills it must not wait here, and nobody may keep this one waiting.
        for end in (self._told, teller):
            os.set_blocking(end, False)
        try:
            self._command = _spawn(argv, writer, teller)
        finally:
            os.close(writer)
            os.close(teller)
        self._poll.register(self._output, select.POLLIN)

    def run(self, seconds: float) -> dict[str, object]:
        """Wait for the command, at most ``seconds``, stop what is left, and say how it went."""
        self._pump(seconds, self._over, HEARTBEAT)
        if self.abandoned:
            why = "abandoned"
        elif self.status is not None:
            why = "ended"
            self._pump(SETTLE, self._alone, LOOK)
        else:
            why = "flooded" if self.kept.total > FLOOD else "timed out"
        background = [
            each.name
            for each in self._relatives()
            if each.pid != self._command and each.name != self._wrapping
        ]
        self._clear(HASTE if self.abandoned else GRACE)
        left = [f"{each.name} (pid {each.pid})" for each in self._relatives()]
        self._drain()
        code = None if self.status is None else os.waitstatus_to_exitcode(self.status)
        return {"why": why, "code": code, "stopped": background, "left": left, "told": self._heard()}

    def _heard(self) -> str | None:
        """What the command told; None where that is nothing, or too much."""
        try:
            told = os.read(self._told, LONGEST_TOLD + 2)
        except BlockingIOError:
            return None
        return os.fsdecode(told.removesuffix(b"\n")) if 0 < len(told) <= LONGEST_TOLD + 1 else None

    def _over(self) -> bool:
        return self.abandoned or self.status is not None or self.kept.total > FLOOD

    def _pump(self, seconds: float, done: Callable[[], bool], look: float) -> bool:
        """Read output until ``done``, asked at least each ``look`` seconds; False after ``seconds``."""
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                return False
            for ready, _ in self._poll.poll(min(left, look) * 1000):
                if ready == self._output:
                    self._read()
                elif ready == self._woken:
                    os.read(ready, 4096)
                else:  # nothing is ever sent after the request, so this is the end
                    self._poll.unregister(ready)
                    self.abandoned = True
            self._childless()
            if os.getppid() != self._agent:
                # The pipe is not enough: a process that the agent forked may hold its end open.
                self.abandoned = True
        return True

    def _read(self) -> bool:
        piece = os.read(self._output, 1 << 16)
        self.kept.add(piece)
        if not piece:
            self._poll.unregister(self._output)
        return bool(piece)

    def _drain(self) -> None:
        """Take what is in the pipe now: someone that can't be stopped may hold it open."""
        os.set_blocking(self._output, False)
        # Nothing there, or its end was seen before.
        with contextlib.suppress(BlockingIOError, KeyError):
            while self.kept.total <= FLOOD and self._read():
                pass

    def _childless(self) -> bool:
        """Bury the dead, and say whether no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._command:
                self.status = status

    def _alone(self) -> bool:
        childless = self._childless()
        return childless if self._adopts else childless and not self._relatives()

    def _relatives(self) -> list[Process]:
        if self._adopts and self._childless():
            return []
        table = list(processes())
        found = below(os.getpid(), table)
        if not self._adopts:
            found |= {each.pid for each in table if each.group == self._command}
            found |= marked(self._mark)
        found.discard(os.getpid())
        return [each for each in table if each.pid in found]

    def _clear(self, grace: float) -> None:
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # one that is stopped doesn't hear SIGTERM
        if self._pump(grace, self._alone, LOOK):
            return
        end = time.monotonic() + KILLING
        while time.monotonic() < end:
            self._send(signal.SIGKILL)
            if self._pump(2 * LOOK, self._alone, LOOK):
                return

    def _send(self, number: int) -> None:
        asks = number == signal.SIGTERM
        # Not buried yet, so the number of the group is still its own. In a sandbox the command's own
        # group is another one.
        if self.status is None and not (asks and self._wrapping):
            _quietly(os.killpg, self._command, number)
        for each in self._relatives():
            if not (asks and each.name == self._wrapping):
                _quietly(os.kill, each.pid, number)


def processes() -> Iterator[Process]:
    """All processes that can be seen, without zombies: of `/proc` where there is one, else of `ps`."""
    # Here and below `os` instead of pathlib, which would add 10 ms to each call.
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        numbers = []
    if not numbers:
        yield from processes_of_ps()
    for pid in numbers:
        try:
            # The name stands in parentheses and may hold spaces and parentheses itself.
            state, parent, group = _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:3]
            name = _content(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
        except (OSError, ValueError):
            continue
        if state.decode() != _ZOMBIE:
            yield Process(pid, int(parent), int(group), _short(name))


def processes_of_ps() -> Iterator[Process]:
    for line in _ps("-A", "-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat=", "-o", "args="):
        pid, parent, group, state, *name = line.split(None, 4)
        if not state.startswith(_ZOMBIE):
            yield Process(int(pid), int(parent), int(group), _short("".join(name)))


def below(root: int, table: list[Process]) -> set[int]:
    """The process ``root`` and all its descendants."""
    children: dict[int, list[int]] = {}
    for each in table:
        children.setdefault(each.parent, []).append(each.pid)
    found, waiting = {root}, [root]
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(new)
        waiting += new
    return found


def marked(mark: str) -> set[int]:
    """Processes whose environment, as it was when they began, bears the mark."""
    wanted = f"{MARK}={mark}"
    if not os.path.isdir("/proc/self"):  # noqa: PTH112
        return marked_of_ps(wanted)
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208
        try:
            if name.isdecimal() and wanted.encode() in _content(f"/proc/{name}/environ").split(b"\0"):
                found.add(int(name))
        except OSError:
            continue
    return found


def marked_of_ps(wanted: str) -> set[int]:
    show = ("-axEww",) if sys.platform == "darwin" else ("axeww",)
    return {int(line.split()[0]) for line in _ps(*show, "-o", "pid=", "-o", "args=") if wanted in line}


def stop_marked(mark: str) -> None:
    """Kill what bears the mark: for the agent, when the watcher itself was killed."""
    end = time.monotonic() + KILLING
    while (found := marked(mark)) and time.monotonic() < end:
        for pid in found:
            _quietly(os.kill, pid, signal.SIGKILL)
        time.sleep(LOOK)


def adopt_orphans() -> bool:
    """Become the parent of every orphan below this process; False where the system has no such thing."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _spawn(argv: list[str], output: int, teller: int) -> int:
    """Start the command in a session of its own, with no terminal, no input, and every signal as it
    is by default: Python ignores SIGPIPE, and an ignored signal stays ignored after exec."""
    plan: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
        (os.POSIX_SPAWN_DUP2, teller, TELLS),
    ]
    signals = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    return os.posix_spawn(
        argv[0], argv, os.environ, file_actions=plan, setsid=True, setsigmask=(), setsigdef=signals
    )


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    return woken


def _ps(*arguments: str) -> list[str]:
    """The lines of `ps`, which begin with a pid, without that of `ps` itself."""
    import subprocess

    with subprocess.Popen(  # noqa: S603 - the arguments are those of this file
        ["ps", *arguments],  # noqa: S607 - where `ps` lies differs
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as ps:
        lines = ps.communicate()[0].decode("utf-8", "replace").splitlines()
    return [line for line in lines if int(line.split(None, 1)[0]) != ps.pid]


def _content(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


def _short(name: str, limit: int = 80) -> str:
    name = " ".join(name.split())
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _send_on(piece: bytes) -> None:
    """Write all of it to stdout; nothing where the agent is gone, which its other pipe tells."""
    with contextlib.suppress(BrokenPipeError):
        while piece:
            piece = piece[os.write(1, piece) :]


def _quietly(send: Callable[[int, int], None], to: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(to, number)  # gone already, or another user's (sudo): then it is reported


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # the agent was gone before it had asked
    request = json.loads(line)
    streams = request["streams"]
    try:
        watch = Watch(
            request["argv"],
            request["mark"],
            request["agent"],
            adopts=adopt_orphans(),
            wrapped=request["wrapped"],
            streams=streams,
        )
    except OSError as error:
        report: dict[str, object] = {"error": error.errno, "message": error.strerror or str(error)}
        head = tail = b""
    else:
        report = watch.run(request["seconds"])
        if watch.abandoned and not streams:
            return
        head, tail = bytes(watch.kept.head), watch.kept.tail
        report |= {"total": watch.kept.total, "head": len(head)}
    size = (0).to_bytes(4, "big") if streams else b""
    _send_on(size + json.dumps(report).encode() + b"\n" + head + tail)


if __name__ == "__main__":
    main()
