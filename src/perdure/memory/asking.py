"""When a summary is due, what is asked, and what becomes of the reply. Pure.

Between `gist` (how a request is worded), `judging` (what a good reply is) and `memory` (which owns the
state): what waits for a summary is asked for in pieces that fit the summariser's window, a reply that
is too long is asked for once more, and then cut by code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.chat.language import Language
from perdure.chat.messages import Entry, Kind, Message, blocks, call_ids, text_of
from perdure.chat.tokens import TokenCounter
from perdure.memory.extract import extracted
from perdure.memory.gist import Line, SummaryRequest, aligned, folded, output_room, shortened
from perdure.memory.judging import Refusal, judged
from perdure.memory.literals import EXACT, shape_of
from perdure.memory.record import Record
from perdure.memory.sources import Source

#: Kinds of what person and model said.
SAID = frozenset({Kind.USER, Kind.ASSISTANT})
#: Share of a gist's tokens that the literals may take which a summary is judged by; their number, and
#: the one up to which those that tools showed are taken too.
JUDGED_BY, MOST_JUDGED, FEW_JUDGED = 8, 12, 4
#: Characters of the message up to which a summary is asked for, by which it is named.
NAMED_BY = 60


@dataclass(frozen=True, slots=True)
class Before:
    """The prompt as it stood before a compaction: the beginning and its tokens (tools included), and the
    entries of the window."""

    beginning: Sequence[Message] = ()
    tokens: int = 0
    entries: Sequence[Entry] = ()

    def within(self, room: int, pending: Sequence[Source]) -> list[Message]:
        """As much of it as fits ``room`` tokens, in whole blocks; nothing where that doesn't hold all that
        waits for a summary."""
        room -= self.tokens
        held: list[Entry] = []
        for block in blocks(self.entries):
            room -= block.tokens
            if room < 0 or len(block.entries) <= len(call_ids(block.entries[0].message)):
                break
            held += block.entries
        waiting = {seq for source in pending for seq in source.entries}
        if not waiting <= {entry.seq for entry in held}:
            return []
        return [*self.beginning, *(entry.message for entry in held)]

    def until(self, pending: Sequence[Source]) -> str:
        """How the first message begins that stays, of those that begin as none before does; empty where
        there is none."""
        last = max(seq for source in pending for seq in source.entries)
        begun: set[str] = set()
        for entry in self.entries:
            beginning = " ".join(text_of(entry.message)[:NAMED_BY].split())
            if entry.seq > last and entry.kind in SAID and beginning and beginning not in begun:
                return beginning
            begun.add(beginning)
        return ""


def request_for(
    record: Record,
    *,
    limit: int,
    room: int,
    window: int,
    now: int,
    before: Before | None,
    counter: TokenCounter,
    lang: Language,
) -> SummaryRequest | None:
    """The request for a summary of what waits in the record; None where nothing does. ``limit``: tokens of
    the gist; ``room``: tokens of prompt and answer together in the summariser's ``window``; ``now``: number
    of the newest entry; ``before``: ask with that prompt where it fits."""
    if not record.pending or limit < 1:
        return None
    output = output_room(limit, min(window, room))
    request: SummaryRequest | None = None
    if before:
        until = before.until(record.pending)
        asked = aligned(
            (), record.summary, record.pending, limit=limit, lang=lang, output=output, until=until
        )
        instruction = counter.message(asked.messages[-1])
        if prompt := before.within(room - output - instruction, record.pending):
            request = replace(asked, messages=[*prompt, *asked.messages])
    request = request or folded(
        record.summary,
        record.pending,
        room=room - output,
        count=counter.text,
        limit=limit,
        lang=lang,
        output=output,
    )
    return replace(request, literals=_worth_keeping(record, request, now, counter))


def summary_in(
    reply: str | Message | None, request: SummaryRequest, counter: TokenCounter, *, cut: bool
) -> tuple[Line, ...] | Refusal | SummaryRequest:
    """The lines of the summary, or why it was refused, or the request for a shorter one."""
    verdict = judged(reply, request, counter.text, cut=cut)
    if verdict.refusal and not request.shorter:
        return verdict.refusal
    if not verdict.too_long and not verdict.refusal:
        return verdict.lines
    if request.shorter:
        lines = verdict.lines or request.draft
        return tuple(extracted(lines, (), request.limit, counter.text, request.lang))
    text = text_of(reply) if isinstance(reply, dict) else str(reply)
    return shortened(request, text, verdict.lines, counter.text)


def _worth_keeping(
    record: Record, request: SummaryRequest, now: int, counter: TokenCounter
) -> tuple[str, ...]:
    """The literals that a summary is judged by: those worth most in what person and model said, and in
    the summary before; of what tools showed only where these are few, since it is too much to ask for."""
    said = "\n".join(
        [*(each.text for each in request.sources if each.kind in SAID), *(line.text for line in request.base)]
    )
    shown = "\n".join(each.text for each in request.sources if each.kind not in SAID)
    exact = [literal for literal in record.ledger.worthiest(now) if shape_of(literal) in EXACT]
    room = request.limit // JUDGED_BY
    kept: list[str] = []
    for text, most in ((said, MOST_JUDGED), (shown, FEW_JUDGED)):
        for literal in exact:
            if len(kept) >= most:
                break
            if literal in text and literal not in kept:
                room -= counter.text(f" {literal}")
                if room < 0:
                    return tuple(kept)
                kept.append(literal)
    return tuple(kept)
