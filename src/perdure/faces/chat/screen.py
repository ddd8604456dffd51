"""The terminal of a chat: an input that is always there, what is live above it, a status line below it; all
that is finished goes into the terminal's own scrollback, where it can be scrolled, copied and searched."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, FormattedText, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.shortcuts import PromptSession
from prompt_toolkit.styles import Style

from perdure.faces.chat.pasting import Pasted

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

#: Seconds after a question appeared in which a key still belongs to what was being typed.
SETTLING = 0.4
#: Seconds between two frames while something is live.
FRAME = 0.12
#: Lines for what can be completed.
MENU = 6
#: Seconds that Esc waits for the rest of a key that begins with it.
ESCAPING = 0.05

STYLE = Style.from_dict(
    {
        "bar.system": "bg:ansiblue",
        "bar.gist": "bg:ansimagenta",
        "bar.history": "bg:ansigreen",
        "bar.free": "bg:ansibrightblack",
        "bottom-toolbar": "noreverse",
        "question": "bold",
    }
)


class Screen:
    """``live`` gives the lines that are drawn above the input, ``status`` the pieces of the line below it;
    ``stop`` is asked to stop what runs (True where something did). What Enter sends is `next_input`'s."""

    def __init__(
        self,
        *,
        live: Callable[[], list[str]],
        status: Callable[[int], list[tuple[str, str]]],
        stop: Callable[[], bool],
        take_back: Callable[[], str | None],
        history: History,
        completer: Completer,
        colours: bool,
        sign: str,
        pasted_words: Callable[[int, int], str],
    ) -> None:
        self.pasted = Pasted(pasted_words)
        self._live, self._status, self._stop, self._take_back = live, status, stop, take_back
        self._sign = sign
        self._question: str | None = None
        self._keys = ""
        self._asked_at = 0.0
        self._answer: asyncio.Future[str] | None = None
        self._prompts: str | None = None
        self._colours = colours
        self._session: PromptSession[str] = PromptSession(
            message=self._message,
            bottom_toolbar=self._toolbar,
            history=history,
            completer=completer,
            complete_while_typing=True,
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: " " * width,
            key_bindings=self._bindings(),
            enable_history_search=False,
            erase_when_done=True,
            style=STYLE,
            color_depth=None if colours else ColorDepth.DEPTH_1_BIT,
            reserve_space_for_menu=0,
            search_ignore_case=True,
        )
        self._session.app.ttimeoutlen = ESCAPING
        self._session.app.timeoutlen = 4 * ESCAPING
        self._drafted = ""
        #: What is on its way into the scrollback, in order.
        self._printing = set[asyncio.Future[None]]()

    @property
    def width(self) -> int:
        return int(self._session.app.output.get_size().columns)

    async def next_input(self) -> str:
        """What the person sends next, pasted texts put in. Raises `EOFError` for Ctrl-D at an empty input,
        and `KeyboardInterrupt` for Ctrl-C where nothing runs and nothing is typed."""
        typed = await self._session.prompt_async(default=self._drafted, handle_sigint=False)
        self._drafted = ""
        return self.pasted.whole(typed)

    async def reason(self, words: str) -> str:
        """One line that the person types as an answer."""
        self._prompts = words
        self._answer = asyncio.get_running_loop().create_future()
        self.refresh()
        try:
            return await self._answer
        finally:
            self._answer = self._prompts = None
            self.refresh()

    async def key(self, question: str, keys: str) -> str:
        """One of ``keys`` that the person presses, or an empty text for Esc and Ctrl-C. What they had typed
        before stays in the input."""
        self._question, self._keys, self._asked_at = question, keys, time.monotonic()
        self._answer = asyncio.get_running_loop().create_future()
        self.refresh()
        try:
            return await self._answer
        finally:
            self._answer = self._question = None
            self.refresh()

    def out(self, text: str) -> None:
        """Into the scrollback, above all that is drawn."""

        def write() -> None:
            self._session.app.output.write_raw(text.replace("\n", "\r\n"))
            self._session.app.output.flush()

        if self._session.app.is_running:
            printing = asyncio.ensure_future(run_in_terminal(write))
            self._printing.add(printing)
            printing.add_done_callback(self._printing.discard)
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    def refresh(self) -> None:
        self._session.app.invalidate()

    async def keep_moving(self) -> None:
        """Redraw while something is live, until cancelled."""
        while True:
            await asyncio.sleep(FRAME)
            if self._live():
                self.refresh()

    def close(self) -> None:
        if self._session.app.is_running:
            self._session.app.exit(exception=EOFError())

    def _message(self) -> FormattedText:
        shown: list[tuple[str, str]] = []
        for line in self._live():
            shown += [*_plain(line), ("", "\n")]
        text = self._session.default_buffer.text
        # Room is kept only while something may be completed.
        self._session.reserve_space_for_menu = MENU if text.startswith("/") or "@" in text else 0
        if self._question is not None:
            # The last line stands before the input, and must leave room for it.
            return FormattedText([*shown, ("class:question", f"{self._question}\n"), ("bold", "? ")])
        sign = self._prompts or f"{self._sign} "
        return FormattedText([*shown, ("bold", sign)])

    def _toolbar(self) -> FormattedText:
        return FormattedText(self._status(self.width))

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        asking = Condition(lambda: self._question is not None)

        @bindings.add("enter", filter=~asking)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if event.app.layout.has_focus(DEFAULT_BUFFER) and buffer.complete_state is not None:
                chosen = buffer.complete_state.current_completion
                if chosen is not None:
                    buffer.apply_completion(chosen)
                    return
            if buffer.text.endswith("\\") and buffer.cursor_position == len(buffer.text):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif self._prompts is not None and self._answer is not None:
                said, buffer.text = buffer.text, ""
                if not self._answer.done():
                    self._answer.set_result(said)
            else:
                buffer.validate_and_handle()

        @bindings.add("c-j", filter=~asking)
        @bindings.add("escape", "enter", filter=~asking)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add(Keys.BracketedPaste, filter=~asking)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self.pasted.shown(event.data))

        @bindings.add("up", filter=~asking & Condition(lambda: not self._session.default_buffer.text))
        def _(event: KeyPressEvent) -> None:
            taken = self._take_back()
            if taken is None:
                event.current_buffer.auto_up()
            else:
                event.current_buffer.insert_text(taken)

        @bindings.add("escape")
        def _(event: KeyPressEvent) -> None:
            if not self._answered("") and event.current_buffer.complete_state is not None:
                event.current_buffer.cancel_completion()
            elif self._question is None:
                self._stop()

        @bindings.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if self._answered("") or self._stop():
                return
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt())

        @bindings.add("c-d", filter=~asking & Condition(lambda: not self._session.default_buffer.text))
        def _(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError())

        @bindings.add("<any>", filter=asking)
        def _(event: KeyPressEvent) -> None:
            if time.monotonic() - self._asked_at < SETTLING:
                if event.data.isprintable():
                    event.current_buffer.insert_text(event.data)
            elif event.data.lower() in self._keys:
                self._answered(event.data.lower())

        return bindings

    def _answered(self, key: str) -> bool:
        """A question, where there is one, is answered."""
        if self._answer is None:
            return False
        if not self._answer.done():
            self._answer.set_result(key)
        return True


def _plain(line: str) -> Sequence[tuple[str, str]]:
    return [(style, text) for style, text, *_ in to_formatted_text(ANSI(line))]
