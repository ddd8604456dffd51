"""What do agents still know after forty turns in a small window, and what did it cost?

    python bench/agents.py [--windows 4096 8192 16384] [--turns 40] [--by reader|bash] [--keep FOLDER]

The same script (`agents_script.py`) runs through perdure and through pi, each by its command line, a
process a turn, and by the process it can be kept open in, against the same scripted endpoint
(`agents_endpoint.py`) over HTTP on loopback. The agents take turns, so that a busy moment hits all
alike. Files are read by each agent's own tool, which may number the lines, or by its shell, so that all
have the same results (``--by bash``). The table goes to the terminal and to `bench/results/`; ``--keep``
writes each agent's last prompt and its refused requests there, to see what is missing and why.

pi needs Node.js and `npm install --prefix bench/peers`; where one of them is missing it is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from agents_endpoint import READERS, ModelEndpoint, Seen
from agents_peers import (
    Agent,
    PerdureCommand,
    PerdureLibrary,
    PiCommand,
    PiOpen,
    Place,
    pi_is_missing,
    pi_version,
)
from agents_script import Turn, turns, write_files
from perdure import __version__
from plot import bars

SEED = 5
RESULTS = Path(__file__).parent / "results"
HEADINGS = (
    "window", "agent", "turns finished", "literals kept", "phrases kept", "characters cached",
    "new prompt tokens", "summaries", "refused", "seconds a turn",
)  # fmt: skip

LEGEND = """\
Kept: still word for word in the last prompt. Characters cached: of all prompts' characters, those with
which the prompt before began too. New prompt tokens: what a prefix cache didn't have, summaries included.
Seconds a turn: median, with the start of the process where it isn't kept open. pi is fitted to the
script (it reserves what a turn adds and keeps as little as makes it summarise least), then keeps a
quarter of the window, then runs as it comes (reserving 16,384 and keeping 20,000 tokens)."""


@dataclass
class Run:
    """One agent at one window."""

    name: str
    window: int
    agent: Agent
    endpoint: ModelEndpoint
    seconds: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def play(self, number: int, turn: Turn) -> None:
        self.endpoint.turn = number
        began = time.perf_counter()
        if wrong := self.agent.say(turn.text):
            self.complaints.append(f"turn {number}: {' '.join(wrong.split())}")
        self.seconds.append(time.perf_counter() - began)

    @property
    def thoughts(self) -> list[Seen]:
        return [seen for seen in self.endpoint.seen if seen.purpose == "think" and not seen.refused]

    @property
    def refused(self) -> list[Seen]:
        return [seen for seen in self.endpoint.seen if seen.refused]

    def lost(self, script: Sequence[Turn]) -> tuple[list[str], list[str]]:
        """Literals and phrases that don't stand in the last prompt."""
        text = self.thoughts[-1].text if self.thoughts else ""
        literals = [turn.literal for turn in script if turn.literal not in text]
        return literals, [turn.phrase for turn in script if turn.phrase not in text]

    def cached(self) -> float:
        """Share of the prompts' characters that repeat the beginning of the prompt before."""
        prompts = [seen.prompt for seen in self.thoughts]
        repeated = sum(_common(before, after) for before, after in pairwise(prompts))
        return repeated / max(sum(map(len, prompts)), 1)

    def row(self, script: Sequence[Turn]) -> list[str]:
        literals, phrases = self.lost(script)
        return [
            f"{self.window:,}",
            self.name,
            f"{len(self.endpoint.finished)} of {len(script)}",
            f"{len(script) - len(literals)} of {len(script)}",
            f"{len(script) - len(phrases)} of {len(script)}",
            f"{self.cached():.0%}",
            f"{sum(seen.tokens - seen.cached for seen in self.endpoint.seen if not seen.refused):,}",
            str(sum(seen.purpose == "summarize" for seen in self.endpoint.seen)),
            str(len(self.refused)),
            f"{statistics.median(self.seconds):.2f}",
        ]

    def keep(self, folder: Path) -> None:
        """Write the last prompt and what was refused, to be read."""
        stem = f"{self.window}-{self.name.replace(' ', '-').replace(',', '')}"
        shown = [*self.refused, *self.thoughts[-1:]]
        for number, seen in enumerate(shown):
            about = {"turn": seen.turn, "tokens": seen.tokens, "refused": seen.refused, **seen.body}
            kind = f"refused-{number}" if seen.refused else "last"
            text = json.dumps(about, ensure_ascii=False, indent=1)
            (folder / f"{stem}-{kind}.json").write_text(text, encoding="utf-8")


def _common(one: str, other: str) -> int:
    """Characters that two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def agents(window: int) -> dict[str, Callable[[Place, str], Agent]]:
    """Who takes part. As it comes pi reserves 16,384 tokens and keeps 20,000, more than these windows
    have. So it also runs with settings fitted to the script: a reserve of what a turn adds, and as
    little kept as makes it summarise least, or a quarter of the window, which makes it know most."""
    few = {"reserveTokens": 2_200, "keepRecentTokens": 300}
    most = {"reserveTokens": max(2_200, window // 8), "keepRecentTokens": window // 4}
    ours: dict[str, Callable[[Place, str], Agent]] = {
        "perdure": lambda place, url: PerdureCommand(place, url, window),
        "perdure, kept open": lambda place, url: PerdureLibrary(place, url, window),
    }
    if pi_is_missing():
        return ours
    return ours | {
        "pi": lambda place, url: PiCommand(place, url, window, few),
        "pi, kept open": lambda place, url: PiOpen(place, url, window, few),
        "pi, kept open, keeps a quarter": lambda place, url: PiOpen(place, url, window, most),
        "pi, kept open, as it comes": lambda place, url: PiOpen(place, url, window, {}),
    }


def measure(window: int, script: Sequence[Turn], by: str, only: str) -> list[Run]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agents-")))
        runs: list[Run] = []
        for number, (name, made) in enumerate(agents(window).items()):
            if only not in name:
                continue
            workspace = folder / f"workspace-{number}"
            write_files(workspace, len(script), SEED)
            endpoint = stack.enter_context(ModelEndpoint(window, by))
            agent = made(Place(folder / f"home-{number}", workspace), endpoint.base_url)
            stack.callback(agent.close)
            runs.append(Run(name, window, agent, endpoint))
        for number, turn in enumerate(script, 1):
            for run in runs:
                run.play(number, turn)
                if run.endpoint.broken:
                    raise SystemExit("the bench's own endpoint failed, see above: nothing was measured")
            print(f"\r{window} tokens: turn {number} of {len(script)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    return runs


def table(runs: Sequence[Run], script: Sequence[Turn]) -> str:
    rows = [list(HEADINGS), *(run.row(script) for run in runs)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
             for row in rows]  # fmt: skip
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def remarks(runs: Sequence[Run], script: Sequence[Turn]) -> str:
    """What the table doesn't show: the shapes of what was lost, refusals, complaints."""
    lines: list[str] = []
    for run in runs:
        literals, _ = run.lost(script)
        said = [
            f"lost, among others: {', '.join(literals[:6])}" if literals and run.name == "perdure" else "",
            f"refused first: {run.refused[0].refused}" if run.refused else "",
            f"{len(run.complaints)} turns failed, first {run.complaints[0]}" if run.complaints else "",
        ]
        lines += [f"- {run.window:,}, {run.name}: {each}" for each in said if each]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--windows", type=int, nargs="+", default=[4096, 8192, 16384], metavar="TOKENS")
    options.add_argument("--turns", type=int, default=40)
    options.add_argument("--by", choices=READERS, default="reader", help="tool by which files are read")
    options.add_argument("--only", default="", help="agents whose name holds this; writes no results")
    options.add_argument("--keep", type=Path, help="folder for last prompts and refused requests")
    chosen = options.parse_args()
    script = turns(chosen.turns, SEED)
    runs = [run for window in chosen.windows for run in measure(window, script, chosen.by, chosen.only)]
    if chosen.keep:
        chosen.keep.mkdir(parents=True, exist_ok=True)
        for run in runs:
            run.keep(chosen.keep)
    peer = pi_is_missing() or f"pi {pi_version()}"
    machine = f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    report = "\n\n".join(
        [f"perdure {__version__}, {peer}; {machine}", table(runs, script), LEGEND, remarks(runs, script)]
    )
    print(report)
    if not chosen.only:
        command = f"python bench/agents.py --by {chosen.by} --turns {chosen.turns}"
        RESULTS.mkdir(exist_ok=True)
        name = "agents.md" if chosen.by == "reader" else f"agents-{chosen.by}.md"
        (RESULTS / name).write_text(f"# Benchmark: agents\n\n`{command}`\n\n{report}\n", encoding="utf-8")
        groups: dict[str, dict[str, float]] = {}
        for run in runs:
            groups.setdefault(f"{run.window:,}", {})[run.name] = len(script) - len(run.lost(script)[0])
        picture = bars(
            groups, title="Facts in the last prompt", across="window, tokens", up=f"of {len(script)}"
        )
        (RESULTS / name).with_suffix(".svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
