"""Public reports on sessions (kinds ``resume``, ``session.*``, ``interrupt``, ``memory.*``): what a session
is worth after a crash, an interruption, a torn file, a change of mind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.recalling import Recaller
from perdure.app import Sessions
from perdure.chat.messages import Entry, Kind, Message
from perdure.chat.repair import INTERRUPTED
from perdure.config import Settings
from perdure.memory.excerpts import excerpt
from perdure.memory.passages import Passage
from perdure.models.embedder import SentenceEncoder
from perdure.store.archive import Scope
from perdure.store.journal import Journal, NewEntry
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive
from scenarios.perdure_command import Command, Ran
from scripted_endpoint import Answer, Request, ScriptedEndpoint


def call(id: str, name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def calling(*calls: dict[str, Any]) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def store(command: Command) -> Path:
    return command.folder / "s.db"


def entries(path: Path, session: str = "s") -> list[Entry]:
    journal = SqliteJournal(path)
    try:
        return [each for each in journal.records(session) if isinstance(each, Entry)]
    finally:
        journal.close()


def goes_on(command: Command, task: str) -> Ran:
    return command("run", task, "--session", "s", "--store", str(store(command)), "--yes")


def conversation(request: Request) -> list[dict[str, Any]]:
    return [message for message in request.messages if message["role"] != "system"]


# --- resume: MoonshotAI/kimi-code#660


def test_a_call_without_a_result_is_answered_once_durably_and_the_next_prompt_is_valid(
    tmp_path: Path,
) -> None:
    with ScriptedEndpoint([Answer("one"), Answer("two")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        journal = SqliteJournal(store(command))
        journal.create("s", {"system": "be brief", "lang": "en"})
        two = calling(
            call("r1", "calculator", {"expression": "1+1"}), call("r2", "bash", {"command": "make"})
        )
        written: list[NewEntry] = [
            (Kind.USER, user("build it"), 5),
            (Kind.TOOL_CALL, two, 9),
            (Kind.TOOL_RESULT, result("r1", "2"), 5),
        ]
        journal.append("s", written)
        journal.close()
        assert goes_on(command, "go on").out == "one\n"
        first = entries(store(command))
        assert goes_on(command, "and on").out == "two\n"
    assert endpoint.refusals == []
    answered = [each.message["content"] for each in entries(store(command)) if each.kind is Kind.TOOL_RESULT]
    assert answered == ["2", INTERRUPTED]
    assert entries(store(command))[: len(first)] == first
    mended = [user("build it"), two, result("r1", "2"), result("r2", INTERRUPTED), user("go on")]
    assert [message["role"] for message in conversation(endpoint.requests[0])] == [m["role"] for m in mended]
    assert conversation(endpoint.requests[0])[2:] == mended[2:]
    assert conversation(endpoint.requests[1])[:5] == conversation(endpoint.requests[0])


# --- resume: anthropics/claude-code#31328


def test_a_result_whose_call_is_missing_is_repaired_named_and_still_found(tmp_path: Path) -> None:
    history = [
        user("list the islands"),
        result("gone", "zanzibar, pemba, mafia"),
        {"role": "assistant", "content": "There are three."},
    ]
    with ScriptedEndpoint([Answer("yes")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "old.json").write_text(json.dumps(history))
        kept = ("--store", str(store(command)))
        imported = command("sessions", "import", "old.json", "--session", "s", *kept)
        assert imported.code == 0
        assert "message 2:" in imported.err
        found = json.loads(command("recall", "s", "zanzibar", "--json", "--embedder", "none", *kept).out)
        assert any("zanzibar, pemba, mafia" in each["text"] for each in found)
        assert goes_on(command, "are there more?").code == 0
    assert endpoint.refusals == []
    assert "zanzibar, pemba, mafia" in json.dumps(endpoint.requests[0].messages)


# --- resume: PrimeIntellect-ai/prime-agent#1785; session.torn: github/copilot-cli#4098

GOOD = [
    json.dumps({"role": "user" if n % 2 else "assistant", "content": f"said {n} 你好"}, ensure_ascii=False)
    for n in range(1, 10)
]


def joined(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


TORN: dict[str, tuple[bytes, list[int], int]] = {
    "the last line is cut": (joined(GOOD[0]) + b'{"role":"assistant","content":"he', [1], 1),
    "cut inside a character": (
        joined(GOOD[0]) + GOOD[1].encode()[: GOOD[1].encode().index(b"\xe4") + 2],
        [1],
        1,
    ),
    "zeros as a middle line": (joined(GOOD[0]) + bytes(200) + b"\n" + joined(GOOD[1]), [1, 2], 1),
    "line 5 of 9 is bad": (joined(*GOOD[:4], '{"role": "us', *GOOD[5:]), [1, 2, 3, 4, 6, 7, 8, 9], 1),
    "no line break at the end": (joined(*GOOD[:2]) + GOOD[2].encode(), [1, 2, 3], 0),
}


@pytest.mark.parametrize(("data", "good", "damages"), TORN.values(), ids=TORN)
def test_every_good_line_of_a_torn_file_is_read_and_what_comes_later_is_read_as_well(
    tmp_path: Path, data: bytes, good: list[int], damages: int
) -> None:
    with ScriptedEndpoint([Answer("appended")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        (command.workspace / "torn.jsonl").write_bytes(data)
        kept = ("--store", str(store(command)))
        imported = command("sessions", "import", "torn.jsonl", "--session", "s", "--json", *kept)
        assert imported.code == 0, imported.err
        told = json.loads(imported.out)
        assert len(told["damages"]) == damages
        assert len([line for line in imported.err.splitlines() if "kept in the session" in line]) == damages
        assert goes_on(command, "three").code == 0
    assert endpoint.refusals == []
    texts = [str(each.message["content"]) for each in entries(store(command))]
    assert [int(text.split()[1]) for text in texts if text.startswith("said ")] == good
    assert texts[-2:] == ["three", "appended"]
    # What was read here is written, and read again, with the damage told no second time but kept.
    exported = command("sessions", "export", "s", "--format", "jsonl", "--raw", *kept)
    again = command("sessions", "import", "-", "--session", "t", "--json", *kept, stdin=exported.out)
    assert again.code == 0, again.err
    assert json.loads(again.out)["damages"] == []
    assert [each.message for each in entries(store(command), "t")] == [
        each.message for each in entries(store(command))
    ]


def test_a_file_with_nothing_in_it_is_named_and_makes_no_session(tmp_path: Path) -> None:
    command = Command(tmp_path)
    (command.workspace / "empty.jsonl").write_bytes(b"")
    done = command("sessions", "import", "empty.jsonl", "--session", "s", "--store", str(store(command)))
    assert (done.code, done.out) == (2, "")
    assert "empty.jsonl" in done.err
    assert command("sessions", "list", "--store", str(store(command))).out == ""


# --- interrupt: charmbracelet/crush#529


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
def test_an_interrupted_call_is_answered_before_the_next_request_and_its_command_is_dead(
    tmp_path: Path,
) -> None:
    mark = f"6{os.getpid()}.25"
    two = [
        ("i1", "bash", {"command": "echo 'src/x.py: TODO later'"}),
        ("i2", "bash", {"command": f"sleep {mark}"}),
    ]
    with ScriptedEndpoint([Answer(calls=two), Answer("4"), Answer("6")]) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        kept = ("--json", "--yes", "--session", "s", "--store", str(store(command)))
        process = command.start("run", "find TODOs", *kept)
        assert process.stdout is not None
        while (line := process.stdout.readline()) and '"tool.finished"' not in line:
            pass
        end = time.monotonic() + 20
        while not running(mark) and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 130
        assert not running(mark)
        assert goes_on(command, "never mind, what is 2+2?").out == "4\n"
        assert goes_on(command, "and 3+3?").out == "6\n"
    assert endpoint.refusals == []
    _, second, third = (conversation(request) for request in endpoint.requests)
    assert [message["role"] for message in second] == ["user", "assistant", "tool", "tool", "user"]
    assert "src/x.py: TODO later" in second[2]["content"]
    assert second[3] == result("i2", INTERRUPTED)
    assert third[: len(second)] == second
    assert sum(message["role"] == "tool" for message in third) == 2


def running(mark: str) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", mark.encode()]:
                return True
        except OSError:
            continue
    return False


# --- memory.stale: mem0ai/mem0#5867

OLD = "Ines works at the harbour office"
NEW = "Ines moved to the airport desk"


def told(journal: Journal) -> None:
    """A month of talk in which something changed."""
    journal.create("s", {"system": "be brief", "lang": "en"})
    for day in range(1, 21):
        said = {1: OLD, 9: NEW}.get(day, f"Part {day} of the report was written.")
        time = f"2026-03-{day:02d}T09:00:00+00:00"
        journal.append(
            "s",
            [
                (Kind.USER, user(said), 9, time),
                (Kind.ASSISTANT, {"role": "assistant", "content": "Noted."}, 3, time),
            ],
        )


@pytest.mark.parametrize("asked", ["where does Ines work?", "where did Ines work before?"])
@pytest.mark.parametrize("meaning", [False, True], ids=["words", "words and meaning"])
def test_of_a_fact_and_what_took_its_place_both_are_found_each_with_its_date(
    tmp_path: Path, asked: str, meaning: bool
) -> None:
    journal = SqliteJournal(tmp_path / "s.db")
    told(journal)
    archive = SqliteArchive(journal.path)
    recaller = Recaller(archive, SentenceEncoder() if meaning else None)
    while recaller.embed_some():
        pass
    found = [each.passage for each in recaller.search(asked, Scope("s"))]
    best = {passage.text for passage in found[:5]}
    assert {OLD, NEW} <= best
    shown = recaller.excerpt(asked, Scope("s"), limit=400, count=len, lang="en", about=False)
    assert shown is not None
    assert dated(shown.passages, OLD) < dated(shown.passages, NEW)
    assert shown.text.index(OLD) < shown.text.index(NEW), "in the order in which they were said"
    assert excerpt([*shown.passages], "s", "en", asked=True) == shown.text
    archive.close()
    journal.close()


def dated(passages: Any, text: str) -> str:
    found: list[Passage] = [passage for passage in passages if passage.text == text]
    return found[0].time


def test_saying_the_opposite_leaves_both_in_the_store(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "s.db")
    told(journal)
    journal.append("s", [(Kind.USER, user("Ines does not work at the airport desk"), 9)])
    journal.close()
    with Sessions(Settings(store=str(tmp_path / "s.db"), embedder="none")) as sessions:
        texts = [each.passage.text for each in sessions.recall("s", "Ines airport desk harbour office")]
    assert {OLD, NEW, "Ines does not work at the airport desk"} <= set(texts)
