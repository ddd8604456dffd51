"""The forty turns of `agents.py`: in each the person states a fact and has a long file read.

A fact has two parts, looked for apart: an exact literal, of another shape each time, and a phrase
in plain words that no pattern could find. Both are drawn from a seed, so that no agent, and nobody
who tunes one, is tested on the values it was written with.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

LINES = 900

COLOURS = ("violet", "copper", "striped", "pale", "dotted", "crimson", "golden", "dusty")
THINGS = ("suitcase", "lantern", "kettle", "ladder", "umbrella", "compass", "basket", "trumpet")
FATES = (
    "belongs to the baker's eldest sister",
    "must never be left near the window",
    "goes back to the harbour before winter",
    "was promised to the night watchman",
    "stays with the neighbours over the holidays",
    "needs a new handle by the end of spring",
)


@dataclass(frozen=True)
class Turn:
    """What the person says in one turn, and what of it must not be forgotten."""

    text: str
    literal: str
    phrase: str


def turns(count: int, seed: int) -> list[Turn]:
    """The script. Phrases and literals don't repeat."""
    dice = random.Random(seed)
    things = dice.sample(list(product(COLOURS, THINGS)), count)
    made: list[Turn] = []
    for number, (colour, thing) in enumerate(things, 1):
        phrase = f"the {colour} {thing} {dice.choice(FATES)}"
        what, literal = SHAPES[number % len(SHAPES)](dice)
        text = (
            f"Remember that {phrase}, and that its {what} is {literal}. "
            f"Now read the file {file_of(number)} and tell me when you have read it."
        )
        made.append(Turn(text, literal, phrase))
    return made


def file_of(number: int) -> str:
    return f"logs/part-{number:02}.txt"


def write_files(workspace: Path, count: int, seed: int) -> None:
    """The files to read: 900 lines of one number each, the shortest lines that still differ, so that
    one file fits the smallest window beside any agent's own prompt."""
    dice = random.Random(seed + 1)
    (workspace / "logs").mkdir(parents=True)
    for number in range(1, count + 1):
        lines = "".join(f"{dice.randrange(100, 1000)}\n" for _ in range(LINES))
        (workspace / file_of(number)).write_text(lines, encoding="utf-8")


def _word(dice: random.Random, length: int) -> str:
    return "".join(dice.choice("abcdefghjkmnpqrstuvwxyz") for _ in range(length))


#: What a literal is called, and one drawn. The colons, slashes and dashes are where they really stand.
SHAPES: tuple[Callable[[random.Random], tuple[str, str]], ...] = (
    lambda dice: ("ticket", f"{_word(dice, 3).upper()}-{dice.randrange(10_000, 99_999)}"),
    lambda dice: ("sheet", f"/srv/{_word(dice, 5)}/{_word(dice, 6)}-{dice.randrange(10, 99)}.csv"),
    lambda dice: ("page", f"https://{_word(dice, 6)}.example/{_word(dice, 4)}?id={dice.randrange(999)}"),
    lambda dice: ("firmware", f"v{dice.randrange(9)}.{dice.randrange(40)}.{dice.randrange(10, 99)}"),
    lambda dice: ("setting", f"{_word(dice, 5).upper()}_{_word(dice, 5).upper()}={dice.randrange(2, 99)}"),
    lambda dice: (
        "due date",
        f"20{dice.randrange(31, 60)}-{dice.randrange(1, 13):02}-{dice.randrange(10, 29)}",
    ),
    lambda dice: (
        "price",
        f"{dice.randrange(1, 99)},{dice.randrange(100, 999)}.{dice.randrange(10, 99)} EUR",
    ),
    lambda dice: ("port", f"{dice.randrange(20_000, 65_000)}"),
    lambda dice: ("contact", f"{_word(dice, 6)}@{_word(dice, 5)}.example"),
    lambda dice: ("commit", f"{dice.getrandbits(40):010x}"),
)
