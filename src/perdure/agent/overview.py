"""What is in a session's window, why, and where the rest is: for people and programs that look.

Reads the journal and changes nothing; no model is asked, since every entry has its count and the
session says which window it was opened with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from perdure.agent.conversation import Conversation
from perdure.agent.spending import Spending
from perdure.chat.estimate import estimated_tokens
from perdure.chat.messages import Entry
from perdure.chat.plans import Step
from perdure.chat.tokens import ENCODINGS, TextCounter, TokenCounter, Usage, counter_for
from perdure.memory.budget import Budget
from perdure.memory.gist import rendered
from perdure.store.journal import Journal, Recorded


@dataclass(frozen=True, slots=True)
class PastCompaction:
    """One compaction, as the journal keeps it. ``left`` and ``shortened``: how many entries; tokens of the
    whole prompt before and after; ``gist_by``: `model` or `code`; ``refused``: why no summary came of it, as
    a code of `perdure.agent.prompts.NO_SUMMARY`."""

    time: str
    after: int
    left: int
    shortened: int
    tokens_before: int
    tokens_after: int
    gist_by: str = "code"
    refused: str = ""
    model: str = ""
    seconds: float = 0.0
    cost: float | None = None
    undone: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """A session's window in tokens. ``parts``: what the next prompt consists of, by name; with ``free`` and
    the ``reserve`` (for the answer, and a margin) they make ``window``. ``left``: ranges of entries that
    are no longer in the window; ``pending``: those of them that wait for a summary. ``usage`` and ``cost``
    (US dollars, None where a part isn't known): of the whole session, turns that were taken back too.
    ``plan``: the steps of one that isn't over yet."""

    session: str
    model: str
    window: int
    parts: Mapping[str, int]
    free: int
    reserve: int
    entries: int
    standing: Sequence[tuple[int, int]]
    left: Sequence[tuple[int, int]]
    pending: int
    gist: str
    notes: str
    compactions: Sequence[PastCompaction]
    usage: Usage = Usage()
    plan: Sequence[Step] = ()
    cost: float | None = 0.0
    usage_by_purpose: Mapping[str, Usage] = field(default_factory=dict)
    cost_by_purpose: Mapping[str, float | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def overview(journal: Journal, session: str) -> Overview:
    """The overview of a session as it was opened last. Raises `SessionUnknown` where it doesn't exist."""
    opened: Mapping[str, Any] = {}
    compactions: list[PastCompaction] = []
    usages: list[Mapping[str, Any]] = []
    for record in journal.records(session):
        if not isinstance(record, Recorded):
            continue
        if record.type == "usage":
            usages.append(record.body)
        if record.lane:
            continue
        if record.type == "session.opened":
            opened = record.body
        _noted(compactions, record)
    counter = counter_of_session(opened)
    budget = Budget.of(opened.get("window", 8192), opened.get("output"))
    conversation = Conversation(
        journal,
        session,
        counter,
        budget,
        model=str(opened.get("model", "")),
        summarised=opened.get("summarised", True),
        looking=True,
    )
    memory = conversation.memory
    tools = int(opened.get("tools", 0))
    gist = rendered(memory.record.gist, conversation.lang)
    gist_tokens = counter.text(gist) if gist in memory.notes else 0
    notes = memory.tokens - memory.fixed - sum(entry.tokens for entry in memory.entries) - gist_tokens
    parts = {"system": memory.fixed, "tools": tools, "notes": notes, "gist": gist_tokens}
    for entry in memory.entries:
        parts[entry.kind.value] = parts.get(entry.kind.value, 0) + entry.tokens
    window = conversation.budget.window
    reserve = window - conversation.budget.tokens
    spending = Spending.recorded(usages)
    return Overview(
        session=session,
        model=conversation.model,
        window=window,
        parts={name: tokens for name, tokens in parts.items() if tokens},
        free=max(window - reserve - sum(parts.values()), 0),
        reserve=reserve,
        entries=memory.newest,
        standing=[(entry.seq, entry.tokens) for entry in memory.entries],
        left=memory.record.left,
        pending=len(memory.record.pending),
        gist=gist,
        notes=memory.notes,
        compactions=compactions,
        plan=conversation.plan.steps if conversation.plan else (),
        usage=spending.usage,
        cost=spending.cost,
        usage_by_purpose=spending.usages,
        cost_by_purpose=spending.costs,
    )


def last_opened(records: Iterable[Entry | Recorded]) -> Mapping[str, Any]:
    """How a session was opened last: counter, model, window, output and the tokens of its tools; empty where
    it never was."""
    events = (each for each in records if isinstance(each, Recorded) and not each.lane)
    opened = [each.body for each in events if each.type == "session.opened"]
    return opened[-1] if opened else {}


def counter_of_session(opened: Mapping[str, Any]) -> TokenCounter:
    """The counter that a session was opened with last. Its name makes the stored counts valid; it counts
    only the notes and what stands shortened itself."""
    name = str(opened.get("counter", "estimate"))
    return counter_for(name) if name in ENCODINGS else TextCounter(name, estimated_tokens)


def _noted(compactions: list[PastCompaction], record: Recorded) -> None:
    """Take a record into the list of compactions."""
    body = record.body
    if record.type == "compaction":
        compactions.append(
            PastCompaction(
                record.time,
                record.after,
                len(body["left"]),
                len(body["shortened"]),
                body["tokens_before"],
                body["tokens_after"],
            )
        )
        return
    standing = [at for at, each in enumerate(compactions) if not each.undone]
    if not standing:
        return
    last = standing[-1]
    if record.type == "summary":
        cost = body.get("cost")
        compactions[last] = replace(
            compactions[last],
            gist_by="model",
            refused="",
            model=body.get("model", ""),
            seconds=round(compactions[last].seconds + body.get("seconds", 0.0), 3),
            cost=cost if cost is None else cost + (compactions[last].cost or 0.0),
        )
    elif record.type == "summary.failed":
        compactions[last] = replace(compactions[last], gist_by="code", refused=body["why"])
    elif record.type == "compaction.undone":
        compactions[last] = replace(compactions[last], undone=True)
