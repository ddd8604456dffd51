"""How many of ten planted facts does a gist by code keep, of about 800 tokens that left the window?

    python bench/facts.py [--seeds N] [--embedded] [--show KIND]

Conversations are generated: requests, tool calls with results, answers and talk, of four kinds; the
weights in `perdure.memory.extract` were chosen on two of them, the other two are held out. A fact
counts as kept by the gist when its exact literal and its key word both stand in one line; as kept by
gist and ledger when that is so, or the ledger lists the literal. The ledger has 80 tokens of its own.
The last columns: the same gist after ten compactions more, each of 100 tokens of talk and tool noise.

`--embedded` asks the embedded model for a summary of three conversations of each language, within
the same limit, and counts the same way. `--show KIND` prints one conversation's gist.
"""

# ruff: noqa: E501 -- a fact is one row of a table

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio

from perdure.chat.language import Language
from perdure.chat.messages import Entry, Kind, Message, kind_of
from perdure.chat.tokens import counter_for
from perdure.memory.extract import extracted
from perdure.memory.gist import Line, rendered
from perdure.memory.ledger import Ledger
from perdure.memory.literals import literals_of
from perdure.memory.sources import Source, sources_of

COUNTER = counter_for("o200k_base")
LIMITS, LEDGER, TOKENS, PLANTED = (120, 200), 80, 800, 10
ROUNDS, NOISE = 10, 100


@dataclass(frozen=True)
class Fact:
    """``by``: u the person, a the model, t a tool. ``text`` holds ``{v}``, the value, and ``key``."""

    by: str
    text: str
    key: str
    value: Callable[[random.Random], str]


@dataclass(frozen=True)
class Setting:
    """One kind of conversation in one language. ``asks`` and ``answers`` surround the facts;
    ``calls``: a tool, its arguments, and results without facts."""

    facts: tuple[Fact, ...]
    asks: tuple[str, ...]
    answers: tuple[str, ...]
    calls: tuple[tuple[str, dict[str, str], str], ...]


def number(low: int, high: int, form: str = "{}") -> Callable[[random.Random], str]:
    return lambda chance: form.format(chance.randint(low, high))


def one(*values: str) -> Callable[[random.Random], str]:
    return lambda chance: chance.choice(values)


def code(form: str) -> Callable[[random.Random], str]:
    """A for a capital letter, 9 for a digit."""
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
    return lambda chance: "".join(
        chance.choice(letters) if c == "A" else str(chance.randint(1, 9)) if c == "9" else c for c in form
    )


TALK: dict[Language, tuple[tuple[str, str], ...]] = {
    "en": (
        ("Thanks, that looks great so far!", "You're welcome! Happy to help with anything else you need."),
        (
            "Hi again, hope you had a good morning.",
            "Good morning! I'm ready when you are. What shall we look at?",
        ),
        ("Hmm, let me think about it for a moment.", "Sure, take your time. There is no hurry at all."),
        ("Cool, I had no idea it could do that.", "Yes, it's quite handy once you get used to it."),
        (
            "It's raining here again, typical weather.",
            "Sounds like a good day to stay inside and get things done.",
        ),
        ("ok go on", "Sure, let me take a look at that."),
    ),
    "zh": (
        ("谢谢，目前看起来很不错！", "不客气！如果还有其他需要，随时告诉我。"),
        ("你好，又是我，今天早上过得怎么样？", "早上好！我准备好了，我们从哪里开始？"),
        ("嗯，让我想一想。", "好的，慢慢来，不着急。"),
        ("哇，原来还可以这样，太方便了。", "是的，习惯以后会觉得很顺手。"),
        ("这边又下雨了，天气真糟糕。", "听起来很适合待在室内把事情做完。"),
        ("好的，继续吧", "好的，我来看看。"),
    ),
}

SETTINGS: dict[tuple[str, Language], Setting] = {
    ("coding", "en"): Setting(
        (
            Fact("u", "Lint warnings in {v} can be ignored for now.", "lint", one("legacy/forms.py", "gen/schema_pb.py", "vendor/ui.js")),
            Fact("u", "Our CI machine has only {v} of memory.", "memory", number(2, 9, "{} GB")),
            Fact("a", "The helper {v} is no longer used anywhere.", "helper", one("parse_legacy_date", "to_old_format", "retry_twice")),
            Fact("t", "On branch {v}, your branch is ahead by 2 commits", "branch", one("fix/tax-rounding", "feature/export-v2", "chore/py312")),
            Fact("u", "The repository lives at {v} on my laptop.", "repository", one("/home/mara/src/orbit", "~/code/heron-api", "/opt/src/tally")),
            Fact("u", "Please never push to {v} directly.", "push", one("release-2.4", "main-prod", "stable-9")),
            Fact("u", "Our database listens on port {v}, not the usual one.", "database", number(5400, 5999)),
            Fact("u", "We decided to stay on Python {v} because of the vendor's wheels.", "Python", one("3.11.7", "3.12.1", "3.10.13")),
            Fact("a", "The slow endpoint is caused by a missing index on {v}.", "index", one("orders.customer_id", "events.seen_at", "jobs.owner_id")),
            Fact("a", "I fixed the rounding in {v} by using Decimal instead of float.", "rounding", one("billing/tax.py", "src/invoice_total.py", "core/money.py")),
            Fact("t", "{v} passed, 3 failed in 41.2s", "failed", number(112, 980)),
            Fact("t", "ERROR test_{v} timed out after 30 s", "timed out", one("upload_large_file", "retry_on_conflict", "token_refresh")),
            Fact("u", "The release is due on {v}.", "release", code("2026-0"+"9-19")),
            Fact("a", "The retry limit is now {v} attempts.", "retry", number(4, 29)),
        ),
        (
            "Could you have a look at the tests? They have been flaky since last week and it annoys everybody.",
            "Can you explain what this module does? I inherited it and there are no comments.",
            "Let's clean this up a little before we go on.",
            "What do you think about the structure of the project in general?",
        ),
        (
            "I read through the code. It is mostly straightforward, with a few long functions that could be split.",
            "Let me run the tests first and see what they say. I will get back to you with the result.",
            "The module reads the configuration, opens a connection and hands it to the workers.",
            "That is a reasonable way to do it. There are alternatives, but they have drawbacks of their own.",
        ),
        (
            ("list_files", {"path": "."}, "README.md\nsetup.cfg\nsrc\ntests\ndocs\nMakefile\nCHANGELOG.md\nscripts"),
            ("read_file", {"path": "src/worker.py"}, "import logging\nimport os\n\nlog = logging.getLogger(__name__)\n\ndef main():\n    for job in queue():\n        run(job)\n"),
            ("bash", {"command": "git status --short"}, " M src/worker.py\n M tests/conftest.py\n?? notes.txt"),
            ("bash", {"command": "make lint"}, "checking style ... ok\nchecking types ... ok\nall checks passed"),
        ),
    ),
    ("travel", "en"): Setting(
        (
            Fact("u", "We would rather sit near {v} if there is a choice.", "sit", one("row 12", "row 31", "row 7")),
            Fact("u", "My frequent flyer card ends in {v}.", "card", number(1000, 9999)),
            Fact("a", "Check-in at the hotel opens at {v}.", "check-in", one("15:30", "14:15", "16:45")),
            Fact("t", '{"train": "{v}", "platform": 6, "on_time": true}', "train", code("IC 999")),
            Fact("u", "My user id is {v}.", "user id", code("mia_li_3999")),
            Fact("u", "My budget for the hotel is {v} in total.", "budget", number(310, 990, "${}")),
            Fact("u", "I'm allergic to {v}, so please keep that in mind for meals.", "allergic", one("peanuts", "shellfish", "sesame")),
            Fact("u", "My sister {v} will travel with me.", "sister", one("Ingrid", "Noor", "Beatriz")),
            Fact("t", '{"reservation_id": "{v}", "cabin": "economy", "status": "confirmed"}', "reservation", code("AAA999")),
            Fact("t", '{"flight_number": "{v}", "departs": "07:45", "seats_left": 4}', "flight", code("HAT099")),
            Fact("a", "The cheapest nonstop ticket costs {v} including one bag.", "ticket", number(210, 980, "${}")),
            Fact("a", "I have booked the room at the {v} for three nights.", "room", one("Hotel Miramar", "Casa Azul", "Pension Linde")),
            Fact("u", "We must be back by {v} because school starts again.", "back", code("2026-08-29")),
            Fact("a", "The fee for changing the return flight is {v}.", "fee", number(35, 95, "{} EUR")),
        ),
        (
            "I'd like to plan a little trip this summer, nothing too fancy, somewhere near the sea.",
            "Is there something to see around there? We like walking and small museums.",
            "Could you check what the options are? I'm not in a hurry.",
            "And how do people usually get from the airport into town?",
        ),
        (
            "There are several nice places along the coast, and most are easy to reach by train.",
            "Let me check the availability for you, one moment please.",
            "Most visitors take the bus, which runs often and is comfortable.",
            "I understand. I will look for something quiet and close to the beach.",
        ),
        (
            ("search_hotels", {"city": "Lagos", "stars": "3"}, '{"hotels": [{"name": "Vista", "rating": 4.1}, {"name": "Central", "rating": 3.9}]}'),
            ("get_weather", {"city": "Lagos"}, '{"summary": "sunny intervals", "high": 24, "low": 15}'),
            ("search_flights", {"from": "BER", "to": "FAO"}, '{"results": [{"stops": 1}, {"stops": 2}], "more": true}'),
            ("list_airports", {"country": "PT"}, '["LIS", "OPO", "FAO"]'),
        ),
    ),
    ("operations", "en"): Setting(
        (
            Fact("u", "Nobody may restart {v} before Monday.", "restart", one("ledger-db", "auth-proxy", "mq-core")),
            Fact("u", "The old dashboard moved to https://{v}/board.", "dashboard", one("grafana.lab.example", "metrics.corp.example", "obs.team.example")),
            Fact("a", "Latency went up to {v} right after the deploy.", "latency", number(310, 990, "{} ms")),
            Fact("t", "job nightly-export exited with code {v}", "nightly-export", number(11, 139)),
            Fact("u", "The staging cluster is called {v}.", "staging", one("kestrel-eu1", "bluefin-02", "osprey-lab")),
            Fact("u", "Backups have to stay in the {v} region.", "backups", one("eu-central-1", "ap-south-2", "ca-west-1")),
            Fact("u", "Always use the {v} profile when you call the CLI.", "profile", one("ops-readonly", "sre-audit", "night-shift")),
            Fact("a", "The outage started at {v} when the certificate expired.", "certificate", code("2026-03-19")),
            Fact("a", "I raised the memory limit of the gateway to {v}.", "gateway", number(3, 24, "{} GiB")),
            Fact("t", '{"pod": "{v}", "state": "CrashLoopBackOff", "restarts": 17}', "CrashLoopBackOff", one("ingest-7f9c4", "mailer-5d2b8", "search-6c77d")),
            Fact("t", "2026-03-02 04:11:09 ERROR disk /dev/{v} is 97% full", "disk", one("nvme1n1", "sdb3", "xvdf1")),
            Fact("u", "The person on call this week is {v}.", "call", one("Tobias", "Priyanka", "Marisol")),
            Fact("a", "We agreed to roll back to version {v}.", "roll back", code("v4.9.19")),
            Fact("u", "Ticket {v} has the history of the incident.", "ticket", code("OPS-9999")),
        ),
        (
            "Something is off with the dashboards since this morning, can you have a look?",
            "What would you do first in such a case?",
            "Users are complaining that pages load slowly, but I see nothing unusual.",
            "Can you summarise for my manager what we know, in plain language?",
        ),
        (
            "I would look at the graphs first and then at the logs of the services that talk to each other.",
            "One moment, I am going to query the cluster.",
            "In short: a part of the system was not reachable for a while, and it recovered by itself.",
            "The dashboards read from a cache, so they can lag behind a little.",
        ),
        (
            ("kubectl", {"args": "get nodes"}, "NAME STATUS ROLES AGE\nnode-a Ready worker 90d\nnode-b Ready worker 90d"),
            ("query_metrics", {"expr": "up"}, '{"status": "success", "data": {"result": [{"value": 1}, {"value": 1}]}}'),
            ("bash", {"command": "uptime"}, " 10:01:12 up 90 days, load average: 0.20, 0.31, 0.28"),
            ("read_log", {"service": "web"}, "INFO started\nINFO listening\nINFO request done\nINFO request done"),
        ),
    ),
    ("household", "en"): Setting(
        (
            Fact("u", "Lena can only eat bread without {v}.", "bread", one("gluten", "yeast", "milk")),
            Fact("u", "The boiler was last serviced by {v}.", "boiler", one("Hartmann & Sons", "Gasworks Mills", "Nordheat")),
            Fact("a", "The library books are overdue since {v}.", "library", one("3 March", "19 June", "27 April")),
            Fact("t", '{"parcel": "{v}", "place": "pickup shop", "until": "Saturday"}', "parcel", code("JD99 9999")),
            Fact("u", "Our landlord's number is {v}.", "landlord", code("0199 999 919")),
            Fact("u", "The electricity meter shows {v} at the moment.", "meter", number(10000, 99999, "{} kWh")),
            Fact("u", "Grandma turns eighty on {v}.", "Grandma", one("14 May", "2 October", "23 June")),
            Fact("u", "I prefer paying by {v} whenever that's possible.", "paying", one("bank transfer", "direct debit", "PayPal")),
            Fact("a", "The new dishwasher will be delivered on {v}.", "dishwasher", one("Thursday 12 March", "Monday 6 April", "Friday 8 May")),
            Fact("a", "The cheaper contract costs {v} a month.", "contract", number(21, 79, "{} euros")),
            Fact("t", '{"order": "{v}", "item": "washing machine belt", "paid": true}', "belt", code("W9-99999")),
            Fact("t", '{"appointment": "dentist", "date": "{v}", "place": "Lindenweg 4"}', "dentist", code("2026-11-29")),
            Fact("u", "The spare key is with {v} from the second floor.", "key", one("Mrs. Okafor", "Mr. Lindqvist", "Mrs. Duarte")),
            Fact("a", "You still have to send form {v} to the tax office.", "tax office", code("A-99/9")),
        ),
        (
            "I'm trying to get my paperwork in order, and it's more than I thought.",
            "Do you have an idea what to cook tonight? The children are picky.",
            "What else should I take care of before the holidays?",
            "How do other people keep track of all this?",
        ),
        (
            "A simple list on the fridge works well for many families, and so does a shared calendar.",
            "How about pasta with vegetables? It is quick and most children like it.",
            "I'll look that up for you right away.",
            "It is a lot, but if we go through it step by step it will be fine.",
        ),
        (
            ("calendar", {"range": "week"}, '{"events": [{"title": "yoga"}, {"title": "piano lesson"}]}'),
            ("search_recipes", {"query": "pasta"}, '[{"title": "Pasta primavera"}, {"title": "Baked pasta"}]'),
            ("list_mail", {"folder": "inbox"}, '{"unread": 12, "newest": "Newsletter of the library"}'),
            ("search_web", {"query": "declutter paperwork"}, "Ten tips for less paper. Start small. Sort by topic."),
        ),
    ),
    ("coding", "zh"): Setting(
        (
            Fact("u", "{v} 里的格式警告暂时可以忽略。", "格式", one("legacy/forms.py", "gen/schema_pb.py", "vendor/ui.js")),
            Fact("u", "我们的构建机只有 {v} 内存。", "内存", number(2, 9, "{} GB")),
            Fact("a", "函数 {v} 已经没有任何地方在用。", "函数", one("parse_legacy_date", "to_old_format", "retry_twice")),
            Fact("t", "位于分支 {v}，领先 2 个提交", "分支", one("fix/tax-rounding", "feature/export-v2", "chore/py312")),
            Fact("u", "代码仓库在 {v} 目录下。", "仓库", one("/home/lin/src/orbit", "~/code/heron-api", "/opt/src/tally")),
            Fact("u", "请不要直接推送到 {v} 分支。", "推送", one("release-2.4", "main-prod", "stable-9")),
            Fact("u", "我们的数据库监听端口是 {v}，不是默认的。", "数据库", number(5400, 5999)),
            Fact("u", "我们决定继续用 Python {v}，因为供应商只提供这个版本的包。", "Python", one("3.11.7", "3.12.1", "3.10.13")),
            Fact("a", "接口慢的原因是 {v} 缺少索引。", "索引", one("orders.customer_id", "events.seen_at", "jobs.owner_id")),
            Fact("a", "我修复了 {v} 里的舍入问题，改用 Decimal。", "舍入", one("billing/tax.py", "src/invoice_total.py", "core/money.py")),
            Fact("t", "{v} passed, 3 failed in 41.2s", "failed", number(112, 980)),
            Fact("t", "错误：test_{v} 在 30 秒后超时", "超时", one("upload_large_file", "retry_on_conflict", "token_refresh")),
            Fact("u", "发布日期定在 {v}。", "发布", code("2026-0"+"9-19")),
            Fact("a", "重试次数上限现在是 {v} 次。", "重试", number(4, 29)),
        ),
        (
            "能帮我看看测试吗？从上周开始就不太稳定，大家都很烦。",
            "这个模块是做什么的？我刚接手，里面没有注释。",
            "我们先把这里整理一下再继续吧。",
            "你觉得这个项目的整体结构怎么样？",
        ),
        (
            "我读了一遍代码，大部分都很直接，有几个函数比较长，可以拆开。",
            "我先运行一下测试，看看结果怎么样，然后再告诉您。",
            "这个模块读取配置，打开连接，然后交给工作进程。",
            "这样做是合理的，也有别的办法，不过各有缺点。",
        ),
        (
            ("list_files", {"path": "."}, "README.md\nsetup.cfg\nsrc\ntests\ndocs\nMakefile\nCHANGELOG.md\nscripts"),
            ("read_file", {"path": "src/worker.py"}, "import logging\nimport os\n\ndef main():\n    for job in queue():\n        run(job)\n"),
            ("bash", {"command": "git status --short"}, " M src/worker.py\n M tests/conftest.py\n?? notes.txt"),
            ("bash", {"command": "make lint"}, "检查风格……通过\n检查类型……通过"),
        ),
    ),
    ("travel", "zh"): Setting(
        (
            Fact("u", "可以选座的话，我们想坐在{v}附近。", "坐", one("第12排", "第31排", "第7排")),
            Fact("u", "我的常旅客卡尾号 {v}。", "常旅客", number(1000, 9999)),
            Fact("a", "酒店 {v} 开始办理入住。", "入住", one("15:30", "14:15", "16:45")),
            Fact("t", '{"车次": "{v}", "站台": 6, "准点": true}', "车次", code("G999")),
            Fact("u", "我的用户编号是 {v}。", "用户编号", code("mia_li_3999")),
            Fact("u", "酒店的总预算是 {v} 元。", "预算", number(1300, 4900)),
            Fact("u", "我对{v}过敏，订餐时请注意。", "过敏", one("花生", "海鲜", "芝麻")),
            Fact("u", "我的妹妹{v}会和我一起去。", "妹妹", one("王晓梅", "李思雨", "陈佳怡")),
            Fact("t", '{"订单号": "{v}", "舱位": "经济舱", "状态": "已确认"}', "订单号", code("AAA999")),
            Fact("t", '{"航班": "{v}", "起飞": "07:45", "余座": 4}', "航班", code("HU7099")),
            Fact("a", "最便宜的直飞机票是 {v} 元，含一件行李。", "机票", number(810, 2980)),
            Fact("a", "我已预订了{v}的房间，住三晚。", "房间", one("海天酒店", "云栖客栈", "青松宾馆")),
            Fact("u", "我们必须在 {v} 之前回来，因为要开学了。", "回来", code("2026-08-29")),
            Fact("a", "改签返程航班的手续费是 {v} 元。", "手续费", number(135, 395)),
        ),
        (
            "今年夏天我想去海边走走，不用太讲究。",
            "那边有什么好玩的吗？我们喜欢散步和小博物馆。",
            "能帮我查一下有哪些选择吗？不着急。",
            "从机场进城一般怎么走？",
        ),
        (
            "沿海有不少不错的地方，大部分坐火车都很方便。",
            "我来查一下是否有空房，请稍等。",
            "大多数游客坐大巴，班次很多，也很舒服。",
            "明白了，我会找安静一点、离海滩近的地方。",
        ),
        (
            ("search_hotels", {"city": "青岛", "stars": "3"}, '{"hotels": [{"name": "远望", "rating": 4.1}, {"name": "中心", "rating": 3.9}]}'),
            ("get_weather", {"city": "青岛"}, '{"summary": "晴间多云", "high": 24, "low": 15}'),
            ("search_flights", {"from": "PEK", "to": "TAO"}, '{"results": [{"stops": 0}, {"stops": 1}], "more": true}'),
            ("list_airports", {"province": "山东"}, '["TAO", "TNA", "YNT"]'),
        ),
    ),
    ("operations", "zh"): Setting(
        (
            Fact("u", "周一之前谁都不可以重启 {v}。", "重启", one("ledger-db", "auth-proxy", "mq-core")),
            Fact("u", "旧面板搬到了 https://{v}/board。", "面板", one("grafana.lab.example", "metrics.corp.example", "obs.team.example")),
            Fact("a", "部署之后延迟马上升到了 {v}。", "延迟", number(310, 990, "{} ms")),
            Fact("t", "任务 nightly-export 退出码 {v}", "nightly-export", number(11, 139)),
            Fact("u", "预发布集群的名字是 {v}。", "预发布", one("kestrel-eu1", "bluefin-02", "osprey-lab")),
            Fact("u", "备份只能放在 {v} 区域。", "备份", one("cn-north-4", "ap-south-2", "cn-east-3")),
            Fact("u", "调用命令行时始终使用 {v} 配置。", "命令行", one("ops-readonly", "sre-audit", "night-shift")),
            Fact("a", "故障从 {v} 开始，当时证书过期了。", "证书", code("2026-03-19")),
            Fact("a", "我把网关的内存上限提高到了 {v}。", "网关", number(3, 24, "{} GiB")),
            Fact("t", '{"pod": "{v}", "state": "CrashLoopBackOff", "restarts": 17}', "CrashLoopBackOff", one("ingest-7f9c4", "mailer-5d2b8", "search-6c77d")),
            Fact("t", "2026-03-02 04:11:09 ERROR 磁盘 /dev/{v} 已用 97%", "磁盘", one("nvme1n1", "sdb3", "xvdf1")),
            Fact("u", "本周值班的人是{v}。", "值班", one("赵明远", "孙丽华", "周志强")),
            Fact("a", "我们商定回滚到 {v} 版本。", "回滚", code("v4.9.19")),
            Fact("u", "工单 {v} 里有事故的经过。", "工单", code("OPS-9999")),
        ),
        (
            "从今天早上开始监控面板有点不对劲，你能看看吗？",
            "遇到这种情况你会先做什么？",
            "用户抱怨页面打开很慢，可是我没看到异常。",
            "能用通俗的话给我的经理总结一下目前的情况吗？",
        ),
        (
            "我会先看图表，然后再看互相调用的那些服务的日志。",
            "请稍等，我去查询一下集群。",
            "简单来说，系统的一部分有一段时间无法访问，后来自己恢复了。",
            "监控面板读的是缓存，所以可能会有一点延迟。",
        ),
        (
            ("kubectl", {"args": "get nodes"}, "NAME STATUS ROLES AGE\nnode-a Ready worker 90d\nnode-b Ready worker 90d"),
            ("query_metrics", {"expr": "up"}, '{"status": "success", "data": {"result": [{"value": 1}, {"value": 1}]}}'),
            ("bash", {"command": "uptime"}, " 10:01:12 up 90 days, load average: 0.20, 0.31, 0.28"),
            ("read_log", {"service": "web"}, "INFO 已启动\nINFO 正在监听\nINFO 请求完成\nINFO 请求完成"),
        ),
    ),
    ("household", "zh"): Setting(
        (
            Fact("u", "小美吃的面包里不可以有{v}。", "面包", one("麸质", "酵母", "牛奶")),
            Fact("u", "锅炉上次是{v}来保养的。", "锅炉", one("华暖公司", "老张师傅", "恒热服务部")),
            Fact("a", "图书馆的书{v}就该还了。", "图书馆", one("三月三号", "六月十九号", "四月二十七号")),
            Fact("t", '{"包裹": "{v}", "地点": "驿站", "保留到": "周六"}', "包裹", code("JD99 9999")),
            Fact("u", "房东的电话是 {v}。", "房东", code("139 9919 9199")),
            Fact("u", "电表现在的读数是 {v} 度。", "电表", number(10000, 99999)),
            Fact("u", "奶奶的八十大寿在{v}。", "奶奶", one("五月十四日", "十月二号", "六月二十三日")),
            Fact("u", "我更喜欢用{v}付款。", "付款", one("银行转账", "支付宝", "信用卡")),
            Fact("a", "新的洗碗机会在{v}送到。", "洗碗机", one("3月12日", "4月6日", "5月8日")),
            Fact("a", "便宜的那份合同每个月 {v} 元。", "合同", number(21, 79)),
            Fact("t", '{"订单": "{v}", "商品": "洗衣机皮带", "已付款": true}', "皮带", code("W9-99999")),
            Fact("t", '{"预约": "牙医", "日期": "{v}", "地点": "桂花路4号"}', "牙医", code("2026-11-29")),
            Fact("u", "备用钥匙在二楼的{v}那里。", "钥匙", one("吴阿姨", "郑叔叔", "冯老师")),
            Fact("a", "您还需要把 {v} 号表格寄给税务局。", "税务局", code("A-99/9")),
        ),
        (
            "我在整理家里的各种文件，比我想的要多得多。",
            "你觉得今晚做什么菜好？孩子们很挑食。",
            "放假之前我还应该处理些什么？",
            "别人都是怎么记住这么多事情的？",
        ),
        (
            "很多家庭在冰箱上贴一张清单，共享日历也很好用。",
            "要不要试试蔬菜面？做起来快，孩子们大多爱吃。",
            "我马上帮您查一下。",
            "事情确实不少，不过一步一步来就好了。",
        ),
        (
            ("calendar", {"range": "week"}, '{"events": [{"title": "瑜伽"}, {"title": "钢琴课"}]}'),
            ("search_recipes", {"query": "面条"}, '[{"title": "蔬菜炒面"}, {"title": "葱油拌面"}]'),
            ("list_mail", {"folder": "inbox"}, '{"unread": 12, "newest": "图书馆通讯"}'),
            ("search_web", {"query": "整理文件"}, "整理文件的十个小窍门。从小处开始。按主题分类。"),
        ),
    ),
}  # fmt: skip
#: The kinds that the weights were chosen on.
TUNED = ("coding", "travel")


@dataclass(frozen=True)
class Planted:
    literal: str
    key: str

    def kept(self, text: str) -> bool:
        """Literal and key word stand in one line."""
        return any(self.literal in line and self.key.lower() in line.lower() for line in text.splitlines())


def conversation(setting: Setting, lang: Language, seed: int) -> tuple[list[Message], list[Planted]]:
    """About `TOKENS` tokens with ten facts, each in the mouth of the one who knows it."""
    chance = random.Random(seed)
    planted: list[Planted] = []
    turns: list[list[Message]] = []
    asks, answers, calls = (_cycled(chance, each) for each in (setting.asks, setting.answers, setting.calls))
    for fact in chance.sample(setting.facts, PLANTED):
        value = fact.value(chance)
        said = fact.text.replace("{v}", value)
        planted.append(Planted(value, fact.key))
        ask, answer = next(asks), next(answers)
        if fact.by == "u":
            words = chance.choice(([said], [said, ask], [ask, said]))
            turns.append([_says("user", " ".join(words))])
            if chance.random() < 0.5:
                turns[-1].append(_says("assistant", answer))
        elif fact.by == "a":
            words = [answer, said] if chance.random() < 0.5 else [said, answer]
            turns.append([_says("user", ask), _says("assistant", " ".join(words))])
        else:
            name, arguments, plain = next(calls)
            result = said if said.startswith("{") else f"{plain}\n{said}"
            turns.append([*_called(name, arguments, result, len(planted)), _says("assistant", answer)])
    while sum(COUNTER.message(message) for turn in turns for message in turn) < TOKENS:
        turns.insert(chance.randrange(len(turns) + 1), next(_noise(setting, lang, chance)))
    return [message for turn in turns for message in turn], planted


def _noise(setting: Setting, lang: Language, chance: random.Random) -> Iterator[list[Message]]:
    while True:
        if chance.random() < 0.5:
            asked, answered = chance.choice(TALK[lang])
            yield [_says("user", asked), _says("assistant", answered)]
        else:
            call = _called(*chance.choice(setting.calls), chance.randrange(10**6))
            yield [*call, _says("assistant", chance.choice(setting.answers))]


def _cycled(chance: random.Random, items: tuple[Any, ...]) -> Iterator[Any]:
    while True:
        yield from chance.sample(items, len(items))


def _says(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def _called(name: str, arguments: dict[str, str], result: str, number: int) -> list[Message]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
    ]


def entries(messages: list[Message], start: int = 1) -> list[Entry]:
    return [Entry(seq, kind_of(m), m, COUNTER.message(m)) for seq, m in enumerate(messages, start)]


def later(
    lines: list[Line], setting: Setting, lang: Language, limit: int, *, seed: int, seq: int
) -> list[Line]:
    """The gist after `ROUNDS` compactions more, each of `NOISE` tokens that hold no fact."""
    noise = _noise(setting, lang, random.Random(seed))
    for _ in range(ROUNDS):
        left: list[Message] = []
        while sum(map(COUNTER.message, left)) < NOISE:
            left += next(noise)
        lines = extracted(lines, list(sources_of(entries(left, seq))), limit, COUNTER.text, lang)
        seq += len(left)
    return lines


def table(seeds: int) -> None:
    print("facts of 10           gist, tokens  gist  gist and ledger  gist later  ms")
    for (kind, lang), setting in SETTINGS.items():
        for limit in LIMITS:
            alone = both = after = 0
            spent = 0.0
            for seed in range(seeds):
                messages, facts = conversation(setting, lang, seed)
                left = entries(messages)
                sources = list(sources_of(left))
                started = time.perf_counter()
                lines = extracted([], sources, limit, COUNTER.text, lang)
                spent += time.perf_counter() - started
                gist = rendered(lines, lang)
                assert COUNTER.text(gist) <= limit
                ledger = Ledger()
                for entry in left:
                    ledger.take(entry.seq, entry.kind, literals_of(entry))
                listed = ", ".join(ledger.within(LEDGER, COUNTER.text, frozenset(), gist, left[-1].seq))
                aged = rendered(later(lines, setting, lang, limit, seed=seed, seq=len(left) + 1), lang)
                alone += sum(fact.kept(gist) for fact in facts)
                both += sum(fact.kept(gist) or fact.literal in listed for fact in facts)
                after += sum(fact.kept(aged) for fact in facts)
            name = f"{kind} {lang}{'' if kind in TUNED else ' (held out)'}"
            shares = f"{alone / seeds:5.1f} {both / seeds:16.1f} {after / seeds:11.1f}"
            print(f"{name:24} {limit:8} {shares} {1000 * spent / seeds:5.1f}")


def show(kind: str, seed: int = 0) -> None:
    for (each, lang), setting in SETTINGS.items():
        if each == kind:
            messages, facts = conversation(setting, lang, seed)
            for source in sources_of(entries(messages)):
                print(source.entries, source.kind, source.text)
            for limit in LIMITS:
                gist = rendered(
                    extracted([], list(sources_of(entries(messages))), limit, COUNTER.text, lang), lang
                )
                print(f"\n--- {limit}: {COUNTER.text(gist)} tokens\n{gist}")
                print("missing:", [(f.literal, f.key) for f in facts if not f.kept(gist)])


PROMPT = {
    "en": "Summarize the conversation in short notes. Keep every name, number, path and rule exactly.",
    "zh": "请用简短的笔记总结对话。准确保留每个名称、数字、路径和规则。",
}


async def compared() -> None:
    from perdure.models.client import ModelRequest, complete
    from perdure.models.embedded import MODEL, WINDOW, EmbeddedServer
    from perdure.models.endpoint import EndpointClient

    server = EmbeddedServer()
    client = EndpointClient(
        server.base_url, MODEL, counter=server.counter, api_key=server.api_key, context_window=WINDOW
    )
    who = {Kind.USER: "User: ", Kind.ASSISTANT: "Assistant: "}

    def told(source: Source) -> str:
        return who.get(source.kind, "Tool: ") + source.text

    print("facts of 10             gist, tokens  by code    s   embedded model     s")
    try:
        for (kind, lang), setting in SETTINGS.items():
            if kind == "coding":
                continue
            messages, facts = conversation(setting, lang, 0)
            sources = list(sources_of(entries(messages)))
            for limit in LIMITS:
                started = time.perf_counter()
                gist = rendered(extracted([], sources, limit, COUNTER.text, lang), lang)
                code_seconds = time.perf_counter() - started
                asked = PROMPT[lang] + "\n\n" + "\n".join(map(told, sources))
                request = ModelRequest(
                    [_says("user", asked)],
                    purpose="summarize",
                    max_output_tokens=limit,
                    temperature=0.0,
                    extra={"repeat_penalty": 1.1},
                )
                started = time.perf_counter()
                reply = (await complete(client, request)).content
                model_seconds = time.perf_counter() - started
                found = [
                    sum(f.literal in text and f.key.lower() in text.lower() for f in facts)
                    for text in (gist, reply)
                ]
                print(
                    f"{kind + ' ' + lang:24} {limit:8} {found[0]:10} {code_seconds:6.3f} {found[1]:14} {model_seconds:7.1f}"
                )
    finally:
        await client.aclose()
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--show")
    chosen = parser.parse_args()
    if chosen.show:
        show(chosen.show)
        return
    table(chosen.seeds)
    if chosen.embedded:
        anyio.run(compared)


if __name__ == "__main__":
    main()
