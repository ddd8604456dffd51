"""What a tool left for its next call in a conversation: journaled with its result, so that it outlives the
process, and is another one in each step of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.agent.conversation import Conversation


class Leaving:
    """`perdure.tools.shell.Memo` of one tool in one conversation."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._conversation: Conversation | None = None

    def begin(self, conversation: Conversation) -> None:
        """Serve this conversation."""
        self._conversation = conversation

    @property
    def session(self) -> str:
        return self._of().session

    def left(self) -> Mapping[str, Any]:
        return self._of().left_by(self._tool)

    def _of(self) -> Conversation:
        if self._conversation is None:
            raise RuntimeError("begin() comes first")
        return self._conversation
