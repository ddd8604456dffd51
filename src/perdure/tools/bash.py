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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.chat.language import say
from perdure.errors import ToolError, Words
from perdure.tools.background import looked_at
from perdure.tools.contract import Said, Tool, Touch
from perdure.tools.environment import environment_for_commands
from perdure.tools.jobs import LONGEST, Jobs
from perdure.tools.processes import PATIENCE, Ran, run_watched
from perdure.tools.registry import tool
from perdure.tools.results import OUTPUT_LIMIT, facts_of, shown
from perdure.tools.sandbox import Sandbox
from perdure.tools.shell import FOLDER, Memo, OwnMemo, beginning, ending, has_begun, shell_of

#: Seconds a command may take: unless the model says otherwise, and at most.
USUAL_TIMEOUT, LONGEST_TIMEOUT = 120.0, 600.0
#: Seconds in which a command in the background is expected to fail, if it does.
SOON = 1.0

#: How often a sandbox is made again that could not be: what it was to cover (a socket, say) may have gone
#: between the look and the making.
SANDBOX_TRIES = 2

#: The loopback of a sandbox without a network is its own.
ALONE = "without a network in the sandbox, other calls can't reach its ports"

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
    recalls: bool = False,
    jobs: Jobs | None = None,
) -> Tool:
    """The tool, for one workspace, in a ``sandbox`` or in none. ``environment`` is the agent's own unless
    given; of it, variables that hold secrets by their name reach a command only when they are among
    ``allowed_secrets``. ``memo``: of the conversation that it is used in; ``recalls``: the tool `recall` is
    there and reads the whole of a long output; ``jobs``: commands may run in the background as well."""
    own = OwnMemo()
    beginner = _Beginner(workspace, environment, allowed_secrets, sandbox, memo or own)

    async def in_front(command: str, timeout: float | None) -> Said:
        seconds = _seconds(timeout, USUAL_TIMEOUT, LONGEST_TIMEOUT)
        for last in (*[False] * SANDBOX_TRIES, True):
            it = await beginner.begun(command)
            ran = await run_watched(
                it.argv, folder=it.folder, environment=it.environment, seconds=seconds, wrapped=it.sandboxed
            )
            if it.has_run(ran):
                break
            if last:
                raise _no_sandbox(ran.head)
        ended = ending(ran.told, it.folder, workspace, sandbox)
        own.last = {FOLDER: str(ended.folder)}
        facts = [*facts_of(ran, seconds, sandboxed=it.sandboxed), *it.notes]
        facts += [ended.note] if ended.note else []
        facts += jobs.news(beginner.session) if jobs else []
        last_line = f"[{'; '.join(facts)}]"
        more: dict[str, Any] = {"notice": it.notice, "left": own.last}
        return shown(ran.head, ran.tail, ran.total, last_line, recalls=recalls, **more)

    made = tool(
        name="bash",
        examples=EXAMPLES,
        effect="acts",
        # The registry's limit is there for a tool that doesn't answer; this one always does, with the
        # output so far, so its own limit comes first.
        timeout=LONGEST_TIMEOUT + 2 * PATIENCE,
        output_limit=OUTPUT_LIMIT,
    )
    if jobs is None:

        @made
        async def bash(command: str, timeout: float | None = None) -> str:
            """Run a shell command in the workspace; returns its output (stdout and stderr) and exit code.

            Each call is a new shell: `cd` lasts, variables don't. There is no terminal and no input,
            so nothing can be asked and no editor opens. Processes left in the background are stopped
            when the command ends.

            Args:
                command: The command line.
                timeout: Seconds after which it is stopped: 120 unless given, 600 at most.
            """
            return await in_front(command, timeout)

        return replace(bash, touches=_touches)

    @made
    async def bash_or_behind(command: str, timeout: float | None = None, background: bool = False) -> str:
        """Run a shell command in the workspace; returns its output (stdout and stderr) and exit code.

        Each call is a new shell: `cd` lasts, variables don't. There is no terminal and no input,
        so nothing can be asked and no editor opens. Processes left in the background are stopped
        when the command ends.

        Args:
            command: The command line.
            timeout: Seconds after which it is stopped: 120 unless given, 600 at most.
            background: Go on at once, for a server or the like; the tool `background` reads and stops it.
        """
        if not background:
            return await in_front(command, timeout)
        seconds = _seconds(timeout, LONGEST, LONGEST)
        for last in (*[False] * SANDBOX_TRIES, True):
            it = await beginner.begun(command)
            job = jobs.start(
                beginner.session,
                command,
                it.argv,
                folder=it.folder,
                environment=it.environment,
                seconds=seconds,
                wrapped=it.sandboxed,
            )
            await job.waited(SOON)
            if not job.ended or it.has_run(job.ran()):
                break
            jobs.drop(beginner.session, job)
            if last:
                raise _no_sandbox(job.printed)
        notes = [*it.notes, ALONE] if it.sandboxed and sandbox and not sandbox.network else it.notes
        return looked_at(jobs, beginner.session, job, recalls=recalls, notes=notes).with_notice(it.notice)

    return replace(bash_or_behind, touches=_touches)


@dataclass(frozen=True, slots=True)
class _Begun:
    """What is run, where, and what the model and the person must know about it."""

    argv: list[str]
    folder: Path
    environment: Mapping[str, str]
    sandboxed: bool
    tells: bool
    notes: list[str]
    notice: Words | None

    def has_run(self, ran: Ran) -> bool:
        """Whether the command was run at all: its sandbox may have failed before."""
        return not self.sandboxed or not self.tells or ran.why != "ended" or has_begun(ran.told)


def _no_sandbox(output: bytes) -> ToolError:
    said = output.decode("utf-8", "replace").strip()
    return ToolError(f"error: the sandbox could not be made, so nothing was run: {said[-500:]}")


@dataclass(frozen=True, slots=True)
class _Beginner:
    """Says how commands of a conversation are run."""

    workspace: Path
    environment: Mapping[str, str] | None
    allowed_secrets: Collection[str]
    sandbox: Sandbox | None
    memo: Memo

    @property
    def session(self) -> str:
        return self.memo.session

    async def begun(self, command: str) -> _Begun:
        """Raises `ToolError` where it can't be run."""
        _check(command, self.workspace)
        environment = environment_for_commands(self.environment or os.environ, self.allowed_secrets)
        shell = shell_of(environment.get("PATH", os.defpath))
        notice = await _told_of(self.sandbox)
        began = beginning(self.memo, self.workspace, self.sandbox)
        argv, sandbox = shell.argv(command), self.sandbox
        sandboxed = sandbox is not None and sandbox.state().in_force
        if sandbox is not None and sandboxed:
            argv, environment = sandbox.around(argv, began.folder), sandbox.environment(environment)
        notes = [note for note in (shell.note, began.note) if note]
        return _Begun(argv, began.folder, environment, sandboxed, shell.tells, notes, notice)


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


def _seconds(timeout: float | None, usual: float, longest: float) -> float:
    if timeout is None:
        return usual
    if math.isnan(timeout) or timeout <= 0:
        raise ToolError(f"error: timeout must be a number of seconds above 0, not {timeout:g}")
    return min(timeout, longest)


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
