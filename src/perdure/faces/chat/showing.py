"""Events of a turn as a chat shows them: what is done goes into the scrollback, what goes on is live."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perdure.chat.events import (
    Compacted,
    ErrorRaised,
    Event,
    Judged,
    Notice,
    Planned,
    Recalled,
    RunFinished,
    StateChanged,
    TextDelta,
    ToolFinished,
    ToolRequested,
    ToolStarted,
    UsageReported,
)
from perdure.chat.language import Language, say
from perdure.chat.plans import Step
from perdure.chat.tokens import Usage
from perdure.faces.chat import words
from perdure.faces.chat.blocks import finished
from perdure.faces.chat.drawing import Drawing
from perdure.faces.cli.progress import CHECKED, OBJECTED, RECALLED, WORKING, check_list
from perdure.faces.cli.spans import in_spans
from perdure.faces.cli.terminal import one_line, printable

#: Lines of an answer that is still being written, and of running calls, that are live.
LIVE_LINES, LIVE_CALLS = 6, 4
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_IN_ASCII = "|/-\\"
#: Lines of a call's arguments and output that `/open` shows.
OPENED = 400


@dataclass
class Call:
    """A call of a tool, from when it was asked for."""

    name: str
    arguments: str
    number: int
    began: float
    output: str = ""
    ok: bool = True
    step: str = ""


@dataclass
class Showing:
    """``out`` takes what goes into the scrollback; ``lines`` is what is live now. Nothing that a model or a
    tool wrote reaches either but as text."""

    out: Callable[[str], None]
    drawing: Drawing
    lang: Language
    unicode: bool = True
    #: Of this chat.
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    calls: list[Call] = field(default_factory=list)
    _open: dict[str, Call] = field(default_factory=dict)
    _state: str = ""
    _began: float = 0.0
    _answer: str = ""
    _plan: Sequence[Step] = ()
    _said: bool = False

    def begin(self) -> None:
        """A turn begins."""
        self._state, self._began, self._answer, self._said = "THINKING", time.monotonic(), "", False
        self._plan = ()
        self._open.clear()

    def end(self) -> None:
        """It is over: what was live is printed or gone."""
        self._flush()
        self._print_plan()
        self._open.clear()
        self._state = ""

    def show(self, event: Event) -> None:  # noqa: PLR0912 -- one line for each kind of event
        match event:
            case StateChanged():
                self._state = event.state
            case TextDelta():
                self._text(event)
            case ToolRequested():
                self._flush()
                number = len(self.calls) + 1
                call = Call(event.name, event.arguments, number, time.monotonic(), step=event.plan_step)
                self.calls.append(call)
                self._open[event.id] = call
            case ToolStarted():
                if event.id in self._open:
                    self._open[event.id].began = time.monotonic()
            case ToolFinished():
                self._finished(event)
            case Compacted():
                self._compacted(event)
            case Recalled():
                own = [entry for _, entry in event.entries]
                shown = say(RECALLED, self.lang, count=len(own), entries=in_spans(own), tokens=event.tokens)
                self._line(f"~ {shown}", "dim")
            case Judged() if event.satisfied is not None:
                good = say(CHECKED, self.lang)
                bad = say(OBJECTED, self.lang, objection="; ".join(event.objections))
                self._flush()
                self._line(f"{self._sign(event.satisfied)} {good if event.satisfied else bad}", "dim")
            case Planned():
                self._plan = event.steps
                if event.over:
                    self._print_plan()
            case Notice():
                self._line(f"! {event.text}", "yellow")
            case ErrorRaised():
                self._line(f"! {event.text}", "red")
            case UsageReported():
                self._used(event)
            case RunFinished():
                self._run_finished(event)

    @property
    def lines(self) -> list[str]:
        """What is being done, in a few lines."""
        if not self._state:
            return []
        live = [one_line(line, self.drawing.width) for line in printable(self._answer).splitlines()]
        shown = live[-LIVE_LINES:]
        if self._plan:
            shown += [one_line(line, self.drawing.width) for line in check_list(self._plan, self.lang)]
        frames = SPINNER if self.unicode else SPINNER_IN_ASCII
        frame = frames[int(time.monotonic() * 8) % len(frames)]
        running = list(self._open.values())[-LIVE_CALLS:]
        for call in running:
            shown.append(f"{frame} {self._called(call)} {time.monotonic() - call.began:.0f} s")
        if not running:
            state = say(WORKING.get(self._state, WORKING["THINKING"]), self.lang)
            stops = say(words.STOP, self.lang)
            shown.append(f"{frame} {state} {time.monotonic() - self._began:.0f} s · {stops}")
        return shown

    def opened(self, number: int) -> str | None:
        """A call whole: arguments and output."""
        if not 1 <= number <= len(self.calls):
            return None
        call = self.calls[number - 1]
        lines = [f"{call.name} {call.arguments}", *call.output.splitlines()[:OPENED]]
        return "\n".join(lines)

    def _text(self, event: TextDelta) -> None:
        if event.plan_step or event.reasoning:
            return
        if event.restart:
            self._answer = ""
        self._answer += event.text
        done, self._answer = finished(self._answer)
        self._print(done)

    def _flush(self) -> None:
        rest, self._answer = self._answer, ""
        self._print(rest)

    def _print(self, markdown: str) -> None:
        if markdown.strip():
            self._said = True
            self.out(self.drawing.markdown(markdown) + "\n")

    def _finished(self, event: ToolFinished) -> None:
        call = self._open.pop(event.id, None)
        if call is None:
            return
        call.output, call.ok = event.output, event.ok
        said = one_line(event.output, max(20, self.drawing.width // 2))
        mark = "→" if self.unicode else "->"
        head = f"· {self._called(call)}" if self.unicode else f"* {self._called(call)}"
        self._line(head, "cyan" if event.ok else "red")
        self._line(
            f"  {mark} {said} ({event.seconds:.1f} s) {say(words.OPEN, self.lang, number=call.number)}", "dim"
        )

    def _called(self, call: Call) -> str:
        step = f"{call.step}: " if call.step else ""
        return (
            f"{step}{call.name} {one_line(call.arguments, max(20, self.drawing.width - len(call.name) - 24))}"
        )

    def _compacted(self, event: Compacted) -> None:
        facts = {"before": event.tokens_before, "after": event.tokens_after}
        if not event.left:
            self._line(f"~ {say(words.SHORTENED, self.lang, **facts)}", "dim")
            return
        gist = one_line(event.gist, 60) or say(words.NO_GIST, self.lang)
        by = say(words.BY[event.gist_by], self.lang)
        about = {"count": len(event.left), "entries": in_spans(sorted(event.left)), "by": by, "gist": gist}
        self._line(f"~ {say(words.COMPACTED, self.lang, **about, **facts)}", "dim")

    def _print_plan(self) -> None:
        if self._plan:
            self._line("\n".join(check_list(self._plan, self.lang)), "")
            self._plan = ()

    def _used(self, event: UsageReported) -> None:
        used, more = self.usage, event.usage
        self.usage = Usage(
            used.prompt + more.prompt, used.completion + more.completion, used.cached + more.cached
        )
        self.cost = None if self.cost is None or event.cost is None else self.cost + event.cost

    def _run_finished(self, event: RunFinished) -> None:
        self._flush()
        if event.status == "interrupted":
            self._line(f"! {say(words.INTERRUPTED, self.lang)}", "yellow")
        elif event.status != "answered":
            self._line(f"! {event.reason}", "yellow" if event.status == "limit" else "red")
        elif event.answer and not self._said:
            self._print(event.answer)

    def _sign(self, good: bool) -> str:
        return ("✓" if good else "✗") if self.unicode else ("ok" if good else "no")

    def _line(self, text: str, style: str) -> None:
        self.out(self.drawing.line(text, style))
