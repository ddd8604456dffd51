"""The one place that reads settings from outside.

`perdure.toml` < environment < flags: what is nearer to the person wins. A `perdure.toml` that
came with a checkout is somebody else's words, so it may set how the agent works, but neither
approve actions nor send the conversation to a host the person has not named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from perdure.config.reading import typed
from perdure.config.settings import Settings
from perdure.config.urls import is_loopback
from perdure.errors import ConfigError, Words, why

NO_FOLDER: Words = ("the workspace {folder} is not a folder", "工作区 {folder} 不是文件夹")
NO_SETTING: Words = ("there is no setting {name}", "没有名为 {name} 的设置")
NO_SETTING_IN: Words = (
    "{path}: there is no setting {name!r} (known: {known})",
    "{path}：没有名为 {name!r} 的设置（已有：{known}）",
)
UNREADABLE: Words = ("{path} cannot be read: {why}", "无法读取 {path}：{why}")
NO_TEXT: Words = ("it is not text in UTF-8", "它不是 UTF-8 文本")
NO_TOML: Words = ("{path} is not valid TOML: {why}", "{path} 不是有效的 TOML{where}")
BARRED: Words = (
    "{path} may not set {names}: use a flag, the environment, "
    "or the perdure.toml in your own configuration folder",
    "{path} 不能设置 {names}：请用命令行选项、环境变量，或你自己配置文件夹中的 perdure.toml",
)
ELSEWHERE: Words = (
    "{path} may not send the conversation to {url}: "
    "name it with --base-url, OPENAI_BASE_URL, or in your own configuration folder",
    "{path} 不能把对话发送到 {url}：请用 --base-url、OPENAI_BASE_URL，或在你自己的配置文件夹中指定",
)

#: Settings that a workspace's own file may not make: they would act or speak for the person.
ONLY_FROM_THE_PERSON = frozenset(
    {
        "api_key",
        "yes",
        "yes_small",
        "allow",
        "store",
        "memory",
        "embedder",
        "prices",
        "mcp",
        "tool_files",
        "sandbox",
        "sandbox_network",
        "sandbox_folders",
    }
)
#: What adds up, from wherever it comes: rules, each as strict as it says.
ADDED_UP = ("allow", "ask", "deny")
#: What a workspace's own file may set to true, and not back to false.
ONLY_TIGHTENED = ("read_only", "offline")
#: Limits of what is spent: a workspace's own file may lower the person's, and not raise them.
ONLY_LOWERED = ("max_tokens", "max_cost")


def load(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    config_folder: Path | None = None,
) -> Settings:
    """Settings from flags, environment and the two files, nearest to the person first.

    ``flags`` holds only what was given. ``config_folder`` is the user's (for `perdure.toml`).
    Raises `ConfigError` for anything that isn't understood; nothing is ignored in silence.
    """
    workspace = Path(flags.get("workspace") or environment.get("PERDURE_WORKSPACE") or Path.cwd())
    if not _is_folder(workspace):
        raise ConfigError(NO_FOLDER, folder=workspace)
    chosen: dict[str, Any] = {}
    if config_folder is not None:
        chosen |= _from_file(config_folder / "perdure.toml")
    theirs = _from_workspace(workspace / "perdure.toml")
    for name in ONLY_LOWERED:
        if name in theirs and name in chosen:
            theirs[name] = min(typed({name: each[name]})[name] for each in (theirs, chosen))
    for name in ONLY_TIGHTENED:
        if name in theirs and name in chosen:
            theirs[name] = any(typed({name: each[name]})[name] for each in (theirs, chosen))
    if unknown := flags.keys() - {each.name for each in fields(Settings)}:
        raise ConfigError(NO_SETTING, name=", ".join(sorted(unknown)))
    given = {name: value for name, value in flags.items() if value is not None}
    for layer in (theirs, _from_environment(environment), given):
        added = {name: _sum(name, chosen, layer) for name in ADDED_UP if name in layer}
        chosen |= layer | added
    if flags.get("yes"):
        # Said for this very run, knowing which model it is.
        chosen["yes_small"] = True
    chosen["workspace"] = workspace.resolve()
    if "base_url" not in chosen and chosen.get("api_key"):
        # A key and nothing else means OpenAI itself, as in every program that reads the variable.
        chosen["base_url"] = "https://api.openai.com/v1"
    return replace(Settings(workspace=chosen["workspace"]), **typed(chosen))


def origins(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    workspace: Path,
    *,
    config_folder: Path | None = None,
) -> dict[str, str]:
    """Where each setting that was made comes from: the path of a file, the name of a variable, or `flag`;
    of rules, which add up, all of them. Raises `ConfigError` as `load` does."""
    files = [workspace / "perdure.toml"]
    if config_folder is not None:
        files.insert(0, config_folder / "perdure.toml")
    layers = [{name: str(path) for name in _from_file(path)} for path in files]
    variables = {f"PERDURE_{each.name.upper()}": each.name for each in fields(Settings)}
    variables = {"OPENAI_API_KEY": "api_key", "OPENAI_BASE_URL": "base_url"} | variables
    layers.append({name: variable for variable, name in variables.items() if environment.get(variable)})
    layers.append({name: "flag" for name, value in flags.items() if value is not None})
    found: dict[str, str] = {}
    for layer in layers:
        for name, origin in layer.items():
            both = name in ADDED_UP and name in found
            found[name] = f"{found[name]}, {origin}" if both else origin
    return found


def _sum(name: str, chosen: Mapping[str, Any], layer: Mapping[str, Any]) -> tuple[str, ...]:
    both = (typed({name: each[name]})[name] for each in (chosen, layer) if name in each)
    return tuple(dict.fromkeys(rule for rules in both for rule in rules))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long
        return False


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, name in (("OPENAI_API_KEY", "api_key"), ("OPENAI_BASE_URL", "base_url")):
        if environment.get(variable):
            found[name] = environment[variable]
    for name in (each.name for each in fields(Settings)):
        variable = f"PERDURE_{name.upper()}"
        if environment.get(variable):
            found[name] = environment[variable]
    return found


def _from_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(UNREADABLE, path=path, why=why(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(UNREADABLE, path=path, why=NO_TEXT) from error
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))
        where: Words = ("", f"（第 {place[1]} 行第 {place[2]} 列）" if place else "")
        raise ConfigError(NO_TOML, path=path, why=(str(error), ""), where=where) from error
    known = {each.name for each in fields(Settings)} - {"workspace"}
    for name in found:
        if name.replace("-", "_") not in known:
            raise ConfigError(NO_SETTING_IN, path=path, name=name, known=", ".join(sorted(known)))
    return {name.replace("-", "_"): value for name, value in found.items()}


def _from_workspace(path: Path) -> dict[str, Any]:
    found = _from_file(path)
    if barred := ONLY_FROM_THE_PERSON & found.keys():
        raise ConfigError(BARRED, path=path, names=", ".join(sorted(barred)))
    if "base_url" in found and not is_loopback(str(found["base_url"])):
        raise ConfigError(ELSEWHERE, path=path, url=found["base_url"])
    return found
