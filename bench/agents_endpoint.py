"""The endpoint of `agents.py`: one script for every agent, strict, counting, over real HTTP.

It plays a model that can't help an agent remember: asked by the person, it has the named file shown, by
the agent's own tool for that or by its shell; shown the result, it says that it is done; asked for a
summary, it says only generalities. So what still stands in a later prompt was kept by the agent's own
code. It refuses what strict providers refuse, and prompts over the window; it reports the tokens it
counted and those of them that a prefix cache would have had.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.chat.calls import ToolSpec
from perdure.chat.messages import Message, text_of
from perdure.chat.tokens import counter_for

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from scripted_endpoint import Answer, Call, Plain, Request, Scripted, ScriptedEndpoint, wrong_messages

FILE = re.compile(r"logs/part-\d+\.txt")
GENERALITIES = "The user and the assistant worked on several files."
DONE = "I have read it."
#: Calls the model makes for one file before it lets the matter rest, should an agent lose the result.
PATIENCE = 3
#: Characters that a prefix cache compares at once.
BLOCK = 64
#: By which tools the model has a file shown, best first: each agent's own for that, or the shell.
READERS = {"reader": ("read_file", "read"), "bash": ()}


@dataclass(frozen=True)
class Seen:
    """A request as it came in ``turn``. ``prompt``: its serialized characters, in a cache's order;
    ``text``: what a model would read; ``cached``: of its ``tokens``, those that an earlier prompt
    began with; ``refused``: why it was, or nothing."""

    turn: int
    purpose: str
    body: dict[str, Any]
    prompt: str
    text: str
    tokens: int
    cached: int
    refused: str


class ModelEndpoint(ScriptedEndpoint):
    """Serves the script on loopback. Set ``turn`` before each turn; ``seen`` and ``finished`` tell
    what came, and in which turns the model came to its last word. ``by``: a key of `READERS`."""

    def __init__(self, window: int, by: str = "reader") -> None:
        super().__init__(self._reply_to)
        self.turn = 0
        self.broken = False
        self.seen: list[Seen] = []
        self.finished: set[int] = set()
        self.window_of_model = window
        self._readers = READERS[by]
        self._counter = counter_for("o200k_base")
        self._counted: dict[str, int] = {}
        self._blocks: set[int] = set()
        self._calls: Counter[str] = Counter()
        # A reply goes out in several small writes, which would otherwise wait for acknowledgements.
        self._server.RequestHandlerClass.disable_nagle_algorithm = True
        self._server.handle_error = self._handle_error

    def _handle_error(self, request: Any, address: Any) -> None:
        """A command that ends may leave its connection as it is; anything else is a mistake here."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()
            self.broken = True

    def _wrong(self, body: dict[str, Any]) -> str | None:
        """The script itself refuses, so that it sees every request."""
        return None

    def _reply_to(self, request: Request) -> Scripted:
        seen = self._see(request)
        self.seen.append(seen)
        if seen.refused:
            self.refusals.append(seen.refused)
            code = "context_length_exceeded" if "maximum context length" in seen.refused else None
            error = {"message": seen.refused, "type": "invalid_request_error", "code": code}
            return Plain(400, {"error": error})
        answer = self._model_says(seen)
        completion = 8 + len(answer.text) // 4
        answer.usage = {
            "prompt_tokens": seen.tokens,
            "completion_tokens": completion,
            "total_tokens": seen.tokens + completion,
            "prompt_tokens_details": {"cached_tokens": seen.cached},
        }
        return answer

    def _model_says(self, seen: Seen) -> Answer:
        if seen.purpose != "think":
            return Answer(_in_form(seen.body.get("response_format")))
        last = seen.body["messages"][-1]
        named = FILE.findall(text_of(last)) if last["role"] == "user" else []
        if named and self._calls[named[-1]] < PATIENCE:
            self._calls[named[-1]] += 1
            return Answer(calls=[self._reading(named[-1], seen.body.get("tools") or ())])
        self.finished.add(self.turn)
        return Answer(DONE)

    def _reading(self, file: str, tools: Sequence[Any]) -> Call:
        names = {tool["function"]["name"] for tool in tools}
        id = f"call_{len(self.seen)}"
        for reader in self._readers:
            if reader in names:
                return id, reader, {"path": file}
        return id, "bash", {"command": f"cat {file}"}

    def _see(self, request: Request) -> Seen:
        body = request.body
        messages, tools = body.get("messages") or [], body.get("tools") or []
        tokens = sum(map(self._tokens, messages)) + self._counter.tools([_spec(tool) for tool in tools])
        refused = wrong_messages(body) or ""
        if not refused and tokens > self.window_of_model:
            refused = (
                f"This model's maximum context length is {self.window_of_model} tokens. However, your "
                f"messages resulted in {tokens} tokens. Please reduce the length of the messages."
            )
        prompt = json.dumps(tools, ensure_ascii=False) + json.dumps(messages, ensure_ascii=False)
        return Seen(
            turn=self.turn,
            purpose=_purpose(request, messages),
            body=body,
            prompt=prompt,
            text="\n".join(map(_read, messages)),
            tokens=tokens,
            cached=0 if refused else tokens * self._repeated(prompt) // len(prompt),
            refused=refused,
        )

    def _tokens(self, message: Message) -> int:
        key = json.dumps(message, ensure_ascii=False)
        if key not in self._counted:
            self._counted[key] = self._counter.message(message)
        return self._counted[key]

    def _repeated(self, prompt: str) -> int:
        """Characters at the beginning that some earlier prompt had too, in whole blocks, as the
        prefix caches of servers compare them: each block by itself and all before it."""
        repeated, chain, unbroken = 0, 0, True
        for at in range(0, len(prompt) - BLOCK, BLOCK):
            chain = hash((chain, prompt[at : at + BLOCK]))
            unbroken = unbroken and chain in self._blocks
            repeated += BLOCK if unbroken else 0
            self._blocks.add(chain)
        return repeated


def _purpose(request: Request, messages: list[Message]) -> str:
    """Ours is told by its header, pi's by the beginning of its own system prompt for summaries."""
    named = str(request.headers.get("x-perdure-purpose", ""))
    if named:
        return named
    told = text_of(messages[0]) if messages else ""
    return "summarize" if told.startswith("You are a context summarization assistant") else "think"


def _read(message: Message) -> str:
    calls = message.get("tool_calls") or ()
    return "\n".join([text_of(message), *(call["function"]["arguments"] for call in calls)])


def _spec(tool: dict[str, Any]) -> ToolSpec:
    function = tool["function"]
    return ToolSpec(function["name"], function.get("description", ""), function.get("parameters", {}))


def _in_form(wanted: dict[str, Any] | None) -> str:
    """Generalities, in the form that the request asks for."""
    schema = ((wanted or {}).get("json_schema") or {}).get("schema")
    return json.dumps(_of_schema(schema)) if schema else GENERALITIES


def _of_schema(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: _of_schema(inner) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [_of_schema(schema.get("items", {}))]
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case _:
            return GENERALITIES
