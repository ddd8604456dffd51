"""The tools of an agent, and what they may do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from perdure.app.answers import Answers
from perdure.app.opening import built_in_tools, config_folder
from perdure.config import Settings
from perdure.errors import ConfigError, PerdureError, Words

if TYPE_CHECKING:
    from perdure.agent.conversation import Conversation
    from perdure.agent.plan import OwnPlan
    from perdure.agent.recalling import Recollection
    from perdure.chat.tokens import TokenCounter
    from perdure.tools.changes import ChangeLog
    from perdure.tools.contract import Approver, Asker, Tool
    from perdure.tools.mcp import Servers
    from perdure.tools.own import Provided
    from perdure.tools.policy import Policy
    from perdure.tools.registry import Registry
    from perdure.tools.shell import Memo

NO_TOOL: Words = ("there is no tool {names} (there are: {known})", "没有工具 {names}（已有：{known}）")
NO_ROOM: Words = (
    "no room in a window of {window} tokens for the tools {names}: name those to use with --tools",
    "{window} 个 token 的窗口容不下工具 {names}：请用 --tools 指定要用的工具",
)
#: Tokens of a window from which on the model is given these tools unasked: their schemas take some 700 of
#: each prompt. The others do the same with more steps; a small model mistakes one for another.
ROOMY_WINDOW = 8000
#: And from which on commands may run in the background: that takes some 200 more.
BACKGROUND_WINDOW = 16_000
FOR_ROOMY_WINDOWS = frozenset({"list_files", "search_files", "write_file", "edit_file", "update_plan"})
#: Of a roomy window, the share that tools of servers may take unless they are named: one of so many.
SERVED_SHARE = 4
#: Names of the tools that belong to a conversation.
RESERVED = frozenset({"recall", "update_plan", "background"})


class Toolbox:
    """Gives each conversation its tools. ``own`` adds to the built-in ones; ``approve`` is asked before a
    tool acts (without it, nothing acts unless the settings say so). Raises `ConfigError` where a rule of
    theirs isn't understood."""

    def __init__(self, settings: Settings, own: Sequence[Tool], approve: Approver | Asker | None) -> None:
        from perdure.tools.contract import Asker, AskThrough, Nobody
        from perdure.tools.jobs import Jobs
        from perdure.tools.rules import rules_of

        for rules in (settings.allow, settings.ask, settings.deny):
            rules_of(rules)
        self.settings = settings
        #: What runs in the background, of all conversations.
        self.jobs = Jobs()
        self._own, self._troubles = _own_tools(settings, own)
        self._servers: Servers | None = None
        self._served: list[Provided] = []
        self._told: list[str] = []
        self._asks = approve is not None
        self.asker: Asker = Nobody()
        if approve is not None:
            self.asker = approve if isinstance(approve, Asker) else AskThrough(approve)

    def news(self) -> list[PerdureError]:
        """What is wrong with tools that were left out, each once."""
        told, self._troubles = self._troubles, []
        return told

    async def reach(self, window: int | None, counter: TokenCounter, *, small: bool) -> None:
        """Have the tools of servers, as they are now, where a ``window`` of so many tokens has room for them.
        Servers are started where they aren't yet; one that can't be had is left out, and told (`news`)."""
        named = None if self.settings.tools is None else [*self.settings.tools]
        if named is None and (small or (window is not None and window < ROOMY_WINDOW)):
            named = []
        among = [
            server
            for server in self.settings.mcp
            if named is None or any(_is_of(tool, server) for tool in named)
        ]
        if not among:
            self._served = []
            return
        from perdure.tools.mcp import Servers
        from perdure.tools.own import together

        if self._servers is None:
            settings = self.settings
            self._servers = Servers(settings.mcp, folder=settings.workspace, offline=settings.offline)
        offered, news = await self._servers.offered(among)
        before = self.provided(served=False)
        every, left_out = together(before, offered, RESERVED)
        served = every[len(before) :]
        if named is not None:
            self._served = [each for each in served if each.name in named]
        else:
            room = None if window is None else window // SERVED_SHARE
            self._served, full = _within(served, room, counter)
            news += [PerdureError(NO_ROOM, names=", ".join(full), window=window)] if full else []
        # What was told already isn't told in each turn.
        fresh = [each for each in (*news, *left_out) if each.say("en") not in self._told]
        self._told = [each.say("en") for each in (*news, *left_out)]
        self._troubles += fresh

    async def aclose(self) -> None:
        """End servers of tools; a later use starts them anew."""
        if self._servers is not None:
            await self._servers.aclose()

    def provided(self, *, served: bool = True) -> list[Provided]:
        """The tools there are, and where each is from; without those that belong to a conversation.
        ``served``: with those of servers that were reached."""
        from perdure.tools.own import Provided

        built_in = (Provided(each) for each in built_in_tools(self.settings))
        return [*built_in, *self._own, *(self._served if served else ())]

    def verdict(self, tool: Tool) -> str:
        """What becomes of a call of which nothing more is known: `allow`, `ask` or `deny`."""
        from perdure.chat.calls import ToolCall

        small = self.settings.embedded or self.settings.tool_calls == "examples"
        call = ToolCall("", tool.spec.name, "{}")
        return self.policy(None, small=small).decide(tool, call).verdict

    def registry(
        self,
        window: int,
        recollection: Recollection | None,
        own_plan: OwnPlan | None,
        changes: ChangeLog | None = None,
        memo: Memo | None = None,
        *,
        small: bool,
    ) -> Registry:
        """The tools of a conversation with a ``window`` of so many tokens. Raises `ConfigError` where the
        settings name one that isn't there."""
        from perdure.memory.passages import RECALL
        from perdure.tools.background import BACKGROUND
        from perdure.tools.recall import recall_tool
        from perdure.tools.registry import Registry
        from perdure.tools.update_plan import UPDATE_PLAN, update_plan_tool

        # A page of an entry takes a fifth of the window, at some three characters a token.
        page = window * 3 // 5
        others = self.settings.memory != "session"
        recall = [recall_tool(recollection, page, others=others)] if recollection is not None else []
        planning = [update_plan_tool(own_plan)] if own_plan is not None else []
        wanted = self.settings.tools
        roomy = window >= ROOMY_WINDOW and not small
        behind = window >= BACKGROUND_WINDOW and not small if wanted is None else BACKGROUND in wanted
        recalls = bool(recall) and (wanted is None or RECALL in wanted)
        jobs = self.jobs if behind else None
        built_in = built_in_tools(self.settings, changes, memo, jobs, recalls=recalls)
        added = (each.tool for each in (*self._own, *self._served))
        every = (*built_in, *recall, *planning, *added)
        if wanted is None:
            left_out = frozenset() if roomy else FOR_ROOMY_WINDOWS
            left_out |= {UPDATE_PLAN} if self.settings.plan == "off" else set()
            return Registry(each for each in every if each.spec.name not in left_out)
        if own_plan is None:  # a step of a plan has none of its own
            wanted = tuple(name for name in wanted if name != UPDATE_PLAN)
        by_name = {tool.spec.name: tool for tool in every}
        # Where a server can't be had, that was told, and is no reason not to begin.
        servers = [*self.settings.mcp]
        gone = {
            name for name in wanted if name not in by_name and any(_is_of(name, each) for each in servers)
        }
        wanted = tuple(name for name in wanted if name not in gone)
        if unknown := [name for name in wanted if name not in by_name]:
            raise ConfigError(NO_TOOL, names=", ".join(unknown), known=", ".join(by_name))
        return Registry([by_name[name] for name in dict.fromkeys(wanted)])

    def policy(self, conversation: Conversation | None, *, small: bool) -> Policy:
        """What may be done in a session; without one, before any answer was given in it. Raises
        `ConfigError` where what was allowed before can't be read."""
        from perdure.tools.policy import Policy
        from perdure.tools.rules import rules_of

        answers, workspace = Answers(config_folder()), self.settings.workspace
        allowed = conversation.allowed if conversation is not None else []

        def keep(rules: Sequence[str], lasting: Literal["session", "workspace"]) -> None:
            if conversation is not None:
                conversation.allow(rules)
            if lasting == "workspace":
                # It holds for this session all the same.
                with suppress(OSError, ConfigError):
                    answers.add(workspace, rules)

        return Policy(
            approve_all=self.settings.yes_small if small else self.settings.yes,
            interactive=self._asks,
            lang=conversation.lang if conversation is not None else "en",
            read_only=self.settings.read_only,
            allow=rules_of((*self.settings.allow, *answers.of(workspace), *allowed)),
            ask=rules_of(self.settings.ask),
            deny=rules_of(self.settings.deny),
            keep=keep,
        )


def _own_tools(settings: Settings, given: Sequence[Tool]) -> tuple[list[Provided], list[PerdureError]]:
    """The tools beside the built-in ones: those of the program, of files and of packages; and what is wrong.
    Raises `ConfigError` where a file is broken, or a name in it is taken."""
    from perdure.tools.own import Provided, together, tools_in_file, tools_in_packages

    built_in = [Provided(each) for each in built_in_tools(settings)]
    own = [Provided(each, "program") for each in given]
    for file in settings.tool_files:
        own += tools_in_file(file)
    packaged, broken = tools_in_packages()
    every, left_out = together(built_in, [*own, *packaged], RESERVED)
    return every[len(built_in) :], [*broken, *left_out]


def _is_of(tool: str, server: str) -> bool:
    """The name is that of a tool of the server."""
    return tool.startswith(f"{server}__")


def _within(
    served: Sequence[Provided], room: int | None, counter: TokenCounter
) -> tuple[list[Provided], list[str]]:
    """The first of them that have room, and the names of the others."""
    kept = list(served)
    while kept and room is not None and counter.tools([each.tool.spec for each in kept]) > room:
        kept.pop()
    return kept, [each.name for each in served[len(kept) :]]
