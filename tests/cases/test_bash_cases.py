"""Public reports of shell tools that hung, leaked processes, or broke on bytes (kinds ``process``,
``bash.background``, ``bash.interactive``, ``bash.bytes``), as tests of the whole kind.

The timeouts given to the tool are far longer than anything here takes: a command that uses one up
was hanging.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.chat.calls import ToolCall
from perdure.tools.bash import bash_tool
from perdure.tools.registry import Registry
from tools.running import gone, sleeper

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not shutil.which("bash"), reason="no bash here"),
]

#: Seconds given to a command that must end by itself, and in which it must, on a busy machine.
GIVEN, QUICK = 60.0, 20.0


def needing(command: str) -> object:
    name = command.split(maxsplit=1)[0]
    return pytest.param(command, marks=pytest.mark.skipif(not shutil.which(name), reason=f"no {name} here"))


async def said_by(workspace: Path, command: str, timeout: float = GIVEN) -> str:
    """What a model reads of the call, as it goes over the wire."""
    arguments = json.dumps({"command": command, "timeout": timeout})
    outcome = await Registry([bash_tool(workspace)]).call(ToolCall("c", "bash", arguments))
    assert outcome.ok, outcome.text
    sent = json.dumps(outcome.text, ensure_ascii=False).encode()
    assert json.loads(sent) == outcome.text
    return outcome.text


async def quickly_said_by(workspace: Path, command: str) -> str:
    began = time.monotonic()
    said = await said_by(workspace, command)
    assert time.monotonic() - began < QUICK
    assert "timed out" not in said
    assert "exit code" in said
    return said


# --- bash.background; process: a-bash-01


@pytest.mark.parametrize(
    "command, first, left",
    [
        ("{s} & echo ok", "ok", True),
        ("(while :; do echo x; {s}; done) & echo ok", "ok", True),
        ("(while :; do echo x; sleep 0.05; done) & echo ok; : {s}", "ok", True),
        ("python3 -m http.server 0 --bind 127.0.0.1 >/dev/null 2>&1 & echo ok; : {s}", "ok", True),
        ("nohup {s} > log 2>&1 < /dev/null & disown; echo ok", "ok", True),
        ("{s} | cat & echo ok", "ok", True),
        ("coproc {s}; echo ok", "ok", True),
        ("bash -c '{s} & {s} &' ; echo ok", "ok", True),
        ("yes > /dev/null & echo ok; : {s}", "ok", True),
        ("yes & echo ok; : {s}", None, True),
        ("true & : {s}", "(no output)", False),
        ("true; : {s}", "(no output)", False),
        ("sleep 0.1 & echo ok; : {s}", "ok", False),
    ],
)
async def test_a_call_returns_with_its_command_and_what_it_left_is_stopped(
    command: str, first: str | None, left: bool, tmp_path: Path
) -> None:
    sleeping = sleeper()
    said = await quickly_said_by(tmp_path, command.format(s=sleeping))
    assert "exit code 0" in said
    if first:
        assert first in said.splitlines()
    assert gone(sleeping, within=0)
    assert ("left in the background and stopped" in said) == left


@pytest.mark.skipif(not shutil.which("setsid"), reason="no setsid here")
@pytest.mark.parametrize(
    "command", ["setsid {s} & echo ok", "setsid -f {s}; echo ok", "(setsid nohup {s} &); echo ok"]
)
async def test_leaving_the_session_is_no_way_out(command: str, tmp_path: Path) -> None:
    sleeping = sleeper()
    said = await quickly_said_by(tmp_path, command.format(s=sleeping))
    assert said.startswith("ok\n[exit code 0; 1 process left in the background")
    assert gone(sleeping, within=0)


# --- process: a-bash-02, a-bash-03


@pytest.mark.parametrize(
    "command",
    [
        "find / -name x 2>/dev/null | grep y; {s} | grep y",
        "{s} | {s} | {s}",
        "trap '' TERM; {s}; {s}; {s}",
        "(trap '' TERM INT HUP QUIT; {s}; {s}) | cat",
        "{s} & {s} & wait",
        "while :; do {s}; done",
        "tail -f /dev/null & {s}",
        "exec {s}",
        "time {s}",
    ],
)
async def test_at_the_timeout_there_is_an_answer_and_no_process(command: str, tmp_path: Path) -> None:
    sleeping = sleeper()
    began = time.monotonic()
    said = await said_by(tmp_path, command.format(s=sleeping), timeout=1)
    assert time.monotonic() - began < QUICK
    assert "timed out after 1 s" in said
    assert gone(sleeping, within=0)


# --- bash.interactive; process: a-bash-04


@pytest.mark.parametrize(
    "command",
    [
        "read -p 'name? ' n; echo \"[$n]\"",
        "read -s -p 'password: ' x < /dev/tty; echo \"[$x]\"",
        "sh -c 'read x < /dev/tty; echo got'",
        "select x in a b; do echo $x; done",
        "cat",
        "cat - | wc -c",
        "head -1",
        "bash",
        "bash -i",
        "sh",
        "python3",
        "python3 -i -c 'x = 1'",
        "python3 -c 'input(\"name? \")'",
        "python3 -c 'import getpass; getpass.getpass()'",
        needing("node"),
        needing("sqlite3"),
        needing("bc"),
        needing("ssh localhost"),
        needing("ssh -o ConnectTimeout=5 -p 1 nobody@127.0.0.1"),
        needing("ssh-keygen -f ./made"),
        needing("sudo -k true"),
        needing("busybox vi file"),
        needing("vim.tiny file"),
        needing("vim file"),
        needing("vi file"),
        needing("nano file"),
        needing("emacs -nw file"),
        needing("less /etc/passwd"),
        needing("more /etc/passwd"),
        needing("man ls"),
        needing("top"),
        needing("crontab -e"),
        needing("gpg --gen-key"),
        needing("mysql"),
        needing("npm init"),
    ],
)
async def test_nothing_waits_for_a_person(command: str, tmp_path: Path) -> None:
    said = await quickly_said_by(tmp_path, command)
    assert "left in the background" not in said


async def test_a_prompt_gets_the_end_of_input(tmp_path: Path) -> None:
    assert await quickly_said_by(tmp_path, "read -p 'name? ' n; echo \"[$n] $?\"") == "[] 1\n[exit code 0]"


@pytest.mark.skipif(not shutil.which("vim"), reason="no vim here")
async def test_vim_as_an_editor_fails_but_as_a_script_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\n")
    said = await quickly_said_by(tmp_path, "vim file")
    assert "not from a terminal" in said
    assert "[exit code 1]" in said
    assert "[exit code 0]" in await quickly_said_by(tmp_path, "vim -c '%s/a/b/' -c wq file > /dev/null")
    assert "[exit code 0]" in await quickly_said_by(tmp_path, "vim -es -c '%s/b/bc/' -c wq file")
    assert await quickly_said_by(tmp_path, "cat file") == "bc\n[exit code 0]"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if not shutil.which("git"):
        pytest.skip("no git here")
    for command in (
        ["git", "init", "-q"],
        ["git", "config", "user.name", "x"],
        ["git", "config", "user.email", "y@example.org"],
        *(["git", "commit", "-q", "--allow-empty", "-m", number] for number in ("one", "two", "three")),
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize(
    "command, hint",
    [
        ("git commit --allow-empty", "-m or -F"),
        ("git commit --amend --allow-empty", "-m or -F"),
        ("git tag -a v1", "editor"),
        ("git rebase -i HEAD~2", "GIT_SEQUENCE_EDITOR"),
        ("git rebase -i --root", "GIT_SEQUENCE_EDITOR"),
        ("git notes add", "editor"),
        ("git branch --edit-description", "editor"),
        ("EDITOR= VISUAL= git commit --allow-empty", "editor"),
    ],
)
async def test_git_without_an_editor_fails_and_changes_nothing(
    command: str, hint: str, repository: Path
) -> None:
    state = "git log --format=%H%s; git tag; git status --porcelain"
    before = await quickly_said_by(repository, state)
    said = await quickly_said_by(repository, command)
    assert re.search(r"\[exit code [1-9]", said)
    assert hint in said
    assert await quickly_said_by(repository, state) == before


async def test_git_with_what_it_needs_works(repository: Path) -> None:
    said = await quickly_said_by(
        repository,
        "git commit -q --allow-empty -m four && git commit -q --amend --no-edit --allow-empty && "
        "GIT_SEQUENCE_EDITOR=true git rebase -q -i HEAD~1 && git log --format=%s",
    )
    assert said == "four\nthree\ntwo\none\n[exit code 0]"


class AsksForPassword(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="private"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def private_remote() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), AsksForPassword) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/private.git"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "command", ["git push {url} HEAD", "git clone {url}", "git ls-remote {url}", "git fetch {url}"]
)
async def test_git_needing_a_password_fails_and_says_so(
    command: str, repository: Path, private_remote: str
) -> None:
    said = await quickly_said_by(repository, f"no_proxy=127.0.0.1 {command.format(url=private_remote)}")
    assert "could not read Username" in said
    assert "[exit code 128]" in said


# --- bash.bytes


@pytest.mark.parametrize(
    "command, text",
    [
        (r"printf '\xff\xfe\x00A'", "��␀A"),
        (r"printf 'caf\xe9'", "caf�"),
        (r"printf '\033[31mred\033[0m'", "red"),
        (r"printf 'a\0b\0c\n'", "a␀b␀c"),
        (r"printf '\xe5\xad'", "�"),
        (r"printf '\xed\xa0\x80\xed\xb0\x80'", "������"),
        (r"printf '\xf4\x90\x80\x80'", "����"),
        (r"printf 'one\r\ntwo\r\n'", "one\ntwo"),
        (r"printf '\033]0;title\007text\033[K\033(B'", "text"),
        (r"printf '字\xef\xbb\xbf😀'", "字\ufeff😀"),
        (r"printf '\xff' >&2", "�"),
        (r"printf 'x\b\a\f\v'", "x␈␇␌␋"),
    ],
)
async def test_any_bytes_become_text_that_can_be_sent(command: str, text: str, tmp_path: Path) -> None:
    assert await quickly_said_by(tmp_path, command) == f"{text}\n[exit code 0]"


@pytest.mark.parametrize("size", [1, 100, 5000, 40_000, 3_000_000])
async def test_random_bytes_fit_and_never_raise(size: int, tmp_path: Path) -> None:
    said = await quickly_said_by(tmp_path, f"head -c {size} /dev/urandom")
    assert len(said) <= 30_000
    if size >= 5000:
        assert f"binary, {size} bytes" in said


async def test_a_character_split_between_writes_stays_whole(tmp_path: Path) -> None:
    command = r"printf '\xe5'; sleep 0.1; printf '\xad'; sleep 0.1; printf '\x97'"
    assert await quickly_said_by(tmp_path, command) == "字\n[exit code 0]"


async def test_one_endless_line_is_cut_at_characters(tmp_path: Path) -> None:
    said = await quickly_said_by(tmp_path, "yes 字😀 | head -c 8000000 | tr -d '\\n'")
    assert len(said) <= 30_000
    assert "�" not in said.replace("[", "")[:-100]
    assert re.search(r"\d{7} bytes of output", said)
