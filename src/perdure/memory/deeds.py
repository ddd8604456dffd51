"""Files touched and commands run, with their exit codes: what was done, kept by code. Pure.

Told from the arguments of the calls (`path`, `command`, ...) and from what the results say of an exit
code, whatever the tools are called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.chat.language import Language, say
from perdure.chat.messages import Block, Entry, Kind, blocks, text_of
from perdure.chat.secrets import masked
from perdure.errors import Words

#: Names of arguments that hold a file, or a command.
FILES = frozenset({"path", "file", "file_path", "filepath", "filename", "target_file"})
COMMANDS = frozenset({"command", "cmd", "script"})
#: Parts of a tool's name that say that it changes the file.
CHANGING = re.compile(r"write|edit|creat|replace|insert|patch|append|delete|remove|move|rename|save", re.I)
#: How results say how a command ended.
EXIT = re.compile(
    r"exit(?:ed with|[ _-]?(?:code|status))?\W{0,4}(-?\d{1,3})\b|退出码\W{0,3}(-?\d{1,3})\b", re.I
)
#: Files and commands that are remembered, and characters of the longest of them.
MOST, KEPT = 100, 160

READ: Words = ("Files read: {files}", "读过的文件：{files}")
CHANGED: Words = ("Files changed: {files}", "改过的文件：{files}")
RAN: Words = ("Commands run: {commands}", "执行过的命令：{commands}")
ENDED: Words = ("`{command}` (exit code {code}, entry {seq})", "`{command}`（退出码 {code}，第 {seq} 条）")
UNKNOWN: Words = ("`{command}` (entry {seq})", "`{command}`（第 {seq} 条）")


@dataclass(frozen=True, slots=True)
class Ran:
    """A command's exit code, where one was told, and the entry that told it."""

    code: int | None
    seq: int


@dataclass(frozen=True, slots=True)
class Deeds:
    """``files``: path to whether it was changed; ``commands``: command to how it went the last time.
    Both in the order in which they were touched last."""

    files: Mapping[str, bool] = field(default_factory=dict)
    commands: Mapping[str, Ran] = field(default_factory=dict)

    def after(self, entries: Iterable[Entry]) -> Deeds:
        """With what the calls among the entries did."""
        files, commands = dict(self.files), dict(self.commands)
        for block in blocks(entries):
            if block.kind is Kind.TOOL_CALL:
                for name, arguments, result in _calls(block):
                    for key, value in arguments.items():
                        if not isinstance(value, str) or not value.strip():
                            continue
                        if key in FILES:
                            path = _one_line(masked(value))
                            files[path] = files.pop(path, False) or bool(CHANGING.search(name))
                        elif key in COMMANDS:
                            command = _one_line(masked(value))
                            commands.pop(command, None)
                            commands[command] = Ran(_exit_code(result), result.seq if result else block.first)
        return replace(self, files=_newest(files), commands=_newest(commands))

    def within(self, limit: int, count: Callable[[str], int], lang: Language) -> str:
        """Lines of the newest that fit ``limit`` tokens: files changed, files read, commands."""
        lines: list[str] = []
        room = limit
        changed = [path for path, changed in self.files.items() if changed]
        read = [path for path, changed in self.files.items() if not changed]
        told = [_told(command, ran, lang) for command, ran in self.commands.items()]
        for words, name, items in (
            (CHANGED, "files", changed),
            (RAN, "commands", told),
            (READ, "files", read),
        ):
            fitting = _fitting(items, room - count(say(words, lang, **{name: ""})), count)
            if fitting:
                lines.append(say(words, lang, **{name: ", ".join(fitting)}))
                room -= count(lines[-1]) + 1
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """For a checkpoint; `from_json` gives it back."""
        ran = {command: [ran.code, ran.seq] for command, ran in self.commands.items()}
        return {"files": dict(self.files), "commands": ran}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Deeds:
        return cls(body["files"], {command: Ran(*ran) for command, ran in body["commands"].items()})


def _calls(block: Block) -> Iterable[tuple[str, dict[str, Any], Entry | None]]:
    results = {entry.message.get("tool_call_id"): entry for entry in block.entries[1:]}
    for call in block.entries[0].message["tool_calls"]:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except (ValueError, RecursionError):
            continue
        if isinstance(arguments, dict):
            yield call["function"]["name"], arguments, results.get(call["id"])


def _exit_code(result: Entry | None) -> int | None:
    """The last exit code that a result names: a tool says it at the end."""
    found = EXIT.findall(text_of(result.message)[-400:]) if result else []
    return int(found[-1][0] or found[-1][1]) if found else None


def _told(command: str, ran: Ran, lang: Language) -> str:
    if ran.code is None:
        return say(UNKNOWN, lang, command=command, seq=ran.seq)
    return say(ENDED, lang, command=command, code=ran.code, seq=ran.seq)


def _fitting(items: list[str], room: int, count: Callable[[str], int]) -> list[str]:
    """The newest items that fit, in order."""
    fitting: list[str] = []
    for item in reversed(items):
        room -= count(f", {item}")
        if room < 0:
            break
        fitting.append(item)
    return fitting[::-1]


def _newest(deeds: dict[str, Any]) -> dict[str, Any]:
    return dict(list(deeds.items())[-MOST:])


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= KEPT else f"{flat[: KEPT - 1]}…"
