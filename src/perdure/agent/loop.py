"""The loop: think, act, think, until there is an answer.

Each step returns the next state as a value; the loop only goes from one to the next. What a tool
does wrong is a result that the model reads; what ends a run is a `Finish` that says why. Events
tell the world; the journal keeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

import anyio

from perdure.agent.acting import Acting
from perdure.agent.conversation import Conversation, result_message, said
from perdure.agent.prompts import (
    ANSWER_CUT,
    ANSWERS_LIMITED,
    BROKEN_OFF,
    CLIENT_FAILED,
    CUT_CALLS,
    EMPTY,
    EMPTY_REPLIES,
    INTERRUPTED,
    PROMPT_CUT,
    REPEATED,
    RETRYING,
    STEP_LIMIT,
    SUMMARY_CUT,
    SUMMARY_FAILED,
    SUMMARY_RESTS,
    TIME_LIMIT,
    UNKNOWN_TOOLS,
    WENT_IN_CIRCLES,
    WINDOW_LEARNT,
    why_no_summary,
)
from perdure.agent.recalling import Excerpt, Recollection
from perdure.agent.repeats import Repeats
from perdure.agent.summarizing import FAILURES, REST, UNREAD, Summarizer, compacted
from perdure.agent.truncation import cut_to
from perdure.chat.calls import ToolCall
from perdure.chat.events import (
    ErrorRaised,
    Event,
    Notice,
    Recalled,
    RunFinished,
    RunStarted,
    StateChanged,
    Status,
    TextDelta,
    UsageReported,
)
from perdure.chat.language import Language, say
from perdure.chat.messages import Kind
from perdure.chat.tokens import Usage
from perdure.errors import ContextOverflow, EndpointError, PerdureError, PromptOverflow, StoreError, Words
from perdure.memory.passages import RECALL
from perdure.models.client import ModelClient, ModelRequest, Purpose, Reply, Retrying, Text
from perdure.tools.contract import Outcome

#: Replies in a row that may be empty, cut in a call, or call only unknown tools: a model that
#: makes such a mistake three times won't mend it the fourth time.
PATIENCE = 3


@dataclass(frozen=True, slots=True)
class Think:
    state = "THINKING"


@dataclass(frozen=True, slots=True)
class Act:
    reply: Reply
    state = "ACTING"


@dataclass(frozen=True, slots=True)
class Finish:
    status: Status
    answer: str = ""
    reason: str = ""
    error: str = ""

    @property
    def state(self) -> str:
        return {"answered": "DONE", "limit": "DONE", "interrupted": "INTERRUPTED"}.get(self.status, "FAILED")


Next = Think | Act | Finish
Told = TypeVar("Told", bound=Event)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a turn ends in order. ``steps``: calls of the model; ``seconds``: wall time;
    ``output_tokens``: of one reply."""

    steps: int = 50
    seconds: float | None = None
    output_tokens: int | None = None


@dataclass
class Loop:
    """One turn of a conversation. ``emit`` gets every event as it happens and must not raise.
    ``summarizer`` writes the gist (without one, code does); ``background``: while the model works, for
    the next compaction; ``recollection`` brings what is no longer in view, with ``recalls`` by itself
    as well."""

    model: ModelClient
    acting: Acting
    conversation: Conversation
    limits: Limits
    emit: Callable[[Event], None]
    summarizer: Summarizer | None = None
    background: bool = False
    recollection: Recollection | None = None
    recalls: bool = True
    steps: int = 0

    def __post_init__(self) -> None:
        self.usages: dict[Purpose, Usage] = {"think": Usage()}
        self._summarizing = False
        self._events = 0
        self._mistakes = 0
        self._repeats = Repeats()
        self._partial = ""
        self._cut = False

    async def run(self, task: str) -> RunFinished:
        """The person's request to an answer, or to the reason why there is none.

        What goes wrong in the run is told and ends it; only cancellation is raised, after the
        turn has been closed so that the session can go on.
        """
        began = time.monotonic()
        self._tell(self._started(task))
        for words, entry in self.conversation.mended:
            self._tell(Notice(code="session.mended", text=say(words, self._lang, entry=entry)))
        async with anyio.create_task_group() as self._beside:
            step = await self._turn(task, began)
            self._beside.cancel_scope.cancel()
        return self._finished(step, began)

    async def _turn(self, task: str, began: float) -> Finish:
        step: Next = Think()
        try:
            await self._ask(task)
            with anyio.move_on_after(self.limits.seconds):
                while not isinstance(step, Finish):
                    self._tell(StateChanged(state=step.state, step=self.steps))
                    step = await (self._act(step.reply) if isinstance(step, Act) else self._think())
            if not isinstance(step, Finish):
                step = self._broken_off("limit", TIME_LIMIT, seconds=self.limits.seconds)
        except PerdureError as error:
            self._tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
            return Finish("failed", reason=error.say(self._lang), error=type(error).__name__)
        except anyio.get_cancelled_exc_class():
            self._finished(self._broken_off("interrupted", INTERRUPTED), began)
            raise
        return step

    async def _ask(self, task: str) -> None:
        """Journal the request, with what belongs to it of what is no longer in view."""
        try:
            excerpt = await self._recalled(task)
        except anyio.get_cancelled_exc_class():
            self.conversation.ask(task)
            raise
        if excerpt is None:
            self.conversation.ask(task)
            return
        self.conversation.ask(task, excerpt.text, excerpt.recalled)
        self._tell(Recalled(entries=excerpt.recalled, text=excerpt.text, tokens=excerpt.tokens))

    async def _recalled(self, task: str) -> Excerpt | None:
        """An excerpt that fits beside the request. Where room must be made, for the request or for both,
        that happens first, so that what is in view is known when it is chosen."""
        if self.recollection is None or not self.recalls:
            return None
        asked = self.model.counter.message(said(task))
        try:
            has_room = not self.conversation.fits(asked)
            if has_room:
                await self._compact(asked + self.recollection.room)
            excerpt = await self.recollection.for_request(task)
            if excerpt is None or has_room:
                return excerpt
            made_room = await self._compact(asked + self.model.counter.message(said(excerpt.text)))
        except PromptOverflow:
            return None
        return await self.recollection.for_request(task) if made_room else excerpt

    async def _think(self) -> Next:
        if self.steps >= self.limits.steps:
            return Finish("limit", reason=say(STEP_LIMIT, self._lang, steps=self.steps))
        self.steps += 1
        reply = await self._reply()
        for note in reply.notes:
            self._tell(Notice(code="reply.mended", text=note))
        if reply.calls:
            self.conversation.add(Kind.TOOL_CALL, reply.as_message())
            return Act(reply)
        if not reply.content.strip():
            return self._mistaken(EMPTY_REPLIES, EMPTY)
        try:
            self.conversation.add(Kind.ASSISTANT, reply.as_message())
        except StoreError as error:
            # What can't be kept can still be read.
            self._tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
            return Finish("failed", reply.content, error.say(self._lang), type(error).__name__)
        if reply.cut:
            self._tell(Notice(code="answer.cut", text=say(ANSWER_CUT, self._lang)))
        return Finish("answered", reply.content)

    async def _act(self, reply: Reply) -> Next:
        def keep(call: ToolCall, outcome: Outcome) -> None:
            recalled = None
            if self.recollection and call.name == RECALL:
                recalled = self.recollection.quoted(outcome.text)
            self.conversation.add(Kind.TOOL_RESULT, result_message(call.id, outcome.text), recalled=recalled)

        outcomes = await self.acting.run(reply.calls, cut=reply.cut, emit=self._tell, keep=keep)
        if self.recollection:
            self.recollection.answered()
        self._repeats.after((call, outcome.text) for call, outcome in zip(reply.calls, outcomes, strict=True))
        if reply.cut or not any(self.acting.knows(call) for call in reply.calls):
            return self._mistaken(CUT_CALLS if reply.cut else UNKNOWN_TOOLS)
        self._mistakes = 0
        if self._repeats.end:
            return Finish("limit", reason=say(WENT_IN_CIRCLES, self._lang))
        if self._repeats.tell:
            self._remind(REPEATED, code="repeated")
        return Think()

    async def _reply(self) -> Reply:
        """The model's reply to a prompt that fits. An endpoint that says it doesn't, or that shows it
        by reading only a part, teaches the real window; one more compaction, one more try."""
        await self._compact()
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
        await self._compact()
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
            self._tell(Notice(code="prompt.cut", text=told))
            self._tell(TextDelta(text="", restart=True))
        return self._cut

    def _learnt_from(self, overflow: ContextOverflow) -> bool:
        """The refusal taught something that changes the next request; what, is told."""
        conversation = self.conversation
        window, answer = conversation.budget.window, self._answer_limit
        learnt = conversation.learn_window(overflow.limit, overflow.requested)
        if (now := conversation.budget.window) < window:
            self._tell(Notice(code="window.learnt", text=say(WINDOW_LEARNT, self._lang, window=now)))
        if (limit := self._answer_limit) != answer:
            self._tell(Notice(code="answers.limited", text=say(ANSWERS_LIMITED, self._lang, output=limit)))
        return learnt

    async def _stream(self) -> Reply:
        self._partial = ""
        self._counted, self._sent = self.conversation.tokens, self.conversation.prompt()
        request = ModelRequest(
            self._sent,
            tools=self.conversation.tools,
            session=self.conversation.session,
            max_output_tokens=self._answer_limit,
        )
        try:
            return await self._streamed(request)
        except PerdureError:
            raise
        except Exception as error:  # a client may be anybody's, and the turn must end in order all the same
            why = f"{type(error).__name__}: {error}"
            raise EndpointError(say(CLIENT_FAILED, self._lang, why=why)) from error

    async def _streamed(self, request: ModelRequest) -> Reply:
        async with aclosing(self.model.stream(request)) as pieces:
            async for piece in pieces:
                match piece:
                    case Text(text, reasoning):
                        self._partial += "" if reasoning else text
                        self._tell(TextDelta(text=text, reasoning=reasoning))
                    case Retrying(why, wait, restart):
                        if restart:
                            self._partial = ""
                            self._tell(TextDelta(text="", restart=True))
                        self._tell(Notice(code="retry", text=say(RETRYING, self._lang, why=why, wait=wait)))
                    case Reply():
                        # Here, so that a reply that is thrown away is paid for in the sum as well.
                        self._used("think", piece.usage)
                        self._partial = ""
                        return piece
        raise AssertionError("it ended without a reply")

    @property
    def _answer_limit(self) -> int | None:
        """Tokens that an answer may have: never more than are kept for it."""
        wished, room = self.limits.output_tokens, self.conversation.budget.output
        if wished is None:
            return room if self.conversation.answers_limited else None
        return min(wished, room)

    async def _compact(self, ahead: int = 0) -> bool:
        """First trim, which is certain, then summarise, which is best effort; both before the next call
        of the model, so that the prompt's beginning changes once. ``ahead``: tokens that are to fit besides.
        True where it did something."""
        self.conversation.take_form(self.model.form)
        beside = self.summarizer if self.background else None
        event = await compacted(self.conversation, None if beside else self.summarizer, ahead=ahead)
        if event is None:
            return False
        self._tell(event)
        self._heard(event.usage, event.refused, taken=bool(event.model))
        if beside and not self._summarizing:
            self._beside.start_soon(self._summarize_beside, beside)
        return True

    async def _summarize_beside(self, summarizer: Summarizer) -> None:
        self._summarizing = True
        try:
            written = await summarizer.run(self.conversation, later=True)
            self._heard(written.usage, written.refused, taken=bool(written.taken))
        except PerdureError as error:
            self._tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
        finally:
            self._summarizing = False

    def _heard(self, usage: Usage, refused: Sequence[str], *, taken: bool) -> None:
        """Tell what the summaries cost, and what went wrong."""
        if usage.total:
            self._used("summarize", usage)
        if UNREAD in refused:
            self._tell(Notice(code="summary.cut", text=say(SUMMARY_CUT, self._lang)))
        if refused and not taken:
            told = say(SUMMARY_FAILED, self._lang, why=why_no_summary(refused[-1], self._lang))
            self._tell(Notice(code="summary.failed", text=told))
            if (failed := self.conversation.failed_summaries) % FAILURES == 0:
                told = say(SUMMARY_RESTS, self._lang, times=failed, rest=REST)
                self._tell(Notice(code="summary.rests", text=told))

    def _used(self, purpose: Purpose, usage: Usage) -> None:
        self.usages[purpose] = self.usages.get(purpose, Usage()) + usage
        with suppress(StoreError):  # what can't be written is told by the next message, which must be
            self.conversation.used(purpose, usage)
        self._tell(UsageReported(purpose=purpose, usage=usage))

    def _mistaken(self, reason: Words, reminder: Words | None = None) -> Next:
        """The model made a mistake that it can mend, up to a point."""
        self._mistakes += 1
        if self._mistakes >= PATIENCE:
            return Finish("failed", reason=say(reason, self._lang, times=PATIENCE))
        if reminder:
            self._remind(reminder, code="reminded")
        return Think()

    def _remind(self, words: Words, code: str) -> None:
        """Tell the model something of our own, as a notice and not as the person's words."""
        text = say(words, self._lang)
        self.conversation.add(Kind.NOTICE, {"role": "user", "content": text})
        self._tell(Notice(code=code, text=text))

    def _broken_off(self, status: Status, reason: Words, **facts: object) -> Finish:
        """Close a turn that stopped in the middle: open calls answered, the text so far kept."""
        try:
            self.conversation.close_open_calls()
            if partial := self._partial.strip():
                text = f"{partial}\n{say(BROKEN_OFF, self._lang)}"
                self.conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": text})
        except PerdureError as error:
            self._tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
        return Finish(status, reason=say(reason, self._lang, **facts))

    def _started(self, task: str) -> RunStarted:
        return RunStarted(
            session=self.conversation.session,
            model=self.model.model,
            task=task,
            context_window=self.conversation.budget.window,
            tools=tuple(tool.name for tool in self.conversation.tools),
        )

    def _finished(self, step: Finish, began: float) -> RunFinished:
        self._tell(StateChanged(state=step.state, step=self.steps))
        finished = RunFinished(
            status=step.status,
            answer=step.answer,
            reason=step.reason,
            error=step.error,
            usage=sum(self.usages.values(), Usage()),
            usage_by_purpose={str(purpose): usage for purpose, usage in self.usages.items()},
            session=self.conversation.session,
            steps=self.steps,
            seconds=round(time.monotonic() - began, 3),
        )
        return self._tell(finished)

    @property
    def _lang(self) -> Language:
        return self.conversation.lang

    def _tell(self, event: Told) -> Told:
        self._events += 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        told = replace(event, seq=self._events, time=now)
        self.emit(told)
        return told
