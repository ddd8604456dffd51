"""Large texts that are pasted: a short mark in the input, the whole in what is sent."""

from __future__ import annotations

from collections.abc import Callable

#: Lines and characters from which on a text is shown by its mark.
LINES, CHARACTERS = 6, 1_000


class Pasted:
    """``mark`` makes the mark of a text from its number of lines and its own number."""

    def __init__(self, mark: Callable[[int, int], str]) -> None:
        self._mark = mark
        self._texts: dict[str, str] = {}

    def shown(self, text: str) -> str:
        """The text, or its mark where it is large."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines < LINES and len(text) < CHARACTERS:
            return text
        mark = self._mark(lines, len(self._texts) + 1)
        self._texts[mark] = text
        return mark

    def whole(self, typed: str) -> str:
        """What was typed with the texts in place of their marks."""
        for mark, text in self._texts.items():
            typed = typed.replace(mark, text)
        return typed
