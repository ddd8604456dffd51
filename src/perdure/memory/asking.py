"""When a summary is due, what is asked, and what becomes of the reply. Pure.

Between `gist` (how a request is worded), `judging` (what a good reply is) and `memory` (which owns the
state): what waits for a summary is asked for in pieces that fit the summariser's window, a reply that
is too long is asked for once more, and then cut by code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.chat.language import Language
from perdure.chat.messages import Entry, Kind, Message, text_of
from perdure.chat.tokens import TokenCounter
from perdure.memory.extract import extracted
from perdure.memory.gist import Line, SummaryRequest, aligned, folded, output_room, shortened
from perdure.memory.judging import Refusal, judged
from perdure.memory.record import Record

#: Share of a gist's tokens that the literals may take which a summary is judged by.
JUDGED_BY = 4
#: Tokens of the instruction behind a conversation's own prompt.
INSTRUCTION = 600


@dataclass(frozen=True, slots=True)
class Before:
    """The prompt as it stood before a compaction: the beginning and its tokens (tools included), and the
    entries of the window."""

    beginning: Sequence[Message] = ()
    tokens: int = 0
    entries: Sequence[Entry] = ()

    def within(self, room: int, record: Record) -> list[Message]:
        """As much of it as fits ``room`` tokens and ends with a whole block; nothing where that doesn't
        hold all that waits for a summary."""
        room -= self.tokens + INSTRUCTION
        end = tokens = 0
        for index, entry in enumerate(self.entries):
            tokens += entry.tokens
            if tokens > room:
                break
            if index + 1 == len(self.entries) or self.entries[index + 1].kind is not Kind.TOOL_RESULT:
                end = index + 1
        first, last = record.pending[0].entries[0], record.pending[-1].entries[-1]
        if not end or self.entries[end - 1].seq < last or first < self.entries[0].seq:
            return []
        return [*self.beginning, *(entry.message for entry in self.entries[:end])]


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
    output = output_room(limit, window)
    if before and (prompt := before.within(room - output, record)):
        request = aligned(prompt, record.summary, record.pending, limit=limit, lang=lang, output=output)
    else:
        count = counter.text
        request = folded(
            record.summary,
            record.pending,
            room=room - output,
            count=count,
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
    if verdict.refusal:
        return verdict.refusal
    if not verdict.too_long:
        return verdict.lines
    if request.shorter:
        return tuple(extracted(verdict.lines, (), request.limit, counter.text, request.lang))
    return shortened(request, text_of(reply) if isinstance(reply, dict) else reply or "")


def _worth_keeping(
    record: Record, request: SummaryRequest, now: int, counter: TokenCounter
) -> tuple[str, ...]:
    """The literals that a summary is judged by: those worth most in what it stands for."""
    said = "\n".join([*(each.text for each in request.sources), *(line.text for line in request.base)])
    room = request.limit // JUDGED_BY
    kept: list[str] = []
    for literal in record.ledger.worthiest(now):
        if literal in said:
            room -= counter.text(f" {literal}")
            if room < 0:
                break
            kept.append(literal)
    return tuple(kept)
