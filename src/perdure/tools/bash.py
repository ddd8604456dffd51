"""The tool that runs shell commands.

A model's commands do everything that hangs an agent: they wait for input, leave servers behind,
print for ever, ignore signals, open editors. None of it may keep the loop from going on, and none of
it may outlive the agent; `perdure.tools.watcher` sees to that. This file says what a call means,
and turns what happened into what the model reads: the output, then one line in brackets with the
exit code, which is always there.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.chat.language import say
from perdure.errors import ToolError, Words
from perdure.tools.contract import Said, Tool, Touch
from perdure.tools.environment import environment_for_commands
from perdure.tools.output import readable
from perdure.tools.processes import PATIENCE, Ran, run_watched
from perdure.tools.registry import tool
from perdure.tools.sandbox import Sandbox
from perdure.tools.shell import FOLDER, Memo, OwnMemo, beginning, ending, shell_of

#: Seconds a command may take: unless the model says otherwise, and at most.
USUAL_TIMEOUT, LONGEST_TIMEOUT = 120.0, 600.0
#: Characters of a result. The registry's own limit is the same, so it never cuts again.
OUTPUT_LIMIT = 30_000
#: How many processes in the background are named.
NAMED = 5

NO_SANDBOX: Words = (
    "shell commands run without a sandbox, and can reach what you can: {why}",
    "命令不在沙箱中运行，能访问您能访问的一切：{why}",
)

#: Requests a person might make, for models that choose a tool by likeness.
EXAMPLES = [
    ("List all files in this folder", {"command": "ls -la"}),
    ("Run the command whoami", {"command": "whoami"}),
    ("Run cat /etc/hostname", {"command": "cat /etc/hostname"}),
    ("Execute git diff --stat", {"command": "git diff --stat"}),
    ("How much disk space is left?", {"command": "df -h"}),
    ("Show how much memory is in use", {"command": "free -h"}),
    ("Count the lines of app.py", {"command": "wc -l app.py"}),
    ("Which version of git is installed?", {"command": "git --version"}),
    ("In which directory are we?", {"command": "pwd"}),
    ("Create a folder named docs", {"command": "mkdir docs"}),
    ("Find every JavaScript source here", {"command": "find . -name '*.js'"}),
    ("What time is it? Run uptime.", {"command": "uptime"}),
    ("Run the tests", {"command": "make test"}),
    ("执行命令 whoami", {"command": "whoami"}),
    ("请运行 git diff", {"command": "git diff"}),
    ("用命令行查看磁盘空间", {"command": "df -h"}),
    ("列出当前目录下的文件", {"command": "ls -la"}),
    ("创建一个名为 build 的文件夹", {"command": "mkdir build"}),
]


def bash_tool(
    workspace: Path,
    *,
    environment: Mapping[str, str] | None = None,
    allowed_secrets: Collection[str] = (),
    sandbox: Sandbox | None = None,
    memo: Memo | None = None,
) -> Tool:
    """The tool, for one workspace, in a ``sandbox`` or in none. ``environment`` is the agent's own unless
    given; of it, variables that hold secrets by their name reach a command only when they are among
    ``allowed_secrets``. ``memo``: of the conversation that it is used in."""
    own = OwnMemo()

    # The registry's limit is there for a tool that doesn't answer; this one always does, with the
    # output so far, so its own limit comes first.
    @tool(examples=EXAMPLES, effect="acts", timeout=LONGEST_TIMEOUT + 2 * PATIENCE, output_limit=OUTPUT_LIMIT)
    async def bash(command: str, timeout: float | None = None) -> str:
        """Run a shell command in the workspace; returns its output (stdout and stderr) and exit code.

        Each call is a new shell: `cd` lasts, variables don't. There is no terminal and no input,
        so nothing can be asked and no editor opens. Processes left in the background are stopped
        when the command ends.

        Args:
            command: The command line.
            timeout: Seconds after which it is stopped: 120 unless given, 600 at most.
        """
        seconds = _seconds(timeout)
        _check(command, workspace)
        surroundings = environment_for_commands(environment or os.environ, allowed_secrets)
        shell = shell_of(surroundings.get("PATH", os.defpath))
        notice = await _told_of(sandbox)
        sandboxed = sandbox is not None and sandbox.state().in_force
        began = beginning(memo or own, workspace, sandbox)
        argv = shell.argv(command)
        if sandbox is not None and sandboxed:
            argv, surroundings = sandbox.around(argv, began.folder), sandbox.environment(surroundings)
        ran = await run_watched(
            argv, folder=began.folder, environment=surroundings, seconds=seconds, wrapped=sandboxed
        )
        ended = ending(ran.told, began.folder, workspace, sandbox)
        own.last = {FOLDER: str(ended.folder)}
        notes = [note for note in (shell.note, began.note, ended.note) if note]
        return Said(_said(ran, seconds, notes, sandboxed), notice=notice, left=own.last)

    return replace(bash, touches=_touches)


def _touches(arguments: Mapping[str, Any]) -> Touch:
    command = arguments.get("command")
    return Touch(command=command if isinstance(command, str) else None)


async def _told_of(sandbox: Sandbox | None) -> Words | None:
    """What the person must know: that there is no sandbox, once. Raises `ToolError` where there must be
    one."""
    if sandbox is None or sandbox.mode == "off":
        return None
    import anyio.to_thread

    state = await anyio.to_thread.run_sync(sandbox.state)
    if state.in_force:
        return None
    why = say(state.why, "en", **state.facts), say(state.why, "zh", **state.facts)
    if sandbox.mode == "on":
        raise ToolError(f"error: commands may run in a sandbox only, and there is none: {why[0]}")
    if sandbox.told:
        return None
    sandbox.told = True
    return say(NO_SANDBOX, "en", why=why[0]), say(NO_SANDBOX, "zh", why=why[1])


def _seconds(timeout: float | None) -> float:
    if timeout is None:
        return USUAL_TIMEOUT
    if math.isnan(timeout) or timeout <= 0:
        raise ToolError(f"error: timeout must be a number of seconds above 0, not {timeout:g}")
    return min(timeout, LONGEST_TIMEOUT)


def _check(command: str, workspace: Path) -> None:
    if not command.strip():
        raise ToolError("error: the command is empty")
    if "\0" in command:
        raise ToolError(
            f"error: the command has a NUL character at position {command.index(chr(0))}; "
            "a shell can't take it (printf '\\0' writes one)"
        )
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"error: the command has half a surrogate pair at position {error.start}, which is no character"
        ) from None
    if not workspace.is_dir():
        raise ToolError(
            f"error: the workspace {workspace} does not exist (any more), so nothing can run in it"
        )


def _said(ran: Ran, seconds: float, notes: Sequence[str], sandboxed: bool) -> str:
    """What the model reads."""
    facts = [_ending(ran, seconds, sandboxed)]
    if ran.stopped and ran.why == "ended":
        count = len(ran.stopped)
        names = ", ".join(ran.stopped[:NAMED]) + (", …" if count > NAMED else "")
        processes = "1 process" if count == 1 else f"{count} processes"
        facts.append(f"{processes} left in the background and stopped: {names}")
    if ran.left:
        facts.append(f"could not be stopped: {', '.join(ran.left[:NAMED])}")
    last_line = f"[{'; '.join((*facts, *notes))}]"
    output = readable(ran.head, ran.tail, ran.total, OUTPUT_LIMIT - len(last_line) - 1)
    if not output.strip():
        output = "(no output)" if ran.total == 0 else f"(nothing visible: {ran.total} bytes of output)"
    return f"{output.rstrip(chr(10))}\n{last_line}"


def _ending(ran: Ran, seconds: float, sandboxed: bool) -> str:
    code = "no exit code" if ran.code is None else f"exit code {_as_shells_count(ran.code)}"
    if ran.code is not None and ran.code < 0:
        code += f", killed by {_signal_name(-ran.code)}"
    elif ran.code is not None and sandboxed and 128 < ran.code < 128 + signal.NSIG:
        # A sandbox ends with this code itself, so it may be the command's own.
        code += f", as of {_signal_name(ran.code - 128)}"
    if ran.why == "timed out":
        return f"timed out after {seconds:g} s and was stopped; {code}"
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
