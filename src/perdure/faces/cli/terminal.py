"""What may be written to a terminal, and what the person's terminal speaks."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from perdure.chat.language import Language

#: Escape sequences and control characters: text from a model or a tool must not steer the
#: terminal it is shown on (move the cursor, set the title, answer back).
_STEERING = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def printable(text: str) -> str:
    """The text without what would steer a terminal, and with lone surrogates replaced."""
    return _STEERING.sub("", text).encode("utf-8", "replace").decode("utf-8")


def language_of_person(lang: str | None) -> Language:
    """The language of messages before there is a conversation: that of the settings or, where these couldn't
    be read (None), of their variable; else the locale."""
    lang = os.environ.get("PERDURE_LANG") if lang is None else lang
    if lang in {"en", "zh"}:
        return "zh" if lang == "zh" else "en"
    spoken = next(
        (os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), ""
    )
    return "zh" if spoken.startswith("zh") else "en"


def short_folder(path: str, width: int = 30) -> str:
    """A folder in at most ``width`` characters: the home folder as ``~``, and of a longer path its end."""
    with suppress(ValueError, RuntimeError):  # it is elsewhere, or there is no home
        path = str("~" / Path(path).relative_to(Path.home()))
    shown = " ".join(printable(path).split())
    return shown if len(shown) <= width else f"…{shown[1 - width :]}"


def one_line(text: str, width: int = 100) -> str:
    """The text on one line of at most ``width`` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def readable_size(size: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def json_line(value: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write one JSON value as a line of UTF-8."""
    line = json.dumps(value, ensure_ascii=False)
    sys.stdout.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")


def discard_output() -> None:
    """Whoever read our output has gone: what else is written goes nowhere, and Python doesn't
    complain about that at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
