"""Text as a terminal shows it: Markdown, differences, quiet lines. Colours only where they are wished."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perdure.faces.cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

#: How a line of a difference is coloured, by its first character.
DIFF = {"+": "green", "-": "red", "@": "cyan"}


def coloured(environment: dict[str, str] | None = None) -> bool:
    """Colours are wished: https://no-color.org."""
    surroundings = os.environ if environment is None else environment
    return not surroundings.get("NO_COLOR") and surroundings.get("TERM") not in {"dumb", "unknown"}


class Drawing:
    """Draws for a terminal that is ``width`` cells wide by then."""

    def __init__(self, *, colours: bool) -> None:
        self.colours = colours
        self.width = 80

    def markdown(self, text: str) -> str:
        """Markdown as it is to look, with what would steer the terminal taken out."""
        from rich.markdown import Markdown

        # Whatever the answer says, its links are shown as text: where one leads can be read.
        return self._drawn(Markdown(printable(text), hyperlinks=False, code_theme="ansi_dark"))

    def line(self, text: str, style: str = "") -> str:
        """One or more lines in a style."""
        from rich.text import Text

        return self._drawn(Text(printable(text), style=style))

    def difference(self, lines: Iterable[str]) -> str:
        from rich.text import Text

        text = Text()
        for each in lines:
            text.append(f"{printable(each)}\n", style=DIFF.get(each[:1], ""))
        return self._drawn(text, end="")

    def _drawn(self, what: object, end: str = "\n") -> str:
        console = self._console()
        console.print(what, end=end, markup=False, highlight=False)
        return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]

    def _console(self) -> Console:
        from rich.console import Console

        return Console(
            file=io.StringIO(),
            force_terminal=self.colours,
            no_color=not self.colours,
            color_system="standard" if self.colours else None,
            width=max(self.width, 20),
            legacy_windows=False,
        )
