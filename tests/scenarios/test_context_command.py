"""`perdure context` and `perdure compact` as a person or a script runs them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from perdure.agent.conversation import Conversation
from perdure.agent.prompts import NO_SUMMARY
from perdure.chat.messages import Kind, Message
from perdure.chat.tokens import counter_for
from perdure.memory.budget import Budget
from perdure.store.journal import Recorded
from perdure.store.sqlite import SqliteJournal
from scenarios.perdure_command import Command, Ran
from scripted_endpoint import Answer, Plain, Request, Scripted, ScriptedEndpoint

WINDOW = 3000


def summary(request: Request) -> Scripted:
    said = "\n".join(str(message["content"]) for message in request.messages)
    names = list(dict.fromkeys(re.findall(r"file_\d+\.py", said)))
    facts = [{"text": f"{name} was looked at", "entries": [1]} for name in names]
    return Answer(json.dumps({"goals": [], "facts": facts, "tools": [], "constraints": [], "open": []}))


class Kept:
    """A store with the session "s" in it, and the command that works on it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sessions.db"
        self.command = Command(folder)

    def holds(self, turns: int, *, lang: str = "en", compacting: bool = True) -> None:
        """A session of so many turns, as a run of them leaves it."""
        journal = SqliteJournal(self.path)
        journal.create("s", {"system": "be brief", "lang": lang})
        conversation = Conversation(journal, "s", counter_for(None), Budget.of(WINDOW), model="scripted")
        for number in range(turns):
            asked: Message = {"role": "user", "content": f"Look at file_{number}.py. " + "blah " * 60}
            conversation.add(Kind.USER, asked)
            if compacting:
                conversation.compact()
            conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": f"It is {number}. " * 12})
        journal.close()

    def takes_a_little_of_everything(self) -> None:
        """An entry of each kind, too small for a cell of the bar."""
        journal = SqliteJournal(self.path)
        conversation = Conversation(journal, "s", counter_for(None), Budget.of(WINDOW), model="scripted")
        for kind in (Kind.FEEDBACK, Kind.NOTICE, Kind.RECALL, Kind.PLAN):
            conversation.add(kind, {"role": "user", "content": "x"})
        function = {"name": "f", "arguments": "{}"}
        call = {"id": "c", "type": "function", "function": function}
        conversation.add(Kind.TOOL_CALL, {"role": "assistant", "content": None, "tool_calls": [call]})
        conversation.add(Kind.TOOL_RESULT, {"role": "tool", "tool_call_id": "c", "content": "x"})
        journal.close()

    def __call__(self, *arguments: str, base_url: str | None = "http://127.0.0.1:9/v1") -> Ran:
        self.command.base_url = base_url
        ran = self.command(*arguments, "--store", str(self.path), "--context-window", str(WINDOW))
        assert "Traceback" not in ran.err
        return ran

    def records(self) -> list[Any]:
        journal = SqliteJournal(self.path)
        try:
            return [*journal.records("s"), journal.since_checkpoint("s")[0]]
        finally:
            journal.close()


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(summary) as endpoint:
        yield endpoint


def bar_of(out: str) -> str:
    return next(line.strip() for line in out.splitlines() if re.fullmatch(r"\[[A-Za-z.#]+\]", line.strip()))


# --- perdure context ------------------------------------------------------------------------------


def test_the_window_is_told_by_part_with_its_compactions_and_what_waits(kept: Kept) -> None:
    kept.holds(14)
    before = kept.records()
    ran = kept("context", "s")
    assert (ran.code, ran.err) == (0, "")
    for told in (
        "s: 28 entries, window 3,000 tokens, scripted",
        "system prompt",
        "said by the person",
        "answers",
        "free",
        "kept free for the answer",
        "kept word for word: entries 1-",
        "waiting for a summary",
        "compactions:",
        "gist by code",
    ):
        assert told in ran.out
    assert len(bar_of(ran.out)) <= 74
    assert kept.records() == before, "looking changes nothing"


def test_it_speaks_chinese_where_that_is_asked_for(kept: Kept) -> None:
    kept.holds(14, lang="zh")
    ran = kept("context", "s", "--lang", "zh")
    assert ran.code == 0
    for told in (
        "s：28 条记录",
        "系统提示",
        "用户的话",
        "回答",
        "空闲",
        "为回答保留",
        "压缩记录",
        "等待摘要",
    ):
        assert told in ran.out
    for english in ("entries", "system prompt", "answers", "compactions", "waiting"):
        assert english not in ran.out


def test_as_json_it_is_one_object_whose_parts_make_the_window(kept: Kept) -> None:
    kept.holds(14)
    ran = kept("context", "s", "--json")
    assert (ran.code, ran.err) == (0, "")
    body = json.loads(ran.out)
    assert sum(body["parts"].values()) + body["free"] + body["reserve"] == body["window"] == WINDOW
    assert (body["session"], body["model"], body["entries"]) == ("s", "scripted", 28)
    assert body["compactions"][0]["left"] > 0
    assert body["pending"] > 0
    assert [seq for seq, _ in body["standing"]] == list(range(body["left"][-1][1] + 1, 29))


def test_a_session_without_a_compaction_says_nothing_of_any(kept: Kept) -> None:
    kept.holds(2)
    ran = kept("context", "s")
    assert ran.code == 0
    for unsaid in ("compactions", "waiting", "no longer", "gist"):
        assert unsaid not in ran.out


@pytest.mark.parametrize("columns", [40, 120, 20])
def test_the_bar_is_no_wider_than_the_terminal(kept: Kept, columns: int) -> None:
    kept.holds(14)
    kept.takes_a_little_of_everything()
    surroundings: Any = kept.command.environment | {"TERM": "xterm-256color"}
    surroundings.pop("COLUMNS", None)
    process = pexpect.spawn(
        sys.executable,
        ["-m", "perdure.faces.cli.main", "context", "s", "--store", str(kept.path)],
        cwd=str(kept.command.workspace),
        env=surroundings,
        dimensions=(24, columns),
        encoding="utf-8",
        timeout=30,
    )
    try:
        whole = process.read()
        process.close()
        assert process.exitstatus == 0
    finally:
        process.close(force=True)
    bar = bar_of(whole)
    assert len(bar) <= min(columns, 74)
    assert len(bar) >= min(columns, 74) - 6, "it uses the width that there is"
    letters = {line.split()[0] for line in whole.splitlines() if re.match(r"  \S +[\d,]+ +\d+%", line)}
    assert set(bar[1:-1]) == letters, "every part shows"


# --- perdure compact ------------------------------------------------------------------------------


def test_compacting_makes_room_and_has_what_left_summarised(kept: Kept, endpoint: ScriptedEndpoint) -> None:
    kept.holds(9, compacting=False)
    ran = kept("compact", "s", base_url=endpoint.base_url)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"^left: 1-\d+$", ran.out, re.MULTILINE)
    before, after = re.search(r"([\d,]+) -> ([\d,]+) tokens", ran.out).groups()  # type: ignore[union-attr]
    assert int(before.replace(",", "")) > int(after.replace(",", ""))
    assert "file_0.py was looked at" in ran.out
    assert {each.headers["x-perdure-purpose"] for each in endpoint.requests} == {"summarize"}
    body = json.loads(kept("context", "s", "--json").out)
    assert (body["pending"], body["compactions"][-1]["gist_by"]) == (0, "model")
    shown = kept("sessions", "show", "s", "--json")
    assert len(shown.out.splitlines()) == 18, "nothing is lost"


def test_where_nothing_is_left_to_do_it_says_so(kept: Kept, endpoint: ScriptedEndpoint) -> None:
    kept.holds(9, compacting=False)
    assert kept("compact", "s", base_url=endpoint.base_url).code == 0
    before, asked = kept.records(), len(endpoint.requests)
    again = kept("compact", "s", base_url=endpoint.base_url)
    assert (again.code, again.err) == (0, "")
    assert "nothing to compact" in again.out
    told = kept("compact", "s", "--lang", "zh", base_url=endpoint.base_url)
    assert (told.code, "无需压缩" in told.out) == (0, True)
    body = json.loads(kept("compact", "s", "--json", base_url=endpoint.base_url).out)
    assert (body["left"], body["nothing"]) == ([], True)
    assert kept("compact", "s", "--preview", base_url=endpoint.base_url).code == 0
    assert (kept.records(), len(endpoint.requests)) == (before, asked)


def test_a_preview_shows_what_the_compaction_then_does_and_writes_nothing(
    kept: Kept, endpoint: ScriptedEndpoint
) -> None:
    kept.holds(9, compacting=False)
    before = kept.records()
    plain = kept("compact", "s", "--preview", base_url=endpoint.base_url)
    preview = kept("compact", "s", "--preview", "--json", base_url=endpoint.base_url)
    assert (plain.code, preview.code, plain.err, preview.err) == (0, 0, "", "")
    assert "would leave: 1-" in plain.out
    assert "file_0.py was looked at" in plain.out
    assert kept.records() == before
    done = kept("compact", "s", "--json", base_url=endpoint.base_url)
    shown, real = json.loads(preview.out), json.loads(done.out)
    for name in ("left", "shortened", "tokens_before", "tokens_after", "gist", "gist_by", "pending"):
        assert shown[name] == real[name]
    assert kept.records() != before


def test_an_undo_takes_compactions_back_one_by_one_until_there_is_none(
    kept: Kept, endpoint: ScriptedEndpoint
) -> None:
    kept.holds(9, compacting=False)
    whole = json.loads(kept("context", "s", "--json").out)
    left = json.loads(kept("compact", "s", "--json", base_url=endpoint.base_url).out)["left"]
    assert left
    undone = kept("compact", "s", "--undo", base_url=endpoint.base_url)
    assert (undone.code, undone.err) == (0, "")
    assert f"in the window again: 1-{left[-1]}" in undone.out
    again = json.loads(kept("context", "s", "--json").out)
    assert (again["standing"], again["left"]) == (whole["standing"], [])
    assert [each["undone"] for each in again["compactions"]] == [True]
    nothing = kept("compact", "s", "--undo", base_url=endpoint.base_url)
    assert (nothing.code, nothing.out.strip()) == (0, "there is no compaction to take back")
    chinese = kept("compact", "s", "--undo", "--lang", "zh", base_url=endpoint.base_url)
    assert (chinese.code, chinese.out.strip()) == (0, "没有可撤销的压缩")
    body = json.loads(kept("compact", "s", "--undo", "--json", base_url=endpoint.base_url).out)
    assert body == {"undone": False, "back": []}
    undos = [each for each in kept.records() if isinstance(each, Recorded) and "undone" in each.type]
    assert len(undos) == 1


def test_an_undo_as_json_names_the_entries_that_are_back(kept: Kept, endpoint: ScriptedEndpoint) -> None:
    kept.holds(9, compacting=False)
    left = json.loads(kept("compact", "s", "--json", base_url=endpoint.base_url).out)["left"]
    body = json.loads(kept("compact", "s", "--undo", "--json", base_url=endpoint.base_url).out)
    assert body == {"undone": True, "back": left}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Plain(500, {"error": {"message": "overloaded"}}), "EndpointBroken"),
        (Answer(""), "empty"),
        (Answer("I'm sorry, I can't help."), "refusal"),
    ],
    ids=["an error", "nothing", "a refusal"],
)
def test_a_summariser_that_fails_costs_only_the_summary(kept: Kept, answer: Scripted, code: str) -> None:
    why = NO_SUMMARY[code]
    kept.holds(9, compacting=False)
    with ScriptedEndpoint([answer]) as failing:
        ran = kept("compact", "s", base_url=failing.base_url)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"^left: 1-\d+$", ran.out, re.MULTILINE)
    assert f"no summary came of it: {why[0]}" in ran.out
    body = json.loads(kept("context", "s", "--json").out)
    assert (body["compactions"][-1]["gist_by"], body["compactions"][-1]["refused"]) == ("code", code)
    assert f"gist by code (no summary: {why[0]})" in kept("context", "s").out
    assert f"概要：代码（没有摘要：{why[1]}）" in kept("context", "s", "--lang", "zh").out
    assert body["pending"] > 0
    assert body["gist"]


def test_an_endpoint_that_is_down_does_not_keep_code_from_compacting(kept: Kept) -> None:
    kept.holds(9, compacting=False)
    ran = kept("compact", "s", "--summary", "code")
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"^left: 1-\d+$", ran.out, re.MULTILINE)
    body = json.loads(kept("context", "s", "--json").out)
    assert (body["compactions"][-1]["gist_by"], body["pending"]) == ("code", 0)


def test_where_code_writes_the_gist_nobody_is_asked(kept: Kept, endpoint: ScriptedEndpoint) -> None:
    kept.holds(9, compacting=False)
    assert kept("compact", "s", "--summary", "code", base_url=endpoint.base_url).code == 0
    assert endpoint.requests == []


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["context", "nobody"],
        ["context", "nobody", "--json"],
        ["compact", "nobody"],
        ["compact", "nobody", "--preview"],
        ["compact", "nobody", "--undo"],
        ["compact", "nobody", "--undo", "--json"],
    ],
    ids=" ".join,
)
def test_a_session_that_is_not_there_is_named_and_not_made(kept: Kept, arguments: list[str]) -> None:
    ran = kept(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "There is no session 'nobody'" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "没有名为“nobody”的会话" in kept(*arguments, "--lang", "zh").err
    assert kept("sessions", "list").out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["context"],
        ["compact"],
        ["compact", "s", "--preview", "--undo"],
        ["compact", "s", "--summary", "perhaps"],
        ["compact", "s", "--summary-model"],
        ["compact", "s", "--prev"],
        ["context", "s", "--undo"],
        ["context", "s", "t"],
        ["context", "s", "--lang", "fr"],
        ["compact", "s", "--max-output-tokens", "0"],
        ["context", "s", "--max-output-tokens", "many"],
    ],
    ids=" ".join,
)
def test_flags_that_do_not_go_together_are_bad_usage(kept: Kept, arguments: list[str]) -> None:
    kept.holds(9, compacting=False)
    before = kept.records()
    ran = kept(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err
    assert kept.records() == before
