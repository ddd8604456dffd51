"""`perdure tools`: what tools there are here, where each is from, and whether it may run unasked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import anyio
from rich.cells import cell_len, set_cell_size

from perdure.app import Agent
from perdure.chat.language import Language, say
from perdure.chat.tokens import counter_for
from perdure.errors import PerdureError, Words
from perdure.faces.cli.run import settings_from
from perdure.faces.cli.terminal import json_line, language_of_person, one_line, printable
from perdure.tools.contract import Nobody
from perdure.tools.own import Provided

#: One tool as `--json` shows it.
Row = dict[str, Any]

PLACES: dict[str, Words] = {
    "built in": ("built in", "内置"),
    "program": ("program", "程序"),
    "file": ("file {source}", "文件 {source}"),
    "package": ("package {source}", "软件包 {source}"),
    "server": ("server {source}", "服务器 {source}"),
}
EFFECTS: dict[str, Words] = {"reads": ("reads", "只读"), "acts": ("acts", "会改动")}
VERDICTS: dict[str, Words] = {
    "allow": ("allowed", "允许"),
    "ask": ("asks", "询问"),
    "deny": ("denied", "拒绝"),
}
TOKENS: Words = ("{tokens} tokens", "{tokens} 个 token")
CLAIMS: Words = ("the server says: {says}", "服务器自称：{says}")
SUM: Words = (
    "{tools} {tools:tool|tools}, {tokens} tokens in each prompt",
    "{tools} 个工具，每次提示共 {tokens} 个 token",
)


def list_tools(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    # Somebody could be asked: what is shown is what the settings say, not whether this is a terminal.
    agent = Agent(settings, approve=Nobody())
    rows, troubles = anyio.run(_looked_up, agent)
    for row in rows if arguments.json else ():
        json_line(row)
    for line in () if arguments.json else _lines(rows, lang):
        print(printable(line))
    if rows and not arguments.json:
        specs = [each.tool.spec for each in agent.tools.provided()]
        print(say(SUM, lang, tools=len(rows), tokens=counter_for(None).tools(specs)))
    for trouble in troubles:
        print(printable(f"perdure: {trouble.say(lang)}"), file=sys.stderr)
    return 0


async def _looked_up(agent: Agent) -> tuple[list[Row], list[PerdureError]]:
    """A row for each tool, and what is wrong with those that were left out."""
    settings = agent.settings
    small = settings.embedded or settings.tool_calls == "examples"
    async with agent:
        # Without asking the endpoint for its window: looking needs no model.
        await agent.tools.reach(settings.context_window, counter_for(None), small=small)
        return [_row(each, agent) for each in agent.tools.provided()], agent.tools.news()


def _row(each: Provided, agent: Agent) -> Row:
    spec, counter = each.tool.spec, counter_for(None)
    return {
        "name": each.name,
        "from": each.place,
        "source": each.source,
        "effect": each.tool.effect,
        "says": each.says,
        "verdict": agent.tools.verdict(each.tool),
        # Of one more in a prompt; what comes before all of them is part of the sum.
        "tokens": counter.tools([spec, spec]) - counter.tools([spec]),
        "description": spec.description,
        "parameters": dict(spec.parameters),
    }


def _lines(rows: Sequence[Row], lang: Language) -> list[str]:
    table = [
        (
            row["name"],
            say(VERDICTS[row["verdict"]], lang),
            say(EFFECTS[row["effect"]], lang),
            say(TOKENS, lang, tokens=row["tokens"]),
            say(PLACES[row["from"]], lang, source=row["source"]),
        )
        for row in rows
    ]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    lines: list[str] = []
    for row, cells in zip(rows, table, strict=True):
        sized = (set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True))
        says = f"  ({say(CLAIMS, lang, says=row['says'])})" if row["says"] else ""
        lines.append("  ".join(sized).rstrip() + says)
        lines.append(f"    {one_line(row['description'])}")
    return lines
