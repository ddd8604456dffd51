"""`perdure run`: one task, the answer on stdout, progress on stderr."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from perdure import errors
from perdure.app import Agent, Sessions, config_folder, new_session_name
from perdure.chat.language import language_of
from perdure.config import Settings, load
from perdure.errors import ConfigError, PerdureError, Words, why
from perdure.faces.cli.approval import AskAtTerminal, can_ask
from perdure.faces.cli.progress import Progress
from perdure.faces.cli.terminal import discard_output, printable

if TYPE_CHECKING:
    from perdure.chat.events import Event, RunFinished, Status
    from perdure.chat.plans import Plan

NO_TASK: Words = (
    'no task: perdure run "TASK", or pipe it in',
    '没有任务：请用 perdure run "任务"，或通过管道输入',
)
NOTHING_LEFT: Words = (
    'no task, and the last turn of {session} left nothing undone: perdure run "TASK", or pipe it in',
    '没有任务，且 {session} 的上一回合没有未完成的内容：请用 perdure run "任务"，或通过管道输入',
)
EMPTY_TASK: Words = ("the task is empty", "任务为空")
NONE_TO_GO_ON: Words = ("there is no session in {folder} to go on with", "{folder} 中没有可以继续的会话")
NO_PLAN_FILE: Words = ("the plan in {file} cannot be read: {why}", "无法读取 {file} 中的计划：{why}")
NO_SCHEMA_FILE: Words = ("the schema in {file} cannot be used: {why}", "无法使用 {file} 中的模式：{why}")
NO_TEXT: Words = ("it is not text in UTF-8", "它不是 UTF-8 文本")
INTERRUPTED = 130
EXIT_CODES: dict[Status, int] = {"answered": 0, "failed": 1, "limit": 3, "interrupted": INTERRUPTED}

#: Flags of `perdure run` that are settings, by the same names.
SETTINGS = (
    "model",
    "base_url",
    "context_window",
    "max_output_tokens",
    "store",
    "lang",
    "quiet",
    "verbose",
    "max_steps",
    "max_time",
    "max_tokens",
    "max_cost",
    "yes",
    "read_only",
    "allow",
    "deny",
    "tool_calls",
    "summary",
    "summary_model",
    "judge",
    "judge_rounds",
    "judge_model",
    "plan",
    "parallel",
    "tools",
    "tool_files",
    "read_only",
    "workspace",
    "memory",
    "recall",
    "embedder",
)


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Settings of a command: its flags over the environment over the files."""
    flags = {name: getattr(arguments, name, None) for name in SETTINGS}
    return load(flags, os.environ, config_folder=config_folder())


def run_task(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    schema = schema_from(arguments.output_schema) if arguments.output_schema else None
    title, plan = plan_from(arguments.plan_file) if arguments.plan_file else ("", None)
    goes_on = arguments.goes_on or arguments.session is not None
    told = title if title and arguments.task is None else _task(arguments.task, needed=not goes_on)
    session = _session(arguments, settings)
    task = told or _resumed(session, settings)
    if arguments.session is None and not settings.quiet:
        print(f"session {session}", file=sys.stderr)
    lang = language_of(task) if settings.lang == "auto" else settings.lang
    progress = Progress(
        quiet=settings.quiet,
        verbose=settings.verbose,
        lang=lang,
        plans=not arguments.plan_only,
        streams=schema is None,
    )
    approve = AskAtTerminal(progress, lang) if can_ask() and not arguments.json else None
    show = _json_line if arguments.json else progress.show
    agent = Agent(settings, approve=approve)
    wish = {"plan": plan, "plan_only": arguments.plan_only, "goes_on": not told, "output_schema": schema}
    turn = partial(agent.run, task, session=session, **wish)
    finished = anyio.run(until_done_or_interrupted, agent, turn, show)
    if finished is None:
        return INTERRUPTED
    if finished.answer and not arguments.json and not progress.streams:
        # Whoever asked for JSON reads nothing else from stdout.
        fits = schema is None or finished.status == "answered"
        print(printable(finished.answer), flush=True, file=sys.stdout if fits else sys.stderr)
    return exit_code(finished)


def plan_from(file: str) -> tuple[str, Plan]:
    """The heading of a person's plan, empty where it has none, and the plan. Raises `ConfigError`."""
    from perdure.chat.plans import Plan, read_plan

    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        title, steps = read_plan(text)
    except OSError as error:
        raise ConfigError(NO_PLAN_FILE, file=file, why=why(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(NO_PLAN_FILE, file=file, why=NO_TEXT) from error
    except ConfigError as error:
        raise ConfigError(NO_PLAN_FILE, file=file, why=error) from error
    return title, Plan(steps, by="person")


def schema_from(file: str) -> dict[str, Any]:
    """The JSON schema in a file. Raises `ConfigError` where it holds none."""
    from perdure.chat.structured import OutputSchema

    try:
        return OutputSchema(json.loads(Path(file).read_text(encoding="utf-8-sig"))).schema
    except OSError as error:
        raise ConfigError(NO_SCHEMA_FILE, file=file, why=why(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(NO_SCHEMA_FILE, file=file, why=NO_TEXT) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            NO_SCHEMA_FILE, file=file, why=(f"no JSON: {error}", f"不是 JSON：{error}")
        ) from error
    except ConfigError as error:
        raise ConfigError(NO_SCHEMA_FILE, file=file, why=error) from error


def exit_code(finished: RunFinished) -> int:
    """The code of the run's end; where an error ended it, that of the error."""
    ended_by = getattr(errors, finished.error, None)
    return int(ended_by.exit_code) if ended_by else EXIT_CODES[finished.status]


async def until_done_or_interrupted(
    agent: Agent, run: Callable[..., Awaitable[RunFinished]], show: Callable[[Event], None]
) -> RunFinished | None:
    """The end of the run, or None where a signal came first, or the reader of our output went away:
    that interrupts the turn in order, a second signal at once."""
    finished: RunFinished | None = None
    failure: PerdureError | None = None

    async def watch(turn: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                if turn.cancel_called:
                    os._exit(INTERRUPTED)
                turn.cancel()

    def show_while_somebody_reads(event: Event) -> None:
        try:
            show(event)
        except BrokenPipeError:
            discard_output()
            turn.cancel()

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as turn:
            group.start_soon(watch, turn)
            try:
                async with agent:
                    finished = await run(on_event=show_while_somebody_reads)
            except PerdureError as error:
                failure = error
        group.cancel_scope.cancel()
    if failure:
        raise failure
    return finished


def _session(arguments: argparse.Namespace, settings: Settings) -> str:
    """The session that is named, the workspace's newest one, or a new one. Raises `ConfigError` where there
    is none to go on with."""
    if not arguments.goes_on:
        return new_session_name() if arguments.session is None else str(arguments.session)
    return newest_session(settings)


def newest_session(settings: Settings) -> str:
    """The session of the workspace that changed last. Raises `ConfigError` where there is none."""
    with Sessions(settings) as sessions:
        newest = sessions.newest()
    if newest is None:
        raise ConfigError(NONE_TO_GO_ON, folder=settings.workspace)
    return newest.name


def _task(given: str | None, *, needed: bool) -> str | None:
    """The task itself, or what stdin holds; None where there is none and none is ``needed``."""
    if given is None and sys.stdin.isatty():
        if needed:
            raise ConfigError(NO_TASK)
        return None
    task = sys.stdin.buffer.read().decode("utf-8", "replace") if given in {None, "-"} else given
    if not task or not task.strip():
        if given is None and not needed:
            return None
        raise ConfigError(EMPTY_TASK)
    return task.strip()


def _resumed(session: str, settings: Settings) -> str:
    """What to do in a session that is to go on, where nothing is said: what its last turn left undone."""
    from perdure.agent.resuming import request_to_go_on

    with Sessions(settings) as sessions:
        is_there = sessions.is_there and sessions.journal.exists(session)
        request = request_to_go_on(sessions.records(session)) if is_there else None
    if request is None:
        raise ConfigError(NOTHING_LEFT if is_there else NO_TASK, session=session)
    return request


def _json_line(event: Event) -> None:
    line = json.dumps(event.as_json(), ensure_ascii=False, default=str)
    # A lone surrogate can't be written as UTF-8; escaped, the line is still the same JSON.
    sys.stdout.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()
