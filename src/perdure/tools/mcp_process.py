"""A server of tools as a process of its own: a message a line over its stdin and stdout.

Not the package's own way of starting one, for three reasons: what a server says on stderr belongs neither on
the person's terminal nor lost, but into the error that tells why it failed; a line may have any length, and
reading one of many megabytes must not hold up everything else; and the environment is exactly the one given.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, Process
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

#: Bytes of one message at most, of what is kept of stderr, and of one read.
LONGEST_LINE, KEPT, PIECE = 16_000_000, 4_000, 65_536
#: Lines in a row that are no messages: what says nothing else is no server.
RUBBISH = 100
#: Seconds until a server that was asked to end is told to, and then made to.
ASKED, TOLD = 1.0, 1.0


class Said:
    """The last that a server said on stderr, and lines on stdout that are no messages; and whether it says
    nothing any more."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.ended = False

    def add(self, piece: bytes) -> None:
        self._kept += piece[-KEPT:]
        del self._kept[:-KEPT]

    @property
    def text(self) -> str:
        return bytes(self._kept).decode("utf-8", "replace").strip()


@asynccontextmanager
async def process_of(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], said: Said
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]]:
    """Streams of messages from and to a server that runs as long as the block. Raises `OSError` where it
    can't be started."""
    process = await anyio.open_process(
        list(command),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env=dict(environment),
        start_new_session=os.name == "posix",
    )
    heard_in, heard = anyio.create_memory_object_stream[Any](0)
    to_say, to_say_out = anyio.create_memory_object_stream[Any](0)
    ended: list[anyio.Event] = []
    async with anyio.create_task_group() as group:
        try:
            group.start_soon(_speak, process, to_say_out, heard_in, said)
            for hear in (partial(_listen, process, heard_in, said), partial(_overhear, process, said)):
                group.start_soon(_until_its_end, hear, ends := anyio.Event())
                ended.append(ends)
            yield heard, to_say
        finally:
            heard.close()
            with anyio.CancelScope(shield=True):
                await _ended(process)
                with anyio.move_on_after(TOLD):
                    for each in ended:
                        await each.wait()
            group.cancel_scope.cancel()
            for stream in (heard_in, heard, to_say, to_say_out):
                stream.close()


async def _until_its_end(hear: Callable[[], Awaitable[None]], ended: anyio.Event) -> None:
    """Hear what it says, as long as its pipe is open."""
    try:
        await hear()
    finally:
        ended.set()


async def _listen(process: Process, heard: MemoryObjectSendStream[Any], said: Said) -> None:
    """Hand on what the server says, until it ends, or says what no server says."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    assert process.stdout
    rubbish = 0
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError), heard:
        async for line in _lines(process.stdout, said):
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                said.add(line[:400] + b"\n")
                rubbish += 1
                if rubbish >= RUBBISH:
                    break
                continue
            rubbish = 0
            await heard.send(SessionMessage(message))
        # Not in a `finally`: where we end it ourselves, nobody needs to know.
        said.ended = True
    # To its end, unheard: a pipe that nobody empties keeps it from ending, and us from seeing that it did.
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        while True:
            await process.stdout.receive(PIECE)


async def _lines(stream: ByteReceiveStream, said: Said) -> AsyncIterator[bytes]:
    """Lines, each put together once. A line that is too long is the last."""
    pieces: list[bytes] = []
    length = 0
    with suppress(anyio.EndOfStream):
        while True:
            *ended, rest = (await stream.receive(PIECE)).split(b"\n")
            for end in ended:
                yield b"".join([*pieces, end])
                pieces, length = [], 0
            pieces.append(rest)
            length += len(rest)
            if length > LONGEST_LINE:
                said.add(f"[a message of more than {LONGEST_LINE} bytes]".encode())
                return


async def _speak(
    process: Process, to_say: MemoryObjectReceiveStream[Any], heard: MemoryObjectSendStream[Any], said: Said
) -> None:
    assert process.stdin
    try:
        async for each in to_say:
            line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(line.encode() + b"\n")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        # It reads no more, so nothing will be answered; the session must see that.
        said.ended = True
        heard.close()


async def _overhear(process: Process, said: Said) -> None:
    assert process.stderr
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        while True:
            said.add(await process.stderr.receive(PIECE))


async def _ended(process: Process) -> None:
    """Ask it to end by closing its stdin; tell it to; make it, with all that it started."""
    assert process.stdin
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    for seconds, number in ((ASKED, signal.SIGTERM), (TOLD, signal.SIGKILL)):
        if await _gone_within(process, seconds):
            break
        _signal(process, number)
    # What it started and left behind, whether or not it ended itself.
    _signal(process, signal.SIGKILL)
    await _gone_within(process, TOLD)


async def _gone_within(process: Process, seconds: float) -> bool:
    """Whether it has ended. Not by waiting for it, which waits for the end of its pipes too, and a child of
    it may hold these."""
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110 (nothing tells)
            await anyio.sleep(0.01)
    return process.returncode is not None


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, number)
        elif process.returncode is None:
            process.send_signal(number)
