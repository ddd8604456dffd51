"""Completions: commands behind `/`, files of the workspace behind `@`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from perdure.chat.language import Language, say
from perdure.faces.chat.words import HELP
from perdure.tools.walking import files

#: Files that are looked through, files that are shown, and seconds for which a list is believed.
LOOKED_AT, SHOWN, FRESH = 20_000, 30, 10.0
_FILE = re.compile(r"(?:^|\s)@([^\s@]*)$")


class ChatCompleter(Completer):
    def __init__(self, workspace: Path, lang: Language) -> None:
        self._workspace, self._lang = workspace, lang
        self._files: Sequence[str] = ()
        self._read = -FRESH

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and "\n" not in before and " " not in before:
            for name, about in HELP:
                command = name.split()[0]
                if command.startswith(before):
                    yield Completion(command, -len(before), display=name, display_meta=say(about, self._lang))
        elif match := _FILE.search(before):
            wanted = match[1].casefold()
            near = (path for path in self._listed() if wanted in path.casefold())
            by_name = sorted(islice(near, 500), key=lambda path: (not _begins(path, wanted), len(path), path))
            for path in by_name[:SHOWN]:
                yield Completion(f"@{path} ", -len(match[1]) - 1, display=path)

    def _listed(self) -> Sequence[str]:
        if time.monotonic() - self._read > FRESH:
            self._files = [path.replace("\\", "/") for path in islice(files(str(self._workspace)), LOOKED_AT)]
            self._read = time.monotonic()
        return self._files


def _begins(path: str, wanted: str) -> bool:
    return path.casefold().startswith(wanted) or path.rpartition("/")[2].casefold().startswith(wanted)


def with_files_named(text: str, workspace: Path) -> str:
    """A request in which files are named as `@path`: their paths alone, where there is such a file, so that
    the model reads them with its tools."""

    def named(match: re.Match[str]) -> str:
        path = match[2].rstrip(".,;:!?)]}")
        rest = match[2][len(path) :]
        return f"{match[1]}{path}{rest}" if path and (workspace / path).exists() else match[0]

    return re.sub(r"(^|\s)@(\S+)", named, text)
