"""The folder in which a command ends, where the next one begins."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.tools.bash import bash_tool
from perdure.tools.contract import Said
from perdure.tools.sandbox import Sandbox

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not shutil.which("bash"), reason="no bash here"),
]

Bash = Callable[..., Awaitable[str]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    (workspace / "inner" / "deep").mkdir(parents=True)
    return workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    return outside


@pytest.fixture
def bash(workspace: Path) -> Bash:
    return bash_tool(workspace).run


async def begins(bash: Bash) -> Path:
    """Where the next command begins."""
    return Path((await bash(command="pwd -P")).splitlines()[0])


@pytest.mark.parametrize(
    "command",
    [
        "cd inner",
        "cd inner && true",
        "pushd inner > /dev/null",
        "cd inner; exit 3",
        "cd inner; false",
        "set -e; cd inner; false; cd ..",
        "set -u; cd inner; echo $x",
        "set -x; cd inner",
        "set -o noclobber; cd inner",
        "go() { cd inner; }; go",
        "cd inner; kill -TERM $$",
        "cd inner # and stay",
        "cd inner <<E\ntext\nE",
        "pwd() { echo /; }; cd inner",
        "alias pwd='echo /'; cd inner",
        "cd inner; exec 2>&1; exec < /dev/null",
        "cd -- inner; sleep 0.1 &",
    ],
)
async def test_where_a_command_ends_the_next_one_begins(bash: Bash, workspace: Path, command: str) -> None:
    said = await bash(command=command)
    assert await begins(bash) == workspace / "inner"
    assert said.endswith(f"; now in {workspace}/inner]")


@pytest.mark.parametrize(
    "command",
    [
        "(cd inner)",
        "cd inner | cat",
        "cd inner & wait",
        "bash -c 'cd inner'",
        "cd inner; cd ..",
        "trap 'echo mine' EXIT; cd inner",
        "cd inner; kill -9 $$",
        "exec 198>&-; cd inner",
        "cd inner; echo )",  # a line that can't be read isn't begun
        "true",
    ],
)
async def test_where_it_tells_nothing_or_comes_back_the_next_begins_in_the_same(
    bash: Bash, workspace: Path, command: str
) -> None:
    said = await bash(command=command)
    assert "now in" not in said
    assert await begins(bash) == workspace


async def test_folders_add_up_and_the_workspace_needs_no_word(bash: Bash, workspace: Path) -> None:
    await bash(command="cd inner")
    assert (await bash(command="cd deep")).endswith(f"[exit code 0; now in {workspace}/inner/deep]")
    assert (await bash(command="true")).endswith(f"[exit code 0; now in {workspace}/inner/deep]")
    assert (await bash(command="cd ../..")).endswith("[exit code 0]")


async def test_neither_exit_code_nor_output_nor_messages_tell_of_it(bash: Bash) -> None:
    assert await bash(command="exit 7") == "(no output)\n[exit code 7]"
    assert "line 1: nosuch: command not found" in await bash(command="nosuch")
    assert "line 2: nosuch: command not found" in await bash(command="true\nnosuch")
    said = await bash(command="echo (")
    assert "`echo ('" in said
    assert "trap" not in said
    assert await bash(command="trap 'echo mine' EXIT; exit 4") == "mine\n[exit code 4]"
    assert await bash(command='echo "$# $LINENO"') == "0 1\n[exit code 0]"
    assert (await bash(command="set -x; true")).startswith("++ true\n[")
    assert "198" not in await bash(command="env")


async def test_a_folder_that_is_gone_leads_back_to_the_workspace(bash: Bash, workspace: Path) -> None:
    await bash(command="cd inner/deep")
    shutil.rmtree(workspace / "inner")
    said = await bash(command="pwd")
    gone = f"{workspace}/inner/deep is gone, so this ran in the workspace"
    assert said == f"{workspace}\n[exit code 0; {gone}]"
    assert await bash(command="pwd") == f"{workspace}\n[exit code 0]"


async def test_a_folder_that_a_command_removes_under_itself_is_no_trouble(
    bash: Bash, workspace: Path
) -> None:
    await bash(command="cd inner/deep && rm -r ../../inner")
    assert await begins(bash) == workspace


@pytest.mark.parametrize("name", ["with blank", "名字", "-dash", "quo'te\"s", "$(touch evil)"])
async def test_odd_names(bash: Bash, workspace: Path, name: str) -> None:
    (workspace / name).mkdir()
    await bash(command=f"cd -- {name!r}" if "'" not in name else "cd quo*")
    assert await begins(bash) == workspace / name
    assert not (workspace / name / "evil").exists()


async def test_a_name_with_a_line_break_cannot_be_told_so_the_folder_stays(
    bash: Bash, workspace: Path
) -> None:
    (workspace / "two\nlines]").mkdir()
    assert "now in" not in await bash(command="cd two*")
    assert await begins(bash) == workspace


async def test_somebody_who_floods_the_descriptor_keeps_nobody_waiting(bash: Bash, workspace: Path) -> None:
    said = await bash(command="cd inner; head -c 1000000 /dev/zero >&198 2>/dev/null; echo on")
    assert said == "on\n[exit code 0]"
    assert await begins(bash) == workspace


async def test_two_tools_are_two_places(workspace: Path) -> None:
    one, other = bash_tool(workspace).run, bash_tool(workspace).run
    await one(command="cd inner")
    assert await begins(other) == workspace


class Memo:
    """What a conversation keeps of a tool."""

    def __init__(self, left: Mapping[str, Any]) -> None:
        self._left = left

    def left(self) -> Mapping[str, Any]:
        return self._left


async def test_a_conversation_says_where_it_begins_and_gets_where_it_ended(workspace: Path) -> None:
    bash = bash_tool(workspace, memo=Memo({"folder": str(workspace / "inner")})).run
    said = await bash(command="pwd; cd deep")
    assert said.startswith(f"{workspace}/inner\n")
    assert isinstance(said, Said)
    assert said.left == {"folder": str(workspace / "inner" / "deep")}
    # It alone says where the next one begins.
    assert await begins(bash) == workspace / "inner"


@pytest.mark.parametrize("left", [{}, {"folder": None}, {"folder": "/no/such"}, {"folder": 7}])
async def test_whatever_was_left_a_command_runs(workspace: Path, left: Mapping[str, Any]) -> None:
    assert await begins(bash_tool(workspace, memo=Memo(left)).run) == workspace


# --- in the sandbox


@pytest.fixture
def sandboxed(workspace: Path, outside: Path) -> Bash:
    sandbox = Sandbox(workspace, "on", folders=[outside])
    if not sandbox.state().in_force:
        pytest.skip("no sandbox works here")
    return bash_tool(workspace, sandbox=sandbox).run


async def test_in_the_sandbox_it_lasts_too(sandboxed: Bash, workspace: Path, outside: Path) -> None:
    for folder in (workspace / "inner", outside, Path("/usr/lib").resolve()):
        assert (await sandboxed(command=f"cd {folder}")).endswith(f"; now in {folder}]")
        assert await begins(sandboxed) == folder


@pytest.mark.parametrize("folder", ["/tmp/own", "$HOME/own", "/dev/shm", "/proc/self/fd"])
async def test_what_is_gone_with_the_sandbox_is_no_place_to_begin(
    sandboxed: Bash, workspace: Path, folder: str
) -> None:
    await sandboxed(command="cd inner")
    said = await sandboxed(command=f"mkdir -p {folder} 2>/dev/null; cd {folder}")
    assert f"is gone with this call; the next begins in {workspace}/inner]" in said
    assert await begins(sandboxed) == workspace / "inner"


async def test_a_link_out_of_the_workspace_is_no_way_out(
    sandboxed: Bash, workspace: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    await sandboxed(command="cd inner")
    shutil.rmtree(workspace / "inner")
    (workspace / "inner").symlink_to(elsewhere)
    said = await sandboxed(command="pwd")
    assert said.startswith(f"{workspace}\n")
    assert "can't be reached any more, so this ran in the workspace" in said
