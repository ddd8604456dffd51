"""`perdure sessions`, `recall`, `forget` and `run --continue` as a person or a script uses them."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pexpect
import pytest
from rich.cells import cell_len

from perdure.agent.conversation import Conversation, result_message
from perdure.app.sessions import CATCHING_UP
from perdure.chat.messages import Entry, Kind, Message, kind_of
from perdure.chat.tokens import Usage, counter_for
from perdure.faces.cli.main import run
from perdure.memory.budget import Budget
from perdure.store.journal import Recorded
from perdure.store.sqlite import SqliteJournal
from scenarios.perdure_command import Command, Ran
from scripted_endpoint import Answer, ScriptedEndpoint

KEY = "sk-proj-Ab3dEf6hIj9kLm2nOp5q"
CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
#: Five turns' worth of everything: what is said, a tool round, Chinese, a secret.
SAID: tuple[Message, ...] = (
    {"role": "user", "content": "The staging port is 54329; please list the files."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "frost_lantern.py\nledger.py"},
    {"role": "assistant", "content": "Two files: frost_lantern.py and ledger.py."},
    {"role": "user", "content": f"The key is {KEY}, keep it to yourself."},
    {"role": "assistant", "content": "I will."},
    {"role": "user", "content": "网关密钥每月十七号轮换一次。"},
    {"role": "assistant", "content": "好的，我记住了。"},
)


class Kept:
    """A store, filled in process, and the command that works on it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sessions.db"
        self.command = Command(folder, "http://127.0.0.1:9/v1")

    def holds(self, name: str = "s", said: Sequence[Message] = SAID, workspace: Path | None = None) -> None:
        """A session in which this was said, with the usage of each answer as a run journals it."""
        journal = SqliteJournal(self.path)
        about = {"system": "be brief", "lang": "en", "workspace": str(workspace or self.command.workspace)}
        journal.create(name, about)
        conversation = Conversation(journal, name, counter_for(None), Budget.of(3000), model="scripted")
        for message in said:
            if message["role"] == "assistant":
                conversation.used("think", Usage(100, 10))
            conversation.add(kind_of(message), message)
        journal.close()

    def __call__(self, *arguments: str, stdin: str | None = None) -> Ran:
        ran = self.command(*arguments, "--store", str(self.path), stdin=stdin)
        assert "Traceback" not in ran.err
        return ran

    def at_terminal(self, *arguments: str, **variables: str) -> pexpect.spawn[str]:
        environment: Any = self.command.environment | {"TERM": "xterm-256color"} | variables
        return pexpect.spawn(
            sys.executable,
            ["-m", "perdure.faces.cli.main", *arguments, "--store", str(self.path)],
            cwd=str(self.command.workspace),
            env=environment,
            encoding="utf-8",
            timeout=30,
        )

    def records(self, name: str = "s") -> list[Entry | Recorded]:
        journal = SqliteJournal(self.path)
        try:
            return list(journal.records(name))
        finally:
            journal.close()

    def messages(self, name: str = "s") -> list[Message]:
        return [each.message for each in self.records(name) if isinstance(each, Entry)]

    def names(self) -> list[str]:
        journal = SqliteJournal(self.path)
        try:
            return [each.name for each in journal.sessions()]
        finally:
            journal.close()


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    kept = Kept(tmp_path)
    kept.holds()
    return kept


# --- list and show --------------------------------------------------------------------------------


def test_a_list_tells_size_turns_and_the_last_request_the_newest_first(kept: Kept) -> None:
    kept.holds("later", SAID[:4])
    ran = kept("sessions", "list")
    assert (ran.code, ran.err) == (0, "")
    later, s = ran.out.splitlines()
    assert re.fullmatch(
        r"later  \d{4}-\d\d-\d\d \d\d:\d\d  ~/workspace  1 turn, 4 entries, [\d.]+ k?B, 220 tokens"
        r"  The staging.*",
        later,
    )
    assert s.startswith("s      2")
    assert "3 turns, 8 entries" in s
    assert s.endswith("网关密钥每月十七号轮换一次。")
    assert "3 个回合，8 条记录" in kept("sessions", "list", "--lang", "zh").out


def test_a_list_as_json_is_one_object_a_line_and_masks_secrets(kept: Kept) -> None:
    kept.holds("secret", SAID[4:6])
    ran = kept("sessions", "list", "--json")
    assert (ran.code, ran.err) == (0, "")
    secret, s = ran.events
    assert (s["name"], s["entries"], s["turns"]) == ("s", 8, 3)
    assert s["workspace"] == str(kept.command.workspace)
    assert s["size"] > 0
    assert s["created"] <= s["changed"]
    assert KEY not in ran.out
    assert secret["request"].startswith("The key is ")
    assert KEY not in kept("sessions", "list").out


def test_a_list_counts_the_turns_that_stand(kept: Kept) -> None:
    kept("sessions", "undo", "s")
    line = kept("sessions", "list").out.strip()
    assert "2 turns, 8 entries" in line
    assert line.endswith("keep it to yourself.")
    (as_json,) = kept("sessions", "list", "--json").events
    assert (as_json["turns"], as_json["entries"]) == (2, 8)
    for _ in range(2):
        kept("sessions", "undo", "s")
    assert re.search(r"0 turns, 8 entries, [\d.]+ k?B, 440 tokens\n\Z", kept("sessions", "list").out)


def test_a_list_shows_each_workspace_in_short_and_as_json_whole(kept: Kept, tmp_path: Path) -> None:
    deep = tmp_path / "a folder of many words" / "and another one" / "工作"
    kept.holds("deep", SAID[:2], deep)
    kept.holds("nowhere", SAID[:2], Path("/"))
    ran = kept("sessions", "list")
    nowhere, shown, s = ran.out.splitlines()
    assert "  /    " in nowhere
    assert re.search(r"  …\S[^~]*and another one/工作  1 turn, 2 entries", shown)
    assert "~/workspace " in s
    places = [cell_len(re.split(r"  \d+ turns?,", line)[0]) for line in (nowhere, shown, s)]
    assert len(set(places)) == 1, "one column below the other"
    whole = {each["name"]: each["workspace"] for each in kept("sessions", "list", "--json").events}
    assert whole == {"deep": str(deep), "nowhere": "/", "s": str(kept.command.workspace)}


@pytest.mark.parametrize("columns", [70, 80, 100, 200])
def test_at_a_terminal_no_line_of_a_list_is_longer_than_it_is_wide(kept: Kept, columns: int) -> None:
    kept.holds(
        "20261202-190501-63ae", [{"role": "user", "content": "我们的网关密钥每月十七号轮换一次。" * 5}]
    )
    kept.holds(
        "words", [{"role": "user", "content": "many short words " * 9}], Path("/srv/a/deep/folder/of/work")
    )
    listing = kept.at_terminal("sessions", "list")
    listing.setwinsize(24, columns)
    lines = listing.read().splitlines()
    listing.close()
    assert len(lines) == 3
    assert max(map(cell_len, lines)) <= columns
    assert all(re.search(r"  \d turns?, \d entr(y|ies), ", line) for line in lines)
    assert all(("  ~/workspace" in line or "/of/work" in line) is (columns >= 100) for line in lines)
    assert ["…" in line for line in lines[:2]] == [columns in {80, 200}] * 2, "else there is no room for it"
    assert max(map(cell_len, kept("sessions", "list").out.splitlines())) > 150


def test_a_store_without_sessions_lists_none(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    ran = kept("sessions", "list")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"no sessions: there is no store {kept.path}\n"
    ran = kept("sessions", "list", "--json")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    SqliteJournal(kept.path).close()
    ran = kept("sessions", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no sessions\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions", "list"],
        ["sessions", "list", "--json"],
        ["sessions", "show", "s"],
        ["sessions", "show", "s", "--entries", "1"],
        ["sessions", "export", "s"],
        ["sessions", "fork", "s"],
        ["sessions", "undo", "s"],
        ["sessions", "verify", "s"],
        ["sessions", "rm", "s", "--yes"],
        ["sessions", "import", "nothing.jsonl"],
        ["recall", "s", "x"],
        ["forget", "s", "--yes"],
        ["context", "s"],
        ["compact", "s"],
        ["compact", "s", "--preview"],
        ["compact", "s", "--undo"],
        ["run", "go on", "--continue"],
    ],
    ids=" ".join,
)
def test_a_store_that_is_not_there_is_not_made_by_whoever_looks(tmp_path: Path, arguments: list[str]) -> None:
    command = Command(tmp_path, "http://127.0.0.1:9/v1")
    for store in (("--store", str(tmp_path / "new" / "s.db")), ()):
        before = sorted(command.workspace.parent.rglob("*"))
        ran = command(*arguments, *store)
        assert ran.code == (0 if arguments[1] == "list" else 2), ran.err
        assert ran.out == ""
        assert sorted(tmp_path.rglob("*")) == before


def test_show_gives_every_message_whole_with_its_calls(kept: Kept) -> None:
    ran = kept("sessions", "show", "s")
    assert (ran.code, ran.err) == (0, "")
    heads = re.findall(r"^--- (\d+) (\w+) \d{4}-", ran.out, re.MULTILINE)
    assert [int(number) for number, _ in heads] == list(range(1, 9))
    assert [kind for _, kind in heads][:4] == ["user", "tool_call", "tool_result", "assistant"]
    for told in ("54329", 'bash {"command": "ls"}', "frost_lantern.py\nledger.py", "网关密钥每月十七号"):
        assert told in ran.out


def test_show_as_json_gives_the_messages_as_they_are(kept: Kept) -> None:
    ran = kept("sessions", "show", "s", "--json")
    assert [each["message"] for each in ran.events] == list(SAID)
    assert [each["entry"] for each in ran.events] == list(range(1, 9))
    some = kept("sessions", "show", "s", "--entries", "3-5", "--json")
    assert [each["entry"] for each in some.events] == [3, 4, 5]
    one = kept("sessions", "show", "s", "--entries", "7")
    assert "网关密钥" in one.out
    assert "54329" not in one.out


@pytest.mark.parametrize(
    ("span", "told"),
    [
        ("9", "has no entry 9; it has 8"),
        ("0", "has no entry 0"),
        ("2-9", "has no entry 9"),
        ("5-2", "from the smaller number to the larger one"),
        ("", "a number or a range"),
        ("x", "a number or a range"),
        ("-1", "a number or a range"),
        ("1-", "a number or a range"),
        ("1,2", "a number or a range"),
        ("9999999999999999999", "a number or a range"),
    ],
)
@pytest.mark.parametrize("command", [("sessions", "show"), ("forget",)], ids=" ".join)
def test_entries_that_cannot_be_are_bad_usage_and_nothing_is_lost(
    kept: Kept, command: tuple[str, ...], span: str, told: str
) -> None:
    before = kept.records()
    extra = ("--yes",) if command == ("forget",) else ()
    ran = kept(*command, "s", "--entries", span, *extra)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert kept.records() == before


def test_text_that_would_steer_the_terminal_is_shown_without_that(kept: Kept) -> None:
    kept.holds("\x1b[2Jodd", [{"role": "user", "content": "\x1b]0;title\x07go \u202eon"}])
    for arguments in (("sessions", "list"), ("sessions", "show", "\x1b[2Jodd"), ("sessions", "undo", "s")):
        ran = kept(*arguments)
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err
        assert "\u202e" not in ran.out


# --- common options -------------------------------------------------------------------------------


def test_a_common_option_counts_before_and_behind_the_action(kept: Kept, tmp_path: Path) -> None:
    for arguments in (("--store", str(kept.path), "list"), ("list", "--store", str(kept.path))):
        ran = kept.command("sessions", *arguments)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("s  ")
    nearer = kept.command("sessions", "--store", str(tmp_path / "no.db"), "list", "--store", str(kept.path))
    assert nearer.out.startswith("s  ")
    assert "没有名为" in kept.command("sessions", "--lang", "zh", "show", "x", "--store", str(kept.path)).err


@pytest.mark.parametrize("command", ["sessions", "sessions list", "sessions show", "context", "forget"])
def test_help_shows_no_option_that_does_nothing(kept: Kept, command: str) -> None:
    told = kept.command(*command.split(), "--help").out
    assert "--store" in told
    assert "--lang" in told
    for option in ("--model", "--base-url", "--context-window", "--max-output-tokens", "--verbose"):
        assert option not in told
    whole = kept.command("run", "--help").out
    assert "--context-window" in whole
    assert "--verbose" in whole


def test_a_common_option_that_does_nothing_is_taken_all_the_same(kept: Kept) -> None:
    assert kept("sessions", "list", "--model", "m", "--context-window", "100", "--quiet").code == 0


# --- export and import ----------------------------------------------------------------------------


def lines_of(*records: Any) -> str:
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in records)


def system_of(kept: Kept, name: str) -> Any:
    created, *_ = kept.records(name)
    assert isinstance(created, Recorded)
    return created.body["system"]


def test_what_is_exported_raw_and_imported_again_gives_the_same_messages(kept: Kept) -> None:
    exported = kept("sessions", "export", "s", "--format", "jsonl", "--raw")
    assert (exported.code, exported.err) == (0, "")
    assert KEY in exported.out
    ran = kept("sessions", "import", "-", "--session", "again", stdin=exported.out)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.strip() == "8 entries from - (perdure) are now the session again"
    assert kept.messages("again") == kept.messages("s")
    times = [[each.time for each in kept.records(name) if isinstance(each, Entry)] for name in ("s", "again")]
    assert times[0] == times[1]
    twice = kept("sessions", "export", "again", "--format", "jsonl", "--raw")
    assert [json.loads(line).get("message") for line in twice.out.splitlines() if '"message"' in line] == [
        json.loads(line).get("message") for line in exported.out.splitlines() if '"message"' in line
    ]


@pytest.mark.parametrize("raw", [(), ("--raw",)], ids=["masked", "raw"])
def test_a_system_prompt_goes_through_export_and_import(kept: Kept, raw: tuple[str, ...]) -> None:
    system = f"You are a shop helper. The key is {KEY}."
    history = lines_of({"role": "system", "content": system}, *SAID[4:6])
    assert kept("sessions", "import", "-", "--session", "o1", stdin=history).code == 0
    assert system_of(kept, "o1") == system
    exported = kept("sessions", "export", "o1", "--format", "jsonl", *raw)
    assert kept("sessions", "import", "-", "--session", "o2", stdin=exported.out).code == 0
    assert system_of(kept, "o2") == (system if raw else system.replace(KEY, "[secret]"))
    twice = kept("sessions", "export", "o2", "--format", "jsonl", *raw)
    assert kept("sessions", "import", "-", "--session", "o3", stdin=twice.out).code == 0
    assert system_of(kept, "o3") == system_of(kept, "o2")


@pytest.mark.parametrize("format", ["md", "html", "jsonl"])
def test_an_export_masks_secrets_unless_it_is_raw(kept: Kept, format: str) -> None:
    masked = kept("sessions", "export", "s", "--format", format)
    raw = kept("sessions", "export", "s", "--format", format, "--raw")
    assert (masked.code, raw.code, masked.err, raw.err) == (0, 0, "", "")
    assert KEY not in masked.out
    assert KEY in raw.out
    for told in ("54329", "ledger.py", "网关密钥每月十七号轮换一次"):
        assert told in masked.out
        assert told in raw.out


def test_an_export_speaks_the_language_that_is_asked_for(kept: Kept) -> None:
    assert "用户" in kept("sessions", "export", "s", "--lang", "zh").out
    assert "Person" in kept("sessions", "export", "s", "--lang", "en").out


def test_an_export_goes_to_a_new_file_and_overwrites_none(kept: Kept) -> None:
    file = kept.command.workspace / "s.md"
    ran = kept("sessions", "export", "s", "--output", str(file), "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert file.read_text("utf-8") == kept("sessions", "export", "s").out
    file.write_text("mine")
    again = kept("sessions", "export", "s", "--output", str(file))
    assert (again.code, again.out) == (2, "")
    assert "is there already" in again.err
    assert file.read_text() == "mine"
    nowhere = kept("sessions", "export", "s", "--output", str(file.parent / "no" / "folder.md"))
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "No such file" in nowhere.err


def test_an_export_that_finds_no_room_leaves_no_half_of_itself(kept: Kept) -> None:
    kept.holds("long", [{"role": "user", "content": "long words " * 30_000}])
    file = kept.command.workspace / "long.md"
    before = kept.records("long")
    program = (
        "import resource; from perdure.faces.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); main()"
    )
    arguments = ["sessions", "export", "long", "--output", str(file), "--store", str(kept.path)]
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env=kept.command.environment,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "can't be written: File too large" in ran.stderr
    assert not file.exists()
    assert kept.records("long") == before


def test_an_import_of_a_torn_file_names_the_damage_and_keeps_its_bytes(kept: Kept) -> None:
    lines = [json.dumps(each, ensure_ascii=False).encode() for each in SAID]
    torn = kept.command.workspace / "torn.jsonl"
    torn.write_bytes(b"\n".join([*lines[:4], b"\x00" * 40, *lines[4:7], lines[7][:-20]]))
    ran = kept("sessions", "import", "torn.jsonl", "--session", "t")
    assert ran.code == 0
    told = ran.err.splitlines()
    assert told[0].startswith("line 5: zero bytes")
    assert told[1].startswith("line 9: the file ends in the middle of it")
    assert all(
        "kept in the session: sessions export --format jsonl --raw shows them" in each for each in told
    )
    exported = [kept("sessions", "export", "t", "--format", "jsonl", *raw).out for raw in ((), ("--raw",))]
    assert ["AAAAAAAA" in each for each in exported] == [False, True]
    assert kept.messages("t") == list(SAID[:7])
    kept_aside = [each for each in kept.records("t") if isinstance(each, Recorded) and "damage" in each.type]
    assert [each.body["line"] for each in kept_aside] == [5, 9]
    chinese = kept("sessions", "import", "torn.jsonl", "--lang", "zh", "--json")
    assert chinese.err.startswith("第 5 行：")
    assert "可用 sessions export --format jsonl --raw 查看" in chinese.err
    body = json.loads(chinese.out)
    assert [each["line"] for each in body["damages"]] == [5, 9]
    assert (body["entries"], body["form"], body["repairs"]) == (7, "chat", [])


def test_an_import_of_an_orphan_result_names_the_repair_and_keeps_its_words(kept: Kept) -> None:
    history = [SAID[0], {"role": "tool", "tool_call_id": "lost", "content": "the answer was 41"}, SAID[4]]
    file = kept.command.workspace / "history.json"
    file.write_text(json.dumps(history))
    ran = kept("sessions", "import", "history.json", "--session", "o", "--json")
    assert ran.code == 0
    body = json.loads(ran.out)
    assert [each["message"] for each in body["repairs"]] == [2]
    assert ran.err == "message 2: the result lost had no call: a stand-in call was put before it\n"
    chinese = kept("sessions", "import", "history.json", "--lang", "zh")
    assert chinese.err == "第 2 条消息：结果 lost 没有对应的调用：已在其前补上一个代替的调用\n"
    assert "the answer was 41" in json.dumps(kept.messages("o"))
    found = kept("recall", "o", "answer was 41", "--json", "--embedder", "none")
    assert "the answer was 41" in json.loads(found.out)[0]["text"]
    assert kept("sessions", "verify", "o").code == 0


def test_an_import_says_what_was_left_out_and_that_several_conversations_became_one(kept: Kept) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    answer = {"role": "assistant", "content": [thought, {"type": "text", "text": "b"}]}
    first = {"messages": [{"role": "user", "content": "a"}, answer]}
    second = {"messages": [{"role": "user", "content": "c"}]}
    file = kept.command.workspace / "several.jsonl"
    file.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
    ran = kept("sessions", "import", "several.jsonl", "--session", "m")
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "left out: 1 piece of the model's reasoning",
        "the file holds 2 conversations, or pieces of one: they are one session now, in their order",
    ]
    assert ran.out == "3 entries from several.jsonl (anthropic) are now the session m\n"
    assert [each["content"] for each in kept.messages("m")] == ["a", "b", "c"]
    chinese = kept("sessions", "import", "several.jsonl", "--lang", "zh", "--json")
    assert chinese.err.splitlines() == [
        "未导入：1 段模型的推理",
        "文件中有 2 段对话（或一段对话的若干部分）：已按顺序合为一个会话",
    ]
    body = json.loads(chinese.out)
    assert (body["conversations"], body["left_out"]) == (2, ["1 piece of the model's reasoning"])
    file.write_text(json.dumps(second) + "\n")
    one = kept("sessions", "import", "several.jsonl", "--session", "one")
    assert (one.out, one.err) == ("1 entry from several.jsonl (chat) is now the session one\n", "")


def test_what_is_forgotten_of_an_import_is_gone_from_what_was_said_of_its_repairs_too(kept: Kept) -> None:
    function = {"name": "bash", "arguments": "zanzibar, not JSON"}
    called = {"id": "c", "type": "function", "function": function}
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [called]}]
    ran = kept("sessions", "import", "-", "--session", "r", stdin=json.dumps(history))
    assert "zanzibar" in ran.err
    assert "zanzibar" in str(kept.records("r"))
    assert kept("forget", "r", "--entries", "2", "--yes").code == 0
    assert "zanzibar" not in str(kept.records("r"))


def test_an_import_under_a_name_that_is_taken_changes_nothing(kept: Kept) -> None:
    before = kept.records()
    ran = kept("sessions", "import", "-", "--session", "s", stdin='[{"role": "user", "content": "hi"}]')
    assert (ran.code, ran.out) == (2, "")
    assert "There is a session 's' already. It was not changed." in ran.err
    assert kept.records() == before


def test_of_two_imports_under_one_name_at_once_one_becomes_the_session(kept: Kept, tmp_path: Path) -> None:
    importing = []
    for number in (1, 2):
        file = tmp_path / f"{number}.jsonl"
        said = [
            {"role": role, "content": f"file {number}"} for _ in range(600) for role in ("user", "assistant")
        ]
        file.write_text("\n".join(map(json.dumps, said)))
        importing.append(kept.at_terminal("sessions", "import", str(file), "--session", "x"))
    for each in importing:
        each.expect(pexpect.EOF)
        each.close()
    codes = [each.exitstatus for each in importing]
    assert codes.count(0) == 1, codes
    number = codes.index(0) + 1
    assert [each["content"] for each in kept.messages("x")] == [f"file {number}"] * 1_200


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
def test_an_import_that_is_ended_leaves_no_part_and_can_be_done_again(
    kept: Kept, tmp_path: Path, name: str
) -> None:
    file, count = tmp_path / "long.jsonl", 10_000
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": f"message {at} " + "word " * 100} for at in range(count)]
    file.write_text("\n".join(map(json.dumps, said)))
    arguments = ("sessions", "import", str(file), "--session", "x", "--store", str(kept.path))
    begun = Path(f"{kept.path}-wal")
    importing = kept.command.start(*arguments)
    while importing.poll() is None and not (begun.exists() and begun.stat().st_size > 1_000_000):
        time.sleep(0.001)
    importing.send_signal(getattr(signal, name))
    importing.communicate(timeout=60)
    assert kept.names() in (["s"], ["x", "s"])
    if kept.names() == ["s"]:
        assert kept("sessions", "import", str(file), "--session", "x").code == 0
    assert len(kept.messages("x")) == count


def test_a_long_import_is_found_by_its_words(kept: Kept) -> None:
    said = [{"role": "user", "content": f"the marmot number {at} sleeps"} for at in range(500)]
    stdin = "\n".join(map(json.dumps, said))
    assert kept("sessions", "import", "-", "--session", "x", stdin=stdin).code == 0
    ran = kept("recall", "x", "marmot number 437", "--json", "--embedder", "none")
    assert json.loads(ran.out)[0]["entry"] == 438


@pytest.mark.parametrize("settings", [{"system": 7}, {"system": ["x"], "lang": "xx"}, {"lang": 3}])
def test_settings_of_the_wrong_type_are_none(kept: Kept, settings: dict[str, Any]) -> None:
    lines = [
        {"perdure": "0.1", "session": "s", "settings": settings},
        {"entry": 1, "kind": "user", "message": {"role": "user", "content": "hi"}},
    ]
    ran = kept("sessions", "import", "-", "--session", "n", stdin="\n".join(map(json.dumps, lines)))
    assert (ran.code, ran.err) == (0, "")
    assert kept("context", "n").code == 0
    created = {"event": "session.created", "after": 0, "time": "", "body": settings}
    ran = kept("sessions", "import", "-", "--session", "c", stdin=lines_of(*lines, created))
    assert (ran.code, ran.err) == (0, "")
    assert kept("context", "c").code == 0
    assert system_of(kept, "c") == system_of(kept, "n")


@pytest.mark.parametrize("content", ["", "no conversation at all", "[]", "{}", "\x00\x00\x00", "[1, 2]"])
def test_what_is_no_conversation_is_no_session(kept: Kept, content: str) -> None:
    ran = kept("sessions", "import", "-", "--session", "n", stdin=content)
    assert (ran.code, ran.out) == (2, "")
    assert "can be read as a conversation" in ran.err
    assert "没有可以读作对话的内容" in kept("sessions", "import", "-", "--lang", "zh", stdin=content).err
    assert kept.names() == ["s"]


@pytest.mark.parametrize("file", ["nothing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_named(kept: Kept, file: str) -> None:
    ran = kept("sessions", "import", file)
    assert (ran.code, ran.out) == (2, "")
    assert f"{file} can't be read" in ran.err
    assert kept.names() == ["s"]


# --- fork, undo, verify ---------------------------------------------------------------------------


def test_a_fork_goes_on_from_an_entry_and_leaves_the_other_alone(kept: Kept) -> None:
    before = kept.records()
    ran = kept("sessions", "fork", "s", "--at", "4", "--session", "f")
    assert (ran.code, ran.out, ran.err) == (0, "f goes on from entry 4 of s\n", "")
    assert kept.messages("f") == list(SAID[:4])
    assert kept.records() == before
    whole = kept("sessions", "fork", "s", "--lang", "zh")
    assert re.fullmatch(r"\S+ 从 s 的第 8 条记录继续\n", whole.out)
    assert kept.messages(whole.out.split()[0]) == list(SAID)
    for at in ("0", "9", "-1", "x"):
        wrong = kept("sessions", "fork", "s", "--at", at, "--session", "w")
        assert (wrong.code, wrong.out) == (2, "")
    taken = kept("sessions", "fork", "s", "--session", "f")
    assert (taken.code, "There is a session 'f' already" in taken.err) == (2, True)
    assert "w" not in kept.names()
    assert kept.messages("f") == list(SAID[:4])


def test_undo_takes_turns_back_one_by_one_and_loses_none(kept: Kept) -> None:
    said = []
    for _ in range(4):
        ran = kept("sessions", "undo", "s")
        assert (ran.code, ran.err) == (0, "")
        said.append(ran.out.strip().partition(";")[0])
    assert said == [
        "taken back: entries 7-8",
        "taken back: entries 5-6",
        "taken back: entries 1-4",
        "there is no turn to take back",
    ]
    assert kept("sessions", "undo", "s", "--lang", "zh").out.strip() == "没有可撤销的回合"
    assert kept.messages() == list(SAID), "they can still be read"
    assert json.loads(kept("context", "s", "--json").out)["standing"] == []
    found = kept("recall", "s", "staging port", "--json", "--embedder", "none")
    assert json.loads(found.out) == []
    verified = kept("sessions", "verify", "s", "--json")
    assert (verified.code, json.loads(verified.out)) == (0, {"same": 4, "different": [], "unknown": 0})


def test_verify_finds_the_prompts_the_same_and_sees_what_was_tampered_with(kept: Kept) -> None:
    ran = kept("sessions", "verify", "s")
    assert (ran.code, ran.out) == (0, "4 prompts replayed, all the same byte for byte\n")
    assert "重放了 4 个提示" in kept("sessions", "verify", "s", "--lang", "zh").out
    with sqlite3.connect(kept.path) as connection:
        body = json.dumps({"role": "user", "content": "The staging port is 54320; please list the files."})
        connection.execute("UPDATE record SET body = ? WHERE seq = 1", (body,))
    connection.close()
    different = kept("sessions", "verify", "s")
    assert (different.code, different.err) == (1, "")
    assert different.out.startswith("4 of 4 prompts come out otherwise than sent, after entries 1, 3, 5, 7\n")
    as_json = kept("sessions", "verify", "s", "--json")
    assert (as_json.code, json.loads(as_json.out)["different"]) == (1, [1, 3, 5, 7])


def test_a_session_in_which_no_model_was_called_has_nothing_to_verify(kept: Kept) -> None:
    kept.holds("asked", SAID[:1])
    ran = kept("sessions", "verify", "asked")
    assert (ran.code, ran.out) == (0, "nothing to replay: no model was called in this session\n")
    assert "从未调用模型" in kept("sessions", "verify", "asked", "--lang", "zh").out
    kept.holds("once", SAID[4:6])
    assert kept("sessions", "verify", "once").out == "1 prompt replayed, the same byte for byte\n"
    kept("forget", "once", "--entries", "1", "--yes")
    unknown = kept("sessions", "verify", "once")
    assert unknown.out == (
        "1 prompt can't be compared: sent by an older perdure, or something in it was forgotten\n"
    )


def test_one_is_not_said_as_many(kept: Kept) -> None:
    kept.holds("one", SAID[:1])
    assert "1 turn, 1 entry, " in kept("sessions", "list").out
    assert "one: 1 entry, window" in kept("context", "one").out
    assert '<p class="about">1 entry, ' in kept("sessions", "export", "one", "--format", "html").out
    assert kept("sessions", "undo", "one").out == "taken back: entry 1; what tools did stays done\n"
    assert kept("forget", "one", "--entries", "1", "--yes").out == "forgotten in one: entry 1\n"
    assert kept("sessions", "rm", "one", "--yes").out == "removed: one, 1 entry\n"


# --- rm and forget --------------------------------------------------------------------------------


def test_a_session_is_removed_when_the_person_says_yes(kept: Kept) -> None:
    kept.holds("other")
    asking = kept.at_terminal("sessions", "rm", "s")
    asking.expect("Remove the session s with its 8 entries for good\\?")
    asking.sendline("y")
    asking.expect("removed: s, 8 entries")
    asking.expect(pexpect.EOF)
    asking.close()
    assert asking.exitstatus == 0
    assert kept.names() == ["other"]
    assert kept("sessions", "show", "s").code == 2


@pytest.mark.parametrize("answer", ["n", "", "perhaps", "\x04"], ids=["no", "nothing", "else", "the end"])
@pytest.mark.parametrize(
    "command", [("sessions", "rm", "s"), ("forget", "s", "--entries", "1-2"), ("forget", "s")], ids=" ".join
)
def test_what_the_person_does_not_agree_to_is_not_done(
    kept: Kept, command: tuple[str, ...], answer: str
) -> None:
    before = kept.records()
    asking = kept.at_terminal(*command)
    asking.expect("\\[y/N\\]")
    asking.send(answer if answer == "\x04" else f"{answer}\r")
    asking.expect("nothing was removed")
    asking.expect(pexpect.EOF)
    asking.close()
    assert asking.exitstatus == 1
    assert kept.records() == before


def test_an_interrupt_at_the_question_removes_nothing(kept: Kept) -> None:
    before = kept.records()
    asking = kept.at_terminal("sessions", "rm", "s", "--lang", "zh")
    asking.expect("要永久删除会话 s 及其 8 条记录吗")
    asking.sendintr()
    asking.expect(pexpect.EOF)
    asking.close()
    assert asking.exitstatus == 130
    assert kept.records() == before


@pytest.mark.parametrize(
    "command", [("sessions", "rm", "s"), ("forget", "s", "--entries", "1"), ("forget", "s")], ids=" ".join
)
def test_where_nobody_can_be_asked_nothing_is_removed_and_the_option_is_named(
    kept: Kept, command: tuple[str, ...]
) -> None:
    before = kept.records()
    for stdin in (None, "y\n"):
        ran = kept(*command, stdin=stdin)
        assert ran.code == 2
        assert "say --yes" in ran.err
    assert "加上 --yes" in kept(*command, "--lang", "zh").err
    assert kept.records() == before


def test_yes_removes_unasked(kept: Kept) -> None:
    ran = kept("sessions", "rm", "s", "--yes")
    assert (ran.code, ran.out, ran.err) == (0, "removed: s, 8 entries\n", "")
    assert kept.names() == []


def test_entries_are_forgotten_when_the_person_says_yes_and_what_was_is_said(kept: Kept) -> None:
    asking = kept.at_terminal("forget", "s", "--query", KEY)
    asking.expect("5 user: The key is")
    asking.expect("Forget 1 entry of s for good\\?")
    asking.sendline("yes")
    asking.expect("forgotten in s: entry 5")
    asking.expect(pexpect.EOF)
    asking.close()
    assert asking.exitstatus == 0
    assert KEY not in json.dumps(kept.messages())
    assert len(kept.messages()) == 8
    for file in kept.path.parent.glob("sessions.db*"):
        assert KEY.encode() not in file.read_bytes()
    assert kept("sessions", "verify", "s").code == 0
    assert json.loads(kept("recall", "s", KEY, "--json", "--embedder", "none").out) == []


def test_forgetting_as_json_gives_one_object_alone_on_stdout(kept: Kept) -> None:
    ran = kept("forget", "s", "--entries", "1-3", "--query", "frost_lantern.py", "--yes", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"forgotten": {"s": [3]}, "summaries": 0, "lingers": False})
    nothing = kept("forget", "s", "--query", "xylophone", "--yes", "--json")
    assert (nothing.code, json.loads(nothing.out)) == (1, {"forgotten": {}, "summaries": 0, "lingers": False})
    whole = kept("forget", "s", "--yes", "--json")
    assert json.loads(whole.out) == {"forgotten": {"s": list(range(1, 9))}, "summaries": 0, "lingers": False}
    assert kept.names() == []


def test_forgetting_says_which_forks_lose_it_too(kept: Kept) -> None:
    kept("sessions", "fork", "s", "--session", "f", "--at", "6")
    ran = kept("forget", "s", "--query", "frost_lantern.py", "--yes")
    assert ran.code == 0
    assert "forgotten in s: entries 3-4" in ran.out
    assert "forgotten in f: entries 3-4" in ran.out
    chinese = kept("forget", "f", "--entries", "1", "--yes", "--lang", "zh")
    assert "已在 f 中忘记：第 1 条记录" in chinese.out
    assert "54329" not in json.dumps([kept.messages("s"), kept.messages("f")])


def quoting(kept: Kept, name: str, of: str, entry: int) -> None:
    """A session in which an entry of another one was recalled."""
    journal = SqliteJournal(kept.path)
    journal.create(name, {"system": "x", "lang": "en", "workspace": "/w"})
    excerpt: Message = {"role": "user", "content": "recalled"}
    entries = [(Kind.RECALL, excerpt, 5), (Kind.USER, {"role": "user", "content": "hm"}, 5)]
    journal.append(name, entries, [("recall", {"recalled": [[of, entry]], "before": 1})])
    journal.close()


ASKED = {
    ("forget", "quoting", "--entries", "2"): [
        "  and in quoting: 1 entry with the same words or an excerpt of them",
    ],
    ("forget", "s", "--entries", "1-3"): [
        "  and in fork: 3 entries with the same words or an excerpt of them",
        "  and in quoting: 1 entry with the same words or an excerpt of them",
    ],
    ("forget", "s"): [
        "  and in fork: 6 entries with the same words or an excerpt of them",
        "  and in quoting: 1 entry with the same words or an excerpt of them",
    ],
    ("forget", "fork", "--entries", "6", "--lang", "zh"): [
        "  另有会话 s：1 条记录含有相同的内容或其摘录",
    ],
    ("sessions", "rm", "s"): [
        "  and in quoting: 1 entry with an excerpt of it",
        "  kept in fork: 6 entries with the same words or an excerpt of them; `perdure forget` removes these"
        " too",
    ],
    ("sessions", "rm", "s", "--lang", "zh"): [
        "  另有会话 quoting：1 条记录含有它的摘录",
        "  会话 fork 中保留：6 条记录含有相同的内容或其摘录；`perdure forget` 会将其一并删除",
    ],
}


@pytest.mark.parametrize(("command", "told"), ASKED.items(), ids=map(" ".join, ASKED))
def test_before_the_question_it_is_said_what_goes_in_other_sessions(
    kept: Kept, command: tuple[str, ...], told: list[str]
) -> None:
    kept("sessions", "fork", "s", "--session", "fork", "--at", "6")
    quoting(kept, "quoting", "s", 1)
    journal = SqliteJournal(kept.path)
    journal.append("quoting", [(Kind.RECALL, SAID[2], 5)], [("recall", {"recalled": [["quoting", 2]]})])
    journal.close()
    kept.holds("other")
    asking = kept.at_terminal(*command)
    asking.setwinsize(40, 200)
    asking.expect("\\[y/N\\]")
    lines = [line for line in asking.before.splitlines() if re.match("  and|  kept|  另|  会话", line)]
    assert lines == told
    asking.sendline("n")
    asking.expect(pexpect.EOF)
    asking.close()


def test_removing_says_what_went_in_other_sessions(kept: Kept) -> None:
    quoting(kept, "quoting", "s", 1)
    ran = kept("sessions", "rm", "s", "--yes")
    assert (ran.out, ran.err) == ("removed: s, 8 entries\nforgotten in quoting: entry 1\n", "")


def test_words_that_no_entry_holds_forget_nothing(kept: Kept) -> None:
    before = kept.records()
    for query in ("xylophone", "", "   ", "staging ledger.py 网关"):
        ran = kept("forget", "s", "--query", query, "--yes")
        assert (ran.code, ran.out.strip()) == (1, "no entry holds all of these words")
    assert "没有同时包含这些词的记录" in kept("forget", "s", "--query", "木琴", "--yes", "--lang", "zh").out
    assert kept.records() == before


def test_a_session_in_which_nothing_was_said_can_be_forgotten(kept: Kept) -> None:
    kept.holds("empty", ())
    ran = kept("forget", "empty", "--yes")
    assert ran.code == 0, ran.out
    assert kept.names() == ["s"]


# --- recall ---------------------------------------------------------------------------------------


def test_recall_finds_words_in_both_languages_best_first(kept: Kept) -> None:
    ran = kept("recall", "s", "which port does staging use?", "--embedder", "none")
    assert (ran.code, ran.err) == (0, "")
    assert "54329" in ran.out.splitlines()[0]
    found = json.loads(kept("recall", "s", "密钥", "--json", "--embedder", "none").out)
    assert found[0]["entry"] == 7
    assert {"entry", "score", "text", "session", "kind", "time"} == found[0].keys()
    few = json.loads(kept("recall", "s", "ledger", "--limit", "1", "--json", "--embedder", "none").out)
    assert len(few) == 1


def test_recall_that_finds_nothing_says_so(kept: Kept) -> None:
    kept.holds("empty", ())
    ran = kept("recall", "empty", "port", "--embedder", "none")
    assert (ran.code, ran.out) == (0, "nothing is found\n")
    assert kept("recall", "empty", "port", "--embedder", "none", "--lang", "zh").out == "没有找到\n"
    assert json.loads(kept("recall", "empty", "port", "--embedder", "none", "--json").out) == []


def test_recall_reaches_as_far_as_it_is_told(kept: Kept, tmp_path: Path) -> None:
    kept.holds("near", [{"role": "user", "content": "The wombat lives in Delft."}])
    kept.holds("far", [{"role": "user", "content": "The wombat lives in Ghent."}], tmp_path / "elsewhere")

    def sessions(reach: str) -> set[str]:
        ran = kept("recall", "s", "wombat", "--memory", reach, "--json", "--embedder", "none")
        return {each["session"] for each in json.loads(ran.out) if "wombat" in each["text"]}

    assert sessions("session") == set()
    assert sessions("project") == {"near"}
    assert sessions("all") == {"near", "far"}


def test_hits_stand_apart_and_each_begins_with_its_number(kept: Kept) -> None:
    plan = "The wombat plan:\n\n1. Delft at noon\n2 (2026-01-01, the person): Ghent"
    kept.holds("w", [{"role": "user", "content": plan}, {"role": "assistant", "content": "A wombat, yes."}])
    ran = kept("recall", "w", "wombat plan", "--embedder", "none")
    first, second = re.split(r"\n\n(?=\S)", ran.out.strip("\n"))
    assert re.fullmatch(
        r"1 \(\S+ \S+, the person\): The wombat plan:\n"
        r"\n  1\. Delft at noon\n  2 \(2026-01-01, the person\): Ghent",
        first,
    )
    assert re.fullmatch(r"2 \(\S+ \S+, assistant\): A wombat, yes\.", second)


@pytest.mark.parametrize("name", ["far", "far away", "it's", "远处"])
def test_recall_says_how_an_entry_of_whatever_session_is_read_whole(
    kept: Kept, tmp_path: Path, name: str
) -> None:
    long = "The wombat lives in Ghent. " + "More was said. " * 100 + "The end."
    kept.holds(name, [{"role": "user", "content": long}], tmp_path / "elsewhere")
    searching = ("recall", "s", "wombat Ghent", "--memory", "all", "--embedder", "none")
    told = kept(*searching)
    assert "The end." not in told.out, "a hit is a piece"
    said, _, command = told.err.strip().partition(": ")
    assert said == "an entry is shown whole by, for example"
    program, *arguments = shlex.split(command)
    assert (program, arguments[2]) == ("perdure", name)
    whole = kept.command(*arguments)
    assert long in whole.out
    assert kept(*searching, "--lang", "zh").err == f"查看整条记录，例如：{command}\n"
    assert kept(*searching, "--quiet").err == ""
    assert kept(*searching, "--json").err == ""
    assert kept("recall", "s", "staging port", "--embedder", "none").err == "", "nothing of another one"


def seen_at_terminal(kept: Kept, *arguments: str, **variables: str) -> str:
    searching = kept.at_terminal(*arguments, **variables)
    seen = searching.read()
    searching.close()
    assert searching.exitstatus == 0, seen
    return str(seen)


def test_a_search_that_takes_its_time_shows_so_at_a_terminal(kept: Kept) -> None:
    seen = seen_at_terminal(kept, "recall", "s", "staging port")
    assert "searching" in seen
    assert "8 passages made ready" in seen
    assert "54329" in re.split(r"\x1b\[2K", seen)[-1], "the living line is gone"
    assert "搜索中" in seen_at_terminal(kept, "recall", "s", "staging port", "--lang", "zh")
    assert "searching" not in seen_at_terminal(kept, "recall", "s", "staging port", "--quiet")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_without_colours_and_on_a_plain_terminal_no_escapes_are_written(
    kept: Kept, variables: dict[str, str]
) -> None:
    seen = seen_at_terminal(kept, "recall", "s", "staging port", **variables)
    assert seen.startswith("searching\r\n")
    assert "54329" in seen
    assert "\x1b" not in seen
    again = seen_at_terminal(kept, "recall", "s", "staging port", **variables)
    assert "searching" not in again, "what is done at once needs no words"


def test_a_search_whose_time_was_up_says_that_it_may_have_missed_something(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passing = itertools.count(0.0, CATCHING_UP)
    monkeypatch.setattr(time, "monotonic", lambda: next(passing))
    arguments = ("recall", "s", "staging port", "--store", str(kept.path))
    assert run(arguments) == 0
    told = capsys.readouterr()
    assert "54329" in told.out
    assert "the next search goes on from here" in told.err
    assert run((*arguments, "--quiet")) == 0
    assert capsys.readouterr().err == ""


# --- run --continue -------------------------------------------------------------------------------


def test_continue_goes_on_with_the_session_of_this_workspace_that_changed_last(
    kept: Kept, tmp_path: Path
) -> None:
    kept.holds("newer", SAID[:4])
    kept.holds("elsewhere", SAID[:4], tmp_path / "elsewhere")
    with ScriptedEndpoint([Answer("On it."), Answer("Still."), Answer("Yes.")]) as endpoint:
        kept.command.base_url = endpoint.base_url
        ran = kept("run", "go on", "--continue", "--context-window", "3000", "--embedder", "none")
        assert (ran.code, ran.out) == (0, "On it.\n")
        assert "session newer" in ran.err
        assert [each["content"] for each in kept.messages("newer")[-2:]] == ["go on", "On it."]
        assert "54329" in json.dumps(endpoint.requests[-1].messages)
        kept("sessions", "fork", "s", "--session", "f", "--at", "6")
        assert kept("run", "more", "--continue", "--quiet", "--embedder", "none").out == "Still.\n"
    assert kept.messages("f")[-1]["content"] == "Still."
    assert kept.messages("s") == list(SAID)


def test_where_there_is_none_to_go_on_with_it_is_said(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.holds("elsewhere", SAID[:4], tmp_path / "elsewhere")
    ran = kept("run", "go on", "--continue")
    assert (ran.code, ran.out) == (2, "")
    assert "to go on with" in ran.err
    both = kept("run", "go on", "--continue", "--session", "elsewhere")
    assert both.code == 2
    assert "not allowed with" in both.err
    assert kept.names() == ["elsewhere"]


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions", "show", "nobody"],
        ["sessions", "export", "nobody"],
        ["sessions", "fork", "nobody"],
        ["sessions", "undo", "nobody"],
        ["sessions", "verify", "nobody"],
        ["sessions", "rm", "nobody", "--yes"],
        ["recall", "nobody", "x"],
        ["forget", "nobody", "--yes"],
        ["forget", "nobody", "--query", "x", "--yes"],
    ],
    ids=" ".join,
)
def test_a_session_that_is_not_there_is_named_and_not_made(kept: Kept, arguments: list[str]) -> None:
    ran = kept(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "There is no session 'nobody'" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "没有名为“nobody”的会话" in kept(*arguments, "--lang", "zh").err
    assert kept.names() == ["s"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions"],
        ["sessions", "burn"],
        ["sessions", "show"],
        ["sessions", "show", "s", "t"],
        ["sessions", "export", "s", "--format", "pdf"],
        ["sessions", "import"],
        ["sessions", "fork", "s", "--at"],
        ["sessions", "rm"],
        ["sessions", "rm", "s", "--ye"],
        ["recall", "s"],
        ["recall", "s", ""],
        ["recall", "s", "  "],
        ["recall", "s", "x", "--limit", "0"],
        ["recall", "s", "x", "--limit", "many"],
        ["recall", "s", "x", "--memory", "galaxy"],
        ["recall", "s", "x", "--embedder", "crystal"],
        ["recall", "s", "x", "--workspace", "."],
        ["forget"],
        ["forget", "s", "--entries"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_told_and_changes_nothing(kept: Kept, arguments: list[str]) -> None:
    before = kept.records()
    ran = kept(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err
    assert kept.records() == before


def test_a_session_that_another_process_has_is_read_but_not_written(kept: Kept) -> None:
    before = kept.records()
    holder = SqliteJournal(kept.path)
    holder.hold("s")
    try:
        for arguments in (
            ("sessions", "undo", "s"),
            ("sessions", "rm", "s", "--yes"),
            ("forget", "s", "--yes"),
        ):
            ran = kept(*arguments)
            assert (ran.code, ran.out) == (1, "")
            assert "is in use by process" in ran.err
            assert "--session" not in ran.err, "an option that these commands don't have"
        assert "正由" in kept("sessions", "undo", "s", "--lang", "zh").err
        ran = kept("forget", "s", "--entries", "1", "--yes")
        assert (ran.code, "is in use by process" in ran.err) == (1, True)
        for arguments in (
            ("sessions", "show", "s"),
            ("sessions", "verify", "s"),
            ("sessions", "fork", "s", "--session", "f"),
            ("recall", "s", "port", "--embedder", "none"),
        ):
            assert kept(*arguments).code == 0
    finally:
        holder.close()
    assert kept.records() == before


def test_a_call_without_a_result_is_answered_in_the_fork_that_goes_on(kept: Kept) -> None:
    kept("sessions", "fork", "s", "--at", "2", "--session", "f")
    with ScriptedEndpoint([Answer("Fine.")]) as endpoint:
        kept.command.base_url = endpoint.base_url
        assert kept("run", "go on", "--session", "f", "--quiet", "--embedder", "none").out == "Fine.\n"
        sent = endpoint.requests[0].messages
    assert [each["role"] for each in sent][-3:] == ["assistant", "tool", "user"]
    assert [each["role"] for each in kept.messages("f")][1:4] == ["assistant", "tool", "user"]
    assert kept.messages("s")[2] == result_message("c1", "frost_lantern.py\nledger.py")
    assert kept("sessions", "verify", "f").code == 0


def test_what_was_taken_back_is_marked_where_it_is_shown(kept: Kept) -> None:
    assert kept("sessions", "undo", "s").code == 0
    shown = kept("sessions", "show", "s").out
    assert [line for line in shown.splitlines() if line.endswith("(taken back)")] == [
        line for line in shown.splitlines() if line.startswith(("--- 7 ", "--- 8 "))
    ]
    lines = [json.loads(line) for line in kept("sessions", "show", "s", "--json").out.splitlines()]
    assert [each["entry"] for each in lines if each["undone"]] == [7, 8]


def test_where_nothing_has_to_do_with_a_query_that_is_said(kept: Kept) -> None:
    for query in ("*", "？！", "( -- )"):
        ran = kept("recall", "s", query)
        assert (ran.code, ran.out) == (0, "nothing is found\n"), query
        assert json.loads(kept("recall", "s", query, "--json").out) == []


def test_a_terminal_that_lacks_characters_shows_others_and_nothing_is_lost_over_it(kept: Kept) -> None:
    environment = kept.command.environment | {"PYTHONIOENCODING": "ascii"}
    for arguments in (("sessions", "show", "s"), ("recall", "s", "网关密钥"), ("sessions", "list")):
        done = subprocess.run(
            [sys.executable, "-m", "perdure.faces.cli.main", *arguments, "--store", str(kept.path)],
            capture_output=True,
            cwd=kept.command.workspace,
            env=environment,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b""), arguments


def test_an_export_is_as_private_as_the_store_and_takes_its_form_from_its_name(
    kept: Kept, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert kept("sessions", "export", "s", "--output", str(page)).code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert page.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["", " ", "bad\nname", "\x1b[31m", "x" * 201])
def test_no_session_gets_a_name_that_nobody_could_type(kept: Kept, tmp_path: Path, name: str) -> None:
    file = tmp_path / "chat.json"
    file.write_text('[{"role": "user", "content": "x"}]')
    for arguments in (
        ("sessions", "fork", "s", "--session", name),
        ("sessions", "import", str(file), "--session", name),
        ("run", "x", "--session", name),
    ):
        ran = kept(*arguments)
        assert ran.code == 2, arguments
        assert "1 to 200 printable characters" in ran.err


def test_a_whole_session_is_forgotten_in_its_forks_too(kept: Kept) -> None:
    assert kept("sessions", "fork", "s", "--at", "6", "--session", "fork").code == 0
    ran = kept("forget", "s", "--yes")
    assert ran.code == 0
    assert "forgotten in fork: entries 1-6" in ran.out
    assert "54329" not in json.dumps(kept.messages("fork"))
    assert kept("sessions", "show", "s").code == 2


def test_what_all_commands_take_may_stand_before_the_command(tmp_path: Path) -> None:
    command = Command(tmp_path)
    store = str(tmp_path / "none.db")
    told = command("--lang", "zh", "--store", store, "sessions", "list").err
    assert told == command("sessions", "list", "--lang", "zh", "--store", store).err
    assert told == f"没有会话：存储 {store} 不存在\n"
    nearer = command("--lang", "zh", "sessions", "list", "--lang", "en", "--store", store).err
    assert nearer == f"no sessions: there is no store {store}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("context", "s"),
        ("sessions", "show", "s"),
        ("sessions", "verify", "s"),
        ("recall", "s", "x"),
        ("sessions", "rm", "s"),
    ],
)
def test_a_store_that_is_not_there_is_named_and_not_made(tmp_path: Path, arguments: Sequence[str]) -> None:
    path = tmp_path / "none.db"
    ran = Command(tmp_path)(*arguments, "--store", str(path))
    assert (ran.code, ran.out) == (2, "")
    assert f"There is no session 's': there is no store {path}." in ran.err
    assert not path.exists()


def test_people_are_told_what_was_exported_and_what_was_searched(tmp_path: Path) -> None:
    command = Command(tmp_path)
    said = json.dumps({"role": "user", "content": "hello"})
    assert command("sessions", "import", "-", "--session", "s", stdin=said).code == 0
    name = str(tmp_path / "s.md")
    assert command("sessions", "export", "s", "--output", name).err.startswith(f"written: {name}, ")
    again = command("sessions", "export", "s", "--output", name)
    assert again.code == 2
    assert "is not written over: name another file" in again.err
    assert command("sessions", "show", "s", "--lang", "zh").out.startswith("--- 1 用户 ")
    assert command("sessions", "show", "s").out.startswith("--- 1 user ")
    nothing = command("recall", "s", "zebra", "--embedder", "none")
    assert (nothing.code, nothing.out) == (0, "nothing is found\n")
    assert "--memory project" in nothing.err
    farther = command("recall", "s", "zebra", "--embedder", "none", "--memory", "project")
    assert (farther.out, farther.err) == ("nothing is found\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "show"),
        ("sessions", "fork"),
        ("sessions", "verify"),
        ("sessions", "export"),
        ("sessions", "rm"),
        ("sessions", "undo"),
        ("context",),
        ("compact",),
        ("forget",),
    ],
)
def test_a_name_that_is_no_text_is_that_of_no_session(tmp_path: Path, arguments: Sequence[str]) -> None:
    command = Command(tmp_path)
    assert (
        command("sessions", "import", "-", "--session", "s", stdin='{"role":"user","content":"x"}').code == 0
    )
    for name in (b"\xff", b"a\xed\xa0\xbd"):
        ran = command(*arguments, os.fsdecode(name))
        assert (ran.code, ran.out) == (2, ""), ran.err
        assert "There is no session" in ran.err
