"""Ask the person whether a call may run, at the terminal itself, whatever stdin is."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import anyio

from perdure.chat.language import Language, say
from perdure.errors import Words
from perdure.faces.cli.progress import Progress
from perdure.faces.cli.terminal import printable
from perdure.tools.contract import Answer, Question

QUESTION: Words = (
    "Run {name} {arguments}\n[y] yes  [a] always {name} in this run  [n] no: ",
    "运行 {name} {arguments}\n[y] 是  [a] 本次运行总是允许 {name}  [n] 否：",
)


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
        call = question.call
        with self.progress.paused():
            answer = await _answer(
                say(QUESTION, self.lang, name=call.name, arguments=printable(call.arguments))
            )
        lasting = answer in {"a", "always"} and bool(question.always)
        allowed = lasting or answer in {"y", "yes", "是"}
        return Answer(allowed, "session" if lasting else "once")


async def _answer(question: str) -> str:
    terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    try:
        os.write(terminal, question.encode())
        # Waiting, not reading, so that Ctrl-C can end it: a blocked read would outlive the turn.
        await anyio.wait_readable(terminal)
        return os.read(terminal, 4096).decode("utf-8", "replace").strip().lower()
    finally:
        os.close(terminal)
