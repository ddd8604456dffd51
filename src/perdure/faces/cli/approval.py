"""Ask the person whether a call may run, at the terminal itself, whatever stdin is."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal

import anyio

from perdure.chat.language import Language, say
from perdure.errors import Words
from perdure.faces.cli.progress import Progress
from perdure.faces.cli.terminal import printable
from perdure.faces.question import shown_answers, shown_call, shown_preview
from perdure.tools.contract import Answer, Question

WHY: Words = ("Why not? ", "为什么不？")
#: How a line of a diff is coloured, by its first character.
COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
PLAIN = "\x1b[0m"
YES, NO_AND_WHY = frozenset({"y", "yes", "是"}), frozenset({"r", "reason"})
LASTING: dict[str, Literal["session", "workspace"]] = {
    "a": "session",
    "always": "session",
    "w": "workspace",
    "workspace": "workspace",
}


def can_ask() -> bool:
    """There is a person at a terminal who sees the question and can answer it."""
    if not sys.stderr.isatty():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


@dataclass
class AskAtTerminal:
    """An `Asker`. Only a clear yes approves; the end of input does not."""

    progress: Progress
    lang: Language

    async def ask(self, question: Question) -> Answer:
        with self.progress.paused():
            answer = (await _answer(self._asked(question))).lower()
            if answer in NO_AND_WHY:
                return Answer(False, said=await _answer(say(WHY, self.lang)))
        lasting = LASTING.get(answer) if question.always else None
        return Answer(lasting is not None or answer in YES, lasting or "once")

    def _asked(self, question: Question) -> str:
        lines = [printable(shown_call(question))]
        lines += [self._coloured(printable(line)) for line in shown_preview(question, self.lang)]
        lines += [printable(question.why)] if question.why else []
        return "\n".join([*lines, f"{printable(shown_answers(question, self.lang))}: "])

    def _coloured(self, line: str) -> str:
        colour = COLOURS.get(line[:1], "") if self.progress.colours else ""
        return f"{colour}{line}{PLAIN}" if colour else line


async def _answer(question: str) -> str:
    terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    try:
        os.write(terminal, question.encode())
        # Waiting, not reading, so that Ctrl-C can end it: a blocked read would outlive the turn.
        await anyio.wait_readable(terminal)
        return os.read(terminal, 4096).decode("utf-8", "replace").strip()
    finally:
        os.close(terminal)
