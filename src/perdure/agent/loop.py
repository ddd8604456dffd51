"""The loop: think, act, think, until there is an answer.

Each step returns the next state as a value; the loop only goes from one to the next. What a tool
does wrong is a result that the model reads; what ends a run is a `Finish` that says why. Events
tell the world; the journal keeps.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import anyio

from perdure.agent.acting import Acting
from perdure.agent.answers import is_in_another_language, joined, looks_like_a_call, written_calls
from perdure.agent.conversation import Conversation, result_message, said
from perdure.agent.executing import Executing, planned
from perdure.agent.fitting import ASKED_AGAIN, Fitting
from perdure.agent.judge import Judge, feedback, is_same
from perdure.agent.plan import Planner, shown
from perdure.agent.prompts import (
    ANSWER_CUT,
    BROKEN_OFF,
    CUT_CALLS,
    EMPTY,
    EMPTY_REPLIES,
    GO_ON,
    INTERRUPTED,
    NOT_JUDGED,
    OTHER_LANGUAGE,
    REPEATED,
    SAME_OBJECTION,
    STEP_LIMIT,
    STILL_OBJECTS,
    TIME_LIMIT,
    UNKNOWN_TOOLS,
    WENT_IN_CIRCLES,
    WRITTEN_CALL,
    WRITTEN_CALL_READ,
    WRITTEN_CALLS,
    why_not_judged,
)
from perdure.agent.recalling import Excerpt, Recollection
from perdure.agent.repeats import Repeats
from perdure.agent.resuming import only_goes_on, request_gone_on_with
from perdure.agent.spending import Account, LimitReached, Price, Spending
from perdure.agent.states import Act, Carry, Check, Draw, Finish, Limits, Next, Think
from perdure.agent.summarizing import Summarizer
from perdure.agent.thinking import Thinking
from perdure.chat.calls import ToolCall
from perdure.chat.events import (
    ErrorRaised,
    Event,
    Judged,
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
from perdure.chat.messages import Kind, text_of
from perdure.chat.plans import Plan
from perdure.chat.tokens import Usage
from perdure.errors import AnswerUnfit, PerdureError, PromptOverflow, StoreError, Words
from perdure.memory.passages import RECALL
from perdure.models.client import ModelClient, Reply
from perdure.store.journal import LEFT, WHOLE, NewEvent
from perdure.tools.contract import Outcome

#: Replies in a row that may be empty, cut in a call, or call only unknown tools: a model that
#: makes such a mistake three times won't mend it the fourth time.
PATIENCE = 3
#: How often an answer that the output limit cut goes on.
CONTINUED = 3


Told = TypeVar("Told", bound=Event)


@dataclass
class Loop:
    """One turn of a conversation, or the work on one step of a plan. ``emit`` gets every event as it happens
    and must not raise. ``summarizer`` writes the gist (without one, code does); ``background``: while the
    model works, for the next compaction; ``judge`` checks the answer (without one, no answer is looked at);
    ``recollection`` brings what is no longer in view, with ``recalls`` by itself as well; ``planner``: a plan
    is made first and carried out; ``spending``: that of the run, which several loops may share; ``price``:
    the model's, in US dollars of a usage; ``news``: what went wrong before and is no reason not to begin;
    ``fitting``: the answer must fit a schema."""

    model: ModelClient
    acting: Acting
    conversation: Conversation
    limits: Limits
    emit: Callable[[Event], None]
    summarizer: Summarizer | None = None
    background: bool = False
    judge: Judge | None = None
    recollection: Recollection | None = None
    recalls: bool = True
    planner: Planner | None = None
    steps: int = 0
    spending: Spending = field(default_factory=Spending)
    price: Price = lambda usage: None
    news: Sequence[PerdureError] = ()
    fitting: Fitting | None = None

    def __post_init__(self) -> None:
        self._account = Account(self.spending, self._used)
        self._executing = (
            Executing(self.planner, self.conversation, self._tell, self._account, self.price)
            if self.planner
            else None
        )
        self._events = 0
        self._mistakes = 0
        self._repeats = Repeats()
        #: Number of the turn's request.
        self._request = 0
        #: An answer that goes on, and the last one that was whole.
        self._said, self._answer = list[str](), ""
        self._objected: list[Judged] = []

    async def run(self, task: str) -> RunFinished:
        """The person's request to an answer, or to the reason why there is none.

        What goes wrong in the run is told and ends it; only cancellation is raised, after the
        turn has been closed so that the session can go on.
        """
        began = time.monotonic()
        self._tell(self._started(task))
        for words, entry in self.conversation.mended:
            self._tell(Notice(code="session.mended", text=say(words, self._lang, entry=entry)))
        for each in self.news:
            self._tell(Notice(code="tools", text=each.say(self._lang)))
        try:
            end = await self._turn(partial(self._ask, task))
        except anyio.get_cancelled_exc_class():
            self._finished(Finish("interrupted", self._answer, say(INTERRUPTED, self._lang)), began)
            raise
        return self._finished(end, began)

    async def work(self, task: str, about: str, note: str = "") -> Finish:
        """Work on a step of a plan, as `perdure.agent.plan.StepLoop` says. Only cancellation is raised, after
        the step has been closed so that it can go on."""

        async def begin() -> Next:
            if note:
                self.conversation.close_open_calls()
                self._request = self.conversation.add(Kind.NOTICE, said(note)).seq
                return Think()
            return await self._ask(task, about=about, kind=Kind.PLAN)

        return await self._turn(begin)

    async def _turn(self, begin: Callable[[], Awaitable[Next]]) -> Finish:
        async with anyio.create_task_group() as beside:
            self._thinking = Thinking(
                self.model,
                self.conversation,
                self.limits.output_tokens,
                self.summarizer,
                self.background,
                self._tell,
                self._account,
                self.price,
                beside,
            )
            end = await self._steps(begin)
            beside.cancel_scope.cancel()
        return end

    async def _steps(self, begin: Callable[[], Awaitable[Next]]) -> Finish:
        step: Next = Think()
        try:
            step = await begin()
            with anyio.move_on_after(self.limits.seconds):
                while not isinstance(step, Finish):
                    self._tell(StateChanged(state=step.state, step=self.steps))
                    match step:
                        case Draw() if self._executing:
                            step = await self._executing.draw()
                        case Carry() if self._executing:
                            step = await self._executing.carry()
                        case Act(reply):
                            step = await self._act(reply)
                        case Check(answer):
                            step = await self._check(answer)
                        case _:
                            step = await self._think()
            if isinstance(step, Check):
                step = self._unjudged(step.answer, "timeout")
            elif not isinstance(step, Finish):
                step = self._broken_off("limit", TIME_LIMIT, seconds=self.limits.seconds)
        except PerdureError as error:
            self._tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
            return Finish("failed", reason=error.say(self._lang), error=type(error).__name__)
        except anyio.get_cancelled_exc_class():
            self._broken_off("interrupted", INTERRUPTED)
            raise
        return step

    async def _ask(self, task: str, about: str = "", kind: Kind = Kind.USER) -> Next:
        """Journal the request, or the task of a step, with what belongs to it (or to what it is ``about``) of
        what is no longer in view."""
        try:
            excerpt = await self._recalled(task, about or task)
        except anyio.get_cancelled_exc_class():
            self.conversation.ask(task, kind=kind)
            raise
        if excerpt is None:
            self._request = self.conversation.ask(task, kind=kind).seq
        else:
            self._request = self.conversation.ask(task, excerpt.text, excerpt.recalled, kind=kind).seq
            self._tell(Recalled(entries=excerpt.recalled, text=excerpt.text, tokens=excerpt.tokens))
        if self.fitting and self.fitting.told:
            self.conversation.add(Kind.NOTICE, said(self.fitting.form(self._lang)))
        if kind is Kind.USER and only_goes_on(task):
            self._request = request_gone_on_with(self.conversation, self._request)
        return self._first(task)

    def _first(self, task: str) -> Next:
        """What comes after the request."""
        if self._executing is None:
            return Think()
        step = self._executing.first(task, self._request)
        self._request = self._executing.request
        return step

    async def _recalled(self, task: str, about: str) -> Excerpt | None:
        """An excerpt that fits beside the request. Where room must be made, for the request or for both,
        that happens first, so that what is in view is known when it is chosen."""
        if self.recollection is None or not self.recalls:
            return None
        asked = self.model.counter.message(said(task))
        try:
            overflows = not self.conversation.fits(asked)
            if overflows:
                self._thinking.make_room(asked + self.recollection.room)
            excerpt = await self.recollection.for_request(about)
            if excerpt is None or overflows:
                return excerpt
            made_room = self._thinking.make_room(asked + self.model.counter.message(said(excerpt.text)))
        except PromptOverflow:
            return None
        return await self.recollection.for_request(about) if made_room else excerpt

    async def _think(self) -> Next:
        if self.steps >= self.limits.steps:
            return Finish("limit", self._answer, say(STEP_LIMIT, self._lang, steps=self.steps))
        self.steps += 1
        if plan := self._plan:
            self.conversation.show_plan(shown(plan, self.conversation))
        try:
            reply = self._with_written_calls(await self._thinking.reply())
        except LimitReached as reached:
            self.steps -= 1
            return Finish("limit", self._answer, reached.say(self._lang), ends_run=True)
        for note in reply.notes:
            self._tell(Notice(code="reply.mended", text=note))
        if reply.calls:
            self._said.clear()
            self.conversation.add(Kind.TOOL_CALL, reply.as_message())
            return Act(reply)
        if not (reply.content.strip() or self._said):
            return self._mistaken(EMPTY_REPLIES, EMPTY)
        return self._answered(reply)

    def _answered(self, reply: Reply) -> Next:
        """An answer, or a part of one, is kept, and looked at by code."""
        self._answer = joined([*self._said, reply.content])
        try:
            if reply.content.strip():
                self.conversation.add(Kind.ASSISTANT, reply.as_message())
        except StoreError as error:
            # What can't be kept can still be read.
            self._tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
            return Finish("failed", self._answer, error.say(self._lang), type(error).__name__)
        if reply.cut and (self.judge or self.fitting) and len(self._said) < CONTINUED:
            self._said.append(reply.content)
            self._remind(GO_ON, code="answer.continued")
            return Think()
        if reply.cut:
            self._tell(Notice(code="answer.cut", text=say(ANSWER_CUT, self._lang)))
        self._said.clear()
        if self.fitting and (unfit := self._unfit(self.fitting)):
            return unfit
        if self.judge is None or reply.cut:
            return Finish("answered", self._answer)
        if not self.fitting and looks_like_a_call(self._answer):
            return self._mistaken(WRITTEN_CALLS, WRITTEN_CALL)
        return Check(self._answer)

    def _unfit(self, fitting: Fitting) -> Next | None:
        """What comes of an answer that doesn't fit the schema: it goes back, up to a point."""
        try:
            misfit = fitting.look_at(self._answer)
        except AnswerUnfit as error:
            self._tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
            return Finish("failed", self._answer, error.say(self._lang), type(error).__name__)
        self._thinking.schema = fitting.schema.schema if misfit else None
        if misfit is None:
            self._answer = fitting.fit.text if fitting.fit else self._answer
            return None
        self.conversation.add(Kind.NOTICE, said(fitting.objection(misfit, self._lang)))
        told = say(ASKED_AGAIN, self._lang, why=say(misfit.why, self._lang))
        self._tell(Notice(code="answer.unfit", text=told))
        self._tell(TextDelta(text="", restart=True))
        return Think()

    async def _check(self, answer: str) -> Next:
        """Have an answer judged, where it is worth it; one that isn't satisfied goes back, up to a point."""
        turn = self.conversation.since(self._request)
        if not self.fitting and is_in_another_language(text_of(turn[0].message), answer):
            self._tell(Notice(code="answer.language", text=say(OTHER_LANGUAGE, self._lang)))
        if self.judge is None or not self.judge.wants(turn):
            return Finish("answered", answer)
        number = len(self._objected) + 1
        judged = await self.judge.of(self.conversation, turn, answer, number, self._account)
        self.conversation.judged(judged)
        self._tell(judged)
        if judged.satisfied is None:
            return self._unjudged(answer, judged.reason)
        if judged.satisfied:
            return Finish("answered", answer, judged="satisfied")
        again = any(is_same(judged.objections, before.objections) for before in self._objected)
        self._objected.append(judged)
        if again or len(self._objected) > self.judge.rounds:
            why = SAME_OBJECTION if again else STILL_OBJECTS
            told = say(why, self._lang, rounds=self.judge.rounds)
            self._tell(Notice(code="judge.repeats" if again else "judge.limit", text=told))
            return Finish("answered", answer, judged="unsatisfied")
        self.conversation.add(Kind.FEEDBACK, said(feedback(judged, self._lang)))
        self._tell(TextDelta(text="", restart=True))
        return Think()

    def _unjudged(self, answer: str, why: str) -> Finish:
        told = say(NOT_JUDGED, self._lang, why=why_not_judged(why, self._lang))
        self._tell(Notice(code="answer.unjudged", text=told))
        return Finish("answered", answer, judged="unjudged")

    def _with_written_calls(self, reply: Reply) -> Reply:
        """The reply; where it is calls that were written as text, with these as what they are."""
        if self.judge is None or reply.calls or (self.fitting and self.fitting.fits(reply.content)):
            return reply
        calls = written_calls(reply.content, {tool.name for tool in self.conversation.tools})
        if not calls:
            return reply
        self._tell(TextDelta(text="", restart=True))
        return replace(
            reply, content="", calls=calls, notes=(*reply.notes, say(WRITTEN_CALL_READ, self._lang))
        )

    async def _act(self, reply: Reply) -> Next:
        def keep(call: ToolCall, outcome: Outcome) -> None:
            recalled = None
            if self.recollection and call.name == RECALL:
                recalled = self.recollection.quoted(outcome.text)
            result, beside = result_message(call.id, outcome.text), list[NewEvent]()
            if outcome.whole:
                beside.append((WHOLE, {"name": outcome.name, "text": outcome.whole}))
            if outcome.left is not None and outcome.left != self.conversation.left_by(call.name):
                beside.append((LEFT, {"tool": call.name, "left": outcome.left}))
            self.conversation.add(Kind.TOOL_RESULT, result, recalled=recalled, beside=beside)

        plan = self.conversation.plan
        outcomes = await self.acting.run(reply.calls, cut=reply.cut, emit=self._tell, keep=keep)
        if self.recollection:
            self.recollection.answered()
        if (now := self.conversation.plan) is not None and now != plan:
            self._tell(planned(now))
        self._repeats.after((call, outcome.text) for call, outcome in zip(reply.calls, outcomes, strict=True))
        if reply.cut or not any(self.acting.knows(call) for call in reply.calls):
            return self._mistaken(CUT_CALLS if reply.cut else UNKNOWN_TOOLS)
        self._mistakes = 0
        if self._repeats.end:
            return Finish("limit", self._answer, say(WENT_IN_CIRCLES, self._lang))
        if self._repeats.tell:
            self._remind(REPEATED, code="repeated")
        return Think()

    def _used(self, purpose: str, usage: Usage, cost: float | None) -> None:
        with suppress(StoreError):  # what can't be written is told by the next message, which must be
            self.conversation.used(purpose, usage, cost)
        self._tell(UsageReported(purpose=purpose, usage=usage, cost=cost))

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
            if partial := self._thinking.partial.strip():
                text = f"{partial}\n{say(BROKEN_OFF, self._lang)}"
                self.conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": text})
        except PerdureError as error:
            self._tell(ErrorRaised(error=type(error).__name__, text=error.say(self._lang), acts=error.acts))
        return Finish(status, self._answer, say(reason, self._lang, **facts))

    def _started(self, task: str) -> RunStarted:
        return RunStarted(
            session=self.conversation.session,
            model=self.model.model,
            task=task,
            context_window=self.conversation.budget.window,
            tools=tuple(tool.name for tool in self.conversation.tools),
        )

    def _finished(self, step: Finish, began: float) -> RunFinished:
        is_answered = step.status == "answered"
        if is_answered and self._plan and not (self.planner and self.planner.only):
            with suppress(StoreError):  # the answer is there; a plan that stands a little longer harms nobody
                self.conversation.plan_is_over()
        if step.status in {"limit", "failed"} and not step.answer and (plan := self._plan):
            # What was done, where it isn't told yet.
            step = step if plan.by == "model" else replace(step, answer=plan.as_markdown(self._lang))
        self._tell(StateChanged(state=step.state, step=self.steps))
        with suppress(StoreError):
            self.conversation.finished(step.status)
        finished = RunFinished(
            status=step.status,
            answer=step.answer,
            reason=step.reason,
            error=step.error,
            usage=self.spending.usage,
            cost=self.spending.cost,
            usage_by_purpose={"think": Usage(), **self.spending.usages},
            cost_by_purpose={**self.spending.costs},
            session=self.conversation.session,
            steps=self.steps + (self._executing.steps if self._executing else 0),
            judged=step.judged,
            output=self.fitting.fit.value if is_answered and self.fitting and self.fitting.fit else None,
            seconds=round(time.monotonic() - began, 3),
        )
        return self._tell(finished)

    @property
    def _plan(self) -> Plan | None:
        """The plan that this turn works on. One that was interrupted is of another request, and waits until
        it goes on."""
        plan = self.conversation.plan
        if plan is None or plan.by == "model":
            return plan
        return plan if self._executing and self._executing.request == plan.request else None

    @property
    def _lang(self) -> Language:
        return self.conversation.lang

    def _tell(self, event: Told) -> Told:
        self._events += 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        told = replace(event, seq=self._events, time=now)
        self.emit(told)
        return told
