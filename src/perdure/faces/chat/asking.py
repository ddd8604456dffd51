"""The person is asked, at the chat's own screen, whether a call may run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from perdure.chat.language import Language, say
from perdure.faces.chat import words
from perdure.faces.chat.drawing import Drawing
from perdure.faces.cli.terminal import printable
from perdure.faces.question import shown_answers, shown_call, shown_preview
from perdure.tools.contract import Answer, Question

LASTING: dict[str, Literal["session", "workspace"]] = {"a": "session", "w": "workspace"}


class Keys(Protocol):
    """Where a key, or a line, can be had of the person."""

    async def key(self, question: str, keys: str) -> str: ...

    async def reason(self, words: str) -> str: ...


class AskInChat:
    """An `Asker`. Only a clear yes approves: Esc is a no."""

    def __init__(self, keys: Keys, out: Callable[[str], None], drawing: Drawing, lang: Language) -> None:
        self._keys, self._out, self._drawing, self._lang = keys, out, drawing, lang

    async def ask(self, question: Question) -> Answer:
        self._out(self._drawing.line(shown_call(question), "bold"))
        if question.preview:
            self._out(self._drawing.difference(shown_preview(question, self._lang)))
        if question.why:
            self._out(self._drawing.line(question.why, "yellow"))
        keys = "ynr" + ("aw" if question.always else "")
        key = await self._keys.key(printable(shown_answers(question, self._lang)), keys)
        if key == "r":
            return Answer(False, said=await self._keys.reason(say(words.WHY_NOT, self._lang)))
        lasting = LASTING.get(key)
        return Answer(lasting is not None or key == "y", lasting or "once")
