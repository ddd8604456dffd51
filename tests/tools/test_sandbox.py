"""Commands in the sandbox, which try to get out of it. Real processes, with bubblewrap itself.

Where it leaked, a test must fail and not harm the machine that it runs on, perhaps as root: what would be
reached is the test's own, or is given the value that it has."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from perdure.errors import ToolError
from perdure.tools import watcher
from perdure.tools.bash import bash_tool
from perdure.tools.contract import Said
from perdure.tools.jobs import Jobs
from perdure.tools.sandbox import NO_BUBBLEWRAP, OFF, WHOLE_SYSTEM, Sandbox
from tools.running import gone, sleeper, there

pytestmark = pytest.mark.anyio

Bash = Callable[..., Awaitable[str]]


def works() -> bool:
    return Sandbox(Path(tempfile.gettempdir())).state().in_force


needs_sandbox = pytest.mark.skipif(not works(), reason="no bubblewrap, or it may not run here")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("hunter2\n")
    return outside


@pytest.fixture
def bash(workspace: Path) -> Bash:
    return bash_tool(workspace, sandbox=Sandbox(workspace, "on")).run


def python(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


# --- what works in it


@needs_sandbox
async def test_work_in_the_workspace_is_done_as_without_it(bash: Bash, workspace: Path) -> None:
    said = await bash(command="pwd; echo hello > file; mkdir -p a/b; cat file; echo no >&2; exit 3")
    assert said == f"{workspace}\nhello\nno\n[exit code 3]"
    assert (workspace / "file").read_text() == "hello\n"
    assert (workspace / "file").stat().st_uid == os.getuid()


@needs_sandbox
async def test_the_python_that_runs_perdure_runs_in_it(bash: Bash) -> None:
    assert (await bash(command=python("import perdure, anyio; print('here')"))).startswith("here\n")


@needs_sandbox
async def test_a_toolchain_of_the_home_folder_can_be_run_and_not_changed(
    bash: Bash, isolated_home: Path
) -> None:
    tool = isolated_home / ".local" / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho ran\n")
    tool.chmod(0o755)
    said = await bash(command=f"{tool}; echo evil > {tool}; rm {tool}")
    assert said.startswith("ran\n")
    assert "Read-only file system" in said
    assert tool.exists()


@needs_sandbox
async def test_the_home_folder_and_tmp_are_its_own_and_gone_afterwards(
    bash: Bash, isolated_home: Path
) -> None:
    said = await bash(
        command="echo cached > ~/.cache-of-a-tool && echo x > /tmp/x-of-a-tool && cat ~/.cache-*"
    )
    assert said == "cached\n[exit code 0]"
    assert not (isolated_home / ".cache-of-a-tool").exists()
    assert not Path("/tmp/x-of-a-tool").exists()


@needs_sandbox
async def test_folders_that_the_person_named_can_be_written(workspace: Path, outside: Path) -> None:
    bash = bash_tool(workspace, sandbox=Sandbox(workspace, "on", folders=[outside, outside / "gone"])).run
    assert (
        await bash(command=f"cat {outside}/secret.txt; echo new > {outside}/new") == "hunter2\n[exit code 0]"
    )
    assert (outside / "new").exists()


@needs_sandbox
async def test_who_commits_is_known_and_a_commit_can_be_made(
    bash: Bash, workspace: Path, isolated_home: Path
) -> None:
    (isolated_home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    said = await bash(command="echo x > x; git add x; git commit -qm first; git log --format='%an %s'")
    assert said == "Ada first\n[exit code 0]"


@needs_sandbox
async def test_a_git_configuration_with_a_token_in_it_stays_hidden(bash: Bash, isolated_home: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    (isolated_home / ".gitconfig").write_text(f"[http]\n\textraheader = Authorization: Bearer {token}\n")
    assert token not in await bash(command="cat ~/.gitconfig")


# --- how it ends


@needs_sandbox
async def test_exit_codes_and_signals(bash: Bash) -> None:
    assert (await bash(command="exit 7")).endswith("[exit code 7]")
    assert (await bash(command="kill -9 $$")).endswith("[exit code 137, as of SIGKILL]")
    assert (await bash(command="kill -SEGV $$")).endswith("[exit code 139, as of SIGSEGV]")


@needs_sandbox
async def test_a_command_that_times_out_is_asked_first(bash: Bash) -> None:
    said = await bash(command="trap 'echo bye; exit 5' TERM; echo on; sleep 60 & wait", timeout=0.5)
    assert said == "on\nbye\n[timed out after 0.5 s and was stopped; exit code 5]"


@needs_sandbox
async def test_what_is_left_in_the_background_is_named_and_stopped(bash: Bash) -> None:
    sleeps = sleeper()
    said = await bash(command=f"setsid {sleeps} > /dev/null 2>&1 & echo on")
    assert said == f"on\n[exit code 0; 1 process left in the background and stopped: {sleeps}]"
    assert gone(sleeps, within=1)


@needs_sandbox
async def test_a_command_that_ignores_signals_is_stopped(bash: Bash) -> None:
    sleeps = sleeper()
    command = (
        f"trap '' TERM INT HUP; (trap '' TERM; setsid sh -c 'trap \"\" TERM; {sleeps}; {sleeps}') & wait"
    )
    said = await bash(command=command, timeout=0.5)
    assert "timed out" in said
    assert gone(sleeps, within=1)


@needs_sandbox
async def test_output_of_a_process_that_ends_soon_is_waited_for(bash: Bash, workspace: Path) -> None:
    await bash(command="echo one > >(sleep 0.1; cat > log)")
    assert (workspace / "log").read_text() == "one\n"


@needs_sandbox
@pytest.mark.parametrize("whom", ["agent", "watcher"])
async def test_nothing_outlives_the_agent(workspace: Path, whom: str) -> None:
    sleeps = sleeper()
    command = f"setsid {sleeps} & {sleeps}"
    program = f"""
import anyio, sys
from pathlib import Path
from perdure.tools.bash import bash_tool
from perdure.tools.sandbox import Sandbox
workspace = Path({str(workspace)!r})
anyio.run(lambda: bash_tool(workspace, sandbox=Sandbox(workspace, "on")).run(command={command!r}))
"""
    agent = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        assert there(sleeps)
        if whom == "agent":
            agent.kill()
        else:
            subprocess.run(["pkill", "-9", "-P", str(agent.pid), "-f", "watcher.py"], check=True)
        assert gone(sleeps)
    finally:
        agent.kill()
        agent.wait()


# --- out of it, by the file system


@needs_sandbox
async def test_nothing_outside_the_workspace_can_be_written(bash: Bash, outside: Path) -> None:
    places = ["/etc/x", "/usr/bin/x", "/x", "/opt/x", "/proc/x", "/sys/x"]
    for place in places:
        said = await bash(command=f"echo evil > {place} && echo written")
        assert "written" not in said, place
        assert said.endswith("[exit code 1]"), said
    # What root may set, given its own value: a sandbox that leaks must not harm the machine of the test.
    for setting in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness"):
        said = await bash(command=f'value=$(cat {setting}); echo "$value" > {setting} && echo written')
        assert "written" not in said, setting
    await bash(command=f"mkdir -p {outside} && echo evil > {outside}/x && echo evil > {outside}/secret.txt")
    assert (outside / "secret.txt").read_text() == "hunter2\n"
    assert not (outside / "x").exists()


@needs_sandbox
async def test_the_home_folder_cannot_be_read(bash: Bash, isolated_home: Path) -> None:
    (isolated_home / ".ssh").mkdir()
    (isolated_home / ".ssh" / "id_ed25519").write_text("PRIVATE")
    (isolated_home / "notes.txt").write_text("PRIVATE")
    said = await bash(command="ls -A ~; cat ~/.ssh/id_ed25519 ~/notes.txt; cat /root/.bashrc; ls /home")
    assert "PRIVATE" not in said
    assert "notes" not in said.splitlines()


@needs_sandbox
async def test_no_other_file_of_tmp_can_be_read(bash: Bash, outside: Path) -> None:
    assert "hunter2" not in await bash(command=f"cat {outside}/secret.txt; cat ../outside/secret.txt")


@needs_sandbox
async def test_the_store_is_hidden_even_where_it_lies_in_the_workspace(workspace: Path) -> None:
    store = workspace / "sessions.db"
    store.write_text("PRIVATE")
    folder = workspace / "settings"
    folder.mkdir()
    (folder / "perdure.toml").write_text("api_key = 'PRIVATE'")
    sandbox = Sandbox(workspace, "on", hidden=[store, folder, workspace / "sessions.db-wal"])
    bash = bash_tool(workspace, sandbox=sandbox).run
    commands = [
        "cat sessions.db settings/*",
        "ln sessions.db copy; cat copy",
        "cp -r . /tmp/copy; cat /tmp/copy/*",
        "mv sessions.db other; cat other",
        "rm -f sessions.db; rm -rf settings; echo evil > sessions.db; umount sessions.db; cat sessions.db",
    ]
    for command in commands:
        assert "PRIVATE" not in await bash(command=command), command
    assert store.read_text() == "PRIVATE"
    assert not (workspace / "sessions.db-wal").exists()
    assert (folder / "perdure.toml").exists()


@needs_sandbox
async def test_of_a_home_folder_that_is_the_workspace_secrets_stay_hidden(isolated_home: Path) -> None:
    for place, text in ((".ssh/id", "PRIVATE"), (".netrc", "PRIVATE"), (".bashrc", "own"), ("a.txt", "seen")):
        (isolated_home / place).parent.mkdir(exist_ok=True)
        (isolated_home / place).write_text(text)
    bash = bash_tool(isolated_home, sandbox=Sandbox(isolated_home, "on")).run
    said = await bash(command="cat a.txt .ssh/id .netrc; echo evil >> .bashrc; echo new > new")
    assert "seen" in said
    assert "PRIVATE" not in said
    assert (isolated_home / ".bashrc").read_text() == "own"
    assert (isolated_home / "new").exists()


@needs_sandbox
async def test_links_lead_nowhere(bash: Bash, workspace: Path, outside: Path) -> None:
    (workspace / "link").symlink_to(outside)
    (workspace / "file-link").symlink_to(outside / "secret.txt")
    said = await bash(command="cat link/secret.txt file-link; echo evil > file-link; echo evil > link/new")
    assert "hunter2" not in said
    assert (outside / "secret.txt").read_text() == "hunter2\n"
    assert sorted(each.name for each in outside.iterdir()) == ["secret.txt"]


@needs_sandbox
async def test_a_hard_link_to_a_file_outside_cannot_be_made(bash: Bash, workspace: Path) -> None:
    said = await bash(command="ln /etc/hostname linked || ln /usr/bin/env linked")
    assert "linked" in said
    assert "[exit code 0]" not in said
    assert not (workspace / "linked").exists()


@needs_sandbox
async def test_nothing_can_be_mounted_and_no_other_namespace_made(bash: Bash, outside: Path) -> None:
    for command in (
        f"mkdir m; mount --bind {outside} m; cat m/secret.txt",
        "mount -o remount,rw /; touch /evil",
        "umount -l ~; ls -A ~ ..",
        f"unshare -Urm sh -c 'umount -l /tmp; cat {outside}/secret.txt'",
        f"bwrap --bind / / cat {outside}/secret.txt",
        "bwrap --dev-bind / / sh -c 'echo evil > /evil'",
    ):
        said = await bash(command=command)
        assert "hunter2" not in said, command
    assert not Path("/evil").exists()


@needs_sandbox
async def test_no_rights_can_be_won(bash: Bash) -> None:
    said = await bash(command="grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status")
    none = "0000000000000000"
    assert said.split("\n") == [f"CapPrm:\t{none}", f"CapEff:\t{none}", "NoNewPrivs:\t1", "[exit code 0]"]
    said = await bash(
        command="cp /bin/cat mycat; chmod u+s mycat; chown 0 mycat; ./mycat /etc/shadow; sudo -n id"
    )
    assert "root:" not in said
    assert "uid=0" not in said or os.getuid() == 0
    assert "[exit code 0]" not in said
    assert "[exit code 0]" not in await bash(command="cat /etc/shadow")
    assert "[exit code 0]" not in await bash(command="mknod disk b 8 0")


@needs_sandbox
async def test_what_acts_for_the_person_later_cannot_be_changed(bash: Bash, workspace: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    shutil.rmtree(workspace / ".git" / "hooks", ignore_errors=True)
    config = (workspace / ".git" / "config").read_text()
    (workspace / "perdure.toml").write_text("judge = 'off'\n")
    for command in (
        "echo '#!/bin/sh' > .git/hooks/pre-commit",
        "git config core.fsmonitor ./evil",
        "echo '[core] fsmonitor = ./evil' >> .git/config",
        "mv .git old && git init && git config core.fsmonitor ./evil",
        "rm -rf .git; git init; git config core.fsmonitor ./evil",
        "rm -f perdure.toml; echo 'lang = \"zh\"' > perdure.toml",
        "mv perdure.toml other; echo 'lang = \"zh\"' > perdure.toml",
        "mkdir -p .git/other && mv .git/hooks .git/other",
    ):
        await bash(command=command)
        assert (workspace / ".git" / "config").read_text() == config, command
        assert list((workspace / ".git" / "hooks").iterdir()) == [], command
        assert (workspace / "perdure.toml").read_text() == "judge = 'off'\n", command


# --- out of it, by processes


@needs_sandbox
async def test_processes_outside_are_neither_seen_nor_reached(bash: Bash) -> None:
    own = os.getpid()
    secret = "PERDURE_TEST_SECRET_OF_THE_AGENT"
    with subprocess.Popen(["sleep", "60"], env={**os.environ, secret: "1"}) as other:
        try:
            for pid in (own, other.pid, os.getppid()):
                said = await bash(command=f"kill -0 {pid}; cd /proc/{pid} && ls root; cat environ mem")
                assert "No such process" in said, said
            said = await bash(command=f"cat /proc/*/environ | tr '\\0' '\\n'; kill -9 {other.pid}; echo")
            assert secret not in said
            assert other.poll() is None
        finally:
            other.kill()


@needs_sandbox
async def test_the_first_process_is_no_way_out(bash: Bash, outside: Path) -> None:
    root = "/proc/1/root"
    said = await bash(command=f"cat {root}{outside}/secret.txt {root}/etc/shadow; ls /proc/1/cwd/ /proc/1/fd")
    assert "hunter2" not in said
    assert "root:" not in said


@needs_sandbox
async def test_it_is_given_no_descriptor_of_the_agent(bash: Bash) -> None:
    said = await bash(
        command=python("import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))")
    )
    # 3 is that of the folder that is being read; over the last one a shell tells its own.
    assert said == f"[0, 1, 2, 3, {watcher.TELLS}]\n[exit code 0]"


@needs_sandbox
async def test_it_has_no_terminal_to_type_into(bash: Bash) -> None:
    code = (
        "import fcntl, termios\nfor fd in (0, 1, 2):\n try: fcntl.ioctl(fd, termios.TIOCSTI, b'x')\n"
        " except OSError as e: print(e.errno)\n else: print('typed')"
    )
    said = await bash(command=f"{python(code)}; tty; echo x > /dev/tty")
    assert "typed" not in said
    assert "not a tty" in said
    assert "No such device" in said


# --- out of it, by the network and by sockets


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server on this machine that says `hello`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(b"hello")

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def connects(address: object, family: str = "AF_INET") -> str:
    return python(
        f"import socket\ns = socket.socket(socket.{family}); s.settimeout(5)\n"
        f"s.connect({address!r}); print(s.recv(9).decode())"
    )


@needs_sandbox
async def test_there_is_no_network_unless_it_is_allowed(bash: Bash, workspace: Path, server: int) -> None:
    said = await bash(command=connects(("127.0.0.1", server)))
    assert "hello" not in said
    assert "refused" in said
    assert "unreachable" in await bash(command=connects(("192.0.2.1", 80)))
    allowed = bash_tool(workspace, sandbox=Sandbox(workspace, "on", network=True)).run
    assert (await allowed(command=connects(("127.0.0.1", server)))).startswith("hello")


@needs_sandbox
@pytest.mark.parametrize(
    ("place", "network"),
    # Those without a file belong to the network.
    [("abstract", False), ("tmp", False), ("tmp", True), ("readable", False), ("readable", True)],
)
async def test_sockets_of_others_cannot_be_reached(workspace: Path, place: str, network: bool) -> None:
    # A folder that is neither hidden nor the workspace: where daemons outside of /run have theirs.
    folder = Path(tempfile.mkdtemp(dir="/var/lib" if os.access("/var/lib", os.W_OK) else None))
    name = {
        "abstract": f"\0perdure-test-{os.getpid()}",
        "tmp": str(Path(tempfile.mkdtemp()) / "s"),
        "readable": str(folder / "s"),
    }[place]
    bash = bash_tool(workspace, sandbox=Sandbox(workspace, "on", network=network)).run
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(name)
            listening.listen()
            said = await bash(command=connects(name, "AF_UNIX"))
            assert "Error" in said
            assert "timed out" not in said
            listening.settimeout(0.1)
            with pytest.raises(TimeoutError):
                listening.accept()
    finally:
        shutil.rmtree(folder)


def bubblewrap_after(folder: Path, monkeypatch: pytest.MonkeyPatch, commands: str) -> None:
    """Has the real bubblewrap run after these shell commands, from the next use on."""
    real = shutil.which("bwrap")
    folder.mkdir()
    first = folder / "bwrap"
    first.write_text(f'#!/bin/sh\n{commands}\nexec {real} "$@"\n')
    first.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@needs_sandbox
@pytest.mark.parametrize("background", [False, True])
async def test_what_goes_while_the_sandbox_is_made_is_no_trouble(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    """A daemon that ends, for one: its socket can't be covered any more."""
    place = Path(tempfile.mkdtemp(dir="/var/lib" if os.access("/var/lib", os.W_OK) else None))
    (place / "file").touch()
    bubblewrap_after(tmp_path / "first", monkeypatch, f"test ! -e {place}/go || rm -r {place}")
    sandbox = Sandbox(workspace, "on", hidden=[place / "file"])
    assert sandbox.state().in_force
    (place / "go").touch()
    jobs = Jobs()
    bash = bash_tool(workspace, sandbox=sandbox, jobs=jobs).run
    said = await bash(command="echo once >> log; cat log", background=background)
    jobs.stop_all()
    assert str(said).startswith("once\n[")
    assert "exit code 0" in said
    assert not place.exists(), "it went between the look and the making"


@needs_sandbox
@pytest.mark.parametrize("background", [False, True])
async def test_where_no_sandbox_can_be_made_any_more_nothing_runs(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    fails = "{ echo bwrap: no user namespaces left >&2; exit 1; }"
    bubblewrap_after(tmp_path / "first", monkeypatch, f"test ! -e {tmp_path}/go || {fails}")
    sandbox = Sandbox(workspace, "on")
    assert sandbox.state().in_force
    (tmp_path / "go").touch()
    jobs = Jobs()
    bash = bash_tool(workspace, sandbox=sandbox, jobs=jobs).run
    with pytest.raises(
        ToolError, match="sandbox could not be made, so nothing was run: bwrap: no user namespaces left"
    ):
        await bash(command="echo once >> log", background=background)
    assert not jobs.jobs("")
    assert not (workspace / "log").exists()


@needs_sandbox
@pytest.mark.parametrize(
    "end", ["exit 1", "exec false", "kill -9 $$", "trap - EXIT; exit 1", "exec 198>&-; exit 1"]
)
async def test_what_ends_badly_is_run_once(bash: Bash, workspace: Path, end: str) -> None:
    await bash(command=f"echo once >> log; {end}")
    assert (workspace / "log").read_text() == "once\n"


@needs_sandbox
async def test_a_socket_in_the_workspace_can_be_reached(bash: Bash, workspace: Path) -> None:
    server = (
        "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen()\n"
        "s.accept()[0].sendall(b'hello')"
    )
    said = await bash(command=f"{python(server)} & sleep 0.5; {connects('s', 'AF_UNIX')}; wait")
    assert said == "hello\n[exit code 0]"


@needs_sandbox
async def test_ways_to_the_persons_agents_are_not_even_named(workspace: Path) -> None:
    own = {**os.environ, "SSH_AUTH_SOCK": "/x", "DISPLAY": ":0", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}
    bash = bash_tool(workspace, environment=own, sandbox=Sandbox(workspace, "on")).run
    said = await bash(command="env | grep -E 'SSH_AUTH|DISPLAY|DBUS'; ls -A /run")
    assert said.startswith("(no output)")


@needs_sandbox
async def test_places_that_may_not_be_looked_at_are_no_trouble(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    (locked / "bin").mkdir(parents=True)
    locked.chmod(0)
    monkeypatch.setenv("PATH", f"{locked}/bin:{os.environ['PATH']}")
    try:
        sandbox = Sandbox(workspace, "on", folders=[locked / "bin"], hidden=[locked / "bin"])
        assert (await bash_tool(workspace, sandbox=sandbox).run(command="echo ran")).startswith("ran")
    finally:
        locked.chmod(0o755)


# --- where there is none


async def test_it_says_once_that_there_is_none(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin = workspace / "bin"
    bin.mkdir()
    for program in ("sh", "bash"):
        if found := shutil.which(program):
            (bin / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(bin))
    sandbox = Sandbox(workspace)
    bash = bash_tool(workspace, sandbox=sandbox).run
    first, second = await bash(command="echo ran"), await bash(command="echo ran")
    assert first == second == "ran\n[exit code 0]"
    assert isinstance(first, Said)
    assert isinstance(second, Said)
    assert first.notice
    assert first.notice[0].endswith("bubblewrap (bwrap) is not installed")
    assert "没有安装" in first.notice[1]
    assert second.notice is None
    assert sandbox.state().why == NO_BUBBLEWRAP


async def test_where_it_must_be_nothing_runs_without_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(workspace))
    bash = bash_tool(workspace, sandbox=Sandbox(workspace, "on"), environment={"PATH": os.defpath}).run
    with pytest.raises(ToolError, match="in a sandbox only, and there is none: bubblewrap"):
        await bash(command="touch ran")
    assert not (workspace / "ran").exists()


async def test_a_bubblewrap_that_fails_is_believed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = workspace / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace}:{os.environ['PATH']}")
    state = Sandbox(workspace).state()
    assert not state.in_force
    assert state.facts == {"said": "No permissions to create a new namespace"}


async def test_it_can_be_turned_off(workspace: Path, outside: Path) -> None:
    sandbox = Sandbox(workspace, "off")
    said = await bash_tool(workspace, sandbox=sandbox).run(command=f"cat {outside}/secret.txt")
    assert said == "hunter2\n[exit code 0]"
    assert isinstance(said, Said)
    assert said.notice is None
    assert sandbox.state().why == OFF


@needs_sandbox
async def test_the_whole_system_is_no_workspace_for_it() -> None:
    assert Sandbox(Path("/")).state().why == WHOLE_SYSTEM
