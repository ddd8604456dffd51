"""A session of 2,000 entries answers for each fact that was planted in it, whatever happened since."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.agent.conversation import Conversation, result_message
from perdure.app import Sessions
from perdure.chat.messages import Kind, Message
from perdure.chat.tokens import counter_for
from perdure.config import Settings
from perdure.memory.budget import Budget
from perdure.store.sqlite import SqliteJournal
from scenarios.perdure_command import Command
from scripted_endpoint import Answer, ScriptedEndpoint

ENTRIES = 2_000
#: What was said, who said it, and how it is asked for later, in other words.
FACTS = (
    (
        "The staging database listens on port 54329, not on the usual one.",
        "user",
        "which port does staging use?",
    ),
    ("Ines wants the release notes in British English.", "user", "how should the release notes be written?"),
    ("The nightly backup goes to the bucket frost-lantern-7.", "assistant", "where do backups go at night?"),
    (
        "ERR_QUOTA_771 means that the tenant has used up its exports.",
        "assistant",
        "what does ERR_QUOTA_771 mean",
    ),
    (
        "Never touch src/billing/ledger_writer.py without asking Marek.",
        "user",
        "whom to ask about ledger_writer.py",
    ),
    (
        "The certificate of the mail relay expires on 2027-03-14.",
        "tool",
        "when does the mail certificate expire?",
    ),
    ("We chose Valkey over Redis because of its licence.", "assistant", "why did we choose Valkey?"),
    (
        "The load test broke down at 1,840 requests a second.",
        "tool",
        "at how many requests did the load test fail?",
    ),
    ("测试环境的网关密钥每月十七号轮换一次。", "user", "网关密钥什么时候轮换？"),
    ("小周负责支付回调模块，改动前先找她。", "user", "支付回调由谁负责？"),
    ("上线窗口定在周四晚上九点半。", "assistant", "什么时候上线？"),
    ("报表服务的内存上限是 3072 MB，超过就会被杀掉。", "tool", "报表服务内存上限是多少"),
    ("客户要求导出文件一律用 GB18030 编码。", "user", "导出文件用什么编码？"),
    ("缓存失效是因为时钟漂移了四十秒。", "assistant", "缓存为什么失效？"),
)
TOPICS = (
    "parser",
    "cache",
    "login page",
    "invoice",
    "test suite",
    "search index",
    "upload",
    "menu",
    "scheduler",
)
VERBS = ("looked at", "renamed", "measured", "cleaned up", "split", "documented", "reverted", "profiled")
AREAS = ("解析器", "缓存层", "登录页", "发票", "测试", "搜索", "上传", "菜单", "调度器")


def filler(random: random.Random, at: int) -> str:
    if random.random() < 0.3:
        area, ended = random.choice(AREAS), random.choice(("正常", "变慢", "不变", "待查"))
        return f"第 {at} 步：处理了{area}，结果{ended}。"
    return (
        f"Step {at}: {random.choice(VERBS)} the {random.choice(TOPICS)}; {random.randint(2, 90)} files, "
        + (random.choice(("all fine.", "one warning.", "slower than before.", "nothing changed.")))
    )


def planted(path: Path, window: int) -> dict[str, int]:
    """Make the session; the entry of each fact."""
    draw = random.Random(4)
    journal = SqliteJournal(path)
    journal.create("long", {"system": "be brief", "lang": "en"})
    conversation = Conversation(journal, "long", counter_for(None), Budget.of(window), model="scripted")
    where = dict(zip(draw.sample(range(10, ENTRIES // 4 - 60), len(FACTS)), FACTS, strict=True))
    entries: dict[str, int] = {}
    for round in range(ENTRIES // 4):
        fact, by, asked = where.get(round, ("", "", ""))
        texts = [filler(draw, 4 * round + place) for place in range(3)]
        if fact:
            place = {"user": 0, "tool": 1, "assistant": 2}[by]
            texts[place] = f"{texts[place]} {fact}"
        id = f"call_{round}"
        function = {"name": "bash", "arguments": json.dumps({"command": f"make step-{round}"})}
        call: Message = {"id": id, "type": "function", "function": function}
        written = conversation.add_all(
            [
                (Kind.USER, {"role": "user", "content": texts[0]}),
                (Kind.TOOL_CALL, {"role": "assistant", "content": None, "tool_calls": [call]}),
                (Kind.TOOL_RESULT, result_message(id, texts[1])),
                (Kind.ASSISTANT, {"role": "assistant", "content": texts[2]}),
            ]
        )
        if fact:
            entries[asked] = written[{"user": 0, "tool": 2, "assistant": 3}[by]].seq
    journal.close()
    return entries


def missing(path: Path, entries: dict[str, int]) -> list[str]:
    """The questions that recall doesn't answer among its first five."""
    with Sessions(Settings(store=str(path))) as sessions:
        found = {
            asked: [each.passage.entry for each in sessions.recall("long", asked, 5)] for asked in entries
        }
    return [asked for asked, entry in entries.items() if entry not in found[asked]]


@pytest.mark.timeout(300)
def test_each_planted_fact_is_recalled_before_and_after_ten_compactions_and_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    entries = planted(path, window=4_000)
    assert len(entries) == len(FACTS)
    assert missing(path, entries) == []
    with ScriptedEndpoint(lambda request: Answer("On it. " + "word " * 250)) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        kept = ("--store", str(path), "--context-window", "4000", "--session", "long", "--summary", "code")
        compactions = 0
        for turn in range(40):
            ran = command("run", "--json", f"Go on with part {turn}. " + "please " * 150, *kept)
            assert ran.code == 0, ran.err
            compactions += len(ran.of("compaction"))
            if compactions >= 10:
                break
        assert compactions >= 10
    with ScriptedEndpoint(
        lambda request: Answer(calls=[("c1", "bash", {"command": "sleep 30"})])
    ) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        running = subprocess.Popen(
            [sys.executable, "-m", "perdure.faces.cli.main", "run", "wait a little", "--yes", *kept],
            cwd=command.workspace,
            env=command.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 30
        while not endpoint.requests and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.3)
        running.send_signal(signal.SIGKILL)
        running.wait(10)
    assert missing(path, entries) == []
    asked, entry = next(iter(entries.items()))
    ran = command("recall", "long", asked, "--json", "--store", str(path))
    first = json.loads(ran.out)
    assert entry in [each["entry"] for each in first[:5]]
    assert {"entry", "score", "text"} <= first[0].keys()
    assert [each["score"] for each in first] == sorted((each["score"] for each in first), reverse=True)
