"""A session while it is open: every message is journaled first, then stands in memory.

What the journal holds is all there is: a session is its records in order, and gives the prompt it
had, whatever ended the last run. A checkpoint beside them, derived and replaceable, lets a session
of any length be opened by reading only what stands in its window.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice
from typing import Any

from perdure.agent.pairing import Pairing
from perdure.agent.truncation import is_exact
from perdure.agent.undone import UNDOING, standing
from perdure.chat.calls import ToolSpec
from perdure.chat.events import Judged
from perdure.chat.forms import Form
from perdure.chat.language import Language
from perdure.chat.messages import Entry, Kind, Message, text_of
from perdure.chat.plans import Plan
from perdure.chat.tokens import TokenCounter, Usage
from perdure.errors import Words
from perdure.memory.budget import Budget
from perdure.memory.calibration import Calibration, Learnt
from perdure.memory.compactions import Accepted, Summary, Trimmed
from perdure.memory.gist import SummaryRequest
from perdure.memory.memory import Memory
from perdure.store.journal import LEFT, Journal, NewEntry, NewEvent, Recorded

#: The form of a checkpoint; one of another form is not read, but made anew from the records.
CHECKPOINT = 4
#: The event of rules that the person made by an answer.
ALLOWED = "policy.allowed"
#: What the journal keeps of a verdict; what it took stands there as usage.
VERDICT = ("satisfied", "missing", "contradicted", "round", "reason", "model", "seconds")


class Conversation:
    """The one writer of a lane of a session's journal: the conversation's own, or with ``lane`` that of a
    step of a plan, which begins with nothing but the system prompt. ``tools`` are those whose schemas each
    prompt carries; ``model`` is whose reports are learnt from; ``summarised``: a model writes the gist, else
    code does; ``looking``: nothing is written, whatever is done; ``watch`` is shown each `usage` while the
    journal is read, when all that came before it has been."""

    def __init__(
        self,
        journal: Journal,
        session: str,
        counter: TokenCounter,
        budget: Budget,
        tools: Sequence[ToolSpec] = (),
        *,
        model: str = "",
        summarised: bool = True,
        looking: bool = False,
        lane: str = "",
        watch: Callable[[Conversation, Recorded], None] | None = None,
    ) -> None:
        self.journal = journal
        self.session = session
        self.tools = tuple(tools)
        self.model = model
        self.lang: Language = "en"
        self.lane = lane
        self._counter = counter
        self._summarised = summarised
        self._looking = looking
        self._watch = watch
        self._configured = budget
        #: Who teaches: another model, or another count of ours, is another matter.
        self._by = f"{model} by {counter.name}"
        learnt = journal.learnt(model) if model else {}
        same = learnt.get("counter", counter.name) == counter.name
        self._calibration = Calibration.from_json(learnt if same else {})
        #: The endpoint has been seen to serve the beginnings of prompts from a cache.
        self.caches = bool(learnt.get("caches"))
        #: The most tokens that the endpoint has read of one prompt here.
        self._read_whole = 0
        self._open_plan: Plan | None = None
        self._memory = self._empty()
        self._open()

    @property
    def budget(self) -> Budget:
        return self._memory.budget

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt, tools and system prompt included."""
        return self._memory.tokens

    @property
    def memory(self) -> Memory:
        """What stands in the prompt, to be looked at; only this object changes it."""
        return self._memory

    @property
    def counter(self) -> TokenCounter:
        return self._counter

    @property
    def plan(self) -> Plan | None:
        """The plan that isn't over yet."""
        return self._open_plan

    @property
    def count(self) -> Callable[[str], int]:
        """Tokens of a text."""
        return self._counter.text

    @property
    def counts_exactly(self) -> bool:
        """The counter is that of the model's own tokenizer, not an estimate."""
        return is_exact(self._counter)

    @property
    def answers_limited(self) -> bool:
        """The endpoint has refused a request because its answer had no room: each must name its limit, which
        is the budget's output."""
        return self._learnt.answers

    @property
    def mended(self) -> Sequence[tuple[Words, int]]:
        """What was out of order in the journal and isn't in the prompt: each with the entry's number."""
        return self._pairing.mended

    def fits(self, ahead: int) -> bool:
        """So many tokens more still fit the next prompt."""
        return self.tokens + ahead <= self._memory.limit

    def take_form(self, form: Form) -> None:
        """What the client does to the order of roles adds tokens, which must have their room."""
        if form != self._memory.form:
            self._memory.take_form(form)

    def add(
        self,
        kind: Kind,
        message: Message,
        *,
        recalled: Sequence[tuple[str, int]] | None = None,
        beside: Sequence[NewEvent] = (),
    ) -> Entry:
        """Journal a message, durably, and take it into memory. ``recalled``: session and entry of each
        excerpt that is in it, where it holds some, so that these can be found again; ``beside``: what else a
        tool's result comes with (`WHOLE`, `LEFT`)."""
        events: list[NewEvent] = [] if recalled is None else [("recall", {"recalled": list(recalled)})]
        entry = self.add_all([(kind, message)], [*events, *beside])[0]
        for type, body in beside:
            if type == LEFT:
                self._take_left(body)
        return entry

    def left_by(self, tool: str) -> Mapping[str, Any]:
        """What a tool's last call left for the next one; empty where there was none."""
        return self._left.get(tool, {})

    def used(self, purpose: str, usage: Usage, cost: float | None = None) -> None:
        """Journal what a call of a model took (``cost``: US dollars, where they are known), and which prompt
        it was sent where that was the conversation's own."""
        own = {"model": self.model, "prompt": digest(self._memory)} if purpose == "think" else {}
        self._record("usage", {"purpose": purpose, "usage": asdict(usage), "cost": cost, **own})

    def record(self, type: str, body: Mapping[str, Any]) -> None:
        """Journal an event that changes nothing in the prompt."""
        self._record(type, body)

    def allow(self, rules: Sequence[str]) -> None:
        """Journal what the person allows from now on in this session."""
        self._record(ALLOWED, {"rules": list(rules)})
        self.allowed += rules

    def finished(self, status: str) -> None:
        """Journal how a turn ended."""
        self._record("turn.finished", {"status": status})

    def ask(
        self,
        request: str,
        excerpt: str = "",
        recalled: Sequence[tuple[str, int]] = (),
        *,
        kind: Kind = Kind.USER,
    ) -> Entry:
        """Journal a person's request (of another ``kind``: the task of a step); with an excerpt of what was
        said before, this stands before it."""
        asked = (kind, {"role": "user", "content": request})
        if not excerpt:
            return self.add_all([asked])[-1]
        shown = (Kind.RECALL, {"role": "user", "content": excerpt})
        # The event says by its place which entry holds the excerpts, so that comes right behind it.
        return self.add_all([shown, asked], [("recall", {"recalled": list(recalled), "before": 1})])[-1]

    def since(self, first: int) -> list[Entry]:
        """The entries from a number on, verbatim, whatever has left the window: those of steps behind the
        lane's own."""
        entries = self.journal.entries(self.session, range(first, self._memory.newest + 1))
        if self.lane:
            return [entry for entry in entries if entry.lane == self.lane]
        return sorted(entries, key=lambda entry: entry.lane)

    def planned(self, plan: Plan) -> None:
        """Journal a plan as it stands now."""
        self._record("plan", plan.as_json())
        self._open_plan = plan

    def plan_is_over(self) -> None:
        """What the plan was for is answered."""
        if self._open_plan is not None:
            self._record("plan.over", {})
            self._open_plan = None

    def show_plan(self, text: str) -> None:
        """Let a plan stand in the prompt as the text says, where it doesn't yet."""
        if not any(
            each.kind is Kind.PLAN and text_of(each.message) == text for each in self._memory.anchored
        ):
            self.add(Kind.PLAN, said(text))

    def judged(self, judged: Judged) -> None:
        """Journal what the Judge said of an answer."""
        self._record("judge", {name: value for name, value in judged.as_json().items() if name in VERDICT})

    def add_all(
        self, messages: Sequence[tuple[Kind, Message]], events: Sequence[NewEvent] = ()
    ) -> list[Entry]:
        """Journal messages, and events behind them, all or none, and take them into memory. Where they begin
        with no result and calls are open, these are answered first, since their results can't come any
        more."""
        goes_on = bool(messages) and messages[0][0] is not Kind.TOOL_RESULT
        closing = self._closing() if goes_on else []
        entries = self._written([*closing, *messages], events)
        for entry in entries:
            self._place(entry)
        return entries[len(closing) :]

    def compact(self, *, force: bool = False, ahead: int = 0) -> Trimmed | None:
        """Make the next prompt fit the budget; None where it does already. ``force``: down to the low
        water mark all the same; ``ahead``: tokens that are to fit besides.

        Raises `PromptOverflow` where the system prompt, the tools and the current request alone
        are larger than the budget.
        """
        trimmed = self._memory.plan(force=force, ahead=ahead)
        if trimmed is not None:
            self._record("compaction", trimmed.as_json())
            self._memory.apply(trimmed)
            self.compactions_since_failure += 1
            self._keep_checkpoint()
        return trimmed

    def summary_request(self, *, room: int | None = None, cached: bool = False) -> SummaryRequest | None:
        """As `Memory.summary_request`."""
        return self._memory.summary_request(room=room, cached=cached)

    def accept(
        self,
        reply: Message,
        request: SummaryRequest,
        *,
        cut: bool,
        about: Mapping[str, Any],
        later: bool = False,
    ) -> Accepted:
        """Take a summariser's reply, or say why not, and journal which. ``about``: what the journal keeps
        beside it (model, usage, seconds); ``later``: the prompt stays as it is until the next compaction."""
        accepted = self._memory.consider(reply, request, cut=cut, later=later)
        if accepted.summary:
            self._record("summary", {**accepted.summary.as_json(), **about})
            self._memory.apply(accepted.summary)
            self.failed_summaries = 0
            self._keep_checkpoint()
        return accepted

    def summary_failed(self, why: str, about: Mapping[str, Any]) -> None:
        """Journal that no summary came of it; what left stays pending."""
        self._record("summary.failed", {"why": why, **about})
        self.failed_summaries += 1
        self.compactions_since_failure = 0

    def undo_compaction(self) -> Sequence[int] | None:
        """Take the last compaction back, with its summary; the numbers of the entries that stand again,
        or None where there is none to take back."""
        if not standing(self.journal.records(self.session)).compaction:
            return None
        before = {entry.seq for entry in self._memory.entries}
        self._record("compaction.undone", {})
        self._begin_again()
        return [entry.seq for entry in self._memory.entries if entry.seq not in before]

    def undo_turn(self) -> tuple[int, int] | None:
        """Take the last turn back, with what was compacted in it: its first and its last entry, or None where
        there is none. What tools did stays done, and the entries can still be read."""
        turn = standing(self.journal.records(self.session)).turn
        if turn:
            self._record("turn.undone", {"first": turn[0], "last": turn[1]})
            self._begin_again()
        return turn

    def prompt(self) -> list[Message]:
        """What is sent: the system prompt, the notes on what left, the window. Fits after `compact`,
        which alone makes it so: nothing leaves that the journal doesn't know of."""
        return self._memory.messages()

    def learn_usage(self, counted: int, usage: Usage) -> None:
        """The endpoint read a whole prompt that we ``counted``, and reported its own count."""
        self._read_whole = max(self._read_whole, usage.prompt)
        self._calibrate(counted, usage.prompt, caches=usage.cached > 0)

    def learn_window(self, limit: int | None, requested: int | None) -> bool:
        """The endpoint refused the prompt as too long (its own figures, where it gave them: see
        `Learnt.refused`). False where nothing was learnt that changes the next request."""
        before, sent = self._learnt, self.tokens
        if requested:
            self._calibrate(sent, min(requested, sent))
        there = sent * self.budget.tokens // max(self._memory.limit, 1)
        self._learn(self._learnt.refused(there, self.budget, limit, requested, read=self._read_whole))
        return self._learnt != before

    def learn_cut(self, window: int) -> bool:
        """The endpoint read only so many tokens of the prompt. False where it has read more before."""
        window = max(window, self._read_whole)
        smaller = window < self.budget.window
        if smaller:
            self._learn(replace(self._learnt, window=window))
        return smaller

    def close_open_calls(self) -> None:
        """Answer the calls that no result can answer any more."""
        self.add_all(self._closing())

    def _empty(self) -> Memory:
        memory = Memory(counter=self._counter, tools=self.tools, summarised=self._summarised)
        memory.budget = self._configured
        memory.scale = self._calibration.scale(exact=self.counts_exactly)
        self._opened: Mapping[str, Any] = {}
        self._open_plan = None
        #: Rules of what tools may do that the person made in it, by an answer.
        self.allowed: list[str] = []
        #: What tools left for their next calls, by their names.
        self._left: dict[str, Mapping[str, Any]] = {}
        #: What the session's models have taught in it, by who taught it.
        self._taught: dict[str, Learnt] = {}
        self._pairing = Pairing()
        #: The notes are not those of the journal, but made anew.
        self._renewed = False
        #: Summaries that failed since one was taken, and compactions since the last that failed.
        self.failed_summaries, self.compactions_since_failure = 0, 0
        #: Up to which entry the journal has the counts of another counter.
        self._recounted_to = 0
        #: Records since the checkpoint that were read or written here.
        self._known = 0
        return memory

    def _open(self) -> None:
        if self.lane:
            state, records = None, self._of_lane()
        else:
            state, since = self.journal.since_checkpoint(self.session)
            records = list(since)
        undone = any(isinstance(each, Recorded) and each.type in UNDOING for each in records)
        # Another counter would have drawn another gist from what left: that is seen only in the records.
        fits = state and state.get("form") == CHECKPOINT and state["opened"]["counter"] == self._counter.name
        if state and fits and not undone:
            self._restore(state)
            for record in records:
                self._place(record)
        else:
            self._fold(self.journal.records(self.session, "") if state else iter(records))
        self._known = len(records)
        self._memory.summarised = self._summarised
        opened = {
            "counter": self._counter.name,
            "model": self.model,
            "window": self._configured.window,
            "output": self._configured.output,
            "tools": self._counter.tools(self.tools),
            "summarised": self._summarised,
        }
        if opened != self._opened:
            self._record("session.opened", opened)
        self._opened = opened
        if self._renewed:
            # Something in them was forgotten; from now on they stand as they are.
            self._record("notes", {"notes": self._memory.notes})
        self._settle()
        if state and (undone or not fits):
            self._keep_checkpoint()

    def _begin_again(self) -> None:
        """Read the journal anew, since something in it no longer counts."""
        form = self._memory.form
        self._memory = self._empty()
        self._memory.take_form(form)
        self._fold(self.journal.records(self.session, ""))
        self._settle()
        self._known = self._since_checkpoint()
        self._keep_checkpoint()

    def _fold(self, records: Iterator[Entry | Recorded]) -> None:
        """Read all records, but for the compactions that were taken back and what was said of them."""
        dropped = set() if self.lane else standing(self.journal.records(self.session, "")).dropped
        for index, record in enumerate(records):
            if index not in dropped:
                self._place(record)

    def _of_lane(self) -> list[Entry | Recorded]:
        """How the session began, and what is of this lane."""
        began = islice(self.journal.records(self.session), 1)
        return list(chain(began, self.journal.records(self.session, self.lane)))

    def _read(self, record: Entry | Recorded) -> None:
        if isinstance(record, Entry):
            same = self._opened.get("counter") == self._counter.name
            self._memory.take(record if same else self._recounted(record))
            return
        match record.type:
            case "session.created":
                self.lang = self._memory.lang = record.body["lang"]
                self._memory.be_told(record.body["system"])
            case "session.opened":
                self._opened = record.body
                self._memory.summarised = record.body.get("summarised", self._summarised)
            case "compaction":
                self._renewed = record.body.get("notes", "") is None
                self._memory.apply(Trimmed.from_json(record.body))
                self.compactions_since_failure += 1
            case "notes":
                self._renewed = False
                self._memory.take_notes(record.body["notes"])
            case "usage" if self._watch:
                self._watch(self, record)
            case "summary":
                self._renewed = False
                self._memory.apply(Summary.from_json(record.body))
                self.failed_summaries = 0
            case "summary.failed":
                self.failed_summaries += 1
                self.compactions_since_failure = 0
            case "plan":
                # One that was forgotten has no steps.
                self._open_plan = Plan.from_json(record.body) if record.body["steps"] else None
            case "plan.over":
                self._open_plan = None
            case "tool.left" | "policy.allowed":
                self._take_for_tools(record)
            case "model.learnt":
                self._take_learnt(str(record.body["by"]), Learnt.from_json(record.body))

    def _recounted(self, entry: Entry) -> Entry:
        self._recounted_to = entry.seq
        return replace(entry, tokens=self._counter.message(entry.message))

    def _place(self, record: Entry | Recorded) -> None:
        """Read a record when its turn is, so that each result stands behind its call."""
        if self._pairing.is_due(record, self._memory.open_calls):
            self._read(record)
            if not self._memory.open_calls:
                for each in self._pairing.released():
                    self._place(each)

    def _settle(self) -> None:
        """Answer calls whose results something else was written instead of."""
        while self._pairing.held:
            self.close_open_calls()

    def _closing(self) -> list[tuple[Kind, Message]]:
        return [(Kind.TOOL_RESULT, message) for message in self._memory.closing()]

    def _written(
        self, messages: Sequence[tuple[Kind, Message]], events: Sequence[NewEvent] = ()
    ) -> list[Entry]:
        """The messages as entries of the journal; of no journal where it is only looked at."""
        new: list[NewEntry] = [(kind, each, self._counter.message(each)) for kind, each in messages]
        if self._looking:
            held = [each.seq for each in self._pairing.held if isinstance(each, Entry)]
            return [Entry(seq, *each) for seq, each in enumerate(new, max(self._memory.newest, *held, 0) + 1)]
        entries = self.journal.append(self.session, new, events, lane=self.lane)
        self._known += len(entries) + len(events)
        return entries

    def _take_for_tools(self, record: Recorded) -> None:
        if record.type == LEFT:
            self._take_left(record.body)
        else:
            self.allowed += record.body["rules"]

    def _take_left(self, body: Mapping[str, Any]) -> None:
        self._left[body["tool"]] = body["left"]

    @property
    def _learnt(self) -> Learnt:
        return self._taught.get(self._by, Learnt())

    def _learn(self, learnt: Learnt) -> None:
        if learnt != self._learnt:
            self._take_learnt(self._by, learnt)
            self._record("model.learnt", {"by": self._by, **asdict(learnt)})

    def _take_learnt(self, by: str, learnt: Learnt) -> None:
        self._taught[by] = learnt
        if by == self._by:
            self._memory.budget = learnt.within(self._configured)
            # Another session with the model may know more by now.
            known = self._calibration.scale(exact=self.counts_exactly) if self._calibration.reports else 0.0
            self._memory.scale = max(learnt.scale or self._memory.scale, known)

    def _calibrate(self, counted: int, reported: int, *, caches: bool = False) -> None:
        """Learn from a report of how many tokens a whole prompt really had."""
        before = self._calibration.highest, self._memory.scale, self.caches
        self._calibration = self._calibration.after(counted, reported)
        self.caches = self.caches or caches
        scale = self._calibration.scale(exact=self.counts_exactly)
        if scale != self._memory.scale:
            self._learn(replace(self._learnt, scale=scale))
        now = self._calibration.highest, scale, self.caches
        if self.model and not self._looking and now != before:
            known = {**self._calibration.as_json(), "caches": self.caches, "counter": self._counter.name}
            self.journal.learn(self.model, known)

    def _record(self, type: str, body: Mapping[str, Any]) -> None:
        if not self._looking:
            self.journal.record(self.session, type, body, lane=self.lane)
            self._known += 1

    def _since_checkpoint(self) -> int:
        """How many records were written since the checkpoint, by whomever."""
        return sum(1 for _ in self.journal.since_checkpoint(self.session)[1])

    def _keep_checkpoint(self) -> None:
        # Where another process wrote in between, what is known here is not the whole.
        if self._looking or self.lane or self._since_checkpoint() != self._known:
            return
        self.journal.checkpoint(
            self.session,
            {
                "form": CHECKPOINT,
                "lang": self.lang,
                "opened": self._opened,
                "plan": self._open_plan.as_json() if self._open_plan else None,
                "recounted": self._recounted_to,
                "allowed": self.allowed,
                "left": self._left,
                "learnt": {by: asdict(learnt) for by, learnt in self._taught.items()},
                "failed": [self.failed_summaries, self.compactions_since_failure],
                "memory": self._memory.as_json(),
            },
        )
        self._known = 0

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.lang = state["lang"]
        self._opened = state["opened"]
        self._open_plan = Plan.from_json(state["plan"]) if state["plan"] else None
        self.failed_summaries, self.compactions_since_failure = state["failed"]
        self._memory.summarised = self._opened["summarised"]
        self.allowed = list(state.get("allowed", ()))
        self._left = dict(state.get("left", {}))
        for by, learnt in state["learnt"].items():
            self._take_learnt(by, Learnt.from_json(learnt))
        standing = [seq for seq, _ in state["memory"]["standing"]]
        entries = self.journal.entries(self.session, standing)
        recounted = [self._recounted(each) if each.seq <= state["recounted"] else each for each in entries]
        self._memory.restore(state["memory"], recounted)
        self._recounted_to = state["recounted"]


def allowed_in(records: Iterable[Entry | Recorded]) -> list[str]:
    """The rules that the person made in a session, by answers."""
    made = (each.body["rules"] for each in records if isinstance(each, Recorded) and each.type == ALLOWED)
    return [rule for rules in made for rule in rules]


def digest(memory: Memory) -> str:
    """What tells one prompt from another: of its messages, before they take an endpoint's form."""
    sent = json.dumps(memory.unformed(), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(sent.encode("ascii")).hexdigest()


def said(text: str) -> Message:
    return {"role": "user", "content": text}


def result_message(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}
