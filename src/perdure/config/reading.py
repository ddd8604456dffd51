"""Each setting read from what a file, a variable or a flag says: a text, a number, a list, a table."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from perdure.config.urls import is_http
from perdure.config.values import McpServer, ModelPrice, Secret
from perdure.errors import ConfigError, Words

TEXT: Words = ("{name} must be a text, not {value!r}", "{name} 应为文本，不能是 {value!r}")
WHOLE: Words = ("{name} must be a whole number, not {value!r}", "{name} 应为整数，不能是 {value!r}")
DOLLARS: Words = (
    "{name} must be a number of US dollars, not {value!r}",
    "{name} 应为美元数，不能是 {value!r}",
)
NO_PRICES: Words = (
    'prices must be tables, [prices."MODEL"] with input and output, not {value!r}',
    'prices 应为表：[prices."模型"]，其中有 input 和 output；不能是 {value!r}',
)
PRICE: Words = (
    "the price of {model}: {name} must be US dollars per million tokens, 0 or more, not {value!r}",
    "{model} 的价格：{name} 应为每百万 token 的美元数，0 或更大；不能是 {value!r}",
)
PRICE_FIELDS: Words = (
    "the price of {model} has input, output and perhaps cached, not {names}",
    "{model} 的价格由 input、output 以及可选的 cached 组成，不能是 {names}",
)
SECONDS: Words = ("{name} must be a number of seconds, not {value!r}", "{name} 应为秒数，不能是 {value!r}")
TRUTH: Words = (
    "{name} must be true or false, not {value!r}",
    "{name} 应为 true 或 false，不能是 {value!r}",
)
RULES: Words = (
    '{name} must be a list of rules, as ["bash(git log *)"], not {value!r}',
    '{name} 应为规则列表，如 ["bash(git log *)"]，不能是 {value!r}',
)
NO_SERVERS: Words = (
    "mcp must be tables, [mcp.NAME] with command or url, not {value!r}",
    "mcp 应为表：[mcp.名称]，其中有 command 或 url；不能是 {value!r}",
)
SERVER_FIELDS: Words = (
    "the server {server} has {known}, not {names}",
    "服务器 {server} 由 {known} 组成，不能是 {names}",
)
SERVER_NEEDS: Words = (
    "the server {server} needs either a command or a url",
    "服务器 {server} 需要 command 或 url 中的一个",
)
SERVER_NAME: Words = (
    "a server's name must be of letters, digits, - and _, 32 at most, not {server!r}",
    "服务器名称只能由字母、数字、- 和 _ 组成，最多 32 个，不能是 {server!r}",
)
NO_URL: Words = (
    "{name} must begin with http:// or https://, not {value!r}",
    "{name} 应以 http:// 或 https:// 开头，不能是 {value!r}",
)
TEXTS: Words = ("{name} must be a table of texts", "{name} 应为文本表")
NAMES: Words = ("{name} must be a list of names, not {value!r}", "{name} 应为名称列表，不能是 {value!r}")

_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


def typed(chosen: Mapping[str, Any]) -> dict[str, Any]:
    readers: dict[str, Callable[[str, Any], Any]] = {
        "context_window": _whole,
        "max_output_tokens": _whole,
        "max_steps": _whole,
        "judge_rounds": _whole,
        "parallel": _whole,
        "max_tokens": _whole,
        "max_time": _number(SECONDS),
        "max_cost": _number(DOLLARS),
        "prices": _prices,
        "connect_timeout": _number(SECONDS),
        "idle_timeout": _number(SECONDS),
        "summary_timeout": _number(SECONDS),
        "judge_timeout": _number(SECONDS),
        "quiet": _truth,
        "verbose": _truth,
        "yes": _truth,
        "yes_small": _truth,
        "replay_reasoning": _truth,
        "read_only": _truth,
        "offline": _truth,
        "sandbox_network": _truth,
        "sandbox_folders": _names,
        "tools": _names,
        "tool_files": _names,
        "allow": _rules,
        "ask": _rules,
        "deny": _rules,
        "mcp": _servers,
        "instructions_tokens": _whole,
        "api_key": _secret,
        "workspace": _folder,
    }
    return {name: (readers.get(name) or _text)(name, value) for name, value in chosen.items()}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(TEXT, name=name, value=value)
    return value.strip()


def _secret(name: str, value: Any) -> Secret:
    return Secret(_text(name, value))


def _folder(name: str, value: Any) -> Path:
    return Path(value)


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(WHOLE, name=name, value=value) from None


def _number(words: Words) -> Callable[[str, Any], float]:
    def read(name: str, value: Any) -> float:
        try:
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(words, name=name, value=value) from None

    return read


def _prices(name: str, value: Any) -> dict[str, ModelPrice]:
    if not isinstance(value, Mapping):
        raise ConfigError(NO_PRICES, value=value)
    return {str(model).strip(): _price(str(model), given) for model, given in value.items()}


def _price(model: str, given: Any) -> ModelPrice:
    if isinstance(given, ModelPrice):
        given = {name: dollars for name, dollars in asdict(given).items() if dollars is not None}
    if not isinstance(given, Mapping):
        raise ConfigError(NO_PRICES, value=given)
    if not {"input", "output"} <= given.keys() <= {"input", "output", "cached"}:
        raise ConfigError(PRICE_FIELDS, model=model, names=", ".join(map(str, given)) or "{}")
    for name, dollars in given.items():
        is_number = isinstance(dollars, int | float) and not isinstance(dollars, bool)
        if not is_number or not 0 <= dollars < float("inf"):
            raise ConfigError(PRICE, model=model, name=name, value=dollars)
    return ModelPrice(**given)


def _truth(name: str, value: Any) -> bool:
    spoken = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False}
    said = spoken.get(str(value).lower(), False if str(value).lower() == "off" else None)
    if said is None:
        raise ConfigError(TRUTH, name=name, value=value)
    return said


def _names(name: str, value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        raise ConfigError(NAMES, name=name, value=value)
    return tuple(each.strip() for each in names if each.strip())


def _rules(name: str, value: Any) -> tuple[str, ...]:
    """In a variable, rules stand apart by line ends or semicolons: a command may hold a comma."""
    rules = re.split(r"[\n;]", value) if isinstance(value, str) else value
    if not isinstance(rules, list | tuple) or not all(isinstance(each, str) for each in rules):
        raise ConfigError(RULES, name=name, value=value)
    return tuple(each.strip() for each in rules if each.strip())


def _servers(name: str, value: Any) -> dict[str, McpServer]:
    if not isinstance(value, Mapping):
        raise ConfigError(NO_SERVERS, value=value)
    return {str(server): _server(str(server), given) for server, given in value.items()}


def _server(server: str, given: Any) -> McpServer:
    if isinstance(given, McpServer):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(NO_SERVERS, value=given)
    if not _SERVER_NAME.fullmatch(server):
        raise ConfigError(SERVER_NAME, server=server)
    known = [each.name for each in fields(McpServer)]
    if unknown := [str(each) for each in given if each not in known]:
        raise ConfigError(SERVER_FIELDS, server=server, known=", ".join(known), names=", ".join(unknown))
    if bool(given.get("command")) == bool(given.get("url")):
        raise ConfigError(SERVER_NEEDS, server=server)
    readers: dict[str, Callable[[str, Any], Any]] = {
        "command": _command,
        "url": _url,
        "env": _texts,
        "headers": _texts,
        "timeout": _positive,
    }
    read: dict[str, Any] = {}
    for name, value in given.items():
        read[name] = (readers.get(name) or _names)(f"mcp.{server}.{name}", value)
    return McpServer(**read)


def _command(name: str, value: Any) -> tuple[str, ...]:
    return tuple(shlex.split(value)) if isinstance(value, str) else _names(name, value)


def _url(name: str, value: Any) -> str:
    if not isinstance(value, str) or not is_http(value):
        raise ConfigError(NO_URL, name=name, value=value)
    return value


def _positive(name: str, value: Any) -> float:
    seconds = _number(SECONDS)(name, value)
    if not 0 < seconds < float("inf"):
        raise ConfigError(SECONDS, name=name, value=value)
    return seconds


def _texts(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        # Its values may be secrets.
        raise ConfigError(TEXTS, name=name)
    return {str(key): str(text) for key, text in value.items()}
