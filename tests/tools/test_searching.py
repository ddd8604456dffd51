"""`list_files` and `search_files`, with ripgrep and without it: the same answers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.errors import ToolError
from perdure.tools.contract import Tool
from perdure.tools.outline import outline
from perdure.tools.searching import list_files_tool, ripgrep, search_files_tool

pytestmark = pytest.mark.anyio

FILES = {
    "README.md": "# Title\nsee TODO\n",
    "src/app.py": "import os\n\ndef main():\n    print('TODO')\n",
    "src/deep/inner.ts": "const todo = 1\n",
    "src/deep/inner.tsx": "const x = 2\n",
    "build/out.py": "TODO built\n",
    "logs/a.log": "TODO log\n",
    "logs/keep.log": "TODO kept\n",
    ".github/ci.yml": "name: TODO\n",
    ".git/config": "TODO git\n",
    "secret/.gitignore": "*\n",
    "secret/x.py": "TODO secret\n",
    "中文/说明.txt": "待办 TODO 你好\r\n第二行\r\n",
    ".gitignore": "build/\n*.log\n!keep.log\n",
    ".ignore": "ignored.txt\n",
    "ignored.txt": "TODO ignored\n",
}
LISTED = [
    ".github/ci.yml",
    "src/app.py",
    "src/deep/inner.ts",
    "src/deep/inner.tsx",
    "中文/说明.txt",
    "logs/keep.log",
    ".gitignore",
    ".ignore",
    "README.md",
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    (folder / "binary.bin").write_bytes(b"TODO\0\1\2" * 50)
    return folder


def _nothing() -> None:
    return None


@pytest.fixture(params=["ripgrep", "own"])
def found(request: pytest.FixtureRequest) -> Any:
    if request.param == "ripgrep" and shutil.which("rg") is None:
        pytest.skip("ripgrep isn't installed")
    return ripgrep if request.param == "ripgrep" else _nothing


@pytest.fixture
def list_files(workspace: Path, found: Any) -> Tool:
    return list_files_tool(workspace, found)


@pytest.fixture
def search(workspace: Path, found: Any) -> Tool:
    return search_files_tool(workspace, found)


async def said(tool: Tool, **arguments: Any) -> str:
    try:
        return str(await tool(**arguments))  # type: ignore[misc]
    except ToolError as error:
        return str(error)


async def test_files_are_listed_without_what_is_ignored(list_files: Tool) -> None:
    *names, count = (await said(list_files)).split("\n")
    assert sorted(names) == sorted([*LISTED, "binary.bin"])
    assert count == "[10 files]"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"path": "src"}, {"src/app.py", "src/deep/inner.ts", "src/deep/inner.tsx"}),
        ({"pattern": "*.py"}, {"src/app.py"}),
        ({"pattern": "src/**/*.{ts,tsx}"}, {"src/deep/inner.ts", "src/deep/inner.tsx"}),
        ({"pattern": "**/inner.ts"}, {"src/deep/inner.ts"}),
        ({"path": "src/deep", "pattern": "*.ts"}, {"src/deep/inner.ts"}),
        ({"path": "logs"}, {"logs/keep.log"}),
        ({"pattern": "*.log"}, {"logs/keep.log"}),
        ({"path": "src/app.py"}, {"src/app.py"}),
        ({"path": "中文"}, {"中文/说明.txt"}),
    ],
)
async def test_a_folder_or_a_pattern_narrows_the_list(
    list_files: Tool, arguments: dict[str, str], names: set[str]
) -> None:
    assert set((await said(list_files, **arguments)).split("\n")[:-1]) == names


async def test_nothing_found_is_said(list_files: Tool, search: Tool, workspace: Path) -> None:
    assert "no file fits '*.java'" in await said(list_files, pattern="*.java")
    (workspace / "empty").mkdir()
    assert "no files" in await said(list_files, path="empty")
    assert await said(search, pattern="nowhere to be found") == "(no line fits)"


async def test_lines_are_found_by_file_with_their_numbers(search: Tool) -> None:
    assert await said(search, pattern="TODO", files="*.{py,md}") == (
        "README.md\n  2: see TODO\nsrc/app.py\n  4:     print('TODO')\n[2 lines in 2 files]"
    )
    whole = await said(search, pattern="TODO")
    for path in ("README.md", "src/app.py", ".github/ci.yml", "logs/keep.log", "中文/说明.txt"):
        assert f"{path}\n" in whole
    assert whole.endswith("[5 lines in 5 files]"), "no ignored, no binary file, not .git"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            {"pattern": "todo", "ignore_case": True, "path": "src"},
            ["4:     print('TODO')", "1: const todo = 1"],
        ),
        ({"pattern": "todo", "path": "src"}, ["1: const todo = 1"]),
        ({"pattern": r"^def \w+\(", "path": "src/app.py"}, ["3: def main():"]),
        ({"pattern": "你好$"}, ["1: 待办 TODO 你好"]),
        ({"pattern": "(?<=to)do"}, ["1: const todo = 1"]),
        ({"pattern": "print("}, ["4:     print('TODO')"]),
        ({"pattern": "-e"}, []),
        ({"pattern": "--files"}, []),
        ({"pattern": "main", "context": 1, "path": "src"}, ["2- ", "3: def main():", "4-     print('TODO')"]),
    ],
)
async def test_the_pattern_is_what_it_says(search: Tool, arguments: dict[str, Any], shown: list[str]) -> None:
    answer = await said(search, **arguments)
    assert [line[2:] for line in answer.split("\n") if line.startswith("  ")] == shown


async def test_a_pattern_that_can_not_find_anything_is_explained(search: Tool) -> None:
    assert "plain text" in await said(search, pattern="print(")
    assert "within one line" in await said(search, pattern="a\\nb")
    assert "the pattern is empty" in await said(search, pattern="")


@pytest.mark.parametrize("path", ["..", "/etc", "~", "out", "src/../../x", "\0", ""])
async def test_nothing_outside_is_listed_or_searched(
    list_files: Tool, search: Tool, workspace: Path, path: str
) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "TODO.txt").write_text("TODO outside")
    (workspace / "out").symlink_to(outside)
    for answer in (await said(list_files, path=path), await said(search, pattern="TODO", path=path)):
        assert answer.startswith("error")
    assert "outside" not in await said(search, pattern="TODO"), "links are not followed"


async def test_a_flood_is_cut_and_says_so(search: Tool, workspace: Path) -> None:
    (workspace / "many.txt").write_text("".join(f"hit {n} {'x' * 900}\n" for n in range(50_000)))
    with anyio.fail_after(20):
        answer = await said(search, pattern="hit")
    assert len(answer) < 25_000
    assert "narrow it" in answer


async def test_a_pattern_that_takes_for_ever_holds_nothing_up(workspace: Path) -> None:
    (workspace / "bad.txt").write_text("a" * 60 + "!")
    with anyio.move_on_after(2) as scope:
        await said(search_files_tool(workspace, _nothing), pattern="(a+)+$")
    assert scope.cancelled_caught, "and this line is reached"


# --- the outline of many files ----------------------------------------------------------------------

NAMES = st.text(st.sampled_from("abc中."), min_size=1, max_size=3).filter(lambda name: name.strip("."))
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=40, unique=True)


@given(PATHS, st.integers(1, 30), st.integers(40, 400))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_an_outline_fits_and_accounts_for_each_file(paths: list[str], lines: int, characters: int) -> None:
    shown, last = outline(paths, lines, characters).rpartition("\n")[::2]
    names = shown.split("\n") if shown else []
    assert len(names) <= lines
    assert len(shown) <= characters
    told = 0
    for name in names:
        folder, _, count = name.partition("/ (")
        if count:
            assert int(count.split()[0]) == sum(path.startswith(f"{folder}/") for path in paths)
            told += int(count.split()[0])
        else:
            assert name in paths
            told += 1
    assert told == len(paths) or "more lines" in last
