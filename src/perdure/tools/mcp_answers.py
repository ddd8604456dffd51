"""What a server answers to a call, as the text that a model reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perdure.errors import ToolError
from perdure.tools.mcp_schema import told

NOTHING_TOLD = "error: the tool failed and doesn't say why"


def text_of(answer: Any) -> str:
    """The text of a result. Raises `ToolError` with it where the server says that the call failed."""
    parts = [part for part in map(_part, answer.content) if part]
    structured = answer.structured_content
    # Servers that answer with a value say it as text too; those that don't have only the value.
    if structured is not None and not any(each.type == "text" and each.text for each in answer.content):
        parts.append(json.dumps(structured, ensure_ascii=False, default=str))
    text = "\n".join(parts)
    if answer.is_error:
        raise ToolError(text or NOTHING_TOLD)
    return text


def _part(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            return f"[{block.type}, {told(block.mime_type, 80)}, {_size(block.data)}: not shown]"
        case "resource":
            return _resource(block.resource)
        case "resource_link":
            parts = (told(str(block.uri), 500), told(block.name, 100), told(block.description, 300))
            return f"[resource {': '.join(part for part in parts if part)}]"
    return f"[{told(str(block.type), 40)}: not shown]"


def _resource(resource: Any) -> str:
    name = told(str(resource.uri), 500)
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[resource {name}]\n{text}"
    kind = told(resource.mime_type, 80) or "data"
    return f"[resource {name}, {kind}, {_size(getattr(resource, 'blob', ''))}: not shown]"


def _size(encoded: str) -> str:
    """Of base64, in bytes."""
    return f"{len(encoded.rstrip('=')) * 3 // 4} bytes"


def claims_of(annotations: Any) -> str:
    """What a server says of a tool's effect, which is shown and not believed."""
    return ", ".join(_claims(annotations)) if annotations is not None else ""


def _claims(annotations: Any) -> Iterator[str]:
    if annotations.read_only_hint:
        yield "reads"
    elif annotations.destructive_hint:
        yield "destructive"
    if annotations.open_world_hint:
        yield "reaches outside"
