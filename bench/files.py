"""Does the prompt still hold what a coding agent's next call needs?

    python bench/files.py [--sessions N] [--lost] [WINDOW ...]

Sessions of a coding agent over the source of Python's standard library (`files_session.py` says how they
are made and what in them is real), in English and Chinese by turns, replayed through `Memory` and, in the
same run, through a sliding window and through one over masked results (`carried.py` says what is counted).

Half of the packages may be looked at: `--lost` says of them what our prompts lose, and why. The other
half is held out and only reported on. Sessions depend on the library's version, so figures of different
versions of Python are not the same.
"""

from __future__ import annotations

import argparse
import json
import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from carried import MEMORY, METHODS, SLIDING, Call, replay, spoken
from files_session import Session
from files_source import HELD_OUT, SHOWN, Source
from perdure.chat.language import Language
from perdure.chat.messages import Entry, Message, kind_of
from perdure.chat.tokens import counter_for
from perdure.memory.literals import literals_of, shape_of
from plot import bars

WINDOWS = (2048, 4096, 8192)
COUNTER = counter_for("o200k_base")
LANGUAGES: tuple[Language, Language] = ("en", "zh")
RESULTS = Path(__file__).parent / "results"
DISTANCES, TOKENS = (2, 5, 10, 20, 40), (3, 8, 16, 32)


def sessions(packages: tuple[str, ...], number: int) -> Iterator[list[Message]]:
    """So many sessions, the packages by turns."""
    source = Source.of(packages)
    for index in range(number):
        package, seed = packages[index % len(packages)], index
        yield Session(source, package, seed, LANGUAGES[index // len(packages) % 2]).written()


@dataclass(frozen=True)
class Need:
    """A string that a call needs, and how it stands in the history. ``rounds``: since its last mention;
    ``known``: some message before has it as an exact literal for our ledger."""

    call: Call
    literal: str
    argument: str
    brought_by: str
    rounds: int
    known: bool


def needs(messages: Sequence[Message], calls: Sequence[Call]) -> Iterator[Need]:
    texts = [spoken(message) for message in messages]
    rounds = [at for at, message in enumerate(messages) if message.get("tool_calls")]
    literals = [
        frozenset(literal for literal, _ in literals_of(Entry(at, kind_of(message), message, 0)))
        for at, message in enumerate(messages)
    ]
    for call in calls:
        arguments = json.loads(call.function["arguments"])
        for literal in call.needed:
            argument = next(n for n, v in arguments.items() if v == literal or literal in v)
            at = [i for i in range(call.at) if literal in texts[i]]
            roles = {messages[i]["role"] for i in at}
            who = next(role for role in ("user", "assistant", "tool") if role in roles)
            since = bisect_left(rounds, call.at) - bisect_left(rounds, at[-1] + 1) + 1
            yield Need(call, literal, argument, who, since, any(literal in literals[i] for i in at))


def held(calls: Sequence[Call], method: str) -> str:
    return f"{sum(not call.lost[method] for call in calls) / len(calls):.1%}"


def table(title: str, replayed: dict[int, list[Call]]) -> None:
    print(f"\n{title}\nwindow  calls  needing  {'  '.join(METHODS)}  prompts over budget")
    for window, calls in replayed.items():
        shares = "  ".join(f"{held(calls, method):>{len(method)}}" for method in METHODS)
        needing, over = sum(bool(call.needed) for call in calls), sum(call.over for call in calls)
        print(f"{window:6} {len(calls):6} {needing:8}  {shares} {over:20}")


def bucket(value: int, edges: tuple[int, ...]) -> str:
    index = bisect_left(edges, value)
    first = edges[index - 1] + 1 if index else 1
    return f"{first:3} to {edges[index]}" if index < len(edges) else f"{first:3} and more"


BY: dict[str, Callable[[Need], str]] = {
    "argument": lambda need: f"{need.call.function['name']}: {need.argument}",
    "shape, to our ledger": lambda need: (
        f"{shape_of(need.literal)}{'' if need.known else ', in no message as such'}"
    ),
    "brought by": lambda need: need.brought_by,
    "rounds since its last mention": lambda need: bucket(need.rounds, DISTANCES),
    "tokens": lambda need: bucket(COUNTER.text(need.literal), TOKENS),
}


def lost(found: dict[int, list[Need]]) -> None:
    """Of the strings needed, the shares lost, ours and the sliding window's, in several divisions."""
    first = next(iter(found.values()))
    for title, of in BY.items():
        heads = "".join(f"{f'{window}: ours':>13} sliding" for window in found)
        print(f"\n{title:40} needed{heads}")
        for group, number in sorted(Counter(map(of, first)).items()):
            shares = ""
            for each in found.values():
                inside = [need for need in each if of(need) == group]
                for method, width in ((MEMORY, 13), (SLIDING, 8)):
                    away = sum(need.literal in need.call.lost[method] for need in inside)
                    shares += f"{away / number:{width}.1%}"
            print(f"{group:40} {number:6}{shares}")
    for window, every in found.items():
        unheld = [need for need in every if need.literal in need.call.lost[MEMORY]]
        print(f"\nlost at {window}: {len(unheld)}; some of them:")
        for need in unheld[:: max(len(unheld) // 20, 1)]:
            said = f"{need.rounds:3} rounds, {need.brought_by:9} {need.literal[:60]!r}"
            print(f"  {BY['argument'](need):24} {said}")


def draw(replayed: dict[int, list[Call]]) -> None:
    """The table of the packages held out, as a picture."""
    groups = {
        f"{window:,}": {
            method: 100
            * sum(not call.lost[method] for call in calls if call.needed)
            / sum(map(needing, calls))
            for method in METHODS
        }
        for window, calls in replayed.items()
    }
    RESULTS.mkdir(exist_ok=True)
    title = "Calls whose every argument stands in the prompt, packages held out"
    picture = bars(groups, title=title, across="window, tokens", up="%", most=100)
    (RESULTS / "files.svg").write_text(picture, encoding="utf-8")


def needing(call: Call) -> bool:
    return bool(call.needed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("windows", nargs="*", type=int, default=WINDOWS, metavar="WINDOW")
    parser.add_argument("--sessions", type=int, default=30, help="of each half")
    parser.add_argument("--lost", action="store_true", help="what is lost of the half that may be looked at")
    asked = parser.parse_args()
    print(f"{asked.sessions} sessions of each half; Python {platform.python_version()}'s library")
    for title, packages in (("packages looked at", SHOWN), ("packages held out", HELD_OUT)):
        written = list(sessions(packages, asked.sessions))
        tokens = sum(COUNTER.message(message) for session in written for message in session)
        replayed: dict[int, list[Call]] = {}
        found: dict[int, list[Need]] = {}
        for window in asked.windows:
            each = [list(replay(session, window, COUNTER)) for session in written]
            replayed[window] = [call for calls in each for call in calls]
            if asked.lost and packages is SHOWN:
                found[window] = [
                    n for session, calls in zip(written, each, strict=True) for n in needs(session, calls)
                ]
        table(f"{title}, {tokens // asked.sessions} tokens a session", replayed)
        if packages is HELD_OUT:
            draw(replayed)
        if found:
            lost(found)


if __name__ == "__main__":
    main()
