"""Whether a call may run: allow, ask, or deny.

Looking is allowed, acting asks. Where nobody can be asked, asking means no, with a result that
says how to allow it, so that the model can tell the person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perdure.chat.calls import ToolCall
from perdure.chat.language import Language, say
from perdure.errors import Words
from perdure.tools.contract import Decision, Tool

NOBODY_TO_ASK: Words = (
    "{name} changes things, so a person must approve it, and there is nobody to ask here. "
    "They can allow it by running again with --yes, or at a terminal",
    "{name} 会改变东西，必须由人批准，而这里没有人可以询问。用 --yes 再运行一次，或在终端里运行，就可以批准",
)


@dataclass(slots=True)
class Policy:
    """``approve_all``: the person said so for this run (`--yes`). ``interactive``: somebody can be
    asked; ``lang`` is the language of the reasons."""

    approve_all: bool = False
    interactive: bool = False
    lang: Language = "en"
    _always: set[str] = field(default_factory=set)

    def remember(self, tool: Tool, call: ToolCall, lasting: Literal["session", "workspace"]) -> None:
        """Allow from now on what `Decision.always` named."""
        self._always.add(call.name)

    def decide(self, tool: Tool, call: ToolCall) -> Decision:
        """What to do with this call. Never raises."""
        if tool.effect == "reads" or self.approve_all or call.name in self._always:
            return Decision("allow")
        if self.interactive:
            return Decision("ask", always=call.name)
        return Decision("deny", say(NOBODY_TO_ASK, self.lang, name=tool.spec.name))
