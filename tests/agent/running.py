"""Run the real loop on a scripted model, with a real journal and real tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.agent.acting import Acting
from perdure.agent.conversation import Conversation
from perdure.agent.judge import Judge
from perdure.agent.loop import Loop
from perdure.agent.spending import Price, Spending
from perdure.agent.states import Limits
from perdure.agent.summarizing import Summarizer
from perdure.chat.calls import ToolCall
from perdure.chat.events import Event, RunFinished
from perdure.chat.messages import Entry
from perdure.memory.budget import Budget
from perdure.models.client import ModelClient
from perdure.models.scripted import ScriptedModel
from perdure.store.sqlite import SqliteJournal
from perdure.tools.calculator import calculator
from perdure.tools.contract import AskThrough, Tool
from perdure.tools.policy import Policy
from perdure.tools.registry import Registry


class Bench:
    """One session in one store; each `turn` runs the loop once, on a model of its own."""

    def __init__(self, folder: Path, tools: Sequence[Tool] = (calculator,), window: int = 8192) -> None:
        self.path = folder / "sessions.db"
        self.tools = tools
        self.window = window
        self.events: list[Event] = []

    async def turn(
        self,
        model: ModelClient,
        task: str = "do it",
        *,
        limits: Limits | None = None,
        policy: Policy | None = None,
        approve: Any = None,
        summarizer: Summarizer | None = None,
        background: bool = False,
        judge: Judge | None = None,
        spending: Spending | None = None,
        price: Price = lambda usage: None,
    ) -> RunFinished:
        self.events = []
        journal = SqliteJournal(self.path)
        try:
            if not journal.exists("s"):
                journal.create("s", {"system": "be brief", "lang": "en"})
            registry = Registry(self.tools)
            conversation = Conversation(
                journal,
                "s",
                model.counter,
                Budget.of(self.window),
                registry.specs,
                model=model.model,
                summarised=summarizer is not None,
            )

            async def nobody(call: ToolCall, tool: Tool) -> bool:
                return False

            acting = Acting(registry, policy or Policy(approve_all=True), AskThrough(approve or nobody))
            loop = Loop(
                model,
                acting,
                conversation,
                limits or Limits(),
                self.events.append,
                summarizer,
                background,
                judge,
                spending=spending or Spending(),
                price=price,
            )
            return await loop.run(task)
        finally:
            journal.close()

    def of(self, *types: str) -> list[Event]:
        return [event for event in self.events if event.type in types]

    def entries(self) -> list[Entry]:
        journal = SqliteJournal(self.path)
        try:
            return [record for record in journal.records("s") if isinstance(record, Entry)]
        finally:
            journal.close()


def calls(*expressions: str) -> list[tuple[str, str]]:
    return [("calculator", f'{{"expression": "{expression}"}}') for expression in expressions]


__all__ = ["Bench", "ScriptedModel", "calls"]
