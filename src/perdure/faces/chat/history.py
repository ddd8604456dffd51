"""What the person typed before, for the next time: theirs alone, without secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

#: Inputs that are kept, and characters of one: what is pasted isn't looked for by its whole text.
KEPT, LONGEST = 1_000, 10_000


class PersonalHistory(History):
    """Inputs in a file of JSON lines that only the person can read. One that begins with a blank isn't kept,
    as in shells; where the file can't be written, they last as long as the chat."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def load_history_strings(self) -> Iterable[str]:
        lines: list[str] = []
        with suppress(OSError):
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in reversed(lines[-KEPT:]):
            with suppress(ValueError):
                if isinstance(text := json.loads(line), str):
                    yield text

    def store_string(self, string: str) -> None:
        from perdure.chat.secrets import masked

        if string.startswith(" ") or not string.strip():
            return
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(masked(string[:LONGEST]), ensure_ascii=False) + "\n")
