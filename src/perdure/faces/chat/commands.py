"""What can be said to the chat itself, behind a `/`. What the command line can do as well is done by it."""

from __future__ import annotations

import difflib
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

import anyio.to_thread

from perdure.chat.language import say
from perdure.errors import PerdureError
from perdure.faces.chat import words

if TYPE_CHECKING:
    from perdure.faces.chat.chat import Chat

Command = Callable[["Chat", str], Awaitable[None]]
#: What may be asked while a turn runs: it only looks, and at nothing that the turn holds.
WHILE_BUSY = frozenset({"/help", "/open", "/cost", "/policy", "/quit", "/tools"})


async def obey(chat: Chat, line: str) -> None:
    """Do what a line that begins with `/` says; where that can't be, say why."""
    name, _, rest = line.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = say(words.HINT, chat.lang, near=near[0]) if near else ""
        chat.tell(say(words.NO_COMMAND, chat.lang, name=name, hint=hint), "yellow")
    elif chat.busy and name not in WHILE_BUSY:
        chat.tell(say(words.BUSY, chat.lang), "yellow")
    else:
        try:
            await command(chat, rest.strip())
        except PerdureError as error:
            chat.tell(error.say(chat.lang), "red")


async def _help(chat: Chat, rest: str) -> None:
    width = max(len(name) for name, _ in words.HELP)
    lines = [f"{name:{width}}  {say(about, chat.lang)}" for name, about in words.HELP]
    chat.tell("\n".join([*lines, say(words.KEYS, chat.lang)]))


async def _context(chat: Chat, rest: str) -> None:
    await _as_command(chat, "context", chat.session)


async def _compact(chat: Chat, rest: str) -> None:
    await _as_command(chat, "compact", chat.session)
    chat.look()


async def _recall(chat: Chat, rest: str) -> None:
    if not rest:
        chat.tell(say(words.NEEDS, chat.lang, name="/recall", what="TEXT|N"), "yellow")
    elif rest.replace("-", "").isdecimal():
        await _as_command(chat, "sessions", "show", chat.session, "--entries", rest)
    else:
        await _as_command(chat, "recall", chat.session, "--", rest)


async def _plan(chat: Chat, rest: str) -> None:
    if rest in {"", "on", "off"}:
        if rest:
            await chat.change(plan="on" if rest == "on" else "auto")
        chat.tell(say(words.SET, chat.lang, name="plan", value=chat.settings.plan))
    else:
        await chat.change(plan="on")
        chat.ask(rest, then=lambda: chat.change(plan="auto"))


async def _judge(chat: Chat, rest: str) -> None:
    if rest:
        await chat.change(judge=rest)
    chat.tell(say(words.SET, chat.lang, name="judge", value=chat.settings.judge or "auto"))


async def _model(chat: Chat, rest: str) -> None:
    if rest:
        await chat.change(model=rest)
    chat.tell(say(words.SET, chat.lang, name="model", value=chat.settings.model or chat.glance.model or "—"))


async def _tools(chat: Chat, rest: str) -> None:
    for tool in await chat.tools():
        effect = words.TOOLS_LOOK if tool.effect == "reads" else words.TOOLS_ACT
        about = tool.spec.description.splitlines()[0] if tool.spec.description else ""
        chat.tell(f"{tool.spec.name:14} {say(effect, chat.lang):6} {about}")


async def _policy(chat: Chat, rest: str) -> None:
    settings = chat.settings
    mode = "read-only" if settings.read_only else "yes" if settings.yes else "ask"
    rules = {
        "allow": (*settings.allow, *chat.answered()),
        "ask": settings.ask,
        "deny": settings.deny,
    }
    shown = {name: ", ".join(some) or "—" for name, some in rules.items()}
    chat.tell(say(words.POLICY, chat.lang, mode=say(words.MODES[mode], chat.lang), **shown))


async def _undo(chat: Chat, rest: str) -> None:
    await _as_command(chat, "sessions", "undo", chat.session, "--files")
    chat.look()


async def _fork(chat: Chat, rest: str) -> None:
    from perdure.app.opening import new_session_name

    new = new_session_name()
    at = ["--at", rest] if rest else []
    if await _as_command(chat, "sessions", "fork", chat.session, "--session", new, *at):
        chat.switch(new)


async def _sessions(chat: Chat, rest: str) -> None:
    if rest:
        chat.resume(rest)
    else:
        await _as_command(chat, "sessions", "list")


async def _export(chat: Chat, rest: str) -> None:
    file = rest or f"{chat.session}.md"
    await _as_command(chat, "sessions", "export", chat.session, "--output", file)


async def _open(chat: Chat, rest: str) -> None:
    shown = chat.showing.opened(int(rest)) if rest.isdecimal() else None
    chat.tell(say(words.NOTHING_OPEN, chat.lang, number=rest) if shown is None else shown)


async def _clear(chat: Chat, rest: str) -> None:
    from perdure.app.opening import new_session_name

    chat.switch(new_session_name())
    chat.tell(say(words.CLEARED, chat.lang, session=chat.session))


async def _cost(chat: Chat, rest: str) -> None:
    from perdure.agent.spending import dollars

    usage, cost = chat.showing.usage, dollars(chat.showing.cost, chat.lang)
    facts = {"prompt": usage.prompt, "completion": usage.completion, "cached": usage.cached, "cost": cost}
    chat.tell(say(words.COST, chat.lang, **facts))


async def _quit(chat: Chat, rest: str) -> None:
    chat.leave()


async def _as_command(chat: Chat, *arguments: str) -> bool:
    """Have the command line do it, with the options of the chat; True where it could."""

    def run() -> tuple[int, str]:
        from perdure.faces.cli.main import run as command_line

        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            try:
                code = command_line(_with_options(arguments, chat.options))
            except SystemExit as ended:  # argparse leaves so
                code = int(ended.code or 0)
        return code, said.getvalue()

    code, text = await anyio.to_thread.run_sync(run)
    chat.tell(text.rstrip("\n") or " ", "" if code == 0 else "yellow")
    return code == 0


def _with_options(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """The options stand before `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:at], *options, *arguments[at:]]


COMMANDS: Mapping[str, Command] = {
    "/help": _help,
    "/context": _context,
    "/compact": _compact,
    "/recall": _recall,
    "/plan": _plan,
    "/judge": _judge,
    "/model": _model,
    "/tools": _tools,
    "/policy": _policy,
    "/undo": _undo,
    "/fork": _fork,
    "/sessions": _sessions,
    "/export": _export,
    "/open": _open,
    "/clear": _clear,
    "/cost": _cost,
    "/quit": _quit,
}
