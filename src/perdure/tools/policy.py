"""Whether a call may run: allow, ask, or deny.

Looking is allowed, acting asks, and rules say otherwise; what denies wins over what asks, and that over what
allows. Where nobody can be asked, asking means no, with a result that says how to allow it, so that the model
can tell the person.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perdure.chat.calls import ToolCall
from perdure.chat.language import Language, say
from perdure.errors import ToolError, Words
from perdure.tools.commands import HARMLESS, SHELLS, UNKNOWN, WRAPPERS, Part, names
from perdure.tools.contract import Decision, Tool, Touch
from perdure.tools.registry import read_arguments
from perdure.tools.rules import Rule, allowing, forbidding, not_allowed, rules_of

NOBODY_TO_ASK: Words = (
    "{name} changes things, so a person must approve it, and there is nobody to ask here. "
    "They can allow it by running again with --yes, with --allow {rule}, or at a terminal",
    "{name} 会改变东西，必须由人批准，而这里没有人可以询问。用 --yes 或 --allow {rule} 再运行一次，"
    "或在终端里运行，就可以批准",
)
NOBODY: Words = ("{why}, and there is nobody to ask here", "{why}，而这里没有人可以询问")
READ_ONLY: Words = (
    "only what looks may run here (--read-only), and {name} changes things",
    "这里只允许查看（--read-only），而 {name} 会改变东西",
)
DENIED: Words = ("a rule of the person forbids it: {rule}", "用户的规则禁止这样做：{rule}")
ASKED: Words = ("a rule asks about it: {rule}", "规则要求询问：{rule}")
MAYBE: Words = (
    "a rule forbids {rule}, and it can't be told whether this is it",
    "规则禁止 {rule}，而无法判断这是否属于它",
)
UNTOLD: Words = ("it can't be told what it does: {why}", "无法判断它做什么：{why}")

#: Programs of which a rule names the first word too: what `git` does hangs on it.
_WITH_SUBCOMMANDS = names(
    "apt brew bun bundle cargo composer conda deno docker dotnet gh git go gradle helm hg kubectl make mvn "
    "npm npx pip pip3 pnpm podman poetry rustup svn systemctl terraform uv yarn"
)
#: Programs of which a rule names every word: they do whatever these say.
_ANYTHING = names(
    "awk curl dd deno gawk lua make node npx osascript perl php python python3 rm rmdir rsync ruby scp sed "
    "ssh tclsh uv wget"
)

Lasting = Literal["session", "workspace"]


@dataclass(slots=True)
class Policy:
    """``approve_all``: the person said so for this run (`--yes`), which rules that deny still limit;
    ``read_only``: whatever is said elsewhere, only what looks may run. ``interactive``: somebody can be
    asked; ``lang`` is the language of the reasons. ``keep`` is told of rules that the person made by an
    answer, and for how long they hold; it may raise nothing."""

    approve_all: bool = False
    interactive: bool = False
    lang: Language = "en"
    read_only: bool = False
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    keep: Callable[[Sequence[str], Lasting], None] | None = None
    #: What was allowed by answers.
    answered: list[Rule] = field(default_factory=list)

    def remember(self, tool: Tool, call: ToolCall, lasting: Lasting) -> None:
        """Allow from now on what `Decision.always` named."""
        rules = self._always(tool, _touch(tool, call))
        self.answered.extend(rules_of(rules))
        if self.keep is not None:
            self.keep(rules, lasting)

    def decide(self, tool: Tool, call: ToolCall) -> Decision:
        """What to do with this call. Never raises."""
        name, touch = tool.spec.name, _touch(tool, call)
        if self.read_only and tool.effect != "reads":
            return Decision("deny", say(READ_ONLY, self.lang, name=name))
        return self._barred(name, touch) or self._unbarred(tool, touch)

    def _barred(self, name: str, touch: Touch) -> Decision | None:
        """What the rules that deny or ask say; None where they say nothing."""
        fit, rule = forbidding(self.deny, name, touch)
        if fit == "yes":
            return Decision("deny", say(DENIED, self.lang, rule=rule))
        if fit == "maybe":
            return self._asking(name, say(MAYBE, self.lang, rule=rule), "")
        fit, rule = forbidding(self.ask, name, touch)
        if fit != "no" and not self.approve_all:
            return self._asking(name, say(ASKED, self.lang, rule=rule), "")
        return None

    def _unbarred(self, tool: Tool, touch: Touch) -> Decision:
        name = tool.spec.name
        if self.approve_all or tool.effect == "reads":
            return Decision("allow")
        if allowing((*self.allow, *self.answered), name, touch):
            return Decision("allow")
        always = ", ".join(self._always(tool, touch))
        return self._asking(name, "" if always else self._untold(name, touch), always)

    def _asking(self, name: str, why: str, always: str) -> Decision:
        if self.interactive:
            return Decision("ask", why, always)
        if why:
            return Decision("deny", say(NOBODY, self.lang, why=why))
        rule = shlex.quote(always) if always and "), " not in always else name
        return Decision("deny", say(NOBODY_TO_ASK, self.lang, name=name, rule=rule))

    def _untold(self, name: str, touch: Touch) -> str:
        if touch.command is None:
            return ""
        why = next((part.why for part in not_allowed((), name, touch.command) if part.why), "")
        return say(UNTOLD, self.lang, why=why) if why else ""

    def _always(self, tool: Tool, touch: Touch) -> list[str]:
        """The rules that would allow this call and those like it; none where that can't be told."""
        name = tool.spec.name
        if touch.command is not None:
            parts = not_allowed((*self.allow, *self.answered), name, touch.command)
            made = [_rule_for(name, part) for part in parts]
            return [] if None in made else list(dict.fromkeys(str(rule) for rule in made))
        if not touch.paths:
            return [name]
        return [] if any(path.startswith(("/", "~")) for path in touch.paths) else [f"{name}(**)"]


def _touch(tool: Tool, call: ToolCall) -> Touch:
    try:
        return tool.touches(read_arguments(call.arguments))
    except ToolError:
        return Touch()


def _rule_for(tool: str, part: Part) -> str | None:
    """The rule that allows a part of a command and those like it."""
    words = [word for word in part.words if word is not UNKNOWN]
    if part.writes or part.why or part.assigns or not words or part.words[0] is UNKNOWN:
        return None
    program = words[0].rpartition("/")[2]
    if program in HARMLESS or program in SHELLS:
        return None
    if program in WRAPPERS or program in _ANYTHING:
        if len(words) < len(part.words):
            return None
        shown = words
    elif program in _WITH_SUBCOMMANDS:
        if len(part.words) < 2 or part.words[1] is UNKNOWN or words[1].startswith("-"):
            return f"{tool}({_shown(words)})" if len(words) == len(part.words) else None
        shown = [*words[:2], "*"]
    else:
        shown = [words[0], "*"]
    return f"{tool}({_shown(shown)})"


def _shown(words: Sequence[str]) -> str:
    return " ".join(word if word == "*" else _pattern(word) for word in words)


def _pattern(word: str) -> str:
    """The word as a pattern that only it fits."""
    return shlex.quote("".join(f"[{letter}]" if letter in "*?[" else letter for letter in word))
