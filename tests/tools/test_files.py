from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.errors import ToolError
from perdure.tools.files import LINE_CHARACTERS, PAGE_LINES, page_of, read_file_tool


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_lines_are_numbered_and_ranges_are_kept(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    assert page_of(workspace, "a.txt") == "1\tone\n2\ttwo\n3\tthree\n4\tfour"
    assert page_of(workspace, "a.txt", 2, 3) == "2\ttwo\n3\tthree"
    assert page_of(workspace, "a.txt", 9) == "(the file has no line 9)"


def test_a_long_file_comes_in_pages_that_say_how_to_read_on(workspace: Path) -> None:
    (workspace / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 2501)))
    seen, start = [], 1
    while True:
        page = page_of(workspace, "long.txt", start)
        lines = page.splitlines()
        seen += [line.split()[-1] for line in lines if not line.startswith("[")]
        if not lines[-1].startswith("[more lines follow"):
            break
        start = int(lines[-1].partition("start_line=")[2].rstrip("]"))
    assert seen == [str(n) for n in range(1, 2501)]


def test_a_page_that_ends_with_the_file_promises_no_more(workspace: Path) -> None:
    (workspace / "exact.txt").write_text("x\n" * PAGE_LINES)
    assert "more lines" not in page_of(workspace, "exact.txt")


def test_a_very_long_line_is_cut_with_a_note_and_the_next_one_is_read(workspace: Path) -> None:
    (workspace / "wide.txt").write_text("x" * 200_000 + "\nsecond\n")
    page = page_of(workspace, "wide.txt")
    assert f"[... {200_000 - LINE_CHARACTERS} characters of this line left out]" in page
    assert page.endswith("\n2\tsecond")


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "/etc/passwd", "link.txt", "folder/up/secret.txt", "~/x", "sub/../../secret.txt"],
)
def test_nothing_outside_the_workspace_is_read(workspace: Path, path: str) -> None:
    (workspace.parent / "secret.txt").write_text("secret")
    (workspace / "sub").mkdir()
    (workspace / "folder").mkdir()
    (workspace / "link.txt").symlink_to("../secret.txt")
    (workspace / "folder" / "up").symlink_to("../..")
    (Path.home() / "x").write_text("secret")
    with pytest.raises(ToolError, match="outside the workspace"):
        page_of(workspace, path)


def test_a_link_inside_the_workspace_is_followed(workspace: Path) -> None:
    (workspace / "real.txt").write_text("here")
    (workspace / "alias.txt").symlink_to("real.txt")
    assert page_of(workspace, "alias.txt") == "1\there"


def test_what_is_no_regular_file_is_named_and_not_waited_for(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(workspace / "sock"))
        for name, kind in (("folder", "a folder"), ("pipe", "a named pipe"), ("sock", "a socket")):
            with pytest.raises(ToolError, match=kind):
                page_of(workspace, name)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("loop", "round in a circle"),
        ("x" * 5000, "too long"),
        ("a\x00b", "NUL"),
        ("", "empty"),
        ("readme.txt", "near it: README.txt"),
        ("README.txt/x", "not a folder|no file"),
    ],
)
def test_a_path_that_cannot_be_is_a_clear_result(workspace: Path, path: str, said: str) -> None:
    (workspace / "loop").symlink_to("loop")
    (workspace / "README.txt").write_text("x")
    with pytest.raises(ToolError, match=said):
        page_of(workspace, path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_clear_result(workspace: Path) -> None:
    (workspace / "closed.txt").write_text("x")
    (workspace / "closed.txt").chmod(0)
    with pytest.raises(ToolError, match="no permission"):
        page_of(workspace, "closed.txt")


def test_a_file_larger_than_memory_should_hold_is_read_by_its_page(workspace: Path) -> None:
    with (workspace / "huge.txt").open("wb") as file:
        file.write(b"first\n" * 60_000)
        file.truncate(50_000_000_000)
    assert page_of(workspace, "huge.txt", 1, 2) == "1\tfirst\n2\tfirst"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=400))
def test_no_bytes_make_it_fail(workspace: Path, content: bytes) -> None:
    (workspace / "any").write_bytes(content)
    try:
        page_of(workspace, "any").encode()
    except ToolError as error:
        assert "binary file" in str(error)


def test_the_tool_looks_and_does_not_act(workspace: Path) -> None:
    read_file = read_file_tool(workspace)
    assert read_file.effect == "reads"
    assert set(read_file.spec.parameters["properties"]) == {"path", "start_line", "end_line"}
    assert read_file.spec.parameters["required"] == ["path"]
