"""What the model reads of a command: its output, then one line in brackets that says how it went."""

from __future__ import annotations

import secrets
import signal
from typing import Any

from perdure.tools.contract import Said
from perdure.tools.output import readable
from perdure.tools.processes import Ran

#: Characters of a result. The registry's own limit is the same, so it never cuts again.
OUTPUT_LIMIT = 30_000
#: Characters of the whole of an output. It is journaled, and read page by page.
WHOLE_LIMIT = 4 << 20
#: How many processes in the background are named.
NAMED = 5


def shown(head: bytes, tail: bytes, total: int, facts: str, *, recalls: bool, **more: Any) -> Said:
    """What the model reads of an output, with the ``facts`` as its last line; and the whole of it where that
    is more."""
    room = OUTPUT_LIMIT - len(facts) - 1
    name = secrets.token_hex(3)
    way = (
        f'; recall("output {name}") reads the whole, recall(WORDS, "output {name}") finds lines'
        if recalls
        else ""
    )
    whole = readable(head, tail, total, WHOLE_LIMIT)
    output = whole if len(whole) <= room else readable(head, tail, total, room, more=way)
    if not output.strip():
        output = "(no output)" if total == 0 else f"(nothing visible: {total} bytes of output)"
    text = f"{output.rstrip(chr(10))}\n{facts}"
    if len(whole) <= room:
        return Said(text, **more)
    return Said(text, whole=f"{whole.rstrip(chr(10))}\n{facts}", name=name, **more)


def facts_of(ran: Ran, seconds: float, *, sandboxed: bool) -> list[str]:
    """How it went."""
    facts = [_ending(ran, seconds, sandboxed=sandboxed)]
    if ran.stopped and ran.why == "ended":
        count = len(ran.stopped)
        names = ", ".join(ran.stopped[:NAMED]) + (", …" if count > NAMED else "")
        processes = "1 process" if count == 1 else f"{count} processes"
        facts.append(f"{processes} left in the background and stopped: {names}")
    if ran.left:
        facts.append(f"could not be stopped: {', '.join(ran.left[:NAMED])}")
    return facts


def _ending(ran: Ran, seconds: float, *, sandboxed: bool) -> str:
    code = "no exit code" if ran.code is None else f"exit code {_as_shells_count(ran.code)}"
    if ran.code is not None and ran.code < 0:
        code += f", killed by {_signal_name(-ran.code)}"
    elif ran.code is not None and sandboxed and 128 < ran.code < 128 + signal.NSIG:
        # A sandbox ends with this code itself, so it may be the command's own.
        code += f", as of {_signal_name(ran.code - 128)}"
    if ran.why == "timed out":
        return f"timed out after {seconds:g} s and was stopped; {code}"
    if ran.why == "abandoned":
        return f"stopped; {code}"
    if ran.why == "flooded":
        return f"stopped because it printed more than {ran.total >> 20} MiB; {code}"
    return code


def _as_shells_count(code: int) -> int:
    """128 + n for a process that signal n ended, as `$?` shows it."""
    return code if code >= 0 else 128 - code


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
