"""Tools as values: what a model is told about a tool, and the call it makes.

They stand here, on the ground floor, because models, tools and the loop all speak of them and
none of these rooms may look into another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JSON = Any
Schema = Mapping[str, JSON]

#: How models write a tool call into their text.
CALL_MARK = re.compile(
    r"<\|?/?(?:tool_call|function_call|tool_calls|function_calls|function|invoke|parameter)\b|<\|python_tag\|>|\[TOOL_CALLS\]"
    r'|^\s*\{\s*"(?:name|tool|function)"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters|args)"\s*:',
    re.I,
)


@dataclass(frozen=True, slots=True)
class Example:
    """A request a person might make, and the arguments the tool should be called with."""

    request: str
    arguments: Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told about a tool. ``parameters`` is a JSON schema of type ``object``."""

    name: str
    description: str
    parameters: Schema
    examples: tuple[Example, ...] = ()

    def on_the_wire(self) -> dict[str, JSON]:
        """The form of the `tools` field of a chat-completions request."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model made it. ``arguments`` is the text it wrote, which may not be JSON."""

    id: str
    name: str
    arguments: str

    def on_the_wire(self) -> dict[str, JSON]:
        """The form inside an assistant message. Endpoints parse stored arguments, so text that is
        no JSON object goes out as ``{}``; the result that answers the call quotes what was wrong."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": _object_text(self.arguments)},
        }


def _object_text(arguments: str) -> str:
    try:
        return arguments if isinstance(json.loads(arguments), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"
