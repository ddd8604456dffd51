"""perdure: an agent that keeps working in any context window and never forgets what it was told.

The public names; each is loaded when it is first used, so importing the package does nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.app import Agent as Agent
    from perdure.config import Settings as Settings
    from perdure.errors import PerdureError as PerdureError
    from perdure.memory.memory import Memory as Memory
    from perdure.tools.registry import tool as tool

__version__ = "0.1.0"

_HOMES = {
    "Agent": "perdure.app",
    "Memory": "perdure.memory.memory",
    "PerdureError": "perdure.errors",
    "Settings": "perdure.config",
    "tool": "perdure.tools.registry",
}

__all__ = ["Agent", "Memory", "PerdureError", "Settings", "tool"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
