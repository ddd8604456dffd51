"""`write_file` and `edit_file`: exact, whole or not at all, inside the workspace, told before they act."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.errors import StoreError, ToolError
from perdure.tools.changes import FileChange, Kept, digest, restore
from perdure.tools.contract import Tool
from perdure.tools.editing import edited
from perdure.tools.texts import TextForm
from perdure.tools.writing import edit_file_tool, write_file_tool

pytestmark = pytest.mark.anyio


class Log:
    """A `ChangeLog` that remembers, and what stood there when it was told."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.changes: list[FileChange] = []

    def will_change(self, change: FileChange) -> None:
        path = self.workspace / change.path
        assert (path.read_bytes() if path.exists() else None) == (
            change.before.data if change.before else None
        )
        self.changes.append(change)

    @property
    def kept(self) -> list[Kept]:
        return [
            Kept(each.path, each.before is not None, each.before, digest(each.after)) for each in self.changes
        ]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def log(workspace: Path) -> Log:
    return Log(workspace)


@pytest.fixture
def write(workspace: Path, log: Log) -> Tool:
    return write_file_tool(workspace, log)


@pytest.fixture
def edit(workspace: Path, log: Log) -> Tool:
    return edit_file_tool(workspace, log)


async def said(tool: Tool, **arguments: Any) -> str:
    try:
        return str(await tool(**arguments))  # type: ignore[misc]
    except ToolError as error:
        return str(error)


async def test_a_new_file_comes_with_its_folders(write: Tool, workspace: Path, log: Log) -> None:
    assert (
        await said(write, path="a/b/c.txt", content="one\ntwo\n") == "wrote a/b/c.txt, a new file (2 lines)"
    )
    assert (workspace / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert [each.path for each in log.changes] == ["a/b/c.txt"]


async def test_what_stands_there_already_is_not_written_again(write: Tool, workspace: Path, log: Log) -> None:
    (workspace / "a").write_text("same")
    before = (workspace / "a").stat().st_mtime_ns
    assert "already" in await said(write, path="a", content="same")
    assert ((workspace / "a").stat().st_mtime_ns, log.changes) == (before, [])


async def test_an_edit_changes_the_one_place(edit: Tool, workspace: Path) -> None:
    (workspace / "a.py").write_text("x = 1\ny = 1\n")
    answer = await said(edit, path="a.py", old_text="y = 1", new_text="y = 2\nz = 3")
    assert answer == "changed a.py at line 2 (+2 -1)"
    assert (workspace / "a.py").read_text() == "x = 1\ny = 2\nz = 3\n"


async def test_an_edit_of_what_stands_often_names_the_lines_and_changes_nothing(
    edit: Tool, workspace: Path
) -> None:
    (workspace / "a.py").write_text("x = 1\ny = 1\nz = 1\n")
    answer = await said(edit, path="a.py", old_text=" = 1", new_text=" = 2")
    assert "3 times" in answer
    assert "1, 2, 3" in answer
    assert (workspace / "a.py").read_text() == "x = 1\ny = 1\nz = 1\n"
    answer = await said(edit, path="a.py", old_text=" = 1", new_text=" = 2", replace_all=True)
    assert answer == "changed a.py at 3 places: lines 1, 2, 3 (+3 -3)"
    assert (workspace / "a.py").read_text() == "x = 2\ny = 2\nz = 2\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("if a:\n  return 1", "x", "differs from it in blanks alone:\n2\t    if a:\n3\t        return 1"),
        ("2\t    if a:\n3\t        return 1", "x", "leave out the line numbers"),
        ("    if a:\n        return 11", "x", "the likest that is:\n2\t    if a:\n3\t        return 1"),
        ("gone(before)", "return something_else", "but new_text is, at line 4"),
        ("nothing like it at all ~~~~", "x", "nor anything like it"),
        ("", "x", "old_text is empty"),
        ("return 1", "return 1", "nothing to change"),
    ],
)
async def test_a_text_that_is_not_found_is_answered_with_what_is(
    edit: Tool, workspace: Path, old: str, new: str, told: str
) -> None:
    text = "def f(a):\n    if a:\n        return 1\n    return something_else\n"
    (workspace / "a.py").write_text(text)
    assert told in await said(edit, path="a.py", old_text=old, new_text=new)
    assert (workspace / "a.py").read_text() == text


@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "a\nB\nb2", b"a\r\nB\r\nb2\r\nc\r\n".replace(b"a\r\nB", b"a\r\nB")),
        (b"a\nb\r\nc\n", "b\nc", "B\nC", b"a\nB\r\nC\n"),
        (b"\xef\xbb\xbfa = 1\n", "a = 1", "a = 2", b"\xef\xbb\xbfa = 2\n"),
        ("标题 一\n正文\n".encode("gb18030"), "正文", "内容", "标题 一\n内容\n".encode("gb18030")),
        (b"\xff\xfea\x00\n\x00", "a", "b\u4e2d", b"\xff\xfeb\x00\x2d\x4e\n\x00"),
        (b"\xfe\xff\x00a\x00\n", "a", "b", b"\xfe\xff\x00b\x00\n"),
        (b"ok \xff here, \xc3\xa9\n", "here", "there", b"ok \xff there, \xc3\xa9\n"),
        (b"no end", "end", "END", b"no END"),
        ("é combined 👩‍👩‍👧\n".encode(), "👩‍👩‍👧", "x", "é combined x\n".encode()),
    ],
)
async def test_encoding_mark_and_line_ends_stay(
    edit: Tool, workspace: Path, data: bytes, old: str, new: str, expected: bytes
) -> None:
    (workspace / "f").write_bytes(data)
    answer = await said(edit, path="f", old_text=old, new_text=new)
    assert answer.startswith("changed")
    assert (workspace / "f").read_bytes() == expected


async def test_a_whole_file_keeps_the_line_ends_and_encoding_of_the_one_before(
    write: Tool, workspace: Path
) -> None:
    (workspace / "f").write_bytes("标题 一\r\n正文\r\n".encode("gb18030"))
    assert (await said(write, path="f", content="新的\n内容\n")).startswith("wrote")
    assert (workspace / "f").read_bytes() == "新的\r\n内容\r\n".encode("gb18030")


async def test_a_character_that_the_encoding_has_not_is_told(edit: Tool, workspace: Path) -> None:
    data = "caf\xe9 au lait, d\xe9j\xe0 vu, na\xefve, fa\xe7ade, \xe9t\xe9, \xeatre, gar\xe7on\n" * 3
    (workspace / "f").write_bytes(data.encode("latin-1"))
    answer = await said(edit, path="f", old_text="au lait", new_text="\u4e2d", replace_all=True)
    assert "has no '中'" in answer
    assert (workspace / "f").read_bytes() == data.encode("latin-1")


async def test_a_binary_file_is_not_edited_but_may_be_replaced(
    edit: Tool, write: Tool, workspace: Path, log: Log
) -> None:
    data = bytes(range(256)) * 8
    (workspace / "f").write_bytes(data)
    assert "binary" in await said(edit, path="f", old_text="abc", new_text="x")
    assert (workspace / "f").read_bytes() == data
    assert (await said(write, path="f", content="text\n")).startswith("wrote")
    assert restore(workspace, log.kept) == {"f": "restored"}
    assert (workspace / "f").read_bytes() == data


async def test_the_mode_stays_and_a_new_file_has_the_usual_one(
    write: Tool, edit: Tool, workspace: Path
) -> None:
    script = workspace / "run.sh"
    script.write_text("#!/bin/sh\necho a\n")
    script.chmod(0o750)
    await said(edit, path="run.sh", old_text="echo a", new_text="echo b")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    await said(write, path="new", content="x")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((workspace / "new").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize(
    "path", ["../out.txt", "/etc/perdure-test", "~/x", "link/x", "link", "a/../../x", "loop/x"]
)
async def test_nothing_outside_the_workspace_is_written(write: Tool, workspace: Path, path: str) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (workspace / "link").symlink_to(outside)
    (workspace / "loop").symlink_to("loop")
    before = sorted(str(each) for each in workspace.parent.rglob("*"))
    assert (await said(write, path=path, content="x")).startswith("error")
    assert sorted(str(each) for each in workspace.parent.rglob("*")) == before


async def test_a_link_inside_is_followed_and_stays_a_link(edit: Tool, workspace: Path) -> None:
    (workspace / "real.txt").write_text("a")
    (workspace / "link.txt").symlink_to("real.txt")
    assert "changed real.txt" in await said(edit, path="link.txt", old_text="a", new_text="b")
    assert (workspace / "link.txt").is_symlink()
    assert (workspace / "real.txt").read_text() == "b"


@pytest.mark.parametrize("path", ["", " ", "\0", ".", "folder", "pipe", "folder/file/x", "x" * 300])
async def test_what_can_not_be_a_file_is_told(write: Tool, workspace: Path, path: str) -> None:
    (workspace / "folder").mkdir()
    (workspace / "folder/file").write_text("")
    os.mkfifo(workspace / "pipe")
    with anyio.fail_after(5):
        assert (await said(write, path=path, content="x")).startswith("error")


async def test_a_file_that_is_not_there_is_not_edited(edit: Tool, workspace: Path) -> None:
    assert "write_file makes one" in await said(edit, path="none.txt", old_text="a", new_text="b")
    assert "no folder 'no'" in await said(edit, path="no/none.txt", old_text="a", new_text="b")
    assert not any(workspace.iterdir())


async def test_what_can_not_be_journaled_is_not_done(workspace: Path) -> None:
    class Full:
        def will_change(self, change: FileChange) -> None:
            raise StoreError(("the disk is full", "磁盘已满"))

    (workspace / "f").write_text("a")
    with pytest.raises(StoreError):
        await edit_file_tool(workspace, Full())(path="f", old_text="a", new_text="b")  # type: ignore[misc]
    assert [(each.name, each.read_text()) for each in workspace.iterdir()] == [("f", "a")]


async def test_edits_of_one_file_at_the_same_time_all_count(edit: Tool, workspace: Path) -> None:
    (workspace / "f").write_text("".join(f"<{n}>\n" for n in range(30)))
    async with anyio.create_task_group() as group:
        for n in range(30):
            group.start_soon(lambda n=n: said(edit, path="f", old_text=f"<{n}>", new_text=f"[{n}]"))
    assert (workspace / "f").read_text() == "".join(f"[{n}]\n" for n in range(30))


async def test_a_reader_never_sees_a_part(write: Tool, workspace: Path) -> None:
    texts = ["a" * 400_000, "b" * 400_000]
    (workspace / "f").write_text(texts[0])
    seen, done = set[str](), threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add((workspace / "f").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for n in range(20):
            await said(write, path="f", content=texts[(n + 1) % 2])
    finally:
        done.set()
        reader.join()
    assert seen <= set(texts)
    assert [each.name for each in workspace.iterdir()] == ["f"], "nothing is left beside it"


# --- what is shown before ---------------------------------------------------------------------------


async def test_the_preview_is_the_difference_that_comes(edit: Tool, write: Tool, workspace: Path) -> None:
    (workspace / "a.py").write_text("x = 1\ny = 2\n")
    assert edit.preview
    assert write.preview
    assert edit.preview({"path": "a.py", "old_text": "y = 2", "new_text": "y = 3"}) == (
        "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3\n"
    )
    assert write.preview({"path": "new/b.py", "content": "z\n"}) == (
        "--- /dev/null\n+++ b/new/b.py\n@@ -0,0 +1 @@\n+z\n"
    )
    assert (workspace / "a.py").read_text() == "x = 1\ny = 2\n"
    assert not (workspace / "new").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": 3},
        {"path": "a"},
        {"path": "../x", "old_text": "", "new_text": ""},
        {"path": "\0", "content": 1},
    ],
)
async def test_a_preview_and_a_touch_of_anything_raise_nothing(
    edit: Tool, write: Tool, arguments: dict[str, Any]
) -> None:
    for tool in (edit, write):
        assert tool.preview
        assert isinstance(tool.preview(arguments), str)
        tool.touches(arguments)


async def test_a_call_touches_the_path_and_where_its_links_lead(edit: Tool, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "link").symlink_to("src")
    assert edit.touches({"path": "./src/a.py"}).paths == ("src/a.py",)
    assert edit.touches({"path": "link/a.py"}).paths == ("link/a.py", "src/a.py")
    assert edit.touches({"path": "src/../../x"}).paths == (str(workspace.parent / "x"),)


# --- taking back ----------------------------------------------------------------------------------


async def test_all_changes_of_a_file_are_taken_back_at_once(
    write: Tool, edit: Tool, workspace: Path, log: Log
) -> None:
    (workspace / "old").write_text("1\n")
    (workspace / "old").chmod(0o640)
    await said(write, path="new", content="n")
    await said(edit, path="old", old_text="1", new_text="2")
    await said(write, path="old", content="3\n")
    assert restore(workspace, log.kept) == {"new": "restored", "old": "restored"}
    assert [(each.name, each.read_text()) for each in workspace.iterdir()] == [("old", "1\n")]
    assert stat.S_IMODE((workspace / "old").stat().st_mode) == 0o640
    assert restore(workspace, log.kept) == {"new": "unchanged", "old": "unchanged"}


async def test_what_somebody_changed_since_stays(write: Tool, workspace: Path, log: Log) -> None:
    await said(write, path="f", content="ours")
    await said(write, path="g", content="ours")
    (workspace / "f").write_text("theirs")
    assert restore(workspace, log.kept) == {"f": "changed since", "g": "restored"}
    assert (workspace / "f").read_text() == "theirs"


async def test_what_was_forgotten_stays(workspace: Path) -> None:
    (workspace / "f").write_text("now")
    assert restore(workspace, [Kept("f", True, None, "")]) == {"f": "forgotten"}
    assert (workspace / "f").read_text() == "now"


async def test_taking_back_does_not_follow_a_link_that_leads_out(
    write: Tool, workspace: Path, log: Log
) -> None:
    await said(write, path="d/f", content="ours")
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("ours")
    (workspace / "d/f").unlink()
    (workspace / "d").rmdir()
    (workspace / "d").symlink_to(outside)
    (result,) = restore(workspace, log.kept).values()
    assert "outside the workspace" in result
    assert (outside / "f").read_text() == "ours"


# --- properties -----------------------------------------------------------------------------------

LINES = st.lists(st.sampled_from(["a", "b", "  a", "", "中", "a b", "\ta"]), max_size=8)


@settings(max_examples=300)
@given(LINES, LINES, LINES, st.booleans(), LINES)
def test_an_edit_replaces_exactly_what_was_named_in_either_line_end(
    before: list[str], old: list[str], after: list[str], crlf: bool, new: list[str]
) -> None:
    plain = "\n".join([*before, *old, *after])
    plain_old, plain_new = "\n".join(old), "\n".join(new)
    text = plain.replace("\n", "\r\n") if crlf else plain
    try:
        edit = edited(text, plain_old, plain_new, TextForm(crlf=crlf))
    except ToolError as error:
        assert not plain_old or plain_old == plain_new or plain.count(plain_old) > 1 or "times" in str(error)
        return
    assert plain_old in plain
    expected = plain.replace(plain_old, plain_new)
    assert edit.text == (expected.replace("\n", "\r\n") if crlf else expected)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200), content=st.text(max_size=60))
def test_whatever_stood_there_is_brought_back_byte_for_byte(
    workspace: Path, data: bytes, content: str
) -> None:
    log = Log(workspace)
    (workspace / "f").write_bytes(data)
    try:
        anyio.run(lambda: said(write_file_tool(workspace, log), path="f", content=content))
    finally:
        restored = restore(workspace, log.kept)
    assert set(restored.values()) <= {"restored"}
    assert (workspace / "f").read_bytes() == data
