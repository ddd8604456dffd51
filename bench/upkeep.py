"""What does it cost, at each model call, to keep a conversation within its window?

    python bench/upkeep.py [--quick | --long] [--windows N ...] [--without-peers]

A call's upkeep: take the messages that came since the last one, give the prompt for the next. For
`Memory`, the published algorithm (`published.py`) and other libraries (`upkeep_peers.py`, where they are
installed), at 1k to 1M messages in the session, in turns in one run; beside them the floors, which only
look at the new messages. Median and mean: most calls only append, and what a compaction costs shows in the
mean. Then how long the first call on a loaded history takes; and, streamed from empty over up to 400 turns,
how many prompts a strict endpoint would refuse, or are over the budget. Tables and a plot go to the terminal
and to `bench/results/upkeep.md` and `upkeep.svg`.

What takes too long is stopped and marked, and isn't tried with more messages. `--quick`: a minute or two,
and, as with other windows or without peers, nothing is written. `--long`: hours on a busy machine, with
sessions of a million messages that were streamed, not loaded.
"""

from __future__ import annotations

import argparse
import gc
import platform
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from types import FrameType
from typing import Any

from perdure.chat.messages import Message
from perdure.chat.tokens import TokenCounter, most_tokens
from perdure.memory.memory import Memory
from plot import Series, chart
from published import ShortMemory
from sessions import session
from tokens import loaded
from upkeep_peers import COUNTER, NO_BUDGET, SUMMARY, Method, peers

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from scripted_endpoint import wrong_messages

RESULTS = Path(__file__).parent / "results"
OURS, PUBLISHED = "perdure Memory", "published algorithm"
FLOOR, BYTES = "floor: tokenise the new messages", "floor: sum the bytes of the new messages"
Makers = Mapping[str, Callable[[int], Method]]

NARROW = 8192
WINDOWS = (NARROW, 32_768, 131_072)
QUICK_WINDOWS = (NARROW, 131_072)
SIZES = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Effort:
    """How much is measured, in messages and seconds.

    ``peers_to``: the longest session that other libraries are tried with, at 8k and at wider windows.
    ``first``: a first call may take so long. In each of the ``rounds`` a method makes ``calls`` calls, or as
    many as fit ``slice``; ours always makes them all. ``checked``: for a method's prompts, from empty.
    ``streamed``: our sessions up to this length came message by message, longer ones are loaded and then
    make ``warm`` calls before they are measured, so that their notes are as full as they get.
    """

    sizes: tuple[int, ...]
    peers_to: tuple[int, int]
    first: float
    rounds: int
    calls: int
    slice: float
    checked: float
    streamed: int
    warm: int


DEFAULT = Effort(SIZES, (100_000, 10_000), 2.0, 5, 100, 0.15, 5.0, 1_000, 100)
QUICK = Effort((1_000, 10_000, 1_000_000), (1_000, 0), 1.0, 3, 30, 0.1, 0.7, 1_000, 30)
LONG = Effort(SIZES, (1_000_000, 1_000_000), 30.0, 10, 200, 1.0, 120.0, 1_000_000, 0)
#: Of a streamed session, the last messages, which are ordinary ones; before them are short ones.
ORDINARY = 3_000
TURNS = 400
#: Histories that ours loads for the median of its first call.
LOADS = 3


class TooSlow(BaseException):
    """Not an `Exception`: a library that catches all of these mustn't catch this one."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises `TooSlow` where it takes longer."""

    def ended(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ended)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- sessions -----------------------------------------------------------------------------------


def steps(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """What came since the last model call, for each call: an answer opens the next one's."""
    new: list[Message] = []
    for message in messages:
        if message["role"] == "assistant" and new:
            yield new
            new = []
        new.append(message)
    if new and new[-1]["role"] != "assistant":
        yield new


def endless(seed: int) -> Iterator[Message]:
    """Sessions one after the other as one; no two texts alike, and no call ids."""
    for number in count():
        for message in session(100, seed=seed * 100_000 + number):
            yield renamed(message, f"s{number}-")


def renamed(message: Message, prefix: str) -> Message:
    if message["role"] == "tool":
        return {**message, "tool_call_id": prefix + message["tool_call_id"]}
    if calls := message.get("tool_calls"):
        return {**message, "tool_calls": [{**each, "id": prefix + each["id"]} for each in calls]}
    return message


def short_ones() -> Iterator[Message]:
    for number in count():
        function = {"name": "order", "arguments": f'{{"number": {number}}}'}
        yield {"role": "user", "content": f"Look at order {number}, please."}
        call = {"id": f"o{number}", "type": "function", "function": function}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"o{number}", "content": f'{{"kg": {number % 97}}}'}
        yield {"role": "assistant", "content": f"Order {number} was sent."}


def histories(sizes: Sequence[int]) -> dict[int, list[Message]]:
    """A history of each size, in the middle of a conversation that goes on. The longest repeat the texts of
    the first 20,000 messages, so that a million fit into the main memory."""
    every = list(islice(endless(7), 20_000))
    made = {}
    for size in sizes:
        cycles = (renamed(each, f"c{at}-") for at in count() for each in every)
        made[size] = list(islice(cycles, size))
        while made[size][-1]["role"] != "user":
            made[size].pop()
    return made


# --- what is compared ---------------------------------------------------------------------------


class Wire:
    """A method that speaks chat-completions messages itself."""

    def ready(self, messages: Sequence[Message]) -> Sequence[Message]:
        return messages

    def sent(self, prompt: list[Message]) -> list[Message]:
        return prompt


class Ours(Wire):
    def __init__(self, window: int) -> None:
        self.memory = Memory(window, counter=COUNTER)

    def take(self, ready: Sequence[Message]) -> None:
        for message in ready:
            self.memory.append(message)

    def load(self, ready: Sequence[Message]) -> None:
        self.memory.load(ready)

    def prompt(self) -> list[Message]:
        return self.memory.prompt()


class Published(Wire):
    """The published algorithm, with a summariser that answers at once."""

    def __init__(self, budget: int, counter: TokenCounter = COUNTER) -> None:
        self.memory = ShortMemory(budget, counter, lambda _: SUMMARY)

    def take(self, ready: Sequence[Message]) -> None:
        for message in ready:
            self.memory.append(message)

    def prompt(self) -> list[Message]:
        return self.memory.prompt()


def with_tiktoken() -> dict[str, Callable[[int], Published]]:
    """The published algorithm as it is mostly met: the same counts, from a slower tokenizer; none where it
    isn't installed."""
    try:
        encode = loaded("tiktoken")
    except ImportError:
        return {}
    counter = replace(COUNTER, name="tiktoken", count=lambda text: len(encode(text)))
    return {f"{PUBLISHED}, tiktoken": lambda budget: Published(budget, counter)}


class Floor(Wire):
    """Looks at each new message once, and gives nothing."""

    def __init__(self, look: Callable[[Message], int]) -> None:
        self._look = look

    def take(self, ready: Sequence[Message]) -> None:
        for message in ready:
            self._look(message)

    def prompt(self) -> list[Message]:
        return []


def bytes_of(message: Message) -> int:
    """What a message's tokens can't exceed, known without a tokenizer."""
    calls = message.get("tool_calls") or ()
    said = most_tokens(message["content"] or "")
    return said + sum(most_tokens(each["function"]["arguments"]) for each in calls)


def budget_of(window: int) -> int:
    return Memory(window, counter=COUNTER).budget.tokens


# --- upkeep -------------------------------------------------------------------------------------


@dataclass
class Cell:
    """A method in a session of ``size`` messages. Seconds: ``first`` of the first call on the loaded history,
    ``took`` of each call after it. ``stopped``: why there are no more."""

    name: str
    size: int
    method: Any
    feed: Iterator[list[Message]]
    first: float | None = None
    took: list[float] = field(default_factory=list)
    stopped: str = ""

    def call(self, new: Sequence[Message]) -> float:
        """The seconds of upkeep for one model call."""
        ready = self.method.ready(new)
        began = time.perf_counter()
        self.method.take(ready)
        self.method.prompt()
        return time.perf_counter() - began

    def load(self, history: Sequence[Message], limit: float) -> None:
        ready = self.method.ready(history)
        take = getattr(self.method, "load", self.method.take)
        try:
            with within(limit):
                began = time.perf_counter()
                take(ready)
                self.method.prompt()
                self.first = time.perf_counter() - began
        except TooSlow:
            self.stopped = f"> {limit:g} s"

    def share(self, calls: int, seconds: float, limit: float) -> None:
        """Its share of a round: so many calls, or as many as fit the seconds."""
        spent = 0.0
        for new in islice(self.feed, calls):
            try:
                with within(limit):
                    self.took.append(self.call(new))
            except TooSlow:
                self.stopped = f"> {limit:g} s"
                return
            spent += self.took[-1]
            if spent > seconds:
                return

    @property
    def median(self) -> float:
        return statistics.median(self.took) * 1000

    @property
    def mean(self) -> float:
        return statistics.fmean(self.took) * 1000


@dataclass
class Bench:
    """Cells of one window, by method and size; each has texts of its own, so that none finds a tokenizer
    warmed by another."""

    window: int
    effort: Effort
    history: Mapping[int, list[Message]]
    cells: dict[tuple[str, int], Cell] = field(default_factory=dict)
    _seeds: Iterator[int] = field(default_factory=lambda: count(100))

    def cell(self, name: str, size: int, method: Any) -> Cell:
        made = Cell(name, size, method, steps(endless(next(self._seeds))))
        # The history ends with what a person asked; its answer opens the feed.
        next(made.feed)
        self.cells[name, size] = made
        return made

    def add_ours(self, size: int) -> None:
        firsts = []
        for _ in range(LOADS):
            cell = self.cell(OURS, size, Ours(self.window))
            cell.load(self.history[size], 60.0)
            firsts.append(cell.first or 0.0)
        if size <= self.effort.streamed:
            cell.method = Ours(self.window)
            self._stream(cell)
        else:
            for new in islice(cell.feed, self.effort.warm):
                cell.call(new)
        cell.first = statistics.median(firsts)

    def _stream(self, cell: Cell) -> None:
        """Take a session to its size, call by call."""
        sent = 0
        for feed, until in ((steps(short_ones()), cell.size - ORDINARY), (cell.feed, cell.size)):
            while sent < until:
                new = next(feed)
                cell.call(new)
                sent += len(new)

    def add(self, name: str, size: int, made: Callable[[int], Method]) -> Cell:
        cell = self.cell(name, size, made(budget_of(self.window)))
        cell.load(self.history[size], self.effort.first)
        return cell

    def add_published(self, name: str, size: int, made: Callable[[int], Published]) -> Cell:
        """Its first call on a long history may take minutes, the later ones don't depend on its length: so
        where that is too slow, it begins with what fits."""
        cell = self.add(name, size, made)
        if cell.stopped:
            budget = budget_of(self.window)
            cell.stopped, cell.method = "", made(budget)
            tail: list[Message] = []
            for message in reversed(self.history[size]):
                budget -= COUNTER.message(message)
                if budget < 0:
                    break
                tail.insert(0, message)
            while tail[0]["role"] == "tool":
                del tail[0]
            cell.call(tail)
        return cell

    def fill(self, others: Makers) -> None:
        """All cells, loaded; a method that was stopped isn't tried with more messages."""
        smallest = self.effort.sizes[0]
        self.cell(FLOOR, smallest, Floor(COUNTER.message))
        self.cell(BYTES, smallest, Floor(bytes_of))
        for size in self.effort.sizes:
            self.add_ours(size)
        for name, published in {PUBLISHED: Published, **with_tiktoken()}.items():
            for size in self.effort.sizes:
                if self.add_published(name, size, published).first is None:
                    break
        for name, made in others.items():
            for size in self.effort.sizes:
                if size > self.effort.peers_to[self.window > NARROW] or self.add(name, size, made).stopped:
                    break

    def race(self) -> None:
        """Rounds in which each cell has its share, so that a busy moment hits all alike."""
        gc.collect()
        gc.freeze()
        for _ in range(self.effort.rounds):
            for cell in self.cells.values():
                if not cell.stopped:
                    seconds = 60.0 if cell.name in {OURS, FLOOR, BYTES} else self.effort.slice
                    cell.share(self.effort.calls, seconds, self.effort.first)


# --- are the prompts any good? ------------------------------------------------------------------


@dataclass
class Checked:
    """What came of a method's prompts, from empty. ``why``: the refusals, by kind."""

    prompts: int = 0
    refused: int = 0
    over: int = 0
    why: Counter[str] = field(default_factory=Counter)
    ended: str = ""


class Ruler:
    """Tokens of prompts; a message that stands in many is counted once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, int]] = {}

    def tokens(self, prompt: Iterable[Message]) -> int:
        return sum(map(self._of, prompt))

    def _of(self, message: Message) -> int:
        if id(message) not in self._known:
            # The message is kept too, so that its identity isn't given to another.
            self._known[id(message)] = (message, COUNTER.message(message))
        return self._known[id(message)][1]


def checked(method: Any, budget: int, seconds: float) -> Checked:
    """Stream a session of `TURNS` turns from empty, and look at each prompt as a strict endpoint does."""
    found, ruler, spent = Checked(), Ruler(), 0.0
    for new in steps(session(TURNS, seed=3)):
        ready = method.ready(new)
        began = time.perf_counter()
        try:
            with within(seconds):
                method.take(ready)
                prompt = method.prompt()
        except TooSlow:
            found.ended = f"a call took over {seconds:g} s"
            break
        except Exception as error:  # a library's own end; it is told, with what came before
            found.ended = f"{type(error).__name__}: {error}"[:80]
            break
        spent += time.perf_counter() - began
        sent = method.sent(prompt)
        found.prompts += 1
        if wrong := wrong_messages({"messages": sent}):
            found.refused += 1
            found.why[kind_of_refusal(wrong)] += 1
        found.over += ruler.tokens(sent) > budget
        if spent > seconds:
            found.ended = f"stopped after {seconds:g} s"
            break
    return found


def kind_of_refusal(wrong: str) -> str:
    if "too short - 'messages'" in wrong:
        return "empty"
    if "response to a preceding" in wrong or "not found in 'tool_calls'" in wrong:
        return "result without its call"
    return "call without its result" if "tool_call" in wrong else "content"


# --- report -------------------------------------------------------------------------------------


def milliseconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def as_size(size: int) -> str:
    return f"{size // 1_000_000}M" if size >= 1_000_000 else f"{size // 1_000}k"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def names(bench: Bench) -> list[str]:
    return list(dict.fromkeys(name for name, _ in bench.cells))


def upkeep_table(bench: Bench) -> list[str]:
    def shown(cell: Cell | None) -> str:
        if cell is None:
            return ""
        if not cell.took:
            return cell.stopped
        few = f", {len(cell.took)} calls" if len(cell.took) < 20 else ""
        return f"{milliseconds(cell.median)} ({milliseconds(cell.mean)}{few})"

    sizes = bench.effort.sizes
    rows = [[name, *(shown(bench.cells.get((name, size))) for size in sizes)] for name in names(bench)]
    return [
        f"## Window {bench.window}: ms a call, median (mean)",
        "",
        *table(["messages in the session", *map(as_size, sizes)], rows),
    ]


def first_table(bench: Bench) -> list[str]:
    def shown(cell: Cell | None) -> str:
        if cell is None:
            return ""
        return (
            milliseconds(cell.first * 1000) if cell.first else cell.stopped or f"> {bench.effort.first:g} s"
        )

    sizes = bench.effort.sizes
    rows = [
        [name, *(shown(bench.cells.get((name, size))) for size in sizes)]
        for name in names(bench)
        if name not in {FLOOR, BYTES}
    ]
    return [
        f"## Window {bench.window}: ms of the first call on a loaded history",
        "",
        *table(["messages in the history", *map(as_size, sizes)], rows),
    ]


def checked_table(found: Mapping[str, Checked]) -> list[str]:
    rows = []
    for name, each in found.items():
        why = ", ".join(f"{kind} {number}" for kind, number in each.why.most_common())
        over = f"{each.over} (it knows no budget)" if name in NO_BUDGET else str(each.over)
        notes = "; ".join(part for part in (why, each.ended) if part)
        rows.append([name, str(each.prompts), str(each.refused), over, notes])
    return [
        f"## Prompts, streamed from empty over up to {TURNS} turns",
        "",
        *table(["", "prompts", "refused", "over budget", ""], rows),
    ]


def verdicts(benches: Sequence[Bench], found: Mapping[str, Checked]) -> list[str]:
    """The aims of this measurement, by the medians, with the means beside them."""
    rows = []

    def row(aim: str, median: float, mean: float, limit: float, *, least: bool = False) -> None:
        met = median >= limit if least else median <= limit
        rows.append([aim, f"{median:.2f}", f"{mean:.2f}", "met" if met else "MISSED"])

    ours = [each for name, each in found.items() if name.startswith(OURS)]
    bad = sum(each.refused + each.over for each in ours)
    aim = f"refused or over of our {sum(each.prompts for each in ours)} prompts: 0"
    rows.append([aim, str(bad), "", "MISSED" if bad else "met"])
    for bench in benches:
        smallest, *_, largest = bench.effort.sizes
        of, window = bench.cells, bench.window
        small, large, floor = of[OURS, smallest], of[OURS, largest], of[FLOOR, smallest]
        aim = f"{window}: {as_size(largest)} / {as_size(smallest)} messages, at most 1.2"
        row(aim, large.median / small.median, large.mean / small.mean, 1.2)
        aim = f"{window}: ours / tokenising the new messages, at most 2"
        row(aim, small.median / floor.median, small.mean / floor.mean, 2.0)
        least = {NARROW: 40.0, WINDOWS[-1]: 500.0}.get(window, 40.0)
        for name in dict.fromkeys(name for name, _ in of if name.startswith(PUBLISHED)):
            peer = of[name, smallest]
            if not peer.took:
                continue
            aim = f"{window}: {name} / ours, at least {least:g}"
            row(aim, peer.median / small.median, peer.mean / small.mean, least, least=True)
        first = [(of[OURS, size].first or 0) for size in bench.effort.sizes]
        second = as_size(bench.effort.sizes[1])
        aim = f"{window}: first call on {as_size(largest)} / {second} messages, at most 1.5"
        row(aim, first[-1] / first[1], first[-1] / first[1], 1.5)
    return ["## Aims, judged by the medians", "", *table(["", "by medians", "by means", ""], rows)]


def plotted(bench: Bench) -> str:
    """Milliseconds a call against messages; of ours the mean too, since it holds the compactions."""
    series = []
    for name in names(bench):
        cells = [c for (n, _), c in bench.cells.items() if n == name and c.took]
        if cells:
            series.append(Series(name, [(cell.size, cell.median) for cell in cells]))
        if name == OURS:
            series.append(Series(f"{OURS}, mean", [(cell.size, cell.mean) for cell in cells]))
    return chart(
        series,
        title=f"Upkeep of a call, window {bench.window}, medians",
        across="messages in the session",
        up="ms",
    )


def said(lines: Sequence[str]) -> Sequence[str]:
    print("\n".join(lines), flush=True)
    return lines


def measured(window: int, effort: Effort, history: Mapping[int, list[Message]], others: Makers) -> Bench:
    bench = Bench(window, effort, history)
    bench.fill(others)
    bench.race()
    return bench


def all_checked(effort: Effort, windows: Sequence[int], others: Makers) -> dict[str, Checked]:
    found = {}
    for window in windows:
        budget = budget_of(window)
        found[f"{OURS}, {window}"] = checked(Ours(window), budget, 10 * effort.checked)
    budget = budget_of(windows[0])
    for name, made in {PUBLISHED: Published, **others}.items():
        found[f"{name}, {windows[0]}"] = checked(made(budget), budget, effort.checked)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="a minute")
    how.add_argument("--long", action="store_true", help="sessions of a million messages, streamed")
    parser.add_argument("--windows", type=int, nargs="+", help="by default all three, with --quick two")
    parser.add_argument("--without-peers", action="store_true")
    asked = parser.parse_args()
    effort = QUICK if asked.quick else LONG if asked.long else DEFAULT
    windows = asked.windows or (QUICK_WINDOWS if asked.quick else WINDOWS)
    others, versions = ({}, []) if asked.without_peers else peers()
    lines = list(said(["# Upkeep of a conversation", "", *about(effort, versions)]))
    found = all_checked(effort, windows, others)
    lines += said(checked_table(found))
    history = histories(effort.sizes)
    # What is loaded stays; looking through it again and again would be counted as upkeep.
    gc.collect()
    gc.freeze()
    benches = []
    for window in windows:
        benches.append(measured(window, effort, history, others))
        lines += said([*upkeep_table(benches[-1]), *first_table(benches[-1])])
    lines += said(verdicts(benches, found))
    if asked.quick or asked.windows or not others:
        return
    (RESULTS / "upkeep.md").write_text("\n".join(lines), encoding="utf-8")
    (RESULTS / "upkeep.svg").write_text(plotted(benches[0]), encoding="utf-8")


def about(effort: Effort, versions: Sequence[str]) -> list[str]:
    ours = "were streamed to their length, call by call,"
    if effort.streamed < SIZES[-1]:
        ours = f"of over {as_size(effort.streamed)} messages were loaded, and made {effort.warm} calls,"
    return [
        f"Python {platform.python_version()}, {', '.join(versions) or 'no peers installed'}.",
        "",
        "A call: what came since the last model call is taken, and the prompt for the next one is given.",
        "All count in o200k; who lets somebody count for it got our counter, litellm has its own.",
        "Summaries come at once and cost nothing.",
        f"Our sessions {ours} before anything was measured.",
        "Where nothing stands it wasn't tried: it was too slow with fewer messages, or would take too long.",
        "",
    ]


if __name__ == "__main__":
    main()
