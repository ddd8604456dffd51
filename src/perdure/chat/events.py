"""What a run tells the world: one value for each thing that happens.

The same events reach the terminal, `--json`, the web page and a program that uses the library.
Types and field names are a contract (design, section 6): extend, never rename.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from perdure.chat.plans import Author, Step
from perdure.chat.tokens import Usage

Status = Literal["answered", "failed", "limit", "interrupted"]
#: What the Judge said last of an answer; empty where it wasn't asked.
JudgedAs = Literal["", "satisfied", "unsatisfied", "unjudged"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened. ``seq`` counts from 1 in a run; ``time`` is UTC, ISO 8601; ``plan_step``: the
    id of the step of a plan that it happened in, empty outside of one."""

    type: ClassVar[str]
    seq: int = 0
    time: str = ""
    plan_step: str = ""

    def as_json(self) -> dict[str, Any]:
        """The line of `--json`: ``type``, ``seq``, ``time``, ``plan_step`` where there is one, then the
        fields of the event."""
        fields = asdict(self)
        step = fields.pop("plan_step")
        return {
            "type": self.type,
            "seq": fields.pop("seq"),
            "time": fields.pop("time"),
            **({"plan_step": step} if step else {}),
            **fields,
        }


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    type = "run.started"
    session: str
    model: str
    task: str
    context_window: int
    tools: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class StateChanged(Event):
    type = "state"
    state: str
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class TextDelta(Event):
    """A piece of the model's text; ``reasoning`` marks thoughts, which are not the answer.
    ``restart`` says that the text so far is void: the reply begins anew."""

    type = "text.delta"
    text: str
    reasoning: bool = False
    restart: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolRequested(Event):
    """The call as the model made it, before policy; ``arguments`` is its text."""

    type = "tool.requested"
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class ToolStarted(Event):
    type = "tool.started"
    id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class ToolFinished(Event):
    type = "tool.finished"
    id: str
    name: str
    ok: bool
    seconds: float
    output: str


@dataclass(frozen=True, kw_only=True)
class Compacted(Event):
    """What left the window (``left``: numbers of entries), what was cut to head and tail (``shortened``),
    tokens of the prompt before and after, and what the gist became. ``gist_by``: `model` or `code`;
    ``pending``: what waits for the next summary; ``refused``: why replies of the summariser weren't
    taken; ``seconds``, ``usage`` and ``cost`` (US dollars, null where the price is unknown) are the
    summary's."""

    type = "compaction"
    left: Sequence[int]
    tokens_before: int
    tokens_after: int
    shortened: Sequence[int] = ()
    gist: str = ""
    gist_by: str = "code"
    model: str = ""
    pending: int = 0
    refused: Sequence[str] = ()
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class Recalled(Event):
    """An excerpt of what is no longer in view was placed before the request: session and number of each
    entry in it, its text, and its tokens."""

    type = "recall"
    entries: Sequence[tuple[str, int]]
    text: str
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Judged(Event):
    """An answer was checked. ``satisfied`` is null where it wasn't judged, for the ``reason``; ``missing``:
    what of the request isn't answered; ``contradicted``: what a tool's result contradicts; ``round`` from 1,
    of an answer that goes back ``rounds`` times at most; ``seconds``, ``usage`` and ``cost`` (US dollars,
    null where the price is unknown) are the judge's."""

    type = "judge"
    satisfied: bool | None
    missing: Sequence[str] = ()
    contradicted: Sequence[str] = ()
    round: int = 1
    rounds: int = 0
    reason: str = ""
    model: str = ""
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None

    @property
    def objections(self) -> tuple[str, ...]:
        return (*self.missing, *self.contradicted)


@dataclass(frozen=True, kw_only=True)
class Planned(Event):
    """A plan was made, or something in it changed: all its steps as they are now. ``by``: `planner`, `person`
    or `model`; ``revision``: how often the rest was planned anew; ``over``: nothing of it is still to do."""

    type = "plan"
    steps: Sequence[Step]
    by: Author = "planner"
    revision: int = 0
    over: bool = False


@dataclass(frozen=True, kw_only=True)
class UsageReported(Event):
    """A call of a model is over. ``cost`` in US dollars, null where the price is unknown."""

    type = "usage"
    purpose: str
    usage: Usage
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class Notice(Event):
    """Something the person should know; the run goes on."""

    type = "notice"
    code: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ErrorRaised(Event):
    type = "error"
    error: str
    text: str
    acts: str = "person"


@dataclass(frozen=True, kw_only=True)
class RunFinished(Event):
    """The last event. ``cost`` is in US dollars, null where the price of a part is unknown; ``error`` names
    the type of the error that ended a failed run, where one did; ``judged`` is what the Judge said of the
    answer: `satisfied`, `unsatisfied`, `unjudged` (it failed), or empty where it wasn't asked; ``output``:
    the answer as a value, where it had to fit a schema and does."""

    type = "run.finished"
    status: Status
    answer: str
    usage: Usage
    session: str = ""
    cost: float | None = None
    reason: str = ""
    error: str = ""
    judged: JudgedAs = ""
    output: Any = None
    steps: int = 0
    seconds: float = 0.0
    usage_by_purpose: Mapping[str, Usage] = field(default_factory=dict)
    cost_by_purpose: Mapping[str, float | None] = field(default_factory=dict)
