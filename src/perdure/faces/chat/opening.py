"""Which chat it is: on a screen, in plain lines, or a pipe's one task; and in which session."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import anyio

from perdure.app.opening import new_session_name
from perdure.faces.cli.main import COMMON
from perdure.faces.cli.run import newest_session, settings_from

#: Terminals on which nothing can be drawn.
DUMB = frozenset({"dumb", "unknown", ""})


def open_chat(arguments: argparse.Namespace) -> int:
    """The chat, until the person leaves; the exit code. Raises `PerdureError`."""
    settings = settings_from(arguments)
    resumes = arguments.goes_on or arguments.session is not None
    session = newest_session(settings) if arguments.goes_on else arguments.session or new_session_name()
    options = _options(arguments)
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in DUMB:
        from perdure.faces.chat.lines import chat_in_lines

        return chat_in_lines(settings, session, options)
    from perdure.faces.chat.chat import chat_on_screen

    chat = partial(chat_on_screen, settings, session, options, history_file(), resumes=resumes)
    return anyio.run(chat)


def history_file() -> Path:
    """Where what was typed is kept."""
    from platformdirs import user_data_path

    return user_data_path("perdure") / "typed.jsonl"


def _options(arguments: argparse.Namespace) -> list[str]:
    """The common options that were given, for commands that the chat gives."""
    given: list[str] = []
    for option in COMMON:
        value = getattr(arguments, option[2:].replace("-", "_"), None)
        if value is not None and not isinstance(value, bool):
            given += [option, str(value)]
    return given
