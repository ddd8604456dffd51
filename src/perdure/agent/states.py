"""The states of a turn, as values: each step of the loop hands back the next one."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.chat.events import JudgedAs, Status
from perdure.models.client import Reply


@dataclass(frozen=True, slots=True)
class Draw:
    """Make a plan, or another one for what is left of it."""

    state = "PLANNING"


@dataclass(frozen=True, slots=True)
class Carry:
    """Carry out what can begin of the plan."""

    state = "EXECUTING"


@dataclass(frozen=True, slots=True)
class Think:
    state = "THINKING"


@dataclass(frozen=True, slots=True)
class Act:
    reply: Reply
    state = "ACTING"


@dataclass(frozen=True, slots=True)
class Check:
    answer: str
    state = "JUDGING"


@dataclass(frozen=True, slots=True)
class Finish:
    """``error``: the type of the error that ended it; ``ends_run``: nothing of the same run can go on either,
    since what it may spend is spent."""

    status: Status
    answer: str = ""
    reason: str = ""
    error: str = ""
    judged: JudgedAs = ""
    ends_run: bool = False

    @property
    def state(self) -> str:
        return {"answered": "DONE", "limit": "DONE", "interrupted": "INTERRUPTED"}.get(self.status, "FAILED")


Next = Draw | Carry | Think | Act | Check | Finish


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a turn ends in order. ``steps``: calls of the model; ``seconds``: wall time;
    ``output_tokens``: of one reply."""

    steps: int = 50
    seconds: float | None = None
    output_tokens: int | None = None
