"""What one sees of a run: progress on stderr, and the answer as it comes where stdout is a terminal.

Plain lines in a pipe or a log; a living line where stderr is a terminal. The words are those of
the events; nothing here decides anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perdure.agent.spending import dollars
from perdure.chat.events import (
    Compacted,
    ErrorRaised,
    Event,
    Judged,
    Notice,
    Planned,
    Recalled,
    RunFinished,
    RunStarted,
    StateChanged,
    TextDelta,
    ToolFinished,
    ToolRequested,
)
from perdure.chat.language import Language, say
from perdure.chat.plans import AFTER, BOXES
from perdure.errors import Words
from perdure.faces.cli.spans import in_spans
from perdure.faces.cli.terminal import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from perdure.chat.plans import Step

WORKING: Mapping[str, Words] = {
    "PLANNING": ("planning", "制定计划"),
    "THINKING": ("thinking", "思考中"),
    "ACTING": ("running", "运行中"),
    "JUDGING": ("checking the answer", "检查回答"),
}
CHECKED: Words = ("checked: the answer does what was asked", "已检查：回答符合请求")
OBJECTED: Words = ("checked: {objection}", "已检查：{objection}")
LEFT: Words = (
    "{count} {count:entry|entries} left the window; {before} tokens are now {after}; "
    "{count:it is|all are} kept in the session",
    "{count} 条记录移出窗口；{before} 个 token 降到 {after}；全部仍保存在会话中",
)
SHORTENED: Words = (
    "long entries were shortened; {before} tokens are now {after}; the whole is kept in the session",
    "较长的记录已缩短；{before} 个 token 降到 {after}；全文仍保存在会话中",
)

RECALLED: Words = (
    "recalled with the request: {count:entry|entries} {entries} ({tokens} tokens)",
    "随请求召回：第 {entries} 条记录（{tokens} 个 token）",
)
RECALLED_ELSEWHERE: Words = (
    "recalled with the request: {count:entry|entries} {entries}, and of {others} other "
    "{others:session|sessions} ({tokens} tokens)",
    "随请求召回：第 {entries} 条记录，以及另外 {others} 个会话的记录（{tokens} 个 token）",
)

RECALLED_ONLY_ELSEWHERE: Words = (
    "recalled with the request: entries of {others} other {others:session|sessions} ({tokens} tokens)",
    "随请求召回：另外 {others} 个会话的记录（{tokens} 个 token）",
)

PLAN: Words = ("the plan", "计划")
PLAN_ANEW: Words = ("the plan, made anew for the rest", "计划（其余部分已重新制定）")
#: Characters of a step, and of its result, that a line shows.
STEP_SHOWN, RESULT_SHOWN = 100, 100


class Progress:
    """Shows events. ``quiet`` shows only what went wrong; ``verbose`` adds whole outputs, thoughts
    and tokens; ``plans``: plans are shown, since they aren't the answer; ``streams``: the answer is written
    to the terminal while it comes."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        lang: Language = "en",
        plans: bool = True,
        streams: bool = True,
    ) -> None:
        self.quiet = quiet
        self.plans = plans
        self.verbose = verbose
        self.streams = streams and sys.stdout.isatty()
        self._lang = lang
        self._console = _console()
        self._status: Status | None = None
        self._session = ""
        self._line_open = False
        self._told = ""
        #: The steps of the plan as they were shown, by their lines.
        self._planned = dict[str, str]()
        #: Lines that wait while the person is asked something.
        self._held: list[tuple[str, str]] | None = None

    @property
    def colours(self) -> bool:
        """What is written to the terminal may be coloured."""
        return self._console is not None

    def show(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._session = event.session
            case StateChanged():
                self._live(WORKING.get(event.state))
            case TextDelta():
                self._text(event)
            case ToolRequested():
                self._say(f"{_in_step(event)}· {event.name} {one_line(event.arguments)}", "cyan")
            case ToolFinished():
                output = printable(event.output).strip() if self.verbose else one_line(event.output)
                mark = f"{_in_step(event)}  {'→' if event.ok else '✗'}"
                self._say(f"{mark} {output} ({event.seconds:.2f} s)", "dim")
            case Compacted():
                facts = {"count": len(event.left), "before": event.tokens_before, "after": event.tokens_after}
                words = LEFT if event.left else SHORTENED
                self._say(f"~ {say(words, self._lang, **facts)}", "dim")
            case Recalled():
                self._recalled(event)
            case Judged():
                self._judged(event)
            case Planned() if self.plans:
                self._plan(event)
            case Notice():
                self._say(f"{_in_step(event)}! {event.text}", "yellow")
            case ErrorRaised():
                self._say(f"perdure: {event.text}", "red", always=True)
            case RunFinished():
                self._finished(event)

    def _judged(self, event: Judged) -> None:
        if event.satisfied:
            self._say(f"✓ {say(CHECKED, self._lang)}", "dim")
        for each in event.objections:
            self._say(f"✗ {say(OBJECTED, self._lang, objection=one_line(each, 200))}", "yellow")

    def _plan(self, event: Planned) -> None:
        """The whole plan when it is new, then what changes in it."""
        lines = dict(zip((step.id for step in event.steps), check_list(event.steps, self._lang), strict=True))
        anew = not self._planned.keys() >= lines.keys()
        if anew:
            self._say(f"~ {say(PLAN_ANEW if self._planned else PLAN, self._lang)}", "bold")
        for id, line in lines.items():
            if anew or self._planned[id] != line:
                self._say(f"  {line}", "dim" if line.startswith("[ ]") else "bold")
        self._planned = lines

    def _recalled(self, event: Recalled) -> None:
        own = [entry for session, entry in event.entries if session == self._session]
        others = len({session for session, _ in event.entries} - {self._session})
        words = RECALLED if not others else RECALLED_ELSEWHERE
        words = words if own else RECALLED_ONLY_ELSEWHERE
        counts = {"count": len(own), "tokens": event.tokens, "others": others}
        self._say(f"~ {say(words, self._lang, entries=in_spans(own), **counts)}", "dim")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing moves on the screen while the person is asked something."""
        self._rest()
        self._end_line()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for text, style in held:
                self._say(text, style)

    def _finished(self, event: RunFinished) -> None:
        self._rest()
        self._end_line()
        if event.status in {"limit", "interrupted"}:
            self._say(f"perdure: {event.reason}", "yellow", always=True)
        elif event.status == "failed" and self._reason_is_new(event.reason):
            self._say(f"perdure: {event.reason}", "red", always=True)
        if self.verbose:
            usage = event.usage
            tokens = f"{usage.prompt} + {usage.completion} tokens ({usage.cached} cached)"
            cost = "" if event.cost is None else f", {dollars(event.cost, self._lang)}"
            self._say(f"  {event.steps} steps, {event.seconds:.1f} s, {tokens}{cost}", "dim")

    def _text(self, event: TextDelta) -> None:
        if (event.reasoning and not self.verbose) or event.plan_step:
            return  # what is said in a step is its result, which stands in the plan
        if self.streams and not event.reasoning:
            self._rest()
            if event.restart:
                self._end_line()
            sys.stdout.write(printable(event.text))
            sys.stdout.flush()
            self._line_open = self._line_open or bool(event.text)

    def _say(self, text: str, style: str, *, always: bool = False) -> None:
        if self.quiet and not always:
            return
        if self._held is not None:
            self._held.append((text, style))
            return
        self._end_line()
        self._told = text
        if self._console:
            self._console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)
        else:
            print(printable(text), file=sys.stderr, flush=True)

    def _reason_is_new(self, reason: str) -> bool:
        return self._told != f"perdure: {reason}"

    def _live(self, words: Words | None) -> None:
        """Show that it works, and at what; nothing where it doesn't."""
        self._rest()
        if words and self._console and not self.quiet:
            # It would be drawn over the answer's last line.
            self._end_line()
            self._status = self._console.status(say(words, self._lang))
            self._status.start()

    def _rest(self) -> None:
        if self._status:
            self._status.stop()
            self._status = None

    def _end_line(self) -> None:
        if self._line_open:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._line_open = False


def check_list(steps: Sequence[Step], lang: Language) -> list[str]:
    """Each step of a plan on a line."""
    lines = []
    for step in steps:
        when = say(AFTER, lang, steps=", ".join(step.after)) if step.after else ""
        when = f" {when}" if when and lang == "en" else when
        result = f" → {one_line(step.result, RESULT_SHOWN)}" if step.result else ""
        lines.append(f"[{BOXES[step.status]}] {step.id}. {one_line(step.what, STEP_SHOWN)}{when}{result}")
    return lines


def _in_step(event: Event) -> str:
    """Where it happened, before its line: in which step of a plan."""
    return f"{event.plan_step}: " if event.plan_step else ""


@contextmanager
def waiting(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A living line on stderr while something takes its time, where that is a terminal; it hands out what
    changes its words. Where no line can live, its words are printed when they would change for the first
    time, so that nobody waits before a silent screen."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
    elif console := _console():
        with console.status(printable(text)) as status:
            yield lambda changed: status.update(printable(changed))
    else:
        waiting = [printable(text)]

        def say_once(_: str) -> None:
            if waiting:
                print(waiting.pop(), file=sys.stderr, flush=True)

        yield say_once


def _console() -> Console | None:
    """Who draws on stderr; None where that is no terminal, or one on which nothing but text is wished."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR"):
        return None
    from rich.console import Console

    return Console(stderr=True)
