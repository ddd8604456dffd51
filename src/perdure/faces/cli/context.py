"""`perdure context` and `perdure compact`: what is in the window, and making room in it."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import anyio

from perdure.agent.prompts import why_no_summary
from perdure.agent.spending import dollars
from perdure.app import Agent
from perdure.chat.language import Language, say
from perdure.errors import Words
from perdure.faces.cli.progress import check_list
from perdure.faces.cli.run import settings_from
from perdure.faces.cli.spans import as_spans, in_spans
from perdure.faces.cli.terminal import json_line, language_of_person, printable

if TYPE_CHECKING:
    from perdure.agent.overview import Overview, PastCompaction
    from perdure.chat.events import Compacted

#: How each part is called, and the letter that stands for it in the bar.
PARTS: dict[str, tuple[str, Words]] = {
    "system": ("S", ("system prompt", "系统提示")),
    "tools": ("T", ("tools", "工具说明")),
    "notes": ("N", ("notes: requests, exact values, files, commands", "笔记：请求、确切内容、文件、命令")),
    "gist": ("G", ("gist", "概要")),
    "user": ("u", ("said by the person", "用户的话")),
    "assistant": ("a", ("answers", "回答")),
    "tool_call": ("c", ("tool calls", "工具调用")),
    "tool_result": ("r", ("tool results", "工具结果")),
    "feedback": ("f", ("feedback", "反馈")),
    "notice": ("n", ("notices", "提示")),
    "recall": ("R", ("recalled", "召回")),
    "plan": ("p", ("plan", "计划")),
    "free": (".", ("free", "空闲")),
    "reserve": ("#", ("kept free for the answer", "为回答保留")),
}
BY_MODEL: Words = (", {model}", "，{model}")
HEADING: Words = (
    "{session}: {entries} {entries:entry|entries}, window {window:,} tokens{model}",
    "{session}：{entries} 条记录，窗口 {window:,} 个 token{model}",
)
LEFT: Words = (
    "no longer in the window, kept word for word: entries {left}",
    "已不在窗口中、逐字保存：第 {left} 条",
)
PENDING: Words = ("waiting for a summary: {pending} {pending:item|items}", "等待摘要：{pending} 项")
COMPACTIONS: Words = ("compactions:", "压缩记录：")
COMPACTION: Words = (
    "  {time}  {left} {left:entry|entries} left, {shortened} shortened, {before:,} -> {after:,} tokens,"
    " gist by {by}",
    "  {time}  移出 {left} 条，缩短 {shortened} 条，{before:,} -> {after:,} 个 token，概要：{by}",
)
NO_SUMMARY: Words = (" (no summary: {why})", "（没有摘要：{why}）")
BY: dict[str, Words] = {"model": ("model {model}", "模型 {model}"), "code": ("code", "代码")}
UNDONE: Words = (" (taken back)", "（已撤销）")
NOTHING: Words = (
    "nothing to compact: the window is below its low water mark",
    "无需压缩：窗口低于低水位",
)
WOULD: Words = ("would leave: {left}", "将移出：{left}")
DID: Words = ("left: {left}", "已移出：{left}")
TOKENS: Words = ("{before:,} -> {after:,} tokens", "{before:,} -> {after:,} 个 token")
GIST: Words = ("gist (by {by}):", "概要（{by}）：")
REFUSED: Words = ("no summary came of it: {why}", "没有得到摘要：{why}")
NOTHING_TO_UNDO: Words = ("there is no compaction to take back", "没有可撤销的压缩")
BACK: Words = ("in the window again: {left}", "重新回到窗口：{left}")
NO_ENTRIES: Words = ("no entries", "无")
UNFINISHED: Words = ("a plan that is not finished:", "尚未完成的计划：")
USED: Words = ("used in the whole session:", "整个会话的用量：")
USED_FOR: Words = (
    "  {purpose}  {prompt:>11,} + {completion:>9,} tokens ({cached:,} cached)  {cost}",
    "  {purpose}  {prompt:>11,} + {completion:>9,} 个 token（其中缓存 {cached:,}）  {cost}",
)
#: What models were asked for; filled up so that the numbers stand below each other.
PURPOSES: dict[str, Words] = {
    "think": ("think    ", "思考"),
    "summarize": ("summarize", "摘要"),
    "judge": ("judge    ", "检查"),
    "plan": ("plan     ", "计划"),
    "all": ("in all   ", "合计"),
}
#: Columns of the bar at most.
WIDEST = 72


def show_context(arguments: argparse.Namespace) -> int:
    """What is in the window of a session, by part."""
    settings = settings_from(arguments)
    agent = Agent(settings)
    with agent.sessions:
        overview = agent.context(arguments.name)
    if arguments.json:
        json_line(overview.as_json())
        return 0
    lang = language_of_person(settings.lang)
    for line in _told(overview, lang):
        print(printable(line))
    if overview.plan:
        print(say(UNFINISHED, lang))
        for line in check_list(overview.plan, lang):
            print(printable(f"  {line}"))
    return 0


def compact_session(arguments: argparse.Namespace) -> int:
    """Compact a session now, show what that would do, or take the last compaction back."""
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    agent = Agent(settings)
    if arguments.undo:
        back = anyio.run(_undone, agent, arguments.name)
        if arguments.json:
            json_line({"undone": back is not None, "back": list(back or ())})
        else:
            print(say(NOTHING_TO_UNDO, lang) if back is None else say(BACK, lang, left=_ranges(back, lang)))
        return 0
    event = anyio.run(_compacted, agent, arguments.name, arguments.preview)
    if arguments.json:
        json_line(event.as_json() if event else {"type": "compaction", "left": [], "nothing": True})
    elif event is None:
        print(say(NOTHING, lang))
    else:
        for line in _done(event, lang, preview=arguments.preview):
            print(printable(line))
    return 0


async def _compacted(agent: Agent, session: str, preview: bool) -> Compacted | None:
    async with agent:
        return await agent.compact(session, preview=preview)


async def _undone(agent: Agent, session: str) -> Sequence[int] | None:
    async with agent:
        return await agent.undo_compaction(session)


def _told(overview: Overview, lang: Language) -> list[str]:
    model = say(BY_MODEL, lang, model=overview.model) if overview.model else ""
    parts = {**overview.parts, "free": overview.free, "reserve": overview.reserve}
    lines = [
        say(
            HEADING,
            lang,
            session=overview.session,
            entries=overview.entries,
            window=overview.window,
            model=model,
        ),
        _bar(parts, overview.window),
    ]
    for name, (letter, words) in PARTS.items():
        if name in parts:
            share = parts[name] / overview.window
            lines.append(f"  {letter} {parts[name]:>9,} {share:>5.0%}  {say(words, lang)}")
    if overview.left:
        lines.append(say(LEFT, lang, left=as_spans(overview.left)))
    if overview.pending:
        lines.append(say(PENDING, lang, pending=overview.pending))
    if overview.compactions:
        lines.append(say(COMPACTIONS, lang))
        lines += [_past(each, lang) for each in overview.compactions[-10:]]
    lines += _used(overview, lang)
    if overview.gist:
        lines += ["", overview.gist]
    return lines


def _used(overview: Overview, lang: Language) -> list[str]:
    """What models took, by purpose, and the sum where it is another number."""
    costs = overview.cost_by_purpose
    rows = [(purpose, usage, costs[purpose]) for purpose, usage in overview.usage_by_purpose.items()]
    if len(rows) > 1:
        rows.append(("all", overview.usage, overview.cost))
    lines = []
    for purpose, usage, cost in rows:
        name = say(PURPOSES.get(purpose, (purpose, purpose)), lang)
        lines.append(say(USED_FOR, lang, purpose=name, **asdict(usage), cost=dollars(cost, lang)))
    return [say(USED, lang), *lines] if lines else []


def _bar(parts: dict[str, int], window: int) -> str:
    """The window as a bar of letters, each part as long as its share; what is there shows at least once,
    and what is longest gives way to that."""
    there = [name for name in PARTS if parts.get(name)]
    width = max(min(shutil.get_terminal_size().columns - 3, WIDEST), len(there))
    whole = max(window, sum(parts[name] for name in there))
    cells = {name: max(round(parts[name] * width / whole), 1) for name in there}
    while sum(cells.values()) > width:
        cells[max(cells, key=cells.__getitem__)] -= 1
    return f"[{''.join(PARTS[name][0] * cells[name] for name in there)}]"


def _past(past: PastCompaction, lang: Language) -> str:
    by = say(BY[past.gist_by], lang, model=past.model).strip()
    if past.refused:
        by += say(NO_SUMMARY, lang, why=why_no_summary(past.refused, lang))
    line = say(
        COMPACTION,
        lang,
        time=past.time[:19],
        left=past.left,
        shortened=past.shortened,
        before=past.tokens_before,
        after=past.tokens_after,
        by=by,
    )
    return line + (say(UNDONE, lang) if past.undone else "")


def _done(event: Compacted, lang: Language, *, preview: bool) -> list[str]:
    lines = [say(WOULD if preview else DID, lang, left=_ranges([*event.left], lang))]
    lines.append(say(TOKENS, lang, before=event.tokens_before, after=event.tokens_after))
    if event.refused and not event.model:
        lines.append(say(REFUSED, lang, why=why_no_summary(event.refused[-1], lang)))
    if event.gist:
        lines += [say(GIST, lang, by=event.model or say(BY[event.gist_by], lang, model="")), event.gist]
    return lines


def _ranges(numbers: Sequence[int], lang: Language) -> str:
    return in_spans(numbers) or say(NO_ENTRIES, lang)
