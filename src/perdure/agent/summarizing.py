"""Ask a summariser for the gist, after a compaction, and let nothing that goes wrong matter.

Trimming has happened when this begins, and notes by code stand in the prompt. What comes of the
request is a better gist or nothing: an error, silence, a bad reply cost the summary, and what left
stays pending for the next chance. A summariser that keeps failing is left alone for a while.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import anyio

from perdure.agent.conversation import Conversation
from perdure.agent.spending import LIMIT, Account, LimitReached, Price, total
from perdure.agent.truncation import cut_to
from perdure.chat.events import Compacted
from perdure.chat.tokens import Usage
from perdure.errors import ContextOverflow
from perdure.memory.compactions import Trimmed
from perdure.memory.gist import SummaryRequest, rendered
from perdure.models.client import ModelClient, ModelRequest, Reply, complete

#: Requests after one compaction: pieces that are folded in, and second tries.
MOST_REQUESTS = 16
#: Sizes of a request that are tried until it fits a window that is counted otherwise.
MOST_TRIES = 8
#: Why a reply is refused whose request was read in part only.
UNREAD = "unread"
#: Failures in a row after which a summariser rests, and compactions for which it does.
FAILURES, REST = 3, 8


@dataclass(frozen=True, slots=True)
class Summarized:
    """What came of it. ``taken``: how many pieces were taken in; ``refused``: why each reply that wasn't
    taken was not; ``seconds`` of wall time; ``cost`` in US dollars, None where the price is unknown."""

    model: str
    taken: int = 0
    refused: tuple[str, ...] = ()
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    resting: bool = False


@dataclass
class Summarizer:
    """``client`` writes the summaries, in ``seconds`` at most for all that one compaction asks; ``own``:
    it is the conversation's own model, so its cache knows the prompt; ``price``: US dollars of a usage;
    ``room``: tokens to which it was seen to cut what it reads."""

    client: ModelClient
    own: bool = True
    seconds: float = 60.0
    price: Price = lambda usage: None
    room: int | None = None

    def rests(self, conversation: Conversation) -> bool:
        """It failed too often and isn't asked for now."""
        rested = conversation.compactions_since_failure
        return conversation.failed_summaries >= FAILURES and rested <= REST

    async def run(
        self, conversation: Conversation, *, later: bool = False, account: Account | None = None
    ) -> Summarized:
        """Ask until nothing waits any more, it fails, or a limit of the ``account`` is reached. ``later``:
        the prompt stays as it is until the next compaction. Raises only what the journal raises; cancellation
        passes through."""
        began = time.monotonic()
        done = Summarized(self.client.model)
        if self.rests(conversation):
            return replace(done, resting=True)
        trying = _Trying(self, conversation, account or Account(), later=later)
        with anyio.move_on_after(self.seconds) as limit:
            await trying.run()
        if limit.cancelled_caught:
            trying.refused.append("timeout")
        if trying.refused and not trying.taken and trying.refused[-1] != LIMIT:
            conversation.summary_failed(trying.refused[-1], {"model": self.client.model})
        return replace(
            done,
            taken=trying.taken,
            refused=tuple(trying.refused),
            seconds=round(time.monotonic() - began, 3),
            usage=trying.usage,
            cost=total(trying.costs),
        )


async def compacted(
    conversation: Conversation,
    summarizer: Summarizer | None,
    *,
    force: bool = False,
    made: tuple[int, Trimmed] | None = None,
    account: Account | None = None,
) -> Compacted | None:
    """Trim, which is certain, then summarise, which is best effort; None where nothing had to be done.
    ``force``: down to the low water mark, or at least a summary of what waits for one; ``made``: tokens
    before a trim that has happened already, and what it did; ``account``: of the run that it belongs to."""
    before, trimmed = made or (conversation.tokens, conversation.compact(force=force))
    if trimmed is None and not (force and summarizer and conversation.memory.record.pending):
        return None
    written = await summarizer.run(conversation, account=account) if summarizer else Summarized("")
    if trimmed is None and not written.taken:
        return None
    record = conversation.memory.record
    return Compacted(
        left=trimmed.window.left if trimmed else (),
        shortened=tuple(trimmed.window.shortened) if trimmed else (),
        tokens_before=before,
        tokens_after=conversation.tokens,
        gist=rendered(record.gist, conversation.lang),
        gist_by="model" if record.summary and not record.pending else "code",
        model=written.model if written.taken else "",
        pending=len(record.pending),
        refused=written.refused,
        seconds=written.seconds,
        usage=written.usage,
        cost=written.cost,
    )


class _Trying:
    """One series of requests."""

    def __init__(self, by: Summarizer, conversation: Conversation, account: Account, *, later: bool) -> None:
        self.by, self.conversation, self.account = by, conversation, account
        self.cached, self.later = by.own and conversation.caches, later
        known = (by.room, None if by.own else by.client.context_window)
        self.room = min((each for each in known if each), default=None)
        self.taken, self.refused = 0, list[str]()
        self.usage, self.costs = Usage(), list[float | None]()

    async def run(self) -> None:
        request = self._next()
        for _ in range(MOST_REQUESTS):
            if request is None:
                return
            request = await self._asked(request)

    async def _asked(self, request: SummaryRequest) -> SummaryRequest | None:
        """The request that comes after this one, or None where it ends."""
        began = time.monotonic()
        try:
            reply = await self._reply(request)
        except ContextOverflow:
            # What a smaller request leaves out stays pending: it isn't counted as summarised.
            self.refused.append("overflow")
            return self._within((self.room or self.conversation.budget.window) // 2, request)
        except Exception as error:  # whatever its client does, the conversation goes on
            self.refused.append(LIMIT if isinstance(error, LimitReached) else type(error).__name__)
            return None
        self.usage += reply.usage
        if room := self._cut_to(request, reply):
            # What it never read isn't summarised, however good the summary of the rest.
            self.refused.append(UNREAD)
            self.by.room = room
            return self._within(room, request)
        about = {
            "model": reply.model or self.by.client.model,
            "seconds": round(time.monotonic() - began, 3),
            "usage": [reply.usage.prompt, reply.usage.completion, reply.usage.cached],
            "cost": self.costs[-1],
        }
        accepted = self.conversation.accept(
            reply.as_message(), request, cut=reply.cut, about=about, later=self.later
        )
        if accepted.summary:
            self.taken += 1
            return self._next()
        self.refused.append(str(accepted.refusal))
        if accepted.request is None and request.aligned:
            # In the middle of a conversation some models go on with it; asked from outside they don't.
            self.cached = False
            return self._next()
        return accepted.request

    async def _reply(self, request: SummaryRequest) -> Reply:
        wish = ModelRequest(
            request.messages,
            tools=self.conversation.tools if request.aligned else (),
            purpose="summarize",
            session=self.conversation.session,
            max_output_tokens=request.max_output_tokens,
            schema=request.schema,
            patient=False,
        )
        with self.account.asking(self.by.client, wish, self.by.price) as paid:
            reply = await complete(self.by.client, wish)
            self.costs.append(paid(reply))
        return reply

    def _cut_to(self, request: SummaryRequest, reply: Reply) -> int | None:
        if not reply.of_whole_prompt:
            return None
        return cut_to(request.messages, reply.usage.prompt, self.by.client.counter)

    def _next(self) -> SummaryRequest | None:
        """The next request. Where the writer counts otherwise than the conversation does, it fits its window
        by its own count."""
        counter, room = self.by.client.counter, self.room
        same = counter.name == self.conversation.memory.counter.name
        for _ in range(MOST_TRIES):
            request = self.conversation.summary_request(room=room, cached=self.cached)
            if request is None or self.room is None or room is None or same:
                return request
            needed = sum(map(counter.message, request.messages)) + request.max_output_tokens
            if needed <= self.room:
                return request
            # By whole sources it shrinks in steps, so a little less may be the same again.
            room = max(min(room * self.room // needed, room * 9 // 10), 1)
        self.refused.append("room")
        return None

    def _within(self, room: int, request: SummaryRequest) -> SummaryRequest | None:
        """Instead of this request, one that fits so many tokens; None where none is smaller."""
        self.cached, self.room = False, room
        smaller = self._next()
        less = smaller and (request.aligned or len(smaller.sources) < len(request.sources))
        return smaller if less else None
