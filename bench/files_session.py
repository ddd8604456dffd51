"""A coding agent's session over the library's source, generated for `files.py` by walking what is there.

Every tool result is real: lines of the files, matches of the search, definitions and their callers, the
traceback of a program that fails, the compiler's word on an edited file, a unified diff. Made up are
the person's requests (in English or Chinese), their ticket numbers, and the choice of what comes next:

- Mostly the walk goes on from what was just seen: search a name, read where it is defined, search who
  calls it, follow one, list a folder.
- A line that was read is edited 3 to 15 rounds later, then compiled, and at the end of the turn committed
  with a news entry that names the ticket and the version.
- Every third round comes back to something seen before: of what a call used (55%), the person said (20%),
  or a result merely showed (25%), the one whose last mention is nearest to a distance drawn from Pareto's
  distribution: half are over 7 rounds, a third over 10, 15% over 20, 6% over 40.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import platform
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from files_source import FAILING, Definition, Source, python, run
from perdure.chat.language import Language, say
from perdure.chat.messages import Message

Kind = Literal["path", "symbol", "place", "code", "commit", "issue", "setting", "command", "error"]
How = Literal["used", "said", "shown"]

TURNS, ROUNDS = 6, (12, 22)
BACK, HOWS = 1 / 3, {"used": 0.55, "said": 0.20, "shown": 0.25}
#: Pareto's distribution of the rounds between a mention and the return to it.
NEAREST, SHAPE = 4.0, 1.2
EDITED_AFTER = (3, 15)
#: Matches that a search shows, lines that a read shows, characters of a line.
MATCHES, LINES, WIDE = 25, 60, 160
SETTINGS = (
    "PYTHONWARNINGS=error",
    "PYTHONDEVMODE=1",
    "PYTHONUTF8=1",
    "PYTHONOPTIMIZE=2",
    "PYTHONHASHSEED=12",
)

ASKS = (
    (
        "In {path}, `{symbol}` needs a second look: see {issue}. Find out who calls it before you change it. "
        "It must go on working on {version}.",
        "{path} 里的 `{symbol}` 需要再看一下，见 {issue}。改之前先查清楚谁在调用它，"
        "必须在 {version} 上继续可用。",
    ),
    (
        "This fails: `{command}`. Find the reason; `{symbol}` in {path} looks wrong to me. Ticket {issue}, "
        "and run it with {setting} too.",
        "这个会失败：`{command}`。请找出原因，我觉得 {path} 的 `{symbol}` 不对。"
        "工单 {issue}，也请用 {setting} 运行一遍。",
    ),
    (
        "Next, {issue}: the same for `{symbol}` ({path}), please, and leave the other callers alone. "
        "Target {version}.",
        "接下来是 {issue}：请对 `{symbol}`（{path}）做同样的处理，其他调用处不要动。目标版本 {version}。",
    ),
)
SAYS = (
    ("Now `{symbol}` in {path}.", "现在看 {path} 的 `{symbol}`。"),
    ("I'll check this next.", "接下来检查这里。"),
    ("Let me look at how `{symbol}` is used.", "看看 `{symbol}` 是怎么用的。"),
    ("Going on.", "继续。"),
)
DONE = (
    "Done for {issue}: `{symbol}` is called in {count} places; changed {paths}. Everything compiles.",
    "{issue} 已完成：`{symbol}` 有 {count} 处调用；修改了 {paths}，编译全部通过。",
)


@dataclass
class Known:
    """Something that may be come back to. ``where``: the path that belongs to it (of a commit, what it
    shows); ``last``: the round of its last mention."""

    kind: Kind
    how: How
    last: int
    where: str


class Session:
    """`written` gives the messages: the same for the same seed and version of the library."""

    def __init__(self, source: Source, package: str, seed: int, lang: Language) -> None:
        self.chance = random.Random(f"{package} {seed}")
        self.source, self.package, self.lang = source, package, lang
        self.files = dict(source.files)
        own = (f"Lib/{package}.py", f"Lib/{package}/")
        self.own = [path for path in source.inside if path.startswith(own)]
        self.messages: list[Message] = []
        self.round = 0
        self.known: dict[str, Known] = {}
        self.due: list[tuple[int, Callable[[], None]]] = []
        self.changed: list[str] = []
        self.focus = self._any_definition()
        self.command = python(self.chance.choice(FAILING[package]))
        self.version = platform.python_version()
        self.issue = self.head = ""
        self.newest: tuple[str, dict[str, Any]] | None = None

    def written(self) -> list[Message]:
        for _ in range(TURNS):
            self._turn()
        return self.messages

    def _turn(self) -> None:
        self.focus = self._any_definition()
        self.issue = f"gh-{self.chance.randint(90_000, 139_999)}"
        setting = self.chance.choice(SETTINGS)
        asked = say(
            self.chance.choice(ASKS),
            self.lang,
            path=self.focus.path,
            symbol=self.focus.name,
            issue=self.issue,
            version=self.version,
            command=self.command,
            setting=setting,
        )
        self.messages.append({"role": "user", "content": asked})
        told: tuple[tuple[Kind, str], ...] = (
            ("path", self.focus.path),
            ("symbol", self.focus.name),
            ("issue", self.issue),
            ("command", self.command),
            ("setting", setting),
        )
        for kind, said in told:
            if said in asked:
                self._note(kind, said, "said", self.focus.path)
        self._mentioned(asked)
        end = self.round + self.chance.randint(*ROUNDS)
        about = self.focus
        steps: list[Callable[[], None]] = []
        while self.round < end:
            if self.due and self.due[0][0] <= self.round:
                self.due.pop(0)[1]()
            elif self.chance.random() < BACK and self._comes_back():
                continue
            else:
                steps = steps or self._onward()
                steps.pop(0)()
        if self.changed:
            self._commit()
        count = sum(about.name in each.calls for defined in self.source.inside.values() for each in defined)
        paths = ", ".join(self.changed) or "-"
        said = say(DONE, self.lang, issue=self.issue, symbol=about.name, count=count, paths=paths)
        self.messages.append({"role": "assistant", "content": said})
        self.changed = []

    def _onward(self) -> list[Callable[[], None]]:
        """The next steps from where the walk is."""
        search, read = lambda: self._search(self.focus.name), self._read_focus
        return self.chance.choice(
            (
                [search, read, self._follow],
                [read, search, self._follow],
                [search, self._to_caller, read],
                [self._list, search, read, self._follow],
                [lambda: self._run(self.command), self._to_error, read],
            )
        )

    def _comes_back(self) -> bool:
        how = self.chance.choices(tuple(HOWS), tuple(HOWS.values()))[0]
        distance = NEAREST * (1 - self.chance.random()) ** (-1 / SHAPE)
        choices = [
            (abs(self.round - known.last - distance), literal)
            for literal, known in self.known.items()
            if known.how == how and self.round - known.last >= NEAREST // 1
        ]
        if not choices:
            return False
        nearest = min(choices)[0]
        literal = self.chance.choice([literal for off, literal in choices if off == nearest])
        self._returned(literal, self.known[literal])
        return True

    def _returned(self, literal: str, known: Known) -> None:
        """The call that one makes who comes back to it."""
        match known.kind:
            case "path":
                inside = self.source.inside.get(literal, ())
                if inside and self.chance.random() < 0.6:
                    self.focus = self.chance.choice(inside)
                    self._read_focus()
                else:
                    self._search(self.focus.name, literal)
            case "symbol" | "issue" | "error":
                self._search(literal)
            case "place":
                self._view(literal)
            case "code":
                self._edit(known.where, literal)
            case "commit":
                self._call("show_commit", {"commit": literal}, known.where)
            case "setting":
                self._run(self.command, literal)
            case "command":
                self._run(literal)

    def _search(self, pattern: str, under: str = "") -> None:
        found = [
            (path, number, line)
            for path, lines in self.files.items()
            if path.startswith(under)
            for number, line in enumerate(lines, 1)
            if pattern in line
        ]
        shown = [f"{path}:{number}:{line[:WIDE]}" for path, number, line in found[:MATCHES]]
        more = [f"({len(found) - MATCHES} more matches)"] if len(found) > MATCHES else []
        self._call(
            "search", {"pattern": pattern, **({"path": under} if under else {})}, "\n".join(shown + more)
        )
        for path, number, _ in found[:MATCHES]:
            self._note("path", path, "shown", path)
            self._note("place", f"{path}:{number}", "shown", path)

    def _read(self, path: str, first: int, last: int) -> None:
        lines = self.files[path]
        last = min(last, first + LINES - 1, len(lines))
        head = f"{path}, lines {first} to {last} of {len(lines)}"
        text = "\n".join((head, *lines[first - 1 : last]))
        self._call("read_file", {"path": path, "first_line": first, "last_line": last}, text)

    def _read_focus(self) -> None:
        each = self.focus
        self._read(each.path, each.first, each.last)
        for name in each.calls:
            self._note("symbol", name, "shown", self.source.named[name][0].path)
        read = self.files[each.path][each.first : min(each.last, each.first + LINES - 1)]
        lines = [line.strip() for line in read if 20 <= len(line.strip()) <= 100 and '"""' not in line]
        if lines and self.chance.random() < 0.4:
            old = self.chance.choice(lines)
            self._note("code", old, "shown", each.path)
            at = self.round + self.chance.randint(*EDITED_AFTER)
            self.due.append((at, lambda: self._edit(each.path, old)))
            self.due.sort(key=lambda due: due[0])

    def _view(self, place: str) -> None:
        path, _, number = place.rpartition(":")
        first, lines = max(int(number) - 8, 1), self.files[path]
        self._call("view", {"at": place}, "\n".join(lines[first - 1 : first + 16]))

    def _follow(self) -> None:
        calls = self.focus.calls
        if calls:
            self.focus = self.chance.choice(self.source.named[self.chance.choice(calls)])
        else:
            self._to_caller()

    def _to_caller(self) -> None:
        callers = [
            each
            for path in self.source.inside
            for each in self.source.inside[path]
            if self.focus.name in each.calls
        ]
        self.focus = self.chance.choice(callers) if callers else self._any_definition()

    def _to_error(self) -> None:
        """To the innermost line of the traceback that was shown last, where there is one."""
        frames = re.findall(r'File "/repo/(Lib/\S+)", line (\d+)', run(self.command))
        if frames and (inside := self.source.inside.get(frames[-1][0])):
            line = int(frames[-1][1])
            self.focus = next((each for each in inside if each.first <= line <= each.last), self.focus)

    def _list(self) -> None:
        folder = str(PurePosixPath(self.focus.path).parent)
        under = [path for path in self.files if path.startswith(folder)][:40]
        sizes = [f"{sum(len(line) + 1 for line in self.files[path]):7} {path}" for path in under]
        self._call("list_files", {"path": folder}, "\n".join(sizes))
        for path in under:
            self._note("path", path, "shown", path)

    def _run(self, command: str, setting: str = "") -> None:
        said = run(command, setting)
        self._call("run", {"command": command, **({"environment": setting} if setting else {})}, said)
        if error := re.search(r"^[\w.]+: (.{12,70})$", said, re.M):
            self._note("error", error[1], "shown", "")

    def _edit(self, path: str, old: str) -> None:
        lines = self.files[path]
        at = next((i for i, line in enumerate(lines) if line.strip() == old), None)
        if at is None:
            self._search(self.focus.name, path)
            return
        broken = old.endswith(")") and self.chance.random() < 0.15
        new = old[:-1] if broken else f"{old}  # {self.issue}"
        for before, after in ((old, new), (new, f"{old}  # {self.issue}"))[: 1 + broken]:
            lines = self.files[path]
            edited = (*lines[:at], lines[at].replace(before, after), *lines[at + 1 :])
            diff = difflib.unified_diff(lines, edited, path, path, lineterm="", n=2)
            self.files[path] = edited
            self._call("edit_file", {"path": path, "old_text": before, "new_text": after}, "\n".join(diff))
            self._call("compile", {"path": path}, compiled(path, edited))
        if path not in self.changed:
            self.changed.append(path)

    def _commit(self) -> None:
        self._call("add_news", {"issue": self.issue, "version": self.version}, "Ready.")
        tree = "".join(
            hashlib.sha1("\n".join(self.files[path]).encode()).hexdigest() for path in self.changed
        )
        body = f"{tree} {self.head} {self.issue}"
        self.head = hashlib.sha1(f"commit {len(body)}\0{body}".encode()).hexdigest()
        short, message = self.head[:10], f"{self.issue}: mark {self.focus.name}"
        result = f"[main {short}] {message}\n {len(self.changed)} files changed"
        self._call("commit", {"paths": list(self.changed), "message": message}, result)
        self._note(
            "commit", short, "shown", f"commit {self.head}\n\n    {message}\n\n" + "\n".join(self.changed)
        )

    def _call(self, name: str, arguments: dict[str, Any], result: str) -> None:
        """One round: the call, with a word before it every other time, and what it showed. The same call
        twice in a row is left out."""
        if (name, arguments) == self.newest:
            return
        self.newest = (name, arguments)
        self.round += 1
        text = ""
        if self.chance.random() < 0.5:
            words = self.chance.choice(SAYS)
            text = say(words, self.lang, symbol=self.focus.name, path=self.focus.path)
        said = json.dumps(arguments, ensure_ascii=False)
        call = {
            "id": f"call_{self.round}",
            "type": "function",
            "function": {"name": name, "arguments": said},
        }
        self.messages += [
            {"role": "assistant", "content": text, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": result or "(no matches)"},
        ]
        where = str(arguments.get("path", ""))
        for argument, kind in ARGUMENTS.items():
            if isinstance(value := arguments.get(argument), str):
                self._note(kind, value, "used", where or self.focus.path)
        self._mentioned(f"{text} {' '.join(map(str, arguments.values()))} {result}")

    def _note(self, kind: Kind, literal: str, how: How, where: str) -> None:
        """What a call used stays what was used, however often it is shown again."""
        known = self.known.get(literal)
        if known is None:
            self.known[literal] = Known(kind, how, self.round, where)
        elif how == "used" and known.how == "shown":
            known.how = how

    def _mentioned(self, text: str) -> None:
        for literal, known in self.known.items():
            if literal in text:
                known.last = self.round

    def _any_definition(self) -> Definition:
        return self.chance.choice(self.source.inside[self.chance.choice(self.own)])


ARGUMENTS: dict[str, Kind] = {
    "path": "path",
    "pattern": "symbol",
    "at": "place",
    "command": "command",
    "environment": "setting",
    "issue": "issue",
    "commit": "commit",
}


def compiled(path: str, lines: Sequence[str]) -> str:
    try:
        compile("\n".join(lines), path, "exec")
    except SyntaxError as error:
        return (
            f'File "{path}", line {error.lineno}\n    {(error.text or "").strip()}\nSyntaxError: {error.msg}'
        )
    return "Compiles."
