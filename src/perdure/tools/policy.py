"""Whether a call may run: allow, ask, or deny.

Looking is allowed, acting asks. Where nobody can be asked, asking means no, with a result that
says how to allow it, so that the model can tell the person.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.chat.calls import ToolCall
from perdure.tools.contract import Decision, Tool

NOBODY_TO_ASK = (
    "{name} changes things, so a person must approve it, and there is nobody to ask here. "
    "They can allow it by running again with --yes, or at a terminal"
)


@dataclass(frozen=True, slots=True)
class Policy:
    """``approve_all``: the person said so for this run (`--yes`). ``interactive``: somebody can be
    asked."""

    approve_all: bool = False
    interactive: bool = False

    def decide(self, tool: Tool, call: ToolCall) -> Decision:
        """What to do with this call. Never raises."""
        if tool.effect == "reads" or self.approve_all:
            return Decision("allow")
        if self.interactive:
            return Decision("ask")
        return Decision("deny", NOBODY_TO_ASK.format(name=tool.spec.name))
