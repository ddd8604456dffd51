"""Whether a value fits a JSON schema. Pure.

An endpoint that is asked for JSON under a schema may overlook it, and then a small model writes what
it likes. This looks at what such a model gets wrong: kinds, choices, and what is missing. The tool
itself checks the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def fits(value: Any, schema: Any) -> bool:
    """False only where the value certainly doesn't fit; what isn't understood lets it pass."""
    if not isinstance(schema, Mapping):
        return True
    named = schema.get("type")
    kinds = [named] if isinstance(named, str) else list(named or ())
    choices = schema.get("anyOf")
    return (
        (not kinds or any(_is(value, kind) for kind in kinds))
        and ("enum" not in schema or value in schema["enum"])
        and ("const" not in schema or value == schema["const"])
        and (not choices or any(fits(value, each) for each in choices))
        and all(fits(each, inner) for each, inner in _parts(value, schema))
        and (not isinstance(value, dict) or set(schema.get("required") or ()) <= value.keys())
    )


def _parts(value: Any, schema: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """What the value is made of, each with its own schema."""
    if isinstance(value, list):
        return [(each, schema.get("items")) for each in value]
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        return [(each, properties.get(name)) for name, each in value.items()]
    return []


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return kind not in _KINDS or isinstance(value, _KINDS[kind])
