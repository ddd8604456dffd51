"""The chat where nothing can be drawn: a line in, lines out, and not one escape sequence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import anyio

from perdure.app import Agent
from perdure.chat.language import Language, say
from perdure.config import Settings
from perdure.errors import PerdureError
from perdure.faces.chat import words
from perdure.faces.chat.completing import with_files_named
from perdure.faces.cli.approval import AskAtTerminal, can_ask
from perdure.faces.cli.progress import Progress
from perdure.faces.cli.run import until_done_or_interrupted
from perdure.faces.cli.terminal import language_of_person, printable

#: Of the commands, those that a line of text is enough for.
COMMANDS = {
    "/context": ("context",),
    "/compact": ("compact",),
    "/sessions": ("sessions", "list"),
}


def chat_in_lines(settings: Settings, session: str, options: Sequence[str]) -> int:
    """Until the end of the input, or `/quit`; the exit code."""
    lang = language_of_person(None if settings.lang == "auto" else settings.lang)
    while True:
        try:
            typed = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            break
        if typed == "/quit":
            break
        if typed.startswith("/") and not typed.startswith("//"):
            _obey(typed, session, options, lang)
        elif typed:
            progress = Progress(quiet=settings.quiet, verbose=settings.verbose, lang=lang)
            agent = Agent(settings, approve=AskAtTerminal(progress, lang) if can_ask() else None)
            turn = partial(agent.run, with_files_named(typed, settings.workspace), session=session)
            try:
                finished = anyio.run(until_done_or_interrupted, agent, turn, progress.show)
            except PerdureError as error:
                print(printable(f"perdure: {error.say(lang)}"), file=sys.stderr)
                continue
            if finished and finished.answer and not progress.streams:
                print(printable(finished.answer), flush=True)
    print(say(words.LEAVING, lang, session=session), file=sys.stderr)
    return 0


def _obey(typed: str, session: str, options: Sequence[str], lang: Language) -> None:
    from perdure.faces.cli.main import run

    name, _, rest = typed.partition(" ")
    if name == "/recall" and rest.strip():
        run(["recall", session, *options, "--", rest.strip()])
    elif name == "/undo":
        run(["sessions", "undo", session, "--files", *options])
    elif name in COMMANDS:
        named = (session,) if name != "/sessions" else ()
        run([*COMMANDS[name], *named, *options])
    else:
        known = ", ".join([*COMMANDS, "/recall", "/undo", "/quit"])
        print(say(words.NO_COMMAND, lang, name=name, hint=f" ({known})"))
