"""What a run has used and what it cost, against what it may: one sum for all who ask a model in it.

No request begins when what it is known to take already, its prompt, would pass a limit; what the reply adds
is known only afterwards, so a sum passes its limit by one reply at most. What is asked side by side counts
from its beginning. A request that broke off is counted with its prompt, towards the limits alone, since no
endpoint says what it took.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.chat.language import Language, say
from perdure.chat.tokens import Usage
from perdure.errors import Words
from perdure.models.client import ModelClient, ModelRequest, Reply

#: US dollars of a usage; None where the price isn't known.
Price = Callable[[Usage], float | None]
#: Takes what a call of a model took: purpose, usage, US dollars.
Keep = Callable[[str, Usage, float | None], None]
#: Why a request was left out, where it is one that can be.
LIMIT = "limit"

TOKEN_LIMIT: Words = (
    "the limit of {limit:,} tokens was reached: {used:,} are used, and the next request takes {next:,} and "
    "its answer; go on in the same session",
    "已达到 {limit:,} 个 token 的上限：已使用 {used:,} 个，下一次请求需要 {next:,} 个，另加回答；"
    "可以在同一会话中继续",
)
COST_LIMIT: Words = (
    "the limit of {limit} was reached: {used} is spent, and the next request costs {next} and its answer; "
    "go on in the same session",
    "已达到 {limit} 的费用上限：已花费 {used}，下一次请求需要 {next}，另加回答；可以在同一会话中继续",
)
UNKNOWN: Words = ("unknown", "未知")


class LimitReached(Exception):
    """A request would pass a limit, and was not sent: who asks ends in order, or does without."""

    def __init__(self, words: Words, limit: float, used: float | None, next: float | None) -> None:
        super().__init__(words[0])
        self._words, self._facts = words, {"limit": limit, "used": used, "next": next}

    def say(self, lang: Language) -> str:
        money = self._words is COST_LIMIT
        facts = {name: dollars(fact, lang) if money else fact for name, fact in self._facts.items()}
        return say(self._words, lang, **facts)


@dataclass
class Spending:
    """``max_tokens``: of all requests, prompts and replies together; ``max_cost``: US dollars. ``usages`` and
    ``costs`` hold what endpoints reported, by purpose; a cost is None where a part of it isn't known."""

    max_tokens: int | None = None
    max_cost: float | None = None
    usages: dict[str, Usage] = field(default_factory=dict)
    costs: dict[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        #: What counts towards the limits: all that was used, also where it wasn't reported.
        self._tokens, self._dollars = 0, 0.0
        #: Tokens and US dollars of the prompts of requests that are underway.
        self._underway: list[tuple[int, float]] = []

    @classmethod
    def recorded(cls, bodies: Iterable[Mapping[str, Any]]) -> Spending:
        """What the `usage` records of a journal add up to."""
        spending = cls()
        for body in bodies:
            # In older ones the numbers stand in the record itself, and in the prompt's place its digest.
            told = body.get("usage") or body
            numbers = (told.get(name) for name in ("prompt", "completion", "cached"))
            usage = Usage(*(each if isinstance(each, int) else 0 for each in numbers))
            spending.add(str(body.get("purpose", "think")), usage, body.get("cost"))
        return spending

    @property
    def usage(self) -> Usage:
        return sum(self.usages.values(), Usage())

    @property
    def cost(self) -> float | None:
        return total(self.costs.values())

    def allows(self, prompt: int, price: Price) -> bool:
        """A request with a prompt of so many tokens may begin."""
        return self._passed(prompt, self._known(prompt, price)) is None

    def add(self, purpose: str, usage: Usage, cost: float | None) -> None:
        """A call of a model is over, and this is what it took."""
        self.usages[purpose] = self.usages.get(purpose, Usage()) + usage
        self.costs[purpose] = total((self.costs.get(purpose, 0.0), cost))

    @contextmanager
    def underway(self, prompt: int, price: Price) -> Iterator[None]:
        """While a request is underway its prompt counts; where it breaks off, for ever. Raises
        `LimitReached` where it would pass a limit."""
        dollars = self._known(prompt, price)
        if reached := self._passed(prompt, dollars):
            raise reached
        mine = (prompt, dollars or 0.0)
        self._underway.append(mine)
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self.count(*mine)
            raise
        finally:
            self._underway.remove(mine)

    def count(self, tokens: int, dollars: float) -> None:
        """So much more counts towards the limits."""
        self._tokens += tokens
        self._dollars += dollars

    def _known(self, prompt: int, price: Price) -> float | None:
        """What a request costs already; not asked where no limit is set, since a table takes its time."""
        return 0.0 if self.max_cost is None else price(Usage(prompt))

    def _passed(self, prompt: int, dollars: float | None) -> LimitReached | None:
        """The limit that a request would pass."""
        tokens = self._tokens + sum(each for each, _ in self._underway)
        if self.max_tokens is not None and tokens + prompt > self.max_tokens:
            return LimitReached(TOKEN_LIMIT, self.max_tokens, tokens, prompt)
        if self.max_cost is None:
            return None
        spent = self._dollars + sum(each for _, each in self._underway)
        # A limit that can't be watched is kept by asking nothing.
        if dollars is None or spent + dollars > self.max_cost:
            return LimitReached(COST_LIMIT, self.max_cost, spent if math.isfinite(spent) else None, dollars)
        return None


@dataclass(frozen=True)
class Account:
    """The ``spending`` of a run for those who ask in one conversation; ``keep`` journals and tells each call,
    as soon as it is over."""

    spending: Spending = field(default_factory=Spending)
    keep: Keep = lambda purpose, usage, cost: None

    @contextmanager
    def asking(
        self, client: ModelClient, request: ModelRequest, price: Price, prompt: int | None = None
    ) -> Iterator[Callable[[Reply], float | None]]:
        """Around a request; what it hands out takes the reply, and says what it cost. ``prompt``: its tokens,
        where they are known. Raises `LimitReached` before it is sent."""
        counter = client.counter
        if prompt is None:
            prompt = sum(map(counter.message, request.messages)) + counter.tools(request.tools)

        def paid(reply: Reply) -> float | None:
            usage = reply.usage
            cost, counted = price(usage), usage
            if not usage.prompt:
                # Nothing was reported: by our own count, which is no price, unless it is for nothing.
                counted = Usage(prompt, usage.completion or counter.message(reply.as_message()))
                cost = 0.0 if price(counted) == 0 else None
            # A report that can't be, more cached than there was, counts all the same.
            dollars = cost if cost is not None else price(replace(counted, cached=0))
            self.spending.count(counted.total, math.inf if dollars is None else dollars)
            self.spending.add(request.purpose, usage, cost)
            self.keep(request.purpose, usage, cost)
            return cost

        with self.spending.underway(prompt, price):
            yield paid


def total(costs: Iterable[float | None]) -> float | None:
    """The sum in US dollars; None where a part isn't known."""
    known = tuple(costs)
    # Beyond what any table's prices tell apart there is only the noise of floats.
    return None if None in known else round(math.fsum(each or 0.0 for each in known), 12)


def dollars(cost: float | None, lang: Language) -> str:
    """An amount as people read it: `$12.30`, `$0.0123`, `$0.000047`, or that it isn't known."""
    if cost is None:
        return say(UNKNOWN, lang)
    if cost == 0:
        return "$0"
    if cost >= 1:
        return f"${cost:,.2f}"
    digits = max(4, 1 - math.floor(math.log10(cost)))
    return f"${cost:.{digits}f}"
