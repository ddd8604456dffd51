"""What is installed, reachable and allowed here: each part looked at by itself, so that one that is broken
hides no other. Nothing is changed, and no secret is told.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from perdure.app.opening import config_folder, path_of, sandbox_of
from perdure.app.sessions import Sessions
from perdure.config import Settings
from perdure.errors import ConfigError, EndpointError, PerdureError, StoreError, Words, why

Verdict = Literal["ok", "warn", "bad"]

#: The oldest that it works with.
PYTHON = (3, 11)
#: Models of an endpoint that are named.
NAMED = 5

SAID: Words = ("{said}", "{said}")
VERSION: Words = ("{version}, in {folder}", "{version}，位于 {folder}")
ON: Words = ("{version} on {system} ({machine})", "{version}，{system}（{machine}）")
OLD: Words = ("{version}: perdure needs {needed}", "{version}：perdure 需要 {needed}")
NO_STORE_YET: Words = ("{path} (none yet; it will be made)", "{path}（尚不存在，届时建立）")
STORE: Words = (
    "{path}: {sessions} {sessions:session|sessions}, {size:,} bytes",
    "{path}：{sessions} 个会话，{size:,} 字节",
)
STORE_NOT_WRITABLE: Words = ("{path} can't be written", "{path} 无法写入")
SETTING: Words = ("{settings}", "{settings}")
NO_SETTINGS: Words = ("none is made: all are the usual ones", "没有设定，全部为默认值")
EMBEDDED: Words = ("the embedded one ({model}), installed", "内置模型（{model}），已安装")
REACHED: Words = ("{model} at {url}, {key}", "{url} 上的 {model}，{key}")
ONLY_ONE: Words = ("the only one there", "那里唯一的模型")
KEY: Words = ("with a key", "已设密钥")
NO_KEY: Words = ("without a key", "未设密钥")
SILENT: Words = (
    "{model} at {url}, {key}; it answers, but doesn't list its models",
    "{url} 上的 {model}，{key}；它有响应，但没有列出模型",
)
NOT_LISTED: Words = (
    "{url} doesn't list {model} (it has {models})",
    "{url} 没有列出 {model}（它有 {models}）",
)
NAME_ONE: Words = (
    "{url} has {count} models; name one with --model (it has {models})",
    "{url} 有 {count} 个模型，请用 --model 指定一个（它有 {models}）",
)
EMBEDDER: Words = ("{name}", "{name}")
NO_EMBEDDER: Words = (
    "none: what was said is found by its words only",
    "无：只能按词查找说过的内容",
)
NO_RIPGREP: Words = (
    "not installed: searching files is slower",
    "没有安装：搜索文件会慢一些",
)
IN_FORCE: Words = ("in force ({bubblewrap})", "已启用（{bubblewrap}）")
NOT_IN_FORCE: Words = (
    "not in force: {why}. Shell commands can reach what you can",
    "未启用：{why}。命令能访问您能访问的一切",
)
NO_COMMANDS: Words = (
    "not in force: {why}. No shell command runs, since sandbox = on",
    "未启用：{why}。由于 sandbox = on，不会运行任何命令",
)
REACH: Words = (
    "write {folders}; read the system, not the home folder; network: {network}",
    "可写 {folders}；可读系统，不可读主目录；网络：{network}",
)
ALL: Words = ("all that you can", "您能访问的一切")
ALLOWED: Words = ("yes", "允许")
BARRED: Words = ("no", "不允许")
GONE: Words = ("{folders}: no such folder (sandbox_folders)", "{folders}：没有这个文件夹（sandbox_folders）")
ASKS: Words = ("asks before a tool acts; {rules}", "工具做改动之前会询问；{rules}")
YES: Words = ("approves what tools do, unasked; {rules}", "不询问即批准工具的操作；{rules}")
READ_ONLY: Words = ("nothing is changed (read_only); {rules}", "不做任何改动（read_only）；{rules}")
RULES: Words = (
    "rules: {allow} allow, {ask} ask, {deny} deny",
    "规则：允许 {allow} 条，询问 {ask} 条，拒绝 {deny} 条",
)
SERVER: Words = ("{name}: {place}", "{name}：{place}")
SERVER_MISSING: Words = ("{name}: there is no program {program}", "{name}：没有程序 {program}")
SERVER_OFFLINE: Words = ("{name}: not used, since offline is set", "{name}：由于设置了 offline，不使用")
FILE_MISSING: Words = ("there is no file {path}", "没有文件 {path}")
OFFLINE: Words = ("no connection but the endpoint's", "除端点外不建立任何连接")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a part: `ok`; `warn`, where something is missing that isn't needed; `bad`, where
    something is set that can't work. ``facts`` fill the places of the ``words``."""

    part: str
    verdict: Verdict
    words: Words
    facts: dict[str, Any] = field(default_factory=dict)


def broken_settings(error: PerdureError) -> Finding:
    """The settings themselves can't be read, so there is nothing to look at but the machine."""
    return Finding("settings", "bad", SAID, {"said": error})


def of_machine() -> Iterator[Finding]:
    """What doesn't depend on settings."""
    import perdure

    folder = str(Path(perdure.__file__).parent)
    yield Finding("perdure", "ok", VERSION, {"version": perdure.__version__, "folder": folder})
    version = platform.python_version()
    if sys.version_info < PYTHON:
        needed = ".".join(map(str, PYTHON))
        yield Finding("python", "bad", OLD, {"version": version, "needed": needed})
    else:
        facts = {"version": version, "system": platform.system(), "machine": platform.machine()}
        yield Finding("python", "ok", ON, facts)


async def of_settings(settings: Settings, origins: dict[str, str]) -> AsyncIterator[Finding]:
    """What depends on them, part by part."""
    import anyio.to_thread

    yield _made(origins)
    yield _store(settings)
    yield await _model(settings)
    yield _embedder(settings)
    yield _ripgrep()
    for finding in await anyio.to_thread.run_sync(lambda: list(_sandbox(settings))):
        yield finding
    yield _policy(settings)
    for finding in (*_servers(settings), *_tool_files(settings)):
        yield finding
    if settings.offline:
        yield Finding("offline", "ok", OFFLINE)


def _made(origins: dict[str, str]) -> Finding:
    """Which settings come from where; of none its value, which may be a secret."""
    if not origins:
        return Finding("settings", "ok", NO_SETTINGS)
    by_place: dict[str, list[str]] = {}
    for name, place in origins.items():
        by_place.setdefault(place, []).append(name)
    told = "; ".join(f"{place}: {', '.join(sorted(names))}" for place, names in by_place.items())
    return Finding("settings", "ok", SETTING, {"settings": told, "origins": origins})


def _store(settings: Settings) -> Finding:
    try:
        path = path_of(settings.store)
        if not path.exists():
            folder = next(each for each in path.absolute().parents if each.exists())
            if not folder.is_dir() or not os.access(folder, os.W_OK):
                return Finding("store", "bad", STORE_NOT_WRITABLE, {"path": str(path)})
            return Finding("store", "ok", NO_STORE_YET, {"path": str(path)})
        size = path.stat().st_size
        with Sessions(settings) as sessions:
            count = len(sessions.listed())
    except (ConfigError, StoreError) as error:
        return Finding("store", "bad", SAID, {"said": error})
    except OSError as error:
        return Finding("store", "bad", SAID, {"said": why(error)})
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return Finding("store", "bad", STORE_NOT_WRITABLE, {"path": str(path)})
    return Finding("store", "ok", STORE, {"path": str(path), "sessions": count, "size": size})


async def _model(settings: Settings) -> Finding:
    if settings.base_url is None:
        return _embedded(settings)
    from perdure.chat.tokens import counter_for
    from perdure.models.endpoint import EndpointClient

    facts: dict[str, Any] = {
        "url": without_password(settings.base_url),
        "model": settings.model or ONLY_ONE,
        "key": KEY if settings.api_key else NO_KEY,
    }
    client = EndpointClient(
        settings.base_url,
        settings.model or "",
        counter=counter_for(None),
        api_key=settings.api_key,
        connect_timeout=settings.connect_timeout,
        idle_timeout=settings.connect_timeout,
    )
    try:
        listed = [str(each.get("id")) for each in await client.listed()]
    except EndpointError as error:
        return Finding("model", "bad", SAID, {"said": _of_url(error, settings.base_url)})
    finally:
        await client.aclose()
    if not listed:
        return Finding("model", "warn", SILENT, facts)
    facts["models"] = ", ".join(listed[:NAMED]) + (", …" if len(listed) > NAMED else "")
    if settings.model is None and len(listed) > 1:
        return Finding("model", "bad", NAME_ONE, facts | {"count": len(listed)})
    if settings.model is not None and settings.model not in listed:
        # Some serve names that they don't list, so this is no proof.
        return Finding("model", "warn", NOT_LISTED, facts)
    return Finding("model", "ok", REACHED, facts | {"model": settings.model or listed[0]})


def _embedded(settings: Settings) -> Finding:
    from perdure.app.opening import NO_ENDPOINT
    from perdure.models.embedded import MODEL, embedded_model_path

    if settings.model not in {None, "embedded", MODEL}:
        said = ConfigError(NO_ENDPOINT, model=settings.model)
        return Finding("model", "bad", SAID, {"said": said})
    try:
        embedded_model_path()
    except PerdureError as error:
        return Finding("model", "bad", SAID, {"said": error})
    return Finding("model", "ok", EMBEDDED, {"model": MODEL})


def _embedder(settings: Settings) -> Finding:
    from perdure.app.opening import open_embedder

    try:
        embedder = open_embedder(settings)
    except PerdureError as error:
        return Finding("embedder", "bad", SAID, {"said": error})
    if embedder is None:
        wished = settings.embedder.strip() == "none"
        return Finding("embedder", "ok" if wished else "warn", NO_EMBEDDER)
    try:
        # A name is known without loading anything.
        return Finding("embedder", "ok", EMBEDDER, {"name": embedder.name})
    finally:
        embedder.close()


def _ripgrep() -> Finding:
    version = _version_of("rg")
    if version is None:
        return Finding("ripgrep", "warn", NO_RIPGREP)
    return Finding("ripgrep", "ok", SAID, {"said": version})


def _sandbox(settings: Settings) -> Iterator[Finding]:
    sandbox = sandbox_of(settings)
    state = sandbox.state()
    if state.in_force:
        yield Finding("sandbox", "ok", IN_FORCE, {"bubblewrap": _version_of("bwrap") or "bwrap"})
        folders = [str(settings.workspace), *(str(each) for each in sandbox.folders if each.is_dir())]
        reach = {"folders": ", ".join(folders), "network": ALLOWED if sandbox.network else BARRED}
        yield Finding("bash", "ok", REACH, reach)
    else:
        reason = tuple(words.format(**state.facts) for words in state.why)
        refuses, wished = sandbox.mode == "on", sandbox.mode == "off"
        verdict: Verdict = "bad" if refuses else "ok" if wished else "warn"
        yield Finding("sandbox", verdict, NO_COMMANDS if refuses else NOT_IN_FORCE, {"why": reason})
        if not refuses:
            yield Finding("bash", "ok", ALL)
    if gone := [str(each) for each in sandbox.folders if not each.is_dir()]:
        yield Finding("bash", "warn", GONE, {"folders": ", ".join(gone)})


def _policy(settings: Settings) -> Finding:
    mode = READ_ONLY if settings.read_only else YES if settings.yes else ASKS
    counts = {name: len(getattr(settings, name)) for name in ("allow", "ask", "deny")}
    rules = tuple(words.format(**counts) for words in RULES)
    return Finding("policy", "ok", mode, {"rules": rules, **counts})


def _servers(settings: Settings) -> Iterator[Finding]:
    for name, server in settings.mcp.items():
        if server.url:
            place = without_password(server.url)
            if settings.offline:
                yield Finding("mcp", "warn", SERVER_OFFLINE, {"name": name})
            else:
                yield Finding("mcp", "ok", SERVER, {"name": name, "place": place})
            continue
        # Its arguments may hold a secret.
        program = server.command[0]
        if shutil.which(str(Path(program).expanduser())) is None:
            yield Finding("mcp", "bad", SERVER_MISSING, {"name": name, "program": program})
        else:
            yield Finding("mcp", "ok", SERVER, {"name": name, "place": program})


def _tool_files(settings: Settings) -> Iterator[Finding]:
    for each in settings.tool_files:
        path = settings.workspace / Path(each).expanduser()
        if path.is_file():
            yield Finding("tools", "ok", SAID, {"said": str(path)})
        else:
            yield Finding("tools", "bad", FILE_MISSING, {"path": str(path)})


def config_files(workspace: Path) -> list[Path]:
    """The files with settings that are there, the person's own first."""
    return [each for each in (config_folder() / "perdure.toml", workspace / "perdure.toml") if each.exists()]


def without_password(url: str) -> str:
    """The URL without who logs in, and without what stands behind a question mark."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _of_url(error: EndpointError, url: str) -> Words:
    """What went wrong, but for what was kept: there is no session here."""

    def told(lang: str, kept: str) -> str:
        return " ".join(error.say(lang).replace(url, without_password(url)).replace(kept, "").split())

    return told("en", error.kept[0]), told("zh", error.kept[1])


def _version_of(program: str) -> str | None:
    """The first line of what it says of its version; None where there is none that runs."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are those of this file
            [found, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip().partition("\n")[0][:80]
