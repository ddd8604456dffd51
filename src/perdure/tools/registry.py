"""Tools by name: made from functions, and called so that nothing they do ends a run."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any, get_args, overload

import anyio
import anyio.from_thread
import anyio.lowlevel

from perdure.chat.calls import Example, ToolCall, ToolSpec
from perdure.chat.encodings import as_shown
from perdure.errors import ToolError
from perdure.tools.contract import Effect, Outcome, Said, Tool

#: What providers accept as a tool's name.
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Function = Callable[..., Any]
Examples = Iterable[Example | tuple[str, dict[str, Any]]]


@overload
def tool(function: Function, /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    examples: Examples = (),
    effect: Effect = "acts",
    timeout: float = 60.0,
    output_limit: int = 30_000,
) -> Callable[[Function], Tool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    examples: Examples = (),
    effect: Effect = "acts",
    timeout: float = 60.0,
    output_limit: int = 30_000,
) -> Tool | Callable[[Function], Tool]:
    """Make a `Tool` of a typed function, sync or async.

    The schema comes from its type hints, the descriptions from its docstring (first paragraph;
    ``Args:`` or ``:param x:`` for the parameters). ``examples``: requests with the arguments they
    should lead to, which help small models choose. ``effect``: `acts` (asks first) unless the
    function only looks. ``timeout`` in seconds; ``output_limit`` in characters. Raises `TypeError`
    or `ValueError` for a function that no model could call.
    """

    def made(function: Function) -> Tool:
        from perdure.tools.schema import described, parameters_of, validated

        chosen = str(name or getattr(function, "__name__", ""))
        if effect not in get_args(Effect):
            raise ValueError(f"a tool's effect must be one of {', '.join(get_args(Effect))}, not {effect!r}")
        if not NAME.fullmatch(chosen):
            raise ValueError(f"a tool's name must match {NAME.pattern}, not {chosen!r}")
        shown = tuple(each if isinstance(each, Example) else Example(*each) for each in examples)
        parameters = parameters_of(function)
        if unknown := {key for each in shown for key in each.arguments} - set(parameters["properties"]):
            raise ValueError(f"{chosen}: an example names arguments it has not: {', '.join(sorted(unknown))}")
        spec = ToolSpec(chosen, described(function), parameters, shown)
        return Tool(spec, validated(function), effect, timeout, output_limit)

    return made if function is None else made(function)


class Registry:
    """The tools of a run, by name. Raises `ValueError` where two have the same."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for each in tools:
            if each.spec.name in self._tools:
                raise ValueError(f"two tools are named {each.spec.name!r}")
            self._tools[each.spec.name] = each

    @property
    def specs(self) -> Sequence[ToolSpec]:
        return tuple(each.spec for each in self._tools.values())

    @property
    def tools(self) -> Sequence[Tool]:
        return tuple(self._tools.values())

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    async def call(self, call: ToolCall) -> Outcome:
        """Run a call. Whatever goes wrong is an outcome that the model can read; only
        cancellation is raised."""
        began = time.monotonic()
        outcome = await self._outcome(call)
        return replace(outcome, text=as_shown(outcome.text), seconds=time.monotonic() - began)

    async def _outcome(self, call: ToolCall) -> Outcome:
        chosen = self._tools.get(call.name)
        if chosen is None:
            return Outcome(self._unknown(call.name), ok=False)
        try:
            arguments = read_arguments(call.arguments)
            with anyio.fail_after(chosen.timeout):
                said = await _run(chosen.run, arguments)
        except ToolError as error:
            text = str(error) or "error: the call failed and the tool doesn't say why"
            return Outcome(within(text, chosen.output_limit), ok=False)
        except TimeoutError:
            return Outcome(f"error: no result within {chosen.timeout:g} s", ok=False)
        text = within(said, chosen.output_limit)
        if isinstance(said, Said):
            more = as_shown(said.whole)
            return Outcome(text, True, notice=said.notice, left=said.left, whole=more, name=said.name)
        return Outcome(text, ok=True)

    def _unknown(self, name: str) -> str:
        known = ", ".join(self._tools) or "none"
        near = difflib.get_close_matches(name, self._tools, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"error: there is no tool {name[:64]!r}. The tools are: {known}.{hint}"


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as an object; nothing, blank and ``null`` are none. Raises
    `ToolError` that says what is wrong with the text."""
    if text.strip() in {"", "null"}:
        return {}
    try:
        arguments = json.loads(text)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise ToolError(f"error: the arguments are not valid JSON: {error.msg} near {near!r}") from error
    except RecursionError as error:
        raise ToolError("error: the arguments are nested too deeply") from error
    except ValueError as error:
        raise ToolError("error: the arguments hold a number with too many digits") from error
    if not isinstance(arguments, dict):
        raise ToolError(f"error: the arguments must be an object, not {text[:80]}")
    return arguments


def within(text: str, limit: int) -> str:
    """The text, or its head and tail where it has more than ``limit`` characters."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    gap = f"\n[... {len(text) - head - tail} characters left out ...]\n"
    return text[:head] + gap + text[len(text) - tail :]


async def _run(function: Callable[..., Awaitable[str] | str], arguments: dict[str, Any]) -> str:
    """What the function says, as text. Raises `ToolError` for all that it raises, so that its own
    `TimeoutError` isn't taken for ours."""
    try:
        if inspect.iscoroutinefunction(function):
            said: Any = await function(**arguments)
        else:
            said = await _in_a_thread(lambda: function(**arguments))
            if inspect.isawaitable(said):  # an async function inside a decorator that isn't
                said = await said
        return _as_text(said)
    except ToolError:
        raise
    except (Exception, SystemExit) as error:
        raise ToolError(f"error: {_named(error)}") from error


async def _in_a_thread(work: Callable[[], Any]) -> Any:
    """The work done in a thread of its own. One that hangs can't be ended, so it is left behind: it
    holds up neither the turn nor (a daemon, which anyio's threads aren't) the end of the process, and
    takes no place from others. What it raises can't be a real interruption, so all is a `ToolError`."""
    ended, token = anyio.Event(), anyio.lowlevel.current_token()
    said: list[Any] = []
    failed: list[ToolError] = []

    def run() -> None:
        try:
            said.append(work())
        except ToolError as error:
            failed.append(error)
        except BaseException as error:
            failed.append(ToolError(f"error: {_named(error)}"))
        # Nobody listens any more where the run is over.
        with suppress(RuntimeError):
            anyio.from_thread.run_sync(ended.set, token=token)

    threading.Thread(target=copy_context().run, args=(run,), name="tool", daemon=True).start()
    await ended.wait()
    if failed:
        raise failed[0]
    return said[0]


def _as_text(said: Any) -> str:
    if said is None or said == "":
        return "(no output)"
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, default=str)


def _named(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_named(each) for each in error.exceptions[:3])
    try:
        said = " ".join(str(error).split())[:500]
    except Exception:  # an error of somebody's tool may not even be able to say what it is
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
