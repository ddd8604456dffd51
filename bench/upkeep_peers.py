"""What other libraries offer for a conversation that outgrows its window, for `upkeep.py`.

Each behind the same four words: messages are made `ready` in the library's own types (not timed), it
takes them and gives its prompt (both timed), and what it gave is put back on the wire (not timed).
Where a library lets somebody count for it, it gets our o200k counter; where it wants a summary, a
summariser that answers at once. Else as its authors ship it. A library that isn't here is left out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from perdure.chat.messages import Message
from perdure.chat.tokens import counter_for

HERE = Path(__file__).parent.resolve()
COUNTER = counter_for("o200k_base")
SUMMARY = "So far: the task was described, files were read, and some changes were made and tested. " * 5
#: Tokens of a message as they come in `sessions.py`, for libraries that limit messages and not tokens.
TOKENS_A_MESSAGE = 300
#: Reductions of one prompt after which a library is taken not to come to an end.
MOST_REDUCTIONS = 20


class Method(Protocol):
    def ready(self, messages: Sequence[Message]) -> Any:
        """The messages in its own types."""
        ...

    def take(self, ready: Any) -> None: ...

    def prompt(self) -> Any: ...

    def sent(self, prompt: Any) -> list[Message]:
        """The prompt as it goes over the wire."""
        ...


class Wires:
    """The wire form of what was made ready, by an object's identity; both are kept alive."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, list[Message]]] = {}
        self._tokens: dict[int, int] = {}

    def keep(self, native: Any, *messages: Message) -> Any:
        self._kept[id(native)] = (native, list(messages))
        return native

    def of(self, native: Any) -> list[Message]:
        _, messages = self._kept[id(native)]
        return messages

    def tokens(self, native: Any) -> int:
        """Counted anew each time, as the library asks it."""
        return sum(map(COUNTER.message, self.of(native)))

    def known_tokens(self, native: Any) -> int:
        """Counted once: what an endpoint would know without asking the library."""
        if id(native) not in self._tokens:
            self._tokens[id(native)] = self.tokens(native)
        return self._tokens[id(native)]


def rounds(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Single messages, but results that follow each other together."""
    held: list[Message] = []
    for message in messages:
        if held and not (message["role"] == held[-1]["role"] == "tool"):
            yield held
            held = []
        held.append(message)
    if held:
        yield held


def as_user(text: str) -> Message:
    return {"role": "user", "content": text}


# --- langchain ----------------------------------------------------------------------------------


class LangchainTrim:
    """`langchain_core.messages.trim_messages`."""

    def __init__(self, budget: int, *, approximate: bool = False, **options: Any) -> None:
        from langchain_core.messages import convert_to_messages, trim_messages

        self._trim, self._convert = trim_messages, convert_to_messages
        self._wires: dict[str, Message] = {}
        self._history: list[Any] = []
        counter = "approximate" if approximate else self.count
        self._options = {"max_tokens": budget, "strategy": "last", "token_counter": counter, **options}

    def count(self, messages: list[Any]) -> int:
        return sum(map(COUNTER.message, self.sent(messages)))

    def ready(self, messages: Sequence[Message]) -> list[Any]:
        natives = self._convert([dict(each) for each in messages])
        for native, message in zip(natives, messages, strict=True):
            native.id = str(len(self._wires))
            self._wires[native.id] = message
        return natives

    def take(self, ready: list[Any]) -> None:
        self._history += ready

    def prompt(self) -> list[Any]:
        trimmed: list[Any] = self._trim(self._history, **self._options)
        return trimmed

    def sent(self, prompt: list[Any]) -> list[Message]:
        return [self._wires.get(each.id) or as_user(each.content) for each in prompt]


class LangchainSummary(LangchainTrim):
    """`SummarizationMiddleware` as shipped (it keeps 20 messages), triggered by the budget."""

    def __init__(self, budget: int, *, approximate: bool = False) -> None:
        super().__init__(budget)
        from langchain.agents.middleware import SummarizationMiddleware
        from langchain_core.language_models import FakeListChatModel

        counter = {} if approximate else {"token_counter": self.count}
        self._middleware = SummarizationMiddleware(
            FakeListChatModel(responses=[SUMMARY]), trigger=("tokens", budget), **counter
        )

    def prompt(self) -> list[Any]:
        update = self._middleware.before_model({"messages": self._history}, None)
        if update:
            _, *self._history = update["messages"]
        return self._history


# --- litellm ------------------------------------------------------------------------------------


class LitellmTrim:
    """`litellm.utils.trim_messages`; it counts with the o200k that it ships."""

    def __init__(self, budget: int) -> None:
        # Else importing it asks the network for prices.
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        from litellm.utils import trim_messages

        logging.getLogger("LiteLLM").disabled = True
        self._trim, self._budget = trim_messages, budget
        self._history: list[Message] = []

    def ready(self, messages: Sequence[Message]) -> Sequence[Message]:
        return messages

    def take(self, ready: Sequence[Message]) -> None:
        self._history += ready

    def prompt(self) -> list[Message]:
        trimmed: list[Message] = self._trim(self._history, model="gpt-4o", max_tokens=self._budget)
        return trimmed

    def sent(self, prompt: list[Message]) -> list[Message]:
        return prompt


# --- llama-index --------------------------------------------------------------------------------


class LlamaBuffer:
    """`ChatMemoryBuffer`."""

    def __init__(self, budget: int) -> None:
        from llama_index.core.base.llms.types import ChatMessage
        from splintr import Tokenizer

        self._message = ChatMessage
        self._encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
        self._memory = self._made(budget)

    def _made(self, budget: int) -> Any:
        from llama_index.core.memory import ChatMemoryBuffer

        return ChatMemoryBuffer.from_defaults(token_limit=budget, tokenizer_fn=self._encode)

    def ready(self, messages: Sequence[Message]) -> list[Any]:
        return [self._native(each) for each in messages]

    def _native(self, message: Message) -> Any:
        beside = {key: value for key, value in message.items() if key not in {"role", "content"}}
        return self._message(
            role=message["role"], content=message["content"] or None, additional_kwargs=beside
        )

    def take(self, ready: list[Any]) -> None:
        for each in ready:
            self._memory.put(each)

    def prompt(self) -> list[Any]:
        got: list[Any] = self._memory.get()
        return got

    def sent(self, prompt: list[Any]) -> list[Message]:
        return [
            {"role": each.role.value, "content": each.content, **self._beside(each.additional_kwargs)}
            for each in prompt
        ]

    def _beside(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in kept.items() if key in {"tool_calls", "tool_call_id", "name"}}


class LlamaSummaryBuffer(LlamaBuffer):
    """`ChatSummaryMemoryBuffer` with its own mock model, which answers a hundred tokens."""

    def _made(self, budget: int) -> Any:
        from llama_index.core.llms import MockLLM
        from llama_index.core.memory import ChatSummaryMemoryBuffer

        return ChatSummaryMemoryBuffer.from_defaults(
            token_limit=budget, tokenizer_fn=self._encode, llm=MockLLM(max_tokens=100)
        )


class LlamaMemory(LlamaBuffer):
    """`Memory` as shipped: its table in SQLite, in the main memory."""

    def _made(self, budget: int) -> Any:
        from llama_index.core.memory import Memory

        self._loop = asyncio.new_event_loop()
        return Memory.from_defaults(token_limit=budget, tokenizer_fn=self._encode)

    def take(self, ready: list[Any]) -> None:
        self._loop.run_until_complete(self._memory.aput_messages(ready))

    def prompt(self) -> list[Any]:
        got: list[Any] = self._loop.run_until_complete(self._memory.aget())
        return got


# --- autogen ------------------------------------------------------------------------------------


class AutogenLimited:
    """`TokenLimitedChatCompletionContext`."""

    def __init__(self, budget: int) -> None:
        from autogen_core import FunctionCall, models
        from autogen_core.model_context import TokenLimitedChatCompletionContext

        self._models, self._call = models, FunctionCall
        self._wires = Wires()
        self._loop = asyncio.new_event_loop()
        client: Any = SimpleNamespace(count_tokens=self._count)
        self._context = TokenLimitedChatCompletionContext(client, token_limit=budget)

    def _count(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        return sum(map(self._wires.tokens, messages))

    def ready(self, messages: Sequence[Message]) -> list[Any]:
        return [self._wires.keep(self._native(each), *each) for each in rounds(messages)]

    def _native(self, messages: Sequence[Message]) -> Any:
        first = messages[0]
        if first["role"] == "tool":
            results = [
                self._models.FunctionExecutionResult(
                    content=each["content"], name="tool", call_id=each["tool_call_id"], is_error=False
                )
                for each in messages
            ]
            return self._models.FunctionExecutionResultMessage(content=results)
        if first["role"] == "user":
            return self._models.UserMessage(content=first["content"], source="user")
        calls = [self._call(id=each["id"], **each["function"]) for each in first.get("tool_calls") or ()]
        return self._models.AssistantMessage(content=calls or first["content"], source="assistant")

    def take(self, ready: list[Any]) -> None:
        async def added() -> None:
            for each in ready:
                await self._context.add_message(each)

        self._loop.run_until_complete(added())

    def prompt(self) -> list[Any]:
        return self._loop.run_until_complete(self._context.get_messages())

    def sent(self, prompt: list[Any]) -> list[Message]:
        return [message for each in prompt for message in self._wires.of(each)]


# --- openai-agents ------------------------------------------------------------------------------


class AgentsSession:
    """`SQLiteSession`, in the main memory; of a limit in messages, since it knows none in tokens."""

    def __init__(self, budget: int) -> None:
        # `agents.py` beside this file has the package's name.
        kept, sys.path = sys.path, [each for each in sys.path if Path(each or ".").resolve() != HERE]
        try:
            session = import_module("agents").SQLiteSession("bench")
        finally:
            sys.path = kept
        self._loop = asyncio.new_event_loop()
        self._session, self._limit = session, budget // TOKENS_A_MESSAGE

    def ready(self, messages: Sequence[Message]) -> list[Any]:
        return list(messages)

    def take(self, ready: list[Any]) -> None:
        self._loop.run_until_complete(self._session.add_items(ready))

    def prompt(self) -> list[Any]:
        items: list[Any] = self._loop.run_until_complete(self._session.get_items(limit=self._limit))
        return items

    def sent(self, prompt: list[Any]) -> list[Message]:
        return prompt


# --- strands ------------------------------------------------------------------------------------


class StrandsSummary:
    """`SummarizingConversationManager` as shipped. It acts when the endpoint refuses; that it does is
    known here without asking, and costs the library nothing."""

    def __init__(self, budget: int) -> None:
        from strands.agent.conversation_manager import SummarizingConversationManager
        from strands.types.exceptions import ContextWindowOverflowException

        self._budget, self._overflow = budget, ContextWindowOverflowException
        self._wires, wires = Wires(), self._said

        class Summarising(SummarizingConversationManager):
            def _generate_summary(self, messages: Any, agent: Any) -> Any:
                return wires(as_user(SUMMARY))

        self._manager = Summarising()
        self._agent: Any = SimpleNamespace(messages=[])

    def _said(self, message: Message) -> Any:
        native = {"role": message["role"], "content": [{"text": message["content"]}]}
        return self._wires.keep(native, message)

    def ready(self, messages: Sequence[Message]) -> list[Any]:
        made = [self._native(each) for each in rounds(messages)]
        for each in made:
            self._wires.known_tokens(each)
        return made

    def _native(self, messages: Sequence[Message]) -> Any:
        first = messages[0]
        if first["role"] == "tool":
            results = [
                {
                    "toolUseId": each["tool_call_id"],
                    "status": "success",
                    "content": [{"text": each["content"]}],
                }
                for each in messages
            ]
            native = {"role": "user", "content": [{"toolResult": each} for each in results]}
            return self._wires.keep(native, *messages)
        if calls := first.get("tool_calls"):
            uses = [{"toolUseId": e["id"], "name": e["function"]["name"], "input": {}} for e in calls]
            native = {"role": "assistant", "content": [{"toolUse": each} for each in uses]}
            return self._wires.keep(native, first)
        return self._said(first)

    def take(self, ready: list[Any]) -> None:
        self._agent.messages += ready

    def prompt(self) -> list[Any]:
        for _ in range(MOST_REDUCTIONS):
            if sum(map(self._wires.known_tokens, self._agent.messages)) <= self._budget:
                break
            try:
                self._manager.reduce_context(self._agent, self._overflow())
            except self._overflow:
                break
        return list(self._agent.messages)

    def sent(self, prompt: list[Any]) -> list[Message]:
        return [message for each in prompt for message in self._wires.of(each)]


# --- semantic-kernel ----------------------------------------------------------------------------


class KernelTruncation:
    """`ChatHistoryTruncationReducer`; of a limit in messages, since it knows none in tokens."""

    def __init__(self, budget: int) -> None:
        from semantic_kernel.contents import (
            ChatHistoryTruncationReducer,
            ChatMessageContent,
            FunctionCallContent,
            FunctionResultContent,
        )

        self._content = ChatMessageContent
        self._call, self._result = FunctionCallContent, FunctionResultContent
        self._wires = Wires()
        self._loop = asyncio.new_event_loop()
        self._history = ChatHistoryTruncationReducer(target_count=budget // TOKENS_A_MESSAGE)

    def ready(self, messages: Sequence[Message]) -> list[Any]:
        return [self._wires.keep(self._native(each), each) for each in messages]

    def _native(self, message: Message) -> Any:
        items: list[Any] = []
        for each in message.get("tool_calls") or ():
            items.append(self._call(id=each["id"], **each["function"]))
        if message["role"] == "tool":
            items.append(self._result(id=message["tool_call_id"], name="tool", result=message["content"]))
        if items:
            return self._content(role=message["role"], items=items)
        return self._content(role=message["role"], content=message["content"])

    def take(self, ready: list[Any]) -> None:
        for each in ready:
            self._history.add_message(each)

    def prompt(self) -> list[Any]:
        self._loop.run_until_complete(self._history.reduce())
        return list(self._history.messages)

    def sent(self, prompt: list[Any]) -> list[Message]:
        return [message for each in prompt for message in self._wires.of(each)]


#: Name, the package it comes from, and how it is made for a budget of so many tokens.
PEERS: tuple[tuple[str, str, Callable[[int], Method]], ...] = (
    ("langchain trim_messages", "langchain-core", LangchainTrim),
    (
        "langchain trim_messages, start_on=human",
        "langchain-core",
        lambda budget: LangchainTrim(budget, start_on="human"),
    ),
    (
        "langchain trim_messages, approximate",
        "langchain-core",
        lambda budget: LangchainTrim(budget, approximate=True, start_on="human"),
    ),
    ("langchain SummarizationMiddleware", "langchain", LangchainSummary),
    (
        "langchain SummarizationMiddleware, approximate",
        "langchain",
        lambda budget: LangchainSummary(budget, approximate=True),
    ),
    ("litellm trim_messages", "litellm", LitellmTrim),
    ("llama-index ChatMemoryBuffer", "llama-index-core", LlamaBuffer),
    ("llama-index ChatSummaryMemoryBuffer", "llama-index-core", LlamaSummaryBuffer),
    ("llama-index Memory", "llama-index-core", LlamaMemory),
    ("autogen TokenLimitedChatCompletionContext", "autogen-core", AutogenLimited),
    ("openai-agents SQLiteSession", "openai-agents", AgentsSession),
    ("strands SummarizingConversationManager", "strands-agents", StrandsSummary),
    ("semantic-kernel truncation", "semantic-kernel", KernelTruncation),
)
#: Those that limit messages and not tokens.
NO_BUDGET = ("openai-agents SQLiteSession", "semantic-kernel truncation")


def peers() -> tuple[dict[str, Callable[[int], Method]], list[str]]:
    """Those that are installed, and the packages that are, with their versions."""
    found: dict[str, Callable[[int], Method]] = {}
    versions: dict[str, str] = {}
    for name, package, made in PEERS:
        try:
            versions[package] = f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
        found[name] = made
    return found, list(versions.values())
