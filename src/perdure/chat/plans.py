"""Plans as values: what is to be done, in steps, and how far each of them is.

A plan is read from what a model sends, or from a check list that a person wrote, and written as one: the
same text stands in the prompt, on the screen and in a file. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from perdure.chat.json_in_text import json_in
from perdure.chat.language import Language, say
from perdure.errors import ConfigError, Words

Progress = Literal["pending", "running", "done", "failed", "skipped"]
#: Who made a plan: the planner (of `--plan`), a person (in a file), or the model itself while it works.
Author = Literal["planner", "person", "model"]

#: Steps of a plan at most, and characters of what a step says.
MOST_STEPS, LONGEST_STEP = 40, 500
#: Characters of a result that are kept with its step; the whole stands in the journal.
LONGEST_RESULT = 1_500
#: Characters of a result that the list shows, where there is room; then less.
SHOWN_RESULTS = (160, 60, 0)
#: Characters of a step that the list shows where there is no more room; then less.
SHOWN_STEPS = (60, 24, 8)
#: How deep in objects a list of steps is looked for.
MOST_NESTED = 4

#: The box of a step in a check list.
BOXES: Mapping[Progress, str] = {"pending": " ", "running": "~", "done": "x", "failed": "!", "skipped": "-"}
AFTER: Words = ("(after {steps})", "（在 {steps} 之后）")
ANY_TIME: Words = ("(at any time)", "（随时）")
NO_STEPS: Words = (
    "there is no step in it: a step is a line such as - [ ] Do this",
    "其中没有步骤：一个步骤是一行，例如 - [ ] 做这件事",
)
TOO_MANY: Words = ("a plan has at most {most} steps, not {count}", "计划最多 {most} 步，不能有 {count} 步")
TWICE: Words = ("two steps have the number {id}", "有两个步骤的编号都是 {id}")
NO_SUCH_STEP: Words = (
    "step {id} comes after {unknown}, which there isn't",
    "步骤 {id} 写明在 {unknown} 之后，但没有该步骤",
)
IN_CIRCLES: Words = ("steps {ids} wait for each other", "步骤 {ids} 互相等待")

#: The number of a step as it can be written in a check list.
_ID = r"(?:\d{1,4}(?:\.\d{1,4})*|[A-Za-z]\d{0,3})"
_IS_ID = re.compile(_ID)
_LINE = re.compile(
    rf"^\s*(?:[-*+]|\d+[.)])\s+\[(?P<box>.?)\]\s*(?:(?P<id>{_ID})[.):：、]\s*)?(?P<what>\S.*?)\s*$"
)
#: Behind a number, Chinese needs no space.
_LISTED = re.compile(
    r"^\s*(?:[-*+•]\s+|(?P<id>\d{1,3})(?:[.):]\s+|[、：．]\s*|[.):](?=[\u3400-\u9fff])))(?P<what>\S.*?)\s*$"
)
_RESULT = re.compile(r"^\s+(?:→|->|=>)\s*(?P<result>\S.*?)\s*$")
#: Only numbers of steps: `(after lunch)` and `（在服务器上）` are part of what a step says.
_IDS = rf"(?:steps?\s+|步骤\s*|第\s*)?{_ID}(?:\s*(?:[,，、;；&和]|and)\s*(?:steps?\s+|步骤\s*)?{_ID})*"
_AFTER = re.compile(
    rf"\s*[(（]\s*(?:after\s+(?P<ids>{_IDS})|在\s*(?P<ids_zh>{_IDS})\s*步?\s*[之以]?后)\s*[)）]\s*$", re.I
)
_ANY_TIME = re.compile(r"\s*[(（]\s*(?:at any time|随时)\s*[)）]\s*$", re.I)
_HEADING = re.compile(r"^\s*#+\s*(?P<title>\S.*?)\s*#*\s*$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_LISTS = ("steps", "plan", "tasks", "todos", "todo", "items")
_WHATS = ("what", "step", "task", "description", "title", "content", "name", "text")
_AFTERS = ("after", "depends_on", "dependsOn", "dependencies", "depends", "needs", "requires")
_PROGRESS: Mapping[str, Progress] = {
    **{each: each for each in get_args(Progress)},
    "in_progress": "running",
    "in progress": "running",
    "active": "running",
    "completed": "done",
    "complete": "done",
    "finished": "done",
    "todo": "pending",
    "cancelled": "skipped",
    "canceled": "skipped",
}


@dataclass(frozen=True, slots=True)
class Step:
    """``after``: ids of the steps that must be done before; ``result``: what came of it, shortly; ``entry``:
    the entry in which it stands whole, 0 where there is none."""

    id: str
    what: str
    after: tuple[str, ...] = ()
    status: Progress = "pending"
    result: str = ""
    entry: int = 0

    @property
    def is_over(self) -> bool:
        return self.status in {"done", "failed", "skipped"}


@dataclass(frozen=True, slots=True)
class Plan:
    """``request``: the entry that it is for; ``revision``: how often the rest was planned anew; ``settled``:
    ids of the failed steps that are no reason to plan anew any more."""

    steps: tuple[Step, ...]
    by: Author = "planner"
    request: int = 0
    revision: int = 0
    settled: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Nothing of it is still to do."""
        return all(step.is_over for step in self.steps)

    @property
    def failed(self) -> frozenset[str]:
        """Ids of the steps that failed."""
        return frozenset(step.id for step in self.steps if step.status == "failed")

    @property
    def asks_for_another(self) -> bool:
        """A step failed, and the rest has not been planned anew for it."""
        return not self.failed.issubset(self.settled)

    def with_failures_settled(self) -> Plan:
        return replace(self, settled=tuple(sorted(self.failed)))

    def step(self, id: str) -> Step:
        return next(step for step in self.steps if step.id == id)

    def ready(self) -> list[Step]:
        """The steps that can begin: all that they come after is done, or left out."""
        over = {step.id for step in self.steps if step.status in {"done", "skipped"}}
        return [step for step in self.steps if step.status == "pending" and over.issuperset(step.after)]

    def with_step(self, id: str, **changes: Any) -> Plan:
        """The plan with one step changed."""
        return replace(
            self, steps=tuple(replace(step, **changes) if step.id == id else step for step in self.steps)
        )

    def with_rest(self, rest: Sequence[Step]) -> Plan:
        """The plan with another rest: what is over stays, what was still to do goes. Steps of the rest get
        numbers that none had before."""
        kept = tuple(step for step in self.steps if step.is_over)
        done = {step.id: step.what for step in kept if step.status == "done"}
        # Some say the whole plan again.
        rest = [step for step in rest if done.get(step.id) != step.what]
        taken = {step.id for step in self.steps}
        numbers = (str(number) for number in range(1, MOST_STEPS * 100) if str(number) not in taken)
        renamed = {step.id: next(numbers) for step in rest}
        fresh = tuple(
            replace(
                step,
                id=renamed[step.id],
                after=tuple(renamed.get(id, id) for id in step.after if id in renamed or id in done),
                status="pending",
                result="",
                entry=0,
            )
            for step in rest
        )
        anew = replace(self, steps=kept + fresh, revision=self.revision + 1)
        return anew.with_failures_settled()

    def as_markdown(self, lang: Language = "en", *, results: int = LONGEST_RESULT, steps: int = 0) -> str:
        """A check list. ``results``: characters shown of each result; ``steps``: of each step, 0 for all."""
        return "\n".join(_lines(self.steps, lang, results, steps or LONGEST_STEP))

    def within(self, room: int, count: Any, lang: Language) -> str:
        """The check list in at most ``room`` tokens, as ``count`` counts a text: results give way first, then
        the ends of long steps; ids and how far each is stay in any case."""
        forms = (*((results, 0) for results in SHOWN_RESULTS), *((0, steps) for steps in SHOWN_STEPS))
        for results, steps in forms:
            text = self.as_markdown(lang, results=results, steps=steps)
            if count(text) <= room:
                return text
        return text

    def as_json(self) -> dict[str, Any]:
        steps = [
            {
                "id": step.id,
                "what": step.what,
                "after": list(step.after),
                "status": step.status,
                "result": step.result,
                "entry": step.entry,
            }
            for step in self.steps
        ]
        return {
            "steps": steps,
            "by": self.by,
            "request": self.request,
            "revision": self.revision,
            "settled": list(self.settled),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Plan:
        steps = tuple(Step(**{**step, "after": tuple(step["after"])}) for step in body["steps"])
        settled = tuple(body.get("settled", ()))
        return cls(steps, body["by"], body["request"], body["revision"], settled)


def is_same_work(plan: Plan, other: Plan) -> bool:
    """They say the same of what is to be done, however far each is."""
    mine, others = ([(step.id, step.what, step.after) for step in each.steps] for each in (plan, other))
    return plan.by == other.by and mine == others[: len(mine)]


def lane_of(plan: Plan, step: Step) -> str:
    """The lane of a step's entries in the journal: no other step of the session has its name."""
    return f"{plan.request}/{step.id}"


def request_of(lane: str) -> int:
    """The entry of the request that a lane's step is for."""
    return int(lane.partition("/")[0])


def step_of(lane: str) -> str:
    """The id of a lane's step."""
    return lane.partition("/")[2]


def read_plan(text: str) -> tuple[str, tuple[Step, ...]]:
    """A person's check list: its first heading (empty where it has none) and its steps. A step comes after
    the one before it, unless it says after which, or `(at any time)`. Raises `ConfigError`."""
    title, steps = "", list[Step]()
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced:
            continue
        elif match := _LINE.match(line):
            steps.append(_written(match, steps))
        elif steps and (match := _RESULT.match(line)):
            steps[-1] = replace(steps[-1], result=match["result"][:LONGEST_RESULT])
        elif not title and not steps and (match := _HEADING.match(line)):
            title = match["title"]
    if not steps:
        raise ConfigError(NO_STEPS)
    if len(steps) > MOST_STEPS:
        raise ConfigError(TOO_MANY, most=MOST_STEPS, count=len(steps))
    ids = [step.id for step in steps]
    if twice := next((id for id in ids if ids.count(id) > 1), None):
        raise ConfigError(TWICE, id=twice)
    for step in steps:
        if unknown := [id for id in step.after if id not in ids]:
            raise ConfigError(NO_SUCH_STEP, id=step.id, unknown=", ".join(unknown))
    if waiting := _waiting_for_each_other(steps):
        raise ConfigError(IN_CIRCLES, ids=", ".join(waiting))
    return title, tuple(steps)


def steps_in(text: str, done: Collection[str] = ()) -> tuple[Step, ...]:
    """The steps of a plan in what a model said: JSON in any of the usual forms, a check list, or a list; none
    where there are none. ``done``: ids of other steps that they may come after. What doesn't hold together is
    mended: a step that waits for one that there isn't comes after the one before it; where some wait in a
    circle, or have the same id, all of them do. Ids that can't be written in a check list become numbers."""
    for value in json_in(text):
        if told := steps_of(value, done):
            return told
    found = [match for line in text.splitlines() if (match := _LINE.match(line))]
    if not found:
        found = [match for line in text.splitlines() if (match := _LISTED.match(line))]
    steps: list[Step] = []
    for match in found[:MOST_STEPS]:
        steps.append(_written(match, steps))
    return _mended(steps, done)


def steps_of(value: Any, done: Collection[str] = ()) -> tuple[Step, ...]:
    """The steps in a value of JSON; none where there are none. Mended, as those of `steps_in`."""
    for _ in range(MOST_NESTED):
        if not isinstance(value, Mapping):
            break
        value = next((value[name] for name in _LISTS if isinstance(value.get(name), list | Mapping)), None)
    if not isinstance(value, list):
        return ()
    steps: list[Step] = []
    for each in value[:MOST_STEPS]:
        said = {"what": each} if isinstance(each, str) else each
        if not isinstance(said, Mapping):
            return ()
        what = next((said[name] for name in _WHATS if isinstance(said.get(name), str) and said[name]), "")
        if not what.strip():
            return ()
        id = _id_of(said.get("id")) or str(len(steps) + 1)
        named = next((said[name] for name in _AFTERS if name in said), None)
        after = _before(steps) if named is None else tuple(_ids_in(named))
        status = _PROGRESS.get(str(said.get("status", "pending")).lower().replace("-", "_"), "pending")
        result = " ".join(str(said.get("result") or "").split())[:LONGEST_RESULT]
        steps.append(Step(id, " ".join(what.split())[:LONGEST_STEP], after, status, result))
    return _mended(steps, done)


def _id_of(told: Any) -> str:
    return "" if told is None else " ".join(str(told).split())


def _ids_in(told: Any) -> list[str]:
    """The ids in what a model says of the steps that come before."""
    several = told if isinstance(told, list) else re.split("[,，、;；]", str(told))
    return [id for id in map(_id_of, several) if id]


def _mended(steps: Sequence[Step], done: Collection[str]) -> tuple[Step, ...]:
    ids = [step.id for step in steps]
    twice = len(set(ids)) < len(ids)
    if twice or not all(map(_IS_ID.fullmatch, ids)):
        numbers = (str(number) for number in range(1, MOST_STEPS * 100) if str(number) not in done)
        new = [next(numbers) for _ in steps]
        known = dict(zip(ids, new, strict=True))
        steps = [
            replace(step, id=id, after=tuple(known.get(each, each) for each in step.after))
            for id, step in zip(new, steps, strict=True)
        ]
        ids = new
    there = {*ids, *done}
    mended: list[Step] = []
    for step in steps:
        after = [id for id in step.after if id in there]
        if len(after) < len(step.after):
            after += _before(mended)
        mended.append(replace(step, after=tuple(dict.fromkeys(after))))
    if twice or _waiting_for_each_other(mended):
        mended = [replace(step, after=(ids[at - 1],) if at else ()) for at, step in enumerate(mended)]
    return tuple(mended)


def _waiting_for_each_other(steps: Sequence[Step]) -> list[str]:
    """Ids of the steps that could never begin."""
    waiting = {step.id: set(step.after) for step in steps}
    while free := [id for id, after in waiting.items() if not after & waiting.keys()]:
        for id in free:
            del waiting[id]
    return list(waiting)


def _written(match: re.Match[str], before: Sequence[Step]) -> Step:
    """The step that a line of a list says."""
    groups = match.groupdict()
    what, after = groups["what"], _before(before)
    if told := _AFTER.search(what):
        named = re.sub(r"steps?\b|and\b", " ", told["ids"] or told["ids_zh"], flags=re.I)
        what, after = what[: told.start()], tuple(_IS_ID.findall(named))
    elif told := _ANY_TIME.search(what):
        what, after = what[: told.start()], ()
    boxes = {box: status for status, box in BOXES.items()} | {"X": "done"}
    status: Any = boxes.get(groups.get("box", " "), "pending")
    return Step(groups["id"] or str(len(before) + 1), what[:LONGEST_STEP], after, status)


def _before(steps: Sequence[Step]) -> tuple[str, ...]:
    return (steps[-1].id,) if steps else ()


def _lines(steps: Iterable[Step], lang: Language, results: int, longest: int) -> Iterator[str]:
    before = tuple[str, ...]()
    for step in steps:
        what = step.what if len(step.what) <= longest else f"{step.what[:longest]}…"
        # As it is read: without a word, a step comes after the one before it.
        when = ""
        if step.after != before:
            when = say(AFTER, lang, steps=", ".join(step.after)) if step.after else say(ANY_TIME, lang)
        apart = " " if when and lang == "en" else ""
        yield f"- [{BOXES[step.status]}] {step.id}. {what}{apart}{when}"
        if step.result and results:
            flat = " ".join(step.result.split())
            yield f"  → {flat if len(flat) <= results else flat[:results] + '…'}"
        before = (step.id,)
