"""What the tests of commands share: a sleeper that can be told from all others, and whether it is
still there."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

from perdure.tools import watcher

_numbers = itertools.count(1)


def sleeper() -> str:
    """A command that sleeps for five minutes and a fraction that no other one has."""
    return f"sleep 300.{os.getpid()}{next(_numbers):04}"


def running(command: str) -> list[str]:
    """The command lines of processes that are exactly this command."""
    return [each.name for each in watcher.processes() if each.name == command]


def gone(*commands: str, within: float = 20) -> bool:
    """Whether none of the commands runs any more, waiting for it."""
    return _becomes(lambda: not any(running(each) for each in commands), within)


def there(*commands: str, within: float = 20) -> bool:
    """Whether all the commands run, waiting for it."""
    return _becomes(lambda: all(running(each) for each in commands), within)


def _becomes(true: Callable[[], bool], within: float) -> bool:
    end = time.monotonic() + within
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
