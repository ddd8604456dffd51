"""`perdure doctor`: what is installed, reachable and allowed here, a line for each."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from perdure.app.diagnosis import (
    SAID,
    Finding,
    Verdict,
    broken_settings,
    config_files,
    of_machine,
    of_settings,
)
from perdure.app.opening import config_folder
from perdure.chat.language import Language, say
from perdure.config import Settings, load, origins
from perdure.errors import PerdureError, Words
from perdure.faces.cli.run import SETTINGS
from perdure.faces.cli.terminal import json_line, language_of_person, printable

PARTS: dict[str, Words] = {
    "perdure": ("perdure", "perdure"),
    "python": ("Python", "Python"),
    "terminal": ("terminal", "终端"),
    "files": ("settings", "设置文件"),
    "settings": ("settings", "设置"),
    "store": ("store", "存储"),
    "model": ("model", "模型"),
    "embedder": ("embedder", "嵌入器"),
    "ripgrep": ("ripgrep", "ripgrep"),
    "sandbox": ("sandbox", "沙箱"),
    "bash": ("bash reach", "命令范围"),
    "policy": ("policy", "权限"),
    "mcp": ("MCP server", "MCP 服务器"),
    "tools": ("own tools", "自有工具"),
    "offline": ("offline", "离线"),
}
VERDICTS: dict[Verdict, Words] = {"ok": ("ok", "正常"), "warn": ("warn", "注意"), "bad": ("bad", "错误")}
COLOURS: dict[Verdict, str] = {"ok": "32", "warn": "33", "bad": "31"}
TERMINAL: Words = (
    "{columns} columns, {encoding}, {colour}",
    "{columns} 列，{encoding}，{colour}",
)
NO_TERMINAL: Words = ("none: the output goes elsewhere ({encoding})", "无：输出到别处（{encoding}）")
COLOUR: Words = ("colour", "有颜色")
NO_COLOUR: Words = ("no colour", "无颜色")
NOT_UNICODE: Words = (
    "{encoding} can't show every character: set a UTF-8 locale, as LANG=C.UTF-8",
    "{encoding} 不能显示所有字符：请设为 UTF-8 区域设置，如 LANG=C.UTF-8",
)
FILES: Words = ("read: {files}", "已读取：{files}")


def examine(arguments: argparse.Namespace) -> int:
    """1 where something that is set can't work."""
    found = [*of_machine(), _terminal()]
    flags = {name: getattr(arguments, name, None) for name in SETTINGS}
    settings: Settings | None = None
    try:
        settings = load(flags, os.environ, config_folder=config_folder())
        made = origins(flags, os.environ, settings.workspace, config_folder=config_folder())
    except PerdureError as error:
        found.append(broken_settings(error))
    else:
        found += _files(settings.workspace)
        found += anyio.run(partial(_all_of, settings, made))
    lang = language_of_person(settings.lang if settings else arguments.lang)
    bad = any(each.verdict == "bad" for each in found)
    if arguments.json:
        json_line({"ok": not bad, "findings": [_as_json(each, lang) for each in found]})
    else:
        coloured = _shows_colour()
        for each in found:
            print(printable(_line(each, lang)) if not coloured else _coloured(each, lang))
    return 1 if bad else 0


async def _all_of(settings: Settings, made: dict[str, str]) -> list[Finding]:
    return [each async for each in of_settings(settings, made)]


def _files(workspace: Path) -> Iterator[Finding]:
    if files := config_files(workspace):
        yield Finding("files", "ok", FILES, {"files": ", ".join(map(str, files))})


def _terminal() -> Finding:
    encoding = (sys.stdout.encoding or "?").upper()
    if encoding not in {"UTF-8", "UTF8"}:
        return Finding("terminal", "warn", NOT_UNICODE, {"encoding": encoding})
    if not sys.stdout.isatty():
        return Finding("terminal", "ok", NO_TERMINAL, {"encoding": encoding})
    facts = {
        "columns": shutil.get_terminal_size().columns,
        "encoding": encoding,
        "colour": COLOUR if _shows_colour() else NO_COLOUR,
    }
    return Finding("terminal", "ok", TERMINAL, facts)


def _shows_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _text(finding: Finding, lang: Language) -> str:
    return say(finding.words, lang, **{name: _in(fact, lang) for name, fact in finding.facts.items()})


def _in(fact: Any, lang: Language) -> Any:
    """A fact in one language, where it is words itself."""
    if isinstance(fact, PerdureError):
        return fact.say(lang)
    return fact[1 if lang == "zh" else 0] if isinstance(fact, tuple) else fact


def _line(finding: Finding, lang: Language) -> str:
    verdict, part = VERDICTS[finding.verdict], PARTS[finding.part]
    if lang == "zh":
        return f"{verdict[1]}  {part[1]}：{_text(finding, lang)}"
    return f"{verdict[0]:<4}  {part[0]:<10}  {_text(finding, lang)}"


def _coloured(finding: Finding, lang: Language) -> str:
    line = printable(_line(finding, lang))
    verdict = VERDICTS[finding.verdict][1 if lang == "zh" else 0]
    return f"\x1b[{COLOURS[finding.verdict]}m{verdict}\x1b[0m{line[len(verdict) :]}"


def _as_json(finding: Finding, lang: Language) -> dict[str, Any]:
    facts = {name: _in(fact, lang) for name, fact in finding.facts.items()}
    more = {"facts": facts} if facts and finding.words is not SAID else {}
    return {
        "part": finding.part,
        "verdict": finding.verdict,
        "text": _text(finding, lang),
        **more,
    }
