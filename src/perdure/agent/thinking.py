"""THINKING: a prompt that fits, and the model's reply to it.

First trim, which is certain, then summarise, which is best effort; then the model is asked. What an
endpoint shows of its real window, by refusing a prompt or by reading only a part of it, is learnt here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from anyio.abc import TaskGroup

from perdure.agent.conversation import Conversation
from perdure.agent.prompts import (
    ANSWERS_LIMITED,
    CLIENT_FAILED,
    PROMPT_CUT,
    RETRYING,
    SUMMARY_CUT,
    SUMMARY_FAILED,
    SUMMARY_RESTS,
    WINDOW_LEARNT,
    why_no_summary,
)
from perdure.agent.spending import LIMIT, Account, LimitReached, Price
from perdure.agent.summarizing import FAILURES, REST, UNREAD, Summarizer, compacted
from perdure.agent.truncation import cut_to
from perdure.chat.calls import Schema
from perdure.chat.events import ErrorRaised, Event, Notice, TextDelta
from perdure.chat.language import Language, say
from perdure.errors import ContextOverflow, EndpointError, PerdureError, StoreError
from perdure.memory.compactions import Trimmed
from perdure.models.client import ModelClient, ModelRequest, Reply, Retrying, Text


@dataclass
class Thinking:
    """The model of a conversation. ``output_tokens``: of one reply at most; ``summarizer`` writes the gist
    (without one, code does), with ``background`` while the model works, for the next compaction. ``tell``
    gets events, ``account`` what each call took; ``price``: the model's, in US dollars of a usage; ``beside``
    is where work beside the model's runs."""

    model: ModelClient
    conversation: Conversation
    output_tokens: int | None
    summarizer: Summarizer | None
    background: bool
    tell: Callable[[Event], object]
    account: Account
    price: Price
    beside: TaskGroup

    def __post_init__(self) -> None:
        #: What the model has said of a reply that isn't whole yet.
        self.partial = ""
        #: What the endpoint holds the next replies to.
        self.schema: Schema | None = None
        #: Tokens before the trim that has happened before a request, and what it did.
        self._made: tuple[int, Trimmed] | None = None
        self._summarizing = False
        self._cut = False

    async def reply(self) -> Reply:
        """The model's reply to a prompt that fits. An endpoint that says it doesn't, or that shows it
        by reading only a part, teaches the real window; one more compaction, one more try. Raises
        `LimitReached` where a prompt would pass one."""
        await self.compact()
        try:
            reply = await self._stream()
        except ContextOverflow as overflow:
            if not self._learnt_from(overflow):
                raise
        else:
            if not self._was_cut(reply):
                if reply.of_whole_prompt:
                    with suppress(StoreError):  # the reply counts; whether it can be kept is seen next
                        self.conversation.learn_usage(self._counted, reply.usage)
                return reply
        await self.compact()
        return await self._stream()

    def _was_cut(self, reply: Reply) -> bool:
        """The endpoint read only a part of the prompt, without saying so: told and learnt, once."""
        reported, counter = reply.usage.prompt, self.model.counter
        if self._cut or not reply.of_whole_prompt:
            return False
        window = cut_to(self._sent, reported, counter, counted=self._counted)
        self._cut = window is not None and self.conversation.learn_cut(window)
        if self._cut:
            window = self.conversation.budget.window
            told = say(PROMPT_CUT, self._lang, reported=reported, counted=self._counted, window=window)
            self.tell(Notice(code="prompt.cut", text=told))
            self.tell(TextDelta(text="", restart=True))
        return self._cut

    def _learnt_from(self, overflow: ContextOverflow) -> bool:
        """The refusal taught something that changes the next request; what, is told."""
        conversation = self.conversation
        window, answer = conversation.budget.window, self._answer_limit
        learnt = conversation.learn_window(overflow.limit, overflow.requested)
        if (now := conversation.budget.window) < window:
            self.tell(Notice(code="window.learnt", text=say(WINDOW_LEARNT, self._lang, window=now)))
        if (limit := self._answer_limit) != answer:
            self.tell(Notice(code="answers.limited", text=say(ANSWERS_LIMITED, self._lang, output=limit)))
        return learnt

    async def _stream(self) -> Reply:
        self.partial = ""
        self._counted, self._sent = self.conversation.tokens, self.conversation.prompt()
        request = ModelRequest(
            self._sent,
            tools=self.conversation.tools,
            session=self.conversation.session,
            max_output_tokens=self._answer_limit,
            schema=self.schema,
        )
        try:
            return await self._streamed(request)
        except (PerdureError, LimitReached):
            raise
        except Exception as error:  # a client may be anybody's, and the turn must end in order all the same
            why = f"{type(error).__name__}: {error}"
            raise EndpointError(say(CLIENT_FAILED, self._lang, why=why)) from error

    async def _streamed(self, request: ModelRequest) -> Reply:
        counted = math.ceil(self._counted * max(self.conversation.memory.scale, 1.0))
        with self.account.asking(self.model, request, self.price, counted) as paid:
            return await self._heard_of(request, paid)

    async def _heard_of(self, request: ModelRequest, paid: Callable[[Reply], object]) -> Reply:
        async with aclosing(self.model.stream(request)) as pieces:
            async for piece in pieces:
                match piece:
                    case Text(text, reasoning):
                        self.partial += "" if reasoning else text
                        self.tell(TextDelta(text=text, reasoning=reasoning))
                    case Retrying(why, wait, restart):
                        if restart:
                            self.partial = ""
                            self.tell(TextDelta(text="", restart=True))
                        self.tell(Notice(code="retry", text=say(RETRYING, self._lang, why=why, wait=wait)))
                    case Reply():
                        # Here, so that a reply that is thrown away is paid for in the sum as well.
                        paid(piece)
                        self.partial = ""
                        return piece
        raise AssertionError("it ended without a reply")

    @property
    def _answer_limit(self) -> int | None:
        """Tokens that an answer may have: never more than are kept for it."""
        wished, room = self.output_tokens, self.conversation.budget.output
        if wished is None:
            return room if self.conversation.answers_limited else None
        return min(wished, room)

    def make_room(self, ahead: int) -> bool:
        """Trim at once, where so many tokens more don't fit; what left is summarised before the next call of
        the model. True where something left. Raises `PromptOverflow`."""
        self.conversation.take_form(self.model.form)
        before = self.conversation.tokens
        trimmed = self.conversation.compact(ahead=ahead)
        if trimmed is not None:
            self._made = (before, trimmed)
        return trimmed is not None

    async def compact(self) -> None:
        """First trim, which is certain, then summarise, which is best effort; both before the next call
        of the model, so that the prompt's beginning changes once."""
        self.conversation.take_form(self.model.form)
        beside = self.summarizer if self.background else None
        made, self._made = self._made, None
        event = await compacted(
            self.conversation, None if beside else self.summarizer, made=made, account=self.account
        )
        if event is None:
            return
        self.tell(event)
        self._heard(event.refused, taken=bool(event.model))
        if beside and not self._summarizing:
            self.beside.start_soon(self._summarize_beside, beside)

    async def _summarize_beside(self, summarizer: Summarizer) -> None:
        self._summarizing = True
        try:
            written = await summarizer.run(self.conversation, later=True, account=self.account)
            self._heard(written.refused, taken=bool(written.taken))
        except PerdureError as error:
            self.tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
        finally:
            self._summarizing = False

    def _heard(self, refused: Sequence[str], *, taken: bool) -> None:
        """Tell what went wrong with the summaries."""
        if UNREAD in refused:
            self.tell(Notice(code="summary.cut", text=say(SUMMARY_CUT, self._lang)))
        if refused and not taken:
            told = say(SUMMARY_FAILED, self._lang, why=why_no_summary(refused[-1], self._lang))
            self.tell(Notice(code="summary.failed", text=told))
            if refused[-1] != LIMIT and (failed := self.conversation.failed_summaries) % FAILURES == 0:
                told = say(SUMMARY_RESTS, self._lang, times=failed, rest=REST)
                self.tell(Notice(code="summary.rests", text=told))

    @property
    def _lang(self) -> Language:
        return self.conversation.lang
