"""The record: all that is known of the entries that left the window. Pure.

Everything in it is bounded, so that keeping it and opening a session on it cost the same on the
first day and after a million entries. A step gives a new record; the one before stays as it was, so
a compaction can be planned, looked at and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.chat.language import Language
from perdure.chat.messages import Entry, Kind
from perdure.memory.deeds import Deeds
from perdure.memory.extract import extracted
from perdure.memory.gist import Line, lines_as_json, lines_from_json, rendered
from perdure.memory.ledger import Ledger
from perdure.memory.literals import Shape
from perdure.memory.notes import Request, Shares, as_outcome, requests_within, written
from perdure.memory.ranges import Ranges, covers, joined
from perdure.memory.sources import Source, sources_of

#: Requests that are remembered, the first one among them.
MOST_REQUESTS = 100
#: Characters of sources that wait for a summariser, and what an older half of them becomes, in tokens,
#: where it doesn't come for a long time.
MOST_PENDING, PENDING_KEPT = 120_000, 3_000
#: Share of the room for exact things that files and commands may take.
DEEDS = 3

#: Kinds of entries whose literals are noted; the others are the agent's own bookkeeping.
NOTED = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL_CALL, Kind.TOOL_RESULT})

Literals = Sequence[tuple[str, Shape]]
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Record:
    """``left``: numbers of the entries that left; ``gist``: its lines as shown; ``summary``: the lines of
    the last summary that a model wrote; ``pending``: what left since, oldest first, for the next one."""

    left: Ranges = ()
    requests: Mapping[int, Request] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    deeds: Deeds = field(default_factory=Deeds)
    gist: tuple[Line, ...] = ()
    summary: tuple[Line, ...] = ()
    pending: tuple[Source, ...] = ()

    def asked(self, request: Request) -> Record:
        """With a request of the person's."""
        requests = dict(self.requests)
        requests[request.seq] = request
        if len(requests) > MOST_REQUESTS:
            second = sorted(requests)[1]
            del requests[second]
        return replace(self, requests=requests)

    def answered(self, seq: int, outcome: str) -> Record:
        """With an answer to all requests that were open; ``outcome`` is its text."""
        requests = dict(self.requests)
        for asked in sorted(requests, reverse=True):
            if requests[asked].answer is not None:
                break
            requests[asked] = replace(requests[asked], answer=seq, outcome=as_outcome(outcome))
        return replace(self, requests=requests)

    def after(
        self,
        leaving: Sequence[Entry],
        shortened: Iterable[Entry],
        literals: Mapping[int, Literals],
        *,
        limit: int,
        count: Count,
        lang: Language,
        summarised: bool,
    ) -> Record:
        """With entries that leave, and others of which only head and tail stay. ``limit``: tokens of the
        gist; ``summarised``: a model writes it in the end, so what left waits for that."""
        ledger = self.ledger.copy()
        for entry in (*leaving, *shortened):
            if entry.kind in NOTED:
                ledger.take(entry.seq, entry.kind, literals[entry.seq])
        sources = tuple(sources_of(leaving))
        return replace(
            self,
            left=joined(self.left, (entry.seq for entry in leaving)),
            ledger=ledger,
            deeds=self.deeds.after(leaving),
            gist=tuple(extracted(self.gist, sources, limit, count, lang)),
            pending=_bounded(_in_order((*self.pending, *sources)), count, lang) if summarised else (),
        )

    def summarised(
        self, lines: tuple[Line, ...], covered: Ranges, *, limit: int, count: Count, lang: Language
    ) -> Record:
        """With a summary that stands for the last one and the entries ``covered``."""
        pending = tuple(each for each in self.pending if not covers(covered, each.entries))
        gist = tuple(extracted(lines, pending, limit, count, lang)) if pending else lines
        return replace(self, summary=lines, pending=pending, gist=gist)

    def notes(
        self,
        shares: Shares,
        standing: Container[int],
        shown: Container[str],
        *,
        now: int,
        recall: bool,
        count: Count,
        lang: Language,
    ) -> str:
        """The notes as they stand in the prompt. ``standing``: numbers of the entries in the window;
        ``shown``: the literals that these show; ``now``: number of the newest entry."""
        gone = [request for seq, request in self.requests.items() if seq not in standing]
        requests = requests_within(gone, shares.requests, count, lang)
        gist = rendered(_lines_within(self.gist, shares.gist, count, lang), lang)
        deeds = self.deeds.within(shares.exact // DEEDS, count, lang)
        beside = "\n".join((requests, gist, deeds))
        values = self.ledger.within(shares.exact - count(deeds), count, shown, beside, now)
        return written(
            left=self.left, requests=requests, gist=gist, deeds=deeds, values=values, recall=recall, lang=lang
        )

    def as_json(self) -> dict[str, Any]:
        """For a checkpoint; `from_json` gives it back."""
        return {
            "left": self.left,
            "requests": [[r.seq, r.text, r.answer, r.outcome] for r in self.requests.values()],
            "ledger": self.ledger.as_json(),
            "deeds": self.deeds.as_json(),
            "gist": lines_as_json(self.gist),
            "summary": lines_as_json(self.summary),
            "pending": [[each.entries, each.kind, each.text] for each in self.pending],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Record:
        requests = [Request(*each) for each in body["requests"]]
        return cls(
            left=tuple((first, last) for first, last in body["left"]),
            requests={request.seq: request for request in requests},
            ledger=Ledger.from_json(body["ledger"]),
            deeds=Deeds.from_json(body["deeds"]),
            gist=lines_from_json(body["gist"]),
            summary=lines_from_json(body["summary"]),
            pending=tuple(Source(tuple(e), Kind(kind), text) for e, kind, text in body["pending"]),
        )


def _lines_within(lines: tuple[Line, ...], limit: int, count: Count, lang: Language) -> Sequence[Line]:
    """All lines, or those of them that fit where notes must give way."""
    fits = count(rendered(lines, lang)) <= limit
    return lines if fits else extracted(lines, (), limit, count, lang)


def _in_order(pending: Iterable[Source]) -> tuple[Source, ...]:
    """In the order of the session: a request that stayed while its turn ran leaves after what followed it."""
    return tuple(sorted(pending, key=lambda source: source.entries[0]))


def _bounded(pending: tuple[Source, ...], count: Count, lang: Language) -> tuple[Source, ...]:
    """What waits for a summariser, its older half in short where it is too much."""
    if sum(len(source.text) for source in pending) <= MOST_PENDING:
        return pending
    half = len(pending) // 2
    short = extracted((), pending[:half], PENDING_KEPT, count, lang)
    in_order = sorted(short, key=lambda line: line.entries[-1])
    kinds = {source.entries: source.kind for source in pending[:half]}
    return (
        *(Source(each.entries, kinds.get(each.entries, Kind.ASSISTANT), each.text) for each in in_order),
        *pending[half:],
    )
