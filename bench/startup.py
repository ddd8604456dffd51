"""How fast the command starts: `perdure --version` and `--help` against `python -c pass`.

    python bench/startup.py [RUNS]

Aim: below 4 times. The runs are interleaved, so that a busy moment hits all alike.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "perdure --version": [sys.executable, "-m", "perdure.faces.cli.main", "--version"],
    "perdure --help": [sys.executable, "-m", "perdure.faces.cli.main", "--help"],
    "import perdure": [sys.executable, "-c", "import perdure"],
}


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    floor = statistics.median(taken["python -c pass"])
    print(f"{'':22} median ms  ratio   ({runs} interleaved runs)")
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:22} {median * 1000:9.1f} {median / floor:6.2f}")


if __name__ == "__main__":
    main()
