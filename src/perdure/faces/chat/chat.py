"""The chat: what the person sends is worked on one after the other, and the input is always there."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from perdure import __version__
from perdure.app.opening import config_folder
from perdure.chat.language import Language, say
from perdure.config import Settings
from perdure.errors import PerdureError, SessionUnknown
from perdure.faces.chat import words
from perdure.faces.chat.asking import AskInChat
from perdure.faces.chat.commands import obey
from perdure.faces.chat.completing import ChatCompleter, with_files_named
from perdure.faces.chat.drawing import Drawing, coloured
from perdure.faces.chat.history import PersonalHistory
from perdure.faces.chat.screen import Screen
from perdure.faces.chat.showing import Showing
from perdure.faces.chat.status import Glance, grouped, pieces
from perdure.faces.cli.terminal import language_of_person, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.app import Agent
    from perdure.tools.contract import Tool

#: Turns of a session that are shown in brief where it goes on.
SHOWN_TURNS = 3


@dataclass
class Waiting:
    """A request that waits for its turn; ``then`` is done when it is over."""

    text: str
    then: Callable[[], Awaitable[None]] | None = None


class Chat:
    """``options`` are those of the command line that its commands take as well; ``history`` the file of what
    was typed before."""

    def __init__(self, settings: Settings, session: str, options: Sequence[str], history: Path) -> None:
        self.settings, self.session, self.options = settings, session, tuple(options)
        self.lang: Language = language_of_person(None if settings.lang == "auto" else settings.lang)
        self.glance = Glance(model=settings.model or "", session=session)
        self._waiting: deque[Waiting] = deque()
        self._comes = anyio.Event()
        self._turn: anyio.CancelScope | None = None
        self._leaving = False
        self._pressed = False
        self._agent: Agent | None = None
        self._changes: dict[str, Any] = {}
        unicode = _speaks_unicode()
        self.drawing = Drawing(colours=coloured())
        self.screen = Screen(
            live=self._live,
            status=self._status,
            stop=self._stop,
            take_back=self._take_back,
            history=PersonalHistory(history),
            completer=ChatCompleter(settings.workspace, self.lang),
            colours=self.drawing.colours,
            sign="›" if unicode else ">",
            pasted_words=lambda lines, number: say(words.PASTED, self.lang, count=lines, number=number),
        )
        self.showing = Showing(self.screen.out, self.drawing, self.lang, unicode)

    @property
    def busy(self) -> bool:
        return self._turn is not None

    async def run(self) -> int:
        """Until the person leaves; the exit code."""
        self.drawing.width = self.screen.width
        async with anyio.create_task_group() as group:
            group.start_soon(self._work)
            group.start_soon(self.screen.keep_moving)
            await self._listen()
            group.cancel_scope.cancel()
        if self._agent is not None:
            await self._agent.aclose()
        if self.glance.window:
            self.screen.out(say(words.LEAVING, self.lang, session=self.session) + "\n")
        return 0

    def tell(self, text: str, style: str = "") -> None:
        """A line of the chat's own."""
        self.drawing.width = self.screen.width
        self.screen.out(self.drawing.line(text, style))

    def ask(self, text: str, then: Callable[[], Awaitable[None]] | None = None) -> None:
        """Have a request worked on when those before it are over."""
        self._waiting.append(Waiting(text, then))
        self._comes.set()
        self.screen.refresh()

    async def change(self, **settings: Any) -> None:
        """Other settings, from the next turn on. Raises `ConfigError`."""
        self.settings = replace(self.settings, **settings)
        if "model" in settings:
            self.options = (*_without(self.options, "--model"), "--model", settings["model"])
        await self._close_agent(keeps_model="model" not in settings)

    def switch(self, session: str) -> None:
        """Be in another session."""
        self.session = session
        self.glance = Glance(model=self.glance.model, session=session, cost=self.glance.cost)
        self.look()

    def resume(self, session: str) -> None:
        """Go on with a session. Raises `SessionUnknown`."""
        from perdure.app import Sessions
        from perdure.chat.messages import Entry, Kind, text_of

        with Sessions(self.settings) as sessions:
            sessions.existing(session)
            undone = sessions.undone(session)
            said = [
                each
                for each in sessions.records(session)
                if isinstance(each, Entry) and not each.lane and each.seq not in undone
            ]
        requests = [entry for entry in said if entry.kind is Kind.USER]
        self.switch(session)
        turns = len(requests)
        self.tell(say(words.GOES_ON, self.lang, version=__version__, session=session, turns=turns), "dim")
        since = requests[-SHOWN_TURNS].seq if turns >= SHOWN_TURNS else 0
        for entry in said:
            if entry.seq >= since and entry.kind in {Kind.USER, Kind.ASSISTANT}:
                sign = "›" if entry.kind is Kind.USER else " "
                self.tell(f"{sign} {one_line(text_of(entry.message), max(20, self.screen.width - 4))}", "dim")

    def look(self) -> None:
        """See anew what is in the window."""
        from perdure.agent.overview import overview
        from perdure.app import Sessions

        with suppress(PerdureError), Sessions(self.settings) as sessions:
            if not sessions.is_there or not sessions.journal.exists(self.session):
                return
            seen = overview(sessions.journal, self.session)
            self.glance = Glance(
                seen.model, self.session, seen.window, grouped(seen.parts, seen.free), seen.cost
            )
        self.screen.refresh()

    async def tools(self) -> Sequence[Tool]:
        """The tools of the next turn."""
        return await self._opened().tools_of_a_turn()

    def answered(self) -> Sequence[str]:
        """What the person allowed by answers, here and in the workspace."""
        from perdure.agent.conversation import allowed_in
        from perdure.app import Sessions
        from perdure.app.answers import Answers

        rules = [*Answers(config_folder()).of(self.settings.workspace)]
        with suppress(PerdureError), Sessions(self.settings) as sessions:
            if sessions.is_there and sessions.journal.exists(self.session):
                rules += allowed_in(sessions.records(self.session))
        return list(dict.fromkeys(rules))

    def leave(self) -> None:
        self._leaving = True
        self._stop()
        self.screen.close()

    async def _listen(self) -> None:
        while not self._leaving:
            try:
                typed = await self.screen.next_input()
            except EOFError:
                break
            except KeyboardInterrupt:
                if self._pressed:
                    break
                self._pressed = True
                self.tell(say(words.PRESS_AGAIN, self.lang), "dim")
                continue
            self._pressed = False
            if not typed.strip():
                continue
            self.drawing.width = self.screen.width
            self._echo(typed)
            if typed.startswith("/") and not typed.startswith("//"):
                await obey(self, typed)
            else:
                said = typed.removeprefix("/") if typed.startswith("//") else typed
                self.ask(with_files_named(said, self.settings.workspace))
        self._stop()

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._comes = anyio.Event()
                await self._comes.wait()
            if self._waiting:
                request = self._waiting.popleft()
                await self._work_on(request.text)
                if request.then is not None:
                    await request.then()

    async def _work_on(self, text: str) -> None:
        self.drawing.width = self.screen.width
        self.showing.begin()
        try:
            with anyio.CancelScope() as self._turn:
                agent = self._opened()
                await agent.run(text, session=self.session, on_event=self._show)
        except PerdureError as error:
            self.tell(error.say(self.lang), "red")
        finally:
            self.showing.end()
            self._turn = None
        self.look()

    def _show(self, event: Any) -> None:
        self.showing.show(event)
        self.screen.refresh()

    def _opened(self) -> Agent:
        if self._agent is None:
            from perdure.app import Agent

            asker = AskInChat(self.screen, self.screen.out, self.drawing, self.lang)
            self._agent = Agent(self.settings, approve=asker, **self._changes)
        return self._agent

    async def _close_agent(self, *, keeps_model: bool) -> None:
        agent, self._agent = self._agent, None
        if agent is None:
            return
        if keeps_model and self.settings.embedded:
            # Loading it anew would take seconds.
            self._changes = {"client": await agent.client()}
            agent.sessions.close()
        else:
            self._changes = {}
            await agent.aclose()

    def _echo(self, typed: str) -> None:
        sign = "›" if self.showing.unicode else ">"
        first, *rest = typed.splitlines()
        shown = [f"{sign} {first}", *(f"  {line}" for line in rest[:5])]
        if len(rest) > 5:
            shown.append(f"  … (+{len(rest) - 5})")
        self.tell("\n".join(shown), "bold")

    def _live(self) -> list[str]:
        lines = self.showing.lines
        for each in self._waiting:
            back = say(words.UNQUEUE, self.lang)
            lines.append(f"{say(words.QUEUED, self.lang, text=one_line(each.text, 40))} {back}")
        return lines

    def _status(self, width: int) -> list[tuple[str, str]]:
        from perdure.agent.spending import dollars

        modes = [f"plan {self.settings.plan}"] if self.settings.plan == "on" else []
        modes += [f"judge {self.settings.judge}"] if self.settings.judge else []
        cost = dollars(self.glance.cost, self.lang) if self.glance.cost else ""
        glance = replace(self.glance, modes=modes)
        return pieces(glance, width - 1, colours=self.drawing.colours, cost=cost)

    def _stop(self) -> bool:
        if self._turn is None or self._turn.cancel_called:
            return False
        self._turn.cancel()
        return True

    def _take_back(self) -> str | None:
        return self._waiting.pop().text if self._waiting else None


def _speaks_unicode() -> bool:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding.startswith("utf")


def _without(options: Sequence[str], name: str) -> list[str]:
    """The options without one of them and its value."""
    kept, skipping = [], False
    for each in options:
        if skipping or each == name:
            skipping = not skipping
            continue
        kept.append(each)
    return kept


async def chat_on_screen(
    settings: Settings, session: str, options: Sequence[str], history: Path, *, resumes: bool
) -> int:
    """The chat at a terminal that can be drawn on."""
    chat = Chat(settings, session, options, history)
    if resumes:
        with suppress(SessionUnknown):
            chat.resume(session)
    else:
        chat.tell(say(words.WELCOME, chat.lang, version=__version__, session=session), "dim")
    if settings.embedded and not os.environ.get("PERDURE_MODEL"):
        chat.tell(say(words.FIRST_START, chat.lang, file=config_folder() / "perdure.toml"))
    return await chat.run()
