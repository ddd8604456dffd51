"""Fifty facts in each language that `drift.py` plants, and the talk and work that bury them.

Half of the facts hold an exact literal (the key, every 9 a digit drawn by seed); the other half are
prose, known by a phrase that only a line which still states the fact would hold.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from perdure.chat.language import Language
from perdure.chat.messages import Message


@dataclass(frozen=True)
class Fact:
    """``by``: u the person, a the model, t a tool. ``text`` states the fact and holds ``key``."""

    by: str
    text: str
    key: str
    exact: bool


#: By whom, the sentence, the literal in it.
EXACT: dict[Language, tuple[tuple[str, str, str], ...]] = {
    "en": (
        ("u", "The ledger lives in {}.", "/srv/books/ledger-9999.sqlite"),
        ("u", "Never spend more than {} on the hotel.", "$1,999.50"),
        ("u", "The audit is due on {}.", "2027-09-19"),
        ("u", "My customer number is {}.", "KD-999999"),
        ("u", "Staging answers at {}.", "https://staging-99.example.org/v9"),
        ("u", "Reach Ines at {}.", "ines.moreau99@example.org"),
        ("u", "The invoice to settle is {}.", "INV-2027-9999"),
        ("u", "Pin the parser to version {}.", "4.9.99"),
        ("u", "The importer reads the variable {}.", "IMPORT_BATCH_99"),
        ("u", "Upload to the bucket {}.", "reports-eu-99"),
        ("a", "I set the retry limit in {}.", "config/retries99.toml"),
        ("a", "The migration has the number {}.", "0099_split_orders"),
        ("a", "I booked the meeting room {}.", "B9.99"),
        ("a", "The branch is called {}.", "fix/rounding-999"),
        ("a", "The total comes to {}.", "€12,999.90"),
        ("a", "The first failing commit is {}.", "9e9d99fa99"),
        ("a", "The courier's tracking code is {}.", "TRK99999999X"),
        ("t", "Listening on port {}", "58999"),
        ("t", "Backup written to {}", "/var/backups/db-2027-09-99.dump"),
        ("t", "Certificate expires on {}", "2028-09-19"),
        ("t", "Flight reserved under locator {}", "QX9L9T"),
        ("t", "Order accepted as {}", "ORD-99-9999"),
        ("t", "Slowest query took {}", "9,999 ms"),
        ("t", "Worker node is {}", "node-99c.internal"),
        ("t", "Created user with id {}", "usr_99f9k999"),
    ),
    "zh": (
        ("u", "账本放在 {}。", "/srv/books/ledger-9999.sqlite"),
        ("u", "酒店花费不要超过 {}。", "¥1,999.50"),
        ("u", "审计截止日期是 {}。", "2027-09-19"),
        ("u", "我的客户号是 {}。", "KD-999999"),
        ("u", "测试环境的地址是 {} 。", "https://staging-99.example.org/v9"),
        ("u", "联系宁静请用 {} 。", "ning.jing99@example.org"),
        ("u", "要结清的发票是 {}。", "INV-2027-9999"),
        ("u", "解析器请固定在版本 {}。", "4.9.99"),
        ("u", "导入程序读取变量 {}。", "IMPORT_BATCH_99"),
        ("u", "请上传到存储桶 {}。", "reports-eu-99"),
        ("a", "我把重试次数写在 {}。", "config/retries99.toml"),
        ("a", "这次迁移的编号是 {}。", "0099_split_orders"),
        ("a", "我订了会议室 {}。", "B9.99"),
        ("a", "分支名叫 {}。", "fix/rounding-999"),
        ("a", "总额是 {}。", "€12,999.90"),
        ("a", "第一个出错的提交是 {}。", "9e9d99fa99"),
        ("a", "快递单号是 {}。", "TRK99999999X"),
        ("t", "监听端口 {}", "58999"),
        ("t", "备份已写入 {}", "/var/backups/db-2027-09-99.dump"),
        ("t", "证书到期日 {}", "2028-09-19"),
        ("t", "航班预订码 {}", "QX9L9T"),
        ("t", "订单号为 {}", "ORD-99-9999"),
        ("t", "最慢的查询用时 {}", "9,999 ms"),
        ("t", "工作节点是 {}", "node-99c.internal"),
        ("t", "已创建用户，编号 {}", "usr_99f9k999"),
    ),
}

#: By whom, the sentence around the phrase, the phrase.
PROSE: dict[Language, tuple[tuple[str, str, str], ...]] = {
    "en": (
        ("u", "Please {} in anything we publish.", "never use the passive voice"),
        ("u", "I am {}, so no recipes with them.", "allergic to walnuts"),
        ("u", "We decided to {} instead of mending it.", "rewrite the scheduler"),
        ("u", "My sister {} in spring.", "moves to Lisbon"),
        ("u", "Always {} before deleting anything.", "ask the archive team"),
        ("u", "The goal is to {} before the holidays.", "halve the build time"),
        ("u", "Our client {} on mobile phones.", "refuses cookie banners"),
        ("u", "I prefer {} over long reports.", "bullet points"),
        ("u", "The board {} for the new office.", "wants wooden floors"),
        ("u", "Tests must {}, even the slow ones.", "run without a network"),
        ("u", "The old printer {} on Mondays.", "jams every time"),
        ("u", "Our mascot is {} with a scarf.", "a blue heron"),
        ("a", "I found that {} causes the leak.", "the thumbnail cache"),
        ("a", "We agreed that {} reviews the contract.", "the notary in Ghent"),
        ("a", "The importer {} when a column is missing.", "silently skips rows"),
        ("a", "I chose {} because it needs no server.", "the embedded database"),
        ("a", "The login fails since {} was removed.", "the legacy token bridge"),
        ("a", "It is still open whether {}.", "refunds include postage"),
        ("a", "The supplier {} from now on.", "ships only by rail"),
        ("a", "The cause was {} in the parser.", "a swapped comparison"),
        ("t", "warning: {} is deprecated", "the hourly rollup job"),
        ("t", "error: {} rejected the upload", "the quarantine scanner"),
        ("t", "note: {} has the lock", "the nightly indexer"),
        ("t", "status: {} is paused", "the billing queue"),
        ("t", "result: {} matches the sample", "the second fingerprint"),
    ),
    "zh": (
        ("u", "我们发布的文字里请{}。", "不要使用被动语态"),
        ("u", "我{}，菜谱里不要放。", "对核桃过敏"),
        ("u", "我们决定{}，不再修补。", "重写调度程序"),
        ("u", "我妹妹春天{}。", "要搬去里斯本"),
        ("u", "删除任何东西之前务必{}。", "先问档案组"),
        ("u", "目标是假期前{}。", "把构建时间减半"),
        ("u", "我们的客户在手机上{}。", "拒绝弹窗横幅"),
        ("u", "比起长报告我{}。", "更喜欢要点列表"),
        ("u", "董事会希望新办公室{}。", "铺木地板"),
        ("u", "测试必须{}，慢的也一样。", "断网也能运行"),
        ("u", "旧打印机{}。", "每逢周一就卡纸"),
        ("u", "我们的吉祥物是{}。", "戴围巾的蓝鹭"),
        ("a", "我发现泄漏来自{}。", "缩略图缓存"),
        ("a", "我们商定合同由{}审阅。", "根特的公证人"),
        ("a", "缺少一列时导入程序会{}。", "悄悄跳过整行"),
        ("a", "我选了{}，因为不需要服务器。", "内嵌的数据库"),
        ("a", "登录失败是因为去掉了{}。", "旧的令牌桥接"),
        ("a", "还没有定下来的是{}。", "退款是否包括邮费"),
        ("a", "供应商从现在起{}。", "只走铁路运输"),
        ("a", "原因是解析器里{}。", "比较符号写反了"),
        ("t", "警告：{}已弃用", "每小时汇总任务"),
        ("t", "错误：{}拒绝了上传", "隔离扫描程序"),
        ("t", "提示：{}占着锁", "夜间索引程序"),
        ("t", "状态：{}已暂停", "计费队列"),
        ("t", "结果：{}与样本一致", "第二枚指纹"),
    ),
}
TALK: dict[Language, tuple[tuple[str, str], ...]] = {
    "en": (
        ("Thanks, that helps a lot. Anything else I should think of?", "Not that I can see. We can go on."),
        ("Let me think about it for a moment.", "Take your time, there is no hurry at all from my side."),
        (
            "Could you say that again in simpler words?",
            "Of course: it works, it is quick, and nothing is lost.",
        ),
        ("It is raining again, a good day to get things done.", "Then let us use it and look at the rest."),
        (
            "I showed it to a colleague, who liked it.",
            "Good to hear. I'm glad that it was of use to someone.",
        ),
        ("ok, go on please", "Sure, I'll take the next one and tell you what comes out of it."),
    ),
    "zh": (
        ("谢谢，很有帮助。还有什么要注意的吗？", "我看没有了，可以继续。"),
        ("让我想一想。", "慢慢来，我这边一点也不急。"),
        ("能不能用更简单的话再说一遍？", "当然：它能用，很快，而且什么都不会丢。"),
        ("又下雨了，正好安心做事。", "那就趁现在把剩下的看完。"),
        ("我给同事看了，他很喜欢。", "很高兴听到这个，能派上用场就好。"),
        ("好的，请继续", "好，我接着看下一项，结果出来就告诉你。"),
    ),
}


def facts(lang: Language, seed: int) -> list[Fact]:
    """The fifty, in an order of their own."""
    chance = random.Random(seed)
    every = []
    for exact, told in ((True, EXACT[lang]), (False, PROSE[lang])):
        for by, text, form in told:
            key = "".join(str(chance.randint(1, 9)) if c == "9" else c for c in form)
            every.append(Fact(by, text.format(key), key, exact))
    chance.shuffle(every)
    return every


def stream(lang: Language, seed: int, *, work: bool) -> Iterator[list[Message]]:
    """Rounds without end: first those that state the facts, then talk, and with ``work`` also calls of
    tools whose results are full of literals of their own. Each round begins with the person, or is a
    call with its result and a word on it."""
    chance, ids = random.Random(f"{lang} {seed}"), count()
    for fact in facts(lang, seed):
        asked, answered = chance.choice(TALK[lang])
        if fact.by == "t":
            yield called(f"call_{next(ids)}", "status", f"ok\n{fact.text}\nok", answered)
        elif fact.by == "u":
            yield said(f"{fact.text} {asked}", answered)
        else:
            yield said(asked, f"{fact.text} {answered}")
    while True:
        asked, answered = chance.choice(TALK[lang])
        if work and chance.random() < 0.6:
            lines = [log_line(chance) for _ in range(chance.randint(4, 24))]
            yield called(f"call_{next(ids)}", "read_log", "\n".join(lines), answered)
        else:
            yield said(asked, answered)


def log_line(chance: random.Random) -> str:
    hour, minute, size = chance.randint(0, 23), chance.randint(0, 59), chance.randint(10, 99_999)
    name = chance.choice(("fetch", "merge", "index", "sweep", "probe", "render"))
    return (
        f"2027-{chance.randint(1, 12):02}-{chance.randint(1, 28):02} {hour:02}:{minute:02} {name} "
        f"/data/{name}/part-{size}.bin {size} bytes job_{chance.randint(1000, 9999)}"
    )


def said(asked: str, answered: str) -> list[Message]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]


def called(id: str, name: str, result: str, answered: str) -> list[Message]:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": result},
        {"role": "assistant", "content": answered},
    ]
