"""How much of each prompt repeats the one before, and what does a call cost therefore?

    python bench/prefix.py [--windows N ...] [--turns N] [--seed N]     about two minutes
    python bench/prefix.py --embedded [--calls N]                       about an hour, where others work too

A session of 400 turns (`sessions.py`) goes through `Memory` and through the published algorithm
(`published.py`), same messages, same budget. Before each model call the prompt is laid beside the last one:
as many messages as are equal count as cached, then the characters that the first different one has in
common. Price: a prompt token 1, a cached one 0.1, a token of a summary's answer 4. The summaries are
scripted; where ours asks for one, it is with the conversation's own prompt where that fits, and otherwise
from outside, as the agent does with an endpoint that caches. Nothing in this part depends on the machine.

`--embedded` is the same for real: a session of 60 calls whose tools show a quarter as much, at a window of
4,096 tokens, through the embedded model, which says what it had cached. Each method has a server of its
own, and they make their calls by turns. Ours with notes by code alone, as the agent does with this model,
and with its summaries; the published algorithm with its summaries. A reply is at most 16 tokens and isn't
looked at. Nobody tokenises a text twice here, so the time is that of the model.

Tables and a plot go to the terminal and to `bench/results/prefix.md` and `prefix.svg`; what `--embedded`
found goes to `prefix-embedded.md` and `prefix-embedded.svg`.
"""

from __future__ import annotations

import argparse
import functools
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from perdure.agent.summarizing import FAILURES, MOST_REQUESTS, REST
from perdure.chat.messages import Message, text_of
from perdure.chat.tokens import TextCounter, Usage, counter_for
from perdure.memory.gist import SummaryRequest
from perdure.memory.memory import Memory
from plot import Series, bars, chart
from published import ShortMemory
from sessions import session

RESULTS = Path(__file__).parent / "results"
WINDOWS = (8192, 32_768, 131_072)
#: Per cent cached: what is aimed at, and what the published algorithm was first measured with.
AIMS, FIRST_MEASURED = (
    dict(zip(WINDOWS, (84, 94, 98), strict=True)),
    dict(zip(WINDOWS, (54.4, 46.1, 50.4), strict=True)),
)
#: Of a prompt token's price: a cached one, and a token that a model wrote.
CACHED, WRITTEN = 0.1, 4
SYSTEM = "You are a coding agent. Use the tools, change only what you were asked to, and say what you did."
#: Tokens of a scripted summary for the published algorithm, which names no limit of its own.
SCRIPTED = 300

OURS, OURS_SUMMARISED, PUBLISHED = "perdure, notes by code", "perdure, summaries", "published algorithm"
NARROW, CALLS, SMALLER, REPLY = 4096, 60, 0.25, 16


def remembering(counter: TextCounter) -> TextCounter:
    """The same counts; a text that comes again isn't tokenised again."""
    return replace(counter, count=functools.cache(counter.count))


def steps(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """What came since the last model call, for each call: an answer opens the next one's."""
    new: list[Message] = []
    for message in messages:
        if message["role"] == "assistant":
            yield new
            new = []
        new.append(message)


# --- what is compared ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One request for a summary: its prompt, and its answer where that is known."""

    messages: Sequence[Message]
    tokens: int
    literals: Sequence[str] = ()


Write = Callable[[Asked], str]


class Method(Protocol):
    """A memory in use. ``compactions``: how often something left the window."""

    compactions: int

    def prompt(self, new: Sequence[Message]) -> list[Message]:
        """Take what came, and give the prompt of the next call; asks for summaries in between."""
        ...


class Ours:
    """``write``: writes summaries; without it, code does."""

    def __init__(
        self, window: int, counter: TextCounter, write: Write | None, low: float | None = None
    ) -> None:
        self.memory = Memory(
            window, counter=counter, system=SYSTEM, summarised=write is not None, low_water=low
        )
        self.compactions = 0
        self.failed, self.since = 0, 0
        self._write = write

    def prompt(self, new: Sequence[Message]) -> list[Message]:
        for message in new:
            self.memory.append(message)
        trimmed = self.memory.plan()
        if trimmed:
            self.memory.apply(trimmed)
            self.compactions += 1
            self.since += 1
            if self._write and (self.failed < FAILURES or self.since > REST):
                self._summarise(self._write)
        return self.memory.messages()

    def _summarise(self, write: Write) -> None:
        """As `perdure.agent.summarizing` does it: with the conversation's prompt first, else from outside."""
        cached, taken = True, False
        request = self.memory.summary_request(cached=cached)
        for _ in range(MOST_REQUESTS):
            if request is None:
                break
            accepted = self.memory.accept(write(asked_of(request)), request)
            taken = taken or accepted.summary is not None
            if accepted.summary is None and not request.aligned:
                request = accepted.request
                continue
            cached = cached and accepted.summary is not None
            request = self.memory.summary_request(cached=cached)
        self.failed, self.since = (0, self.since) if taken else (self.failed + 1, 0)


def asked_of(request: SummaryRequest) -> Asked:
    return Asked(request.messages, request.limit, request.literals)


class Published:
    def __init__(self, window: int, counter: TextCounter, write: Write) -> None:
        budget = Memory(window, counter=counter).budget.tokens
        self.memory = ShortMemory(
            budget, counter, lambda messages: write(Asked(messages, SCRIPTED)), system=SYSTEM
        )

    @property
    def compactions(self) -> int:
        return self.memory.compactions

    def prompt(self, new: Sequence[Message]) -> list[Message]:
        for message in new:
            self.memory.append(message)
        return self.memory.prompt()


# --- what repeats -------------------------------------------------------------------------------


@dataclass
class Bill:
    """Tokens of requests: all, those that repeat an earlier request, those written."""

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    written: int = 0

    @property
    def share(self) -> float:
        return self.cached / self.tokens if self.tokens else 0.0

    @property
    def price(self) -> float:
        return self.tokens - self.cached + CACHED * self.cached + WRITTEN * self.written


@dataclass
class Meter:
    """Lays each request beside those before it, as an endpoint's cache of prefixes does."""

    counter: TextCounter
    budget: int
    calls: Bill = field(default_factory=Bill)
    summaries: Bill = field(default_factory=Bill)
    over: int = 0
    #: What wasn't cached: what came since the last call, and notes or summary written anew; the rest is what
    #: moved behind them.
    new: int = 0
    notes: int = 0
    _prompt: Sequence[Message] = ()
    _summary: Sequence[Message] = ()

    def call(self, prompt: Sequence[Message], new: Sequence[Message]) -> None:
        cached, tokens = self._cached(prompt, self._prompt), self._tokens(prompt)
        self._add(self.calls, tokens, cached)
        self.over += tokens > self.budget
        came = min(self._tokens(new), tokens - cached)
        self.new += came
        # Notes or a summary stand right behind the system prompt.
        self.notes += min(max(self._tokens(prompt[:2]) - cached, 0), tokens - cached - came)
        self._prompt = prompt

    def summary(self, asked: Asked) -> str:
        """The answer to a request for a summary."""
        cached = max(self._cached(asked.messages, known) for known in (self._prompt, self._summary))
        reply = scripted(asked, self.counter)
        self._add(self.summaries, self._tokens(asked.messages), cached)
        self.summaries.written += self.counter.text(reply)
        self._summary = asked.messages
        return reply

    def _add(self, bill: Bill, tokens: int, cached: int) -> None:
        bill.requests += 1
        bill.tokens += tokens
        bill.cached += cached

    def _tokens(self, messages: Sequence[Message]) -> int:
        return sum(map(self.counter.message, messages))

    def _cached(self, messages: Sequence[Message], before: Sequence[Message]) -> int:
        same = 0
        for one, other in zip(messages, before, strict=False):
            if one != other:
                break
            same += 1
        tokens = self._tokens(messages[:same])
        if same < min(len(messages), len(before)) and messages[same]["role"] == before[same]["role"]:
            tokens += self.counter.count(beginning(text_of(messages[same]), text_of(before[same])))
        return tokens


def beginning(one: str, other: str) -> str:
    """What two texts begin with."""
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return one[: min(len(one), len(other)) if length is None else length]


def scripted(asked: Asked, counter: TextCounter) -> str:
    """A summary of about the length that is wished for: the literals that it is judged by, then some of
    what was said last."""
    lines = [f"- {literal} was part of it." for literal in asked.literals]
    said = " ".join(text_of(asked.messages[-1] if len(asked.messages) == 2 else asked.messages[-2]).split())
    room = asked.tokens * 3 // 4 - counter.count("\n".join(lines))
    for at in range(max(len(said) - 100, 0), -1, -100):
        line = f"- Then it was about this: {said[at : at + 100]}"
        room -= counter.count(line)
        if room < 0:
            break
        lines.append(line)
    return "\n".join(lines)


@dataclass
class Ran:
    """A method's whole session."""

    name: str
    window: int
    compactions: int
    meter: Meter

    @property
    def price(self) -> float:
        """Of a call, without the summaries."""
        return self.meter.calls.price / self.meter.calls.requests

    @property
    def whole_price(self) -> float:
        return self.price + self.meter.summaries.price / self.meter.calls.requests


def ran(name: str, window: int, counter: TextCounter, messages: Sequence[Message], low: float | None) -> Ran:
    meter = Meter(counter, Memory(window, counter=counter).budget.tokens)
    method: Method
    if name == PUBLISHED:
        method = Published(window, counter, meter.summary)
    else:
        method = Ours(window, counter, meter.summary if name == OURS_SUMMARISED else None, low)
    for new in steps(messages):
        meter.call(method.prompt(new), new)
    return Ran(name, window, method.compactions, meter)


# --- for real -----------------------------------------------------------------------------------


@dataclass
class Real:
    """One method with the embedded model. Seconds and usage of its calls, and of its summaries."""

    name: str
    post: Callable[..., Any]
    method: Method | None = None
    took: list[float] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    summaries: int = 0
    summarising: float = 0.0
    summary_usage: Usage = field(default_factory=Usage)

    def call(self, new: Sequence[Message]) -> None:
        assert self.method
        began = time.perf_counter()
        _, usage = self._reply(self.method.prompt(new), REPLY)
        self.took.append(time.perf_counter() - began)
        self.usage += usage

    def summary(self, asked: Asked) -> str:
        """Written by the model."""
        self.summaries += 1
        began = time.perf_counter()
        text, usage = self._reply(asked.messages, 2 * asked.tokens)
        self.summarising += time.perf_counter() - began
        self.summary_usage += usage
        return text

    def _reply(self, messages: Sequence[Message], most: int) -> tuple[str, Usage]:
        from perdure.models.small import as_plain_chat

        body = {"messages": as_plain_chat(messages), "max_tokens": most, "temperature": 0.0}
        answer = self.post("/v1/chat/completions", json={**body, "repeat_penalty": 1.1}).raise_for_status()
        found = answer.json()
        used = found["usage"]
        cached = (used.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        usage = Usage(used["prompt_tokens"], used["completion_tokens"], cached)
        return found["choices"][0]["message"]["content"] or "", usage


def really(calls: int, seed: int) -> list[Real]:
    """All methods through the same session, call by call by turns."""
    import httpx2

    from perdure.models.embedded import EmbeddedServer

    runs: list[Real] = []
    with ExitStack() as stack:
        for name in (OURS, OURS_SUMMARISED, PUBLISHED):
            server = EmbeddedServer()
            stack.callback(server.stop)
            headers = {"Authorization": f"Bearer {server.api_key}"}
            address = server.base_url.removesuffix("/v1")
            client = httpx2.Client(base_url=address, headers=headers, trust_env=False, timeout=600.0)
            stack.enter_context(client)
            real = Real(name, client.post)
            counter = remembering(server.counter)
            if name == PUBLISHED:
                real.method = Published(NARROW, counter, real.summary)
            else:
                real.method = Ours(NARROW, counter, real.summary if name == OURS_SUMMARISED else None)
            runs.append(real)
        for number, new in enumerate(islice(steps(session(calls, seed, size=SMALLER)), calls)):
            for real in runs:
                real.call(new)
            print(number + 1, *(f"{sum(real.took):7.1f} s" for real in runs), flush=True)
    return runs


# --- report -------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)]


def report(runs: Sequence[Ran], about: str) -> list[str]:
    lines = [
        "# Stable prefix and price",
        "",
        f"Python {platform.python_version()}; o200k; {about}.",
        "",
        "Cached: tokens that repeat the beginning of the prompt before. Not cached: what came since the last",
        "call; notes or summary written anew; what moved behind them. Price: in tokens a model call, a",
        f"cached one at {CACHED:g}, a token of a summary's answer at {WRITTEN}.",
        "",
    ]
    head = ["", "cached", "new", "notes", "moved", "compactions", "tokens", "price", "summaries"]
    head += ["their price", "both", "over budget"]
    for window in dict.fromkeys(run.window for run in runs):
        rows = []
        for run in (each for each in runs if each.window == window):
            calls, summaries = run.meter.calls, run.meter.summaries
            new, notes = run.meter.new / calls.tokens, run.meter.notes / calls.tokens
            apart = f"{summaries.requests} ({summaries.share:.0%} cached)" if summaries.requests else "0"
            rows.append(
                [
                    run.name,
                    *(f"{share:.1%}" for share in (calls.share, new, notes, 1 - calls.share - new - notes)),
                    str(run.compactions),
                    f"{calls.tokens / calls.requests:.0f}",
                    f"{run.price:.0f}",
                    apart,
                    f"{summaries.price / calls.requests:.0f}",
                    f"{run.whole_price:.0f}",
                    str(run.meter.over),
                ]
            )
        lines += [f"## Window {window}", "", *table(head, rows), ""]
    return [*lines, *verdicts(runs)]


def verdicts(runs: Sequence[Ran]) -> list[str]:
    by = {(run.window, run.name): run for run in runs}
    rows = []
    for window in dict.fromkeys(run.window for run in runs):
        theirs = by[window, PUBLISHED]
        for name in (OURS, OURS_SUMMARISED):
            ours = by[window, name]
            share, aim = 100 * ours.meter.calls.share, AIMS.get(window)
            rows.append(
                [
                    f"{name}, {window}",
                    f"at least {aim}%" if aim else "",
                    f"{share:.1f}%",
                    "" if aim is None else "met" if share >= aim else "MISSED",
                    f"{theirs.price / ours.price:.1f}",
                    f"{theirs.whole_price / ours.whole_price:.1f}",
                ]
            )
    first = ", ".join(f"{share}% at {window}" for window, share in FIRST_MEASURED.items())
    head = ["", "aim", "cached", "", "published algorithm's price / ours", "with the summaries"]
    note = f"The published algorithm was first measured with {first} on generated sessions of another hand."
    return ["## Aims", "", *table(head, rows), "", note, ""]


def real_report(runs: Sequence[Real], calls: int) -> list[str]:
    rows = [
        [
            run.name,
            f"{sum(run.took):.0f} s",
            f"{sorted(run.took)[len(run.took) // 2]:.2f} s",
            f"{max(run.took):.1f} s",
            f"{run.usage.cached / run.usage.prompt:.1%}",
            str(run.method.compactions if run.method else 0),
            f"{run.usage.prompt / len(run.took):.0f}",
            f"{run.summaries} in {run.summarising:.0f} s",
        ]
        for run in runs
    ]
    head = ["", "wall time", "median call", "longest", "cached", "compactions", "prompt tokens", "summaries"]
    times = {run.name: sum(run.took) for run in runs}
    calls_alone = {run.name: sum(run.took) - run.summarising for run in runs}
    return [
        f"# {calls} calls of the embedded model at a window of {NARROW}",
        "",
        f"Python {platform.python_version()}; tools show {SMALLER:g} of what they do in the other sessions; "
        f"replies of at most {REPLY} tokens. Cached and prompt tokens as the model's server reports them.",
        "",
        *table(head, rows),
        "",
        f"Published algorithm / ours, wall time: {times[PUBLISHED] / times[OURS]:.1f}; both with summaries "
        f"by the model: {times[PUBLISHED] / times[OURS_SUMMARISED]:.1f}; without the time of the summaries: "
        f"{calls_alone[PUBLISHED] / calls_alone[OURS]:.1f}.",
        "",
    ]


def real_plot(runs: Sequence[Real]) -> str:
    series = []
    for run in runs:
        total, points = 0.0, []
        for number, seconds in enumerate(run.took, 1):
            total += seconds
            points.append((float(number), total))
        series.append(Series(run.name, points))
    return chart(series, title=f"Embedded model, window {NARROW}", across="model calls", up="seconds so far")


def written(name: str, lines: Sequence[str], picture: str) -> None:
    print("\n".join(lines), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")
    (RESULTS / f"{name}.svg").write_text(picture, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--low-water", type=float, help="a fixed one for ours; nothing is written")
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--calls", type=int, default=CALLS, help="with --embedded")
    asked = parser.parse_args()
    if asked.embedded:
        real = really(asked.calls, asked.seed)
        written("prefix-embedded", real_report(real, asked.calls), real_plot(real))
        return
    counter = remembering(counter_for("o200k_base"))
    messages = list(session(asked.turns, asked.seed))
    runs = []
    for window in asked.windows:
        for name in (OURS, OURS_SUMMARISED, PUBLISHED):
            began = time.perf_counter()
            runs.append(ran(name, window, counter, messages, asked.low_water))
            run = runs[-1]
            seconds = time.perf_counter() - began
            print(
                f"{name}, {window}: {run.meter.calls.share:.1%} cached, {run.compactions} compactions,",
                f"price {run.price:.0f} / {run.whole_price:.0f}, in {seconds:.0f} s",
                flush=True,
            )
    if asked.low_water:
        return
    calls = runs[0].meter.calls.requests
    about = f"{asked.turns} turns, {calls} model calls, seed {asked.seed}"
    groups = {
        str(window): {run.name: 100 * run.meter.calls.share for run in runs if run.window == window}
        for window in asked.windows
    }
    title = "Prompt tokens that repeat the prompt before"
    written("prefix", report(runs, about), bars(groups, title=title, across="window", up="%", most=100))


if __name__ == "__main__":
    main()
