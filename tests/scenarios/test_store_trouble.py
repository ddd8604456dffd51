"""A store that is full, can't be written, or is in use: what is said, and what is there afterwards."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.chat.messages import Entry, Kind
from perdure.store.migrations import MIGRATIONS
from perdure.store.sqlite import SqliteJournal
from scenarios.perdure_command import Command, Ran
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits and modes of POSIX")

ROUNDS = 3


def at_work(request: Request) -> Scripted:
    """Some rounds of a tool, then an answer."""
    if request.headers["x-perdure-purpose"] == "summarize":
        return Answer("- Steps are done.")
    rounds = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            break
        rounds += message["role"] == "assistant"
    if rounds < ROUNDS:
        number = len(json.dumps(request.messages))
        call = (f"c{number}", "calculator", {"expression": f"{number} + 1"})
        return Answer("Let me see. " * 40, calls=[call])
    return Answer("The answer is 42. " + "word " * 3_000)


def entries(path: Path, session: str = "s") -> list[Entry]:
    journal = SqliteJournal(path)
    try:
        return [each for each in journal.records(session) if isinstance(each, Entry)]
    finally:
        journal.close()


def is_sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def ran(command: Command, *arguments: str, prefix: tuple[str, ...] = (), largest: int | None = None) -> Ran:
    """Run the command, with files of at most ``largest`` bytes, or through another program."""

    def limited() -> None:
        assert largest is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    done = subprocess.run(
        [*prefix, sys.executable, "-m", "perdure.faces.cli.main", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=command.workspace,
        env=command.environment,
        preexec_fn=limited if largest is not None else None,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


# --- full


@dataclass
class Filling:
    """The endpoint's answers; ``fill`` is done when the request of this number has come in a run."""

    fill: Callable[[], None] = lambda: None
    at: int | None = None
    requests: int = 0

    def begin(self, at: int | None) -> None:
        self.at, self.requests = at, 0

    def __call__(self, request: Request) -> Scripted:
        if request.headers["x-perdure-purpose"] == "think":
            if self.requests == self.at:
                self.fill()
            self.requests += 1
        return at_work(request)


def check_full(path: Path, done: Ran, before: list[Entry], *, answered: bool) -> None:
    """One run on a full disk, and the session afterwards."""
    assert done.code == 1, done.err
    assert "Traceback" not in done.err
    assert len([line for line in done.err.splitlines() if "cannot be used" in line]) == 1, done.err
    assert done.out.startswith("The answer is 42.") is answered
    assert is_sound(path)
    now = entries(path)
    assert now[: len(before)] == before
    assert [entry.seq for entry in now] == list(range(1, len(now) + 1))


def test_a_disk_that_is_full_is_a_clear_error_and_the_answer_is_printed_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "store" / "s.db"
    kept = ("--store", str(path), "--session", "s", "--embedder", "none", "--context-window", "60000")
    filling = Filling()
    with ScriptedEndpoint(filling) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "Begin.", *kept).code == 0
        before = entries(path)
        done = ran(command, "run", "Go on.", *kept, largest=4_096)
        check_full(path, done, before, answered=False)
        for at in range(ROUNDS + 1):
            before = entries(path)
            filling.begin(at)
            running = command.start("run", f"Go on with {at}.", *kept)
            # No file may become larger than the log is now: as a full disk, for this process alone.
            filling.fill = lambda process=running.pid: resource.prlimit(  # type: ignore[misc]
                process, resource.RLIMIT_FSIZE, (largest(path), largest(path))
            )
            out, err = running.communicate(timeout=60)
            check_full(path, Ran(running.returncode, out, err), before, answered=at == ROUNDS)
            # The log may have had a little room left.
            assert len(entries(path)) >= len(before) + 1 + 2 * at
        filling.begin(None)
        assert command("run", "And now?", *kept).code == 0
    assert endpoint.refusals == []


def largest(path: Path) -> int:
    return max(each.stat().st_size for each in path.parent.glob("s.db-wal"))


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    """A file system of its own at the folder, where that may be had."""
    folder.mkdir(exist_ok=True)
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run([mount, *arguments, str(folder)], capture_output=True, check=False).returncode
    ):
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_file_system_that_fills_up_during_a_run_loses_nothing_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "small"
    path = folder / "s.db"
    kept = ("--store", str(path), "--session", "s", "--embedder", "none", "--context-window", "60000")

    def fill() -> None:
        room = os.statvfs(folder)
        (folder / "filling").write_bytes(bytes(room.f_bavail * room.f_frsize))

    filling = Filling(fill)
    with mounted(folder, "-t", "tmpfs", "-o", "size=2m", "tmpfs"), ScriptedEndpoint(filling) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "Begin.", *kept).code == 0
        for at in (1, ROUNDS):
            before = entries(path)
            filling.begin(at)
            done = command("run", "Go on.", *kept)
            (folder / "filling").unlink()
            check_full(path, done, before, answered=at == ROUNDS)
        filling.begin(None)
        assert command("run", "And now?", *kept).code == 0
    assert endpoint.refusals == []


@pytest.mark.parametrize(
    ("arguments", "lang", "said"),
    [
        (("forget", "s", "--entries", "1"), "en", "the file still holds what was forgotten"),
        (("forget", "s"), "zh", "文件里仍留有已忘记的内容"),
        (("sessions", "rm", "s"), "en", "the file still holds what was forgotten"),
    ],
)
def test_what_is_forgotten_on_a_full_disk_is_forgotten_and_leaves_the_file_when_there_is_room(
    tmp_path: Path, arguments: tuple[str, ...], lang: str, said: str
) -> None:
    path = tmp_path / "store" / "s.db"
    journal = SqliteJournal(path)
    for name, text in (("s", "the code is zanzibar"), ("other", "begin")):
        journal.create(name, {})
        journal.append(name, [(Kind.USER, {"role": "user", "content": text}, 5)])
    for number in range(40):
        filler = random.Random(number).randbytes(6_000).hex()
        journal.append("other", [(Kind.USER, {"role": "user", "content": filler}, 5)])
    journal.close()
    command = Command(tmp_path, "http://127.0.0.1:9/v1")
    kept = ("--store", str(path), "--lang", lang)
    # Room to write what goes, and none to write the whole file anew.
    done = ran(command, *arguments, "--yes", *kept, largest=path.stat().st_size)
    assert (done.code, done.err.count(said)) == (0, 1), done.err
    assert is_sound(path)
    assert is_to_be_cleaned(path)
    assert command("sessions", "list", *kept).code == 0
    assert not is_to_be_cleaned(path)
    assert b"zanzibar" not in b"".join(each.read_bytes() for each in path.parent.iterdir())


def is_to_be_cleaned(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("SELECT traces FROM archive").fetchone()[0])


@pytest.mark.parametrize("room", [0, 32_768, 65_536, 150_000])
def test_an_older_store_on_a_full_disk_is_whole_and_is_searched_when_there_is_room(
    tmp_path: Path, room: int
) -> None:
    """With ``room`` bytes, it is full for whoever opens the store, updates it, or takes its entries in."""
    folder = tmp_path / "small"
    path = folder / "store" / "s.db"
    with mounted(folder, "-t", "tmpfs", "-o", "size=3m", "tmpfs"), ScriptedEndpoint([]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        left_by_an_older_one(path, 1, turns=150)
        free = os.statvfs(folder)
        (folder / "filling").write_bytes(bytes(free.f_bavail * free.f_frsize - room))
        searching = ("recall", "s", "zanzibar", "--embedder", "none", "--store", str(path))
        for arguments in (searching, ("sessions", "list", "--store", str(path))):
            done = command(*arguments)
            assert "Traceback" not in done.err
            assert done.code == 0 or "cannot be used: database or disk is full" in done.err
        (folder / "filling").unlink()
        assert is_sound(path)
        assert len(entries(path)) == 300
        assert "zanzibar is an island" in command(*searching).out


# --- can't be written


@dataclass(frozen=True)
class Locked:
    """How a store is kept from being written: modes of the file and its folder, and whether it is another
    person's."""

    file: int
    folder: int
    another: bool = False


#: Root may write anything, unless it gives that up.
PREFIX = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner") if os.geteuid() == 0 else ()


@contextmanager
def locked(path: Path, how: Locked) -> Iterator[None]:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may write anything here")
    if how.another and os.geteuid() != 0:
        pytest.skip("only root can make a file another person's")
    files = list(path.parent.glob("s.db*"))
    for each in files:
        each.chmod(how.file)
    path.parent.chmod(how.folder)
    if how.another:
        for each in (*files, path.parent):
            os.chown(each, 65_534, 65_534)
    try:
        yield
    finally:
        if how.another:
            for each in (*files, path.parent):
                os.chown(each, 0, 0)
        path.parent.chmod(0o755)
        for each in files:
            each.chmod(0o644)


LOCKED = {
    "the file": Locked(0o444, 0o755),
    "the file and its folder": Locked(0o444, 0o555),
    "the folder": Locked(0o644, 0o555),
    "another person's": Locked(0o644, 0o755, another=True),
}


READING = {
    ("sessions", "show", "s"): "zanzibar",
    ("recall", "s", "zanzibar", "--embedder", "none"): "zanzibar",
    ("sessions", "list"): "zanzibar",
    ("sessions", "export", "s"): "zanzibar",
    ("recall", "s", "island in the sea"): "zanzibar",
    ("context", "s"): "tokens",
    ("sessions", "verify", "s"): "prompt",
}
WRITING = (
    ("run", "Go on.", "--session", "s"),
    ("run", "Begin.", "--session", "new"),
    ("sessions", "undo", "s"),
    ("sessions", "fork", "s"),
    ("sessions", "rm", "s", "--yes"),
    ("forget", "s", "--entries", "1", "--yes"),
)


def check_reading(command: Command, path: Path, prefix: tuple[str, ...], some: int | None = None) -> None:
    """All that only reads works, or ``some`` of it, where the rest is looked at elsewhere."""
    for arguments, words in list(READING.items())[:some]:
        done = ran(command, *arguments, "--store", str(path), prefix=prefix)
        assert done.code == 0, (arguments, done.err)
        assert words in done.out, arguments


def check_refused(command: Command, path: Path, prefix: tuple[str, ...], some: int | None = None) -> None:
    """All that writes says that it can't."""
    for arguments in WRITING[:some]:
        done = ran(command, *arguments, "--store", str(path), prefix=prefix)
        assert done.code == 1, arguments
        assert "cannot be written: attempt to write a readonly database. It can still be read" in done.err
        assert f"the right to write the file and its folder {path.parent}." in done.err
        assert "--store" not in done.err
        assert "Traceback" not in done.err


@pytest.mark.parametrize("how", LOCKED.values(), ids=LOCKED)
def test_a_store_that_can_only_be_read_is_read_and_says_that_it_cant_be_written(
    tmp_path: Path, how: Locked
) -> None:
    path = tmp_path / "store" / "s.db"
    with ScriptedEndpoint(lambda _: Answer("Noted.")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "zanzibar is an island", "--session", "s", "--store", str(path)).code == 0
        before, seen = path.read_bytes(), len(endpoint.requests)
        with locked(path, how):
            some = None if how is LOCKED["the file and its folder"] else 2
            check_reading(command, path, PREFIX, some)
            check_refused(command, path, PREFIX, some and 1)
        assert path.read_bytes() == before
        assert len(endpoint.requests) == seen, "no model is asked in vain"


@pytest.mark.parametrize(("lang", "told"), [("en", "1 entry could not be taken"), ("zh", "有 1 条记录未能")])
def test_recall_says_what_it_could_not_search(tmp_path: Path, lang: str, told: str) -> None:
    path = tmp_path / "store" / "s.db"
    with ScriptedEndpoint(lambda _: Answer("Noted.")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "zanzibar is an island", "--session", "s", "--store", str(path)).code == 0
        connection = sqlite3.connect(path)
        connection.execute("UPDATE session SET indexed = entries - 1")
        connection.commit()
        connection.close()
        asked = ("recall", "s", "zanzibar", "--embedder", "none", "--lang", lang)
        with locked(path, LOCKED["the file and its folder"]):
            done = ran(command, *asked, "--store", str(path), prefix=PREFIX)
        assert (done.code, told in done.err) == (0, True), done.err
        assert "zanzibar" in done.out
        done = ran(command, *asked, "--store", str(path), prefix=())
        assert (done.code, done.err) == (0, ""), "what can be written is searched whole"


@pytest.mark.parametrize("how", ["the file and its folder", "the folder"])
def test_what_stands_in_the_log_alone_is_read_where_nothing_can_be_written(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store" / "s.db"
    program = (
        "import os, sys; from pathlib import Path\n"
        "from perdure.store.sqlite import SqliteJournal; from perdure.chat.messages import Kind\n"
        "journal = SqliteJournal(Path(sys.argv[1])); journal.create('s', {'system': 'x', 'lang': 'en'})\n"
        "journal.append('s', [(Kind.USER, {'role': 'user', 'content': 'zanzibar is an island'}, 5)])\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    Path(f"{path}-shm").unlink()  # as of a copy, or after the machine went down
    assert Path(f"{path}-wal").stat().st_size > 0
    command = Command(tmp_path)
    with locked(path, LOCKED[how]):
        for arguments in (("sessions", "show", "s"), ("recall", "s", "zanzibar", "--embedder", "none")):
            done = ran(command, *arguments, "--store", str(path), prefix=PREFIX)
            assert (done.code, "zanzibar is an island" in done.out) == (0, True), done.err
        check_refused(command, path, PREFIX, 3)


def left_by_an_older_one(path: Path, schema: int, turns: int = 2) -> None:
    """A store of an older schema, with the session s."""
    path.parent.mkdir()
    said = ({"role": "user", "content": "zanzibar is an island"}, {"role": "assistant", "content": "Noted."})
    rows = [
        (number, number - 1, message["role"], json.dumps(message))
        for number, message in enumerate(said * turns, 1)
    ]
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.create_function("shown_request", 1, str)
    first, *later = MIGRATIONS[:schema]
    for statement in first:
        connection.execute(statement)
    connection.execute("INSERT INTO session (id, name, created) VALUES (1, 's', '2025-01-01')")
    connection.executemany(
        "INSERT INTO record (session, seq, after, type, body, tokens, time)"
        " VALUES (1, ?, ?, ?, ?, 7, '2025-01-02')",
        rows,
    )
    # Later steps fill what they add from what is there.
    for step in later:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("how", "schema"),
    [
        *((how, 1) for how in LOCKED),
        *(("the folder", schema) for schema in range(2, len(MIGRATIONS))),
    ],
)
def test_an_older_store_that_can_only_be_read_is_read_as_it_would_be_after_an_update(
    tmp_path: Path, how: str, schema: int
) -> None:
    path = tmp_path / "store" / "s.db"
    left_by_an_older_one(path, schema)
    with ScriptedEndpoint(lambda _: Answer("Noted.")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        before = path.read_bytes()
        with locked(path, LOCKED[how]):
            everywhere = how == "the file and its folder"
            check_reading(command, path, PREFIX, len(READING) - 1 if everywhere else 2)
            check_refused(command, path, PREFIX, None if everywhere else 1)
        assert path.read_bytes() == before
        assert not endpoint.requests, "no model is asked in vain"
        done = command("run", "Go on.", "--session", "s", "--store", str(path))
        assert (done.code, len(entries(path))) == (0, 6), done.err


def test_a_file_system_that_can_only_be_read_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    path = folder / "s.db"
    with ScriptedEndpoint(lambda _: Answer("Noted.")) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        assert command("run", "zanzibar is an island", "--session", "s", "--store", str(path)).code == 0
        with mounted(folder, "--bind", str(folder)):
            subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
            check_reading(command, path, (), 2)
            check_refused(command, path, (), 1)


@pytest.mark.parametrize(
    "how", [LOCKED["the file and its folder"], LOCKED["another person's"]], ids=["mine", "another person's"]
)
def test_what_a_killed_run_left_in_the_log_is_read_where_nothing_can_be_written(
    tmp_path: Path, how: Locked
) -> None:
    path = tmp_path / "store" / "s.db"
    call = Answer(calls=[("c", "bash", {"command": "sleep 60"})])
    with ScriptedEndpoint([call]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        killed_at_work(command, endpoint, path, "zanzibar is an island")
        assert Path(f"{path}-wal").stat().st_size > 0
        with locked(path, how):
            check_reading(command, path, PREFIX, 2)


# --- not a store


@pytest.mark.parametrize(
    ("lang", "said"), [("en", "another program's database"), ("zh", "是其他程序的数据库")]
)
def test_another_programs_database_is_refused_by_every_command(tmp_path: Path, lang: str, said: str) -> None:
    path = tmp_path / "places.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE moz (a)")
    connection.close()
    before = path.read_bytes(), path.stat().st_mtime_ns
    with ScriptedEndpoint([]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        for arguments in (*READING, *WRITING):
            done = command(*arguments, "--store", str(path), "--lang", lang)
            assert (done.code, done.out) == (1, ""), arguments
            assert said in done.err
            assert "Traceback" not in done.err
        assert not endpoint.requests, "no model is asked in vain"
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [each.name for each in tmp_path.glob("places*")] == ["places.sqlite"]


# --- in use


def at_the_tool(command: Command, endpoint: ScriptedEndpoint, path: Path, task: str) -> subprocess.Popen[str]:
    """A run whose tool goes on and on."""
    kept = ("--json", "--yes", "--session", "s", "--store", str(path))
    process = command.start("run", task, *kept)
    assert process.stdout is not None
    while (line := process.stdout.readline()) and "tool.started" not in line:
        pass
    return process


def killed_at_work(command: Command, endpoint: ScriptedEndpoint, path: Path, task: str) -> None:
    process = at_the_tool(command, endpoint, path, task)
    process.kill()
    process.communicate(timeout=20)


def test_a_session_in_use_can_be_read_and_its_user_is_named_and_a_dead_one_is_replaced_at_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    store = ("--store", str(path))
    script = [Answer(calls=[("c", "bash", {"command": "sleep 60"})]), Answer("fine")]
    with ScriptedEndpoint(script) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        holder = at_the_tool(command, endpoint, path, "zanzibar is an island")
        for lang, said in (("en", "in use by process"), ("zh", "上的进程")):
            second = command("run", "me too", "--session", "s", *store, "--lang", lang)
            assert (second.code, second.out) == (1, "")
            assert said in second.err
            assert str(holder.pid) in second.err
            assert "Traceback" not in second.err
        for arguments in (
            ("sessions", "undo", "s"),
            ("sessions", "rm", "s", "--yes"),
            ("forget", "s", "--entries", "1", "--yes"),
            ("compact", "s"),
        ):
            refused = command(*arguments, *store)
            assert (refused.code, refused.out) == (1, ""), arguments
            assert str(holder.pid) in refused.err
        check_reading(command, path, ())
        assert command("run", "elsewhere", "--session", "t", *store, "--max-time", "1").code in {0, 3}
        assert holder.poll() is None
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=20)
        began = time.monotonic()
        after = command("run", "go on", "--session", "s", *store)
        assert (after.code, after.out) == (0, "fine\n"), after.err
        assert time.monotonic() - began < 30, "it doesn't wait for a dead one"
    assert endpoint.refusals == []
    shown = command("sessions", "show", "s", "--json", *store)
    kinds = [json.loads(line)["kind"] for line in shown.out.splitlines()]
    assert kinds == ["user", "tool_call", "tool_result", "user", "assistant"]
