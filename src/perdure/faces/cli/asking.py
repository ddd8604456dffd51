"""Ask the person before something is gone for good."""

from __future__ import annotations

import sys

from perdure.chat.language import Language, say
from perdure.errors import ConfigError, Words
from perdure.faces.cli.terminal import printable

YES_OR_NO: Words = ("[y/N]", "[y/N]")
NOBODY: Words = (
    "{question} (There is nobody to ask here: say --yes to do it unasked)",
    "{question}（这里没有人可以询问：加上 --yes 可直接执行）",
)
KEPT: Words = ("nothing was removed", "没有删除任何内容")


def sure(question: str, *, yes: bool, lang: Language) -> bool:
    """The person has said yes, now or with the option. Raises `ConfigError` where nobody can be asked."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(NOBODY, question=question)
    print(printable(f"{question} {say(YES_OR_NO, lang)} "), end="", file=sys.stderr, flush=True)
    agreed = sys.stdin.readline().strip().casefold() in {"y", "yes", "是", "好"}
    if not agreed:
        print(say(KEPT, lang), file=sys.stderr)
    return agreed
