"""PLANNING and EXECUTING: a plan for the request, its steps one after the other or side by side, and another
plan for the rest where one fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from perdure.agent.conversation import Conversation
from perdure.agent.plan import Planner
from perdure.agent.planning import why_no_plan
from perdure.agent.prompts import NO_PLAN, PLAN_LIMIT
from perdure.agent.spending import Account, LimitReached, Price
from perdure.agent.states import Carry, Draw, Finish, Next, Think
from perdure.chat.events import Event, Notice, Planned, StateChanged
from perdure.chat.language import Language, say
from perdure.chat.plans import Plan


@dataclass
class Executing:
    """The plan of one turn. ``tell`` gets events, the ``account`` what each call of a model took at the
    ``price``."""

    planner: Planner
    conversation: Conversation
    tell: Callable[[Event], object]
    account: Account
    price: Price

    def __post_init__(self) -> None:
        #: Calls of the model in the steps.
        self.steps = 0
        #: The entry of the request that is worked on; where a plan goes on, of the one that it was made for.
        self.request = 0
        self._anew = False

    def first(self, task: str, request: int) -> Next:
        """What comes after the request: a plan for it, or what is left of the one that was interrupted."""
        self.request = request
        plan, given = self.conversation.plan, self.planner.given
        if given is not None and not (plan and self.planner.goes_on_with(plan, task, self.conversation)):
            plan = replace(given, request=request).with_failures_settled()
            self._change(plan)
        if plan is None or not (given or self.planner.goes_on_with(plan, task, self.conversation)):
            return Draw()
        if plan.request != request:
            self.request = plan.request
            self.tell(planned(plan))
        return self._next_of(plan)

    async def draw(self) -> Next:
        """Have a plan made for the request, or another one for what is left of it. Where none comes, the
        request is worked on without one."""
        plan = self.conversation.plan if self._anew else None
        try:
            drawn = await self.planner.draw(self.conversation, plan, self.account, self.price)
        except LimitReached as reached:
            return Finish("limit", reason=reached.say(self._lang))
        if drawn.steps:
            plan = plan.with_rest(drawn.steps) if plan else Plan(tuple(drawn.steps), request=self.request)
            self._change(plan)
            return self._next_of(plan)
        told = say(NO_PLAN, self._lang, why=why_no_plan(drawn.reason, self._lang))
        if self.planner.only:
            return Finish("failed", reason=told)
        self.tell(Notice(code="plan.none", text=told))
        if plan:
            self._leave_the_rest(plan)
        return Think()

    async def carry(self) -> Next:
        """Work on the steps that can be done. After a failure the rest is planned anew, up to a point."""
        before = plan = self.conversation.plan
        assert before is not None and plan is not None
        end = await self.planner.carry(self.conversation, before, self._change, self._in_step)
        plan = self.conversation.plan or before
        if end is not None:
            return replace(end, answer="")  # what it says is of a step
        if plan.is_over and not plan.asks_for_another:
            return Think()
        if plan.revision < self.planner.revisions:
            self._anew = True
            return Draw()
        told = say(PLAN_LIMIT, self._lang, revisions=self.planner.revisions)
        self.tell(Notice(code="plan.limit", text=told))
        self._leave_the_rest(plan)
        return Think()

    def _next_of(self, plan: Plan) -> Next:
        if self.planner.only:
            return Finish("answered", plan.as_markdown(self._lang))
        return Think() if plan.is_over and not plan.asks_for_another else Carry()

    def _in_step(self, step: str, event: Event) -> None:
        self.steps += isinstance(event, StateChanged) and event.state == "THINKING"
        self.tell(replace(event, plan_step=step))

    def _leave_the_rest(self, plan: Plan) -> None:
        for step in [step for step in plan.steps if not step.is_over]:
            plan = plan.with_step(step.id, status="skipped")
        self._change(plan.with_failures_settled())

    def _change(self, plan: Plan) -> None:
        """The plan is now so: journaled, and told."""
        self.conversation.planned(plan)
        self.tell(planned(plan))

    @property
    def _lang(self) -> Language:
        return self.conversation.lang


def planned(plan: Plan) -> Planned:
    return Planned(steps=plan.steps, by=plan.by, revision=plan.revision, over=plan.is_over)
