"""Tools of the person's own: of a Python file that they name, and of packages that they installed.

A file that is named must give what it was named for, so what is wrong with it is an error that says where.
A package may have been installed for something else, so one that is broken is left out, and said to be.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Literal

from perdure.errors import ConfigError, Words, why
from perdure.tools.contract import Tool

#: Under this name a package says what its tools are.
GROUP = "perdure.tools"

NO_FILE: Words = ("the tools in {file} cannot be read: {why}", "无法读取 {file} 中的工具：{why}")
NO_IMPORT: Words = (
    "the tools in {file} cannot be loaded: line {line}: {error}",
    "无法载入 {file} 中的工具：第 {line} 行：{error}",
)
NO_TOOLS: Words = (
    "{file} has no tools: make one of a function with @tool (from perdure import tool)",
    "{file} 中没有工具：请用 @tool 把函数变成工具（from perdure import tool）",
)
TAKEN: Words = (
    "{place}: the name {name} is taken: there is a tool {name} {other}",
    "{place}：名称 {name} 已被占用：{other}已有工具 {name}",
)
LEFT_OUT: Words = (
    "the tools of the package {package} are left out: {why}",
    "略去软件包 {package} 的工具：{why}",
)
LEFT_OUT_ONE: Words = (
    "the tool {name} of the package {package} is left out: there is a tool {name} {other}",
    "略去软件包 {package} 的工具 {name}：{other}已有工具 {name}",
)
NOT_TOOLS: Words = (
    "{entry} is neither a tool nor a module or list of tools",
    "{entry} 既不是工具，也不是工具的模块或列表",
)

#: Where a tool is from, as it is said of the tool whose name is taken.
BUILT_IN: Words = ("built in", "内置")
IN_CODE: Words = ("of the program that runs this agent", "运行此代理的程序")
IN_FILE: Words = ("in {source}", "{source} 中")
IN_PACKAGE: Words = ("of the package {source}", "软件包 {source} ")
IN_SERVER: Words = ("of the server {source}", "服务器 {source} ")

Place = Literal["built in", "program", "file", "package", "server"]
_SAID: dict[Place, Words] = {
    "built in": BUILT_IN,
    "program": IN_CODE,
    "file": IN_FILE,
    "package": IN_PACKAGE,
    "server": IN_SERVER,
}


@dataclass(frozen=True, slots=True)
class Provided:
    """A tool, and where it is from. ``says``: what a server claims of its effect."""

    tool: Tool
    place: Place = "built in"
    source: str = ""
    line: int = 0
    says: str = ""

    @property
    def name(self) -> str:
        return self.tool.spec.name

    @property
    def where(self) -> Words:
        """Words that follow "there is a tool ..."."""
        source = f"{self.source}:{self.line}" if self.line else self.source
        english, chinese = _SAID[self.place]
        return english.format(source=source), chinese.format(source=source)


def tools_in_file(file: str) -> list[Provided]:
    """The tools that a Python file makes, in its order. Raises `ConfigError` that names file and line."""
    path = Path(file).expanduser()
    module = _imported(path, file)
    found = [Provided(each, "file", file, _line(each)) for each in _tools_of(module)]
    if not found:
        raise ConfigError(NO_TOOLS, file=file)
    return found


def tools_in_packages() -> tuple[list[Provided], list[ConfigError]]:
    """The tools of all installed packages that have some, and what is wrong with those that are broken."""
    found: list[Provided] = []
    troubles: list[ConfigError] = []
    entries = sorted(metadata.entry_points(group=GROUP), key=lambda each: (_package(each), each.name))
    for entry in entries:
        package = _package(entry)
        try:
            with redirect_stdout(sys.stderr):
                loaded = entry.load()
        except (Exception, SystemExit) as error:
            troubles.append(ConfigError(LEFT_OUT, package=package, why=_named(error)))
            continue
        tools = list(_tools_of(loaded))
        if not tools:
            reason: Words = tuple(words.format(entry=entry.value) for words in NOT_TOOLS)  # type: ignore[assignment]
            troubles.append(ConfigError(LEFT_OUT, package=package, why=reason))
        found += [Provided(each, "package", package) for each in tools]
    return found, troubles


def together(
    first: Iterable[Provided], more: Iterable[Provided], reserved: Collection[str] = ()
) -> tuple[list[Provided], list[ConfigError]]:
    """All of them, and what is wrong: of a package, a tool whose name is taken is left out. ``reserved``:
    names of built-in tools that aren't among them. Raises `ConfigError` where a name in a file is taken."""
    every = list(first)
    by_name = {each.name: each for each in every}
    troubles: list[ConfigError] = []
    for each in more:
        there = by_name.get(each.name)
        if there is not None and there.tool is each.tool:
            continue  # the same one, on two ways
        if there is None and each.name not in reserved:
            by_name[each.name] = each
            every.append(each)
            continue
        other = BUILT_IN if there is None else there.where
        if each.place == "package":
            troubles.append(ConfigError(LEFT_OUT_ONE, package=each.source, name=each.name, other=other))
        else:
            place = f"{each.source}:{each.line}" if each.line else each.source or each.place
            raise ConfigError(TAKEN, place=place, name=each.name, other=other)
    return every, troubles


def _imported(path: Path, shown: str) -> ModuleType:
    try:
        source = path.read_bytes()
        # Two files of the same name are two modules.
        name = f"perdure_tools_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    except OSError as error:
        raise ConfigError(NO_FILE, file=shown, why=why(error)) from error
    place = str(path.resolve())
    spec = importlib.util.spec_from_loader(name, loader=None, origin=place)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = place
    # What lies beside it can be imported, as in a program, but stands in for nothing that is there already.
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module
    try:
        # Stdout may be the answer's, or a protocol's.
        with redirect_stdout(sys.stderr):
            code = compile(source, place, "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102 (the person named the file)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = _line_of(error, place)
        raise ConfigError(NO_IMPORT, file=shown, line=line, error=_named(error)) from error
    return module


def _tools_of(loaded: object) -> Iterator[Tool]:
    """The tools in a tool, a list of them, or a module: there, what `__all__` names, or all there are."""
    if isinstance(loaded, Tool):
        yield loaded
    elif isinstance(loaded, list | tuple):
        yield from (each for each in loaded if isinstance(each, Tool))
    elif isinstance(loaded, ModuleType):
        names = getattr(loaded, "__all__", None) or list(vars(loaded))
        seen: set[int] = set()
        for each in (getattr(loaded, name, None) for name in names):
            if isinstance(each, Tool) and id(each) not in seen:
                seen.add(id(each))
                yield each


def _line(tool: Tool) -> int:
    function = getattr(tool.run, "__wrapped__", tool.run)
    return int(getattr(getattr(function, "__code__", None), "co_firstlineno", 0))


def _line_of(error: BaseException, place: str) -> int:
    """Where in the file it went wrong: the last of its lines that was at work."""
    if isinstance(error, SyntaxError) and error.filename == place:
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == place), 1)


def _named(error: BaseException) -> str:
    told = error.msg if isinstance(error, SyntaxError) else str(error)
    said = " ".join(told.split())[:300]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _package(entry: metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
