"""An answer that must fit a schema: what the model is told of it, and of one that doesn't fit.

The schema goes to the model in words with the request, since endpoints that hold a model to a schema often
let it call no tools then. Only an answer that didn't fit is asked for again under it.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.chat.language import Language, say
from perdure.chat.structured import Fit, Misfit, OutputSchema
from perdure.errors import AnswerUnfit, Words

#: How often an answer that doesn't fit goes back.
AGAIN = 2

FORM: Words = (
    "Give the final answer to the request above as one JSON value that fits this JSON schema, and nothing "
    "beside it (this request only; tools may be used before):\n{schema}",
    "请把对上面请求的最终回答写成一个符合下面 JSON 模式的 JSON 值，除此之外不写任何内容"
    "（仅限这一请求；此前可以使用工具）：\n{schema}",
)
UNFIT: Words = (
    "The answer does not fit the JSON schema: {why}. Answer the request anew, as one JSON value that fits "
    "it, and nothing beside it:\n{schema}",
    "回答不符合 JSON 模式：{why}。请重新回答该请求，只写一个符合模式的 JSON 值：\n{schema}",
)
ASKED_AGAIN: Words = (
    "the answer does not fit the schema ({why}); it is asked for again",
    "回答不符合模式（{why}）；正在重新请求",
)


@dataclass
class Fitting:
    """The form of one turn's answer. ``told``: the model is told of it with the request; one too small to
    keep it in mind is told only when an answer didn't fit."""

    schema: OutputSchema
    told: bool = True
    again: int = 0

    def __post_init__(self) -> None:
        #: The last answer, where it fits.
        self.fit: Fit | None = None

    def fits(self, text: str) -> bool:
        return isinstance(self.schema.fitted(text), Fit)

    def look_at(self, answer: str) -> Misfit | None:
        """Why an answer doesn't fit; None where it does, and is the one that counts. Raises `AnswerUnfit`
        where it has gone back often enough."""
        fitted = self.schema.fitted(answer)
        if isinstance(fitted, Fit):
            self.fit, self.again = fitted, 0
            return None
        self.fit, self.again = None, self.again + 1
        if self.again > AGAIN:
            raise AnswerUnfit(fitted.why, times=self.again)
        return fitted

    def form(self, lang: Language) -> str:
        """What stands behind the request."""
        return say(FORM, lang, schema=self.schema.text)

    def objection(self, misfit: Misfit, lang: Language) -> str:
        """What the model is told of an answer that doesn't fit."""
        return say(UNFIT, lang, why=say(misfit.why, lang), schema=self.schema.text)
