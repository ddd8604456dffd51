"""What a server says of its tools, as an endpoint takes it. Pure.

A schema of a server may be any JSON schema; endpoints take an object with properties, and many refuse
references, alternatives at the top, or a missing type. What can't be told in that form, or would fill the
window, is refused with the reason, and the tool left out.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.errors import Words

#: Characters of a description of a tool and of one of its parameters, and of a schema as JSON.
TOLD_OF_TOOL, TOLD_OF_PARAMETER, LONGEST_SCHEMA = 1_500, 400, 20_000
#: How deep a schema may go, and how many parts it may have once its references are spelled out.
DEEPEST, MOST_PARTS = 40, 4_000
LONGEST_NAME = 64

NO_SCHEMA: Words = ("its parameters are no JSON schema of an object", "其参数不是对象的 JSON 模式")
TOO_LARGE: Words = ("the schema of its parameters is too large", "其参数的模式太大")
TOO_DEEP: Words = ("the schema of its parameters is too deep", "其参数的模式嵌套太深")

_DROPPED = frozenset({"$schema", "$id", "$comment", "$anchor", "$defs", "definitions", "$vocabulary"})
_VALUES = frozenset({"default", "const", "enum", "examples"})
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")


class Unfit(Exception):
    """A schema that no endpoint would take; ``why`` says it in both languages."""

    def __init__(self, why: Words) -> None:
        super().__init__(why[0])
        self.why = why


def names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """The names of a server's tools as a model calls them: `SERVER__TOOL`. One that must be changed so much
    that two would be the same, or that is too long, ends in a few digits of its own name's hash, whatever
    order the tools come in."""
    clean = {tool: f"{server}__{_ILLEGAL.sub('_', tool) or '_'}" for tool in tools}
    count = Counter(clean.values())
    return {
        tool: name if count[name] == 1 and len(name) <= LONGEST_NAME else _told_apart(name, tool)
        for tool, name in clean.items()
    }


def _told_apart(name: str, tool: str) -> str:
    digits = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}_{digits}"


def told(text: object, limit: int = TOLD_OF_TOOL) -> str:
    """Somebody else's description: no control characters, nothing invisible, and not too long."""
    if not isinstance(text, str):
        return ""
    # Cc: controls; Cf: among others what turns the direction of writing; Cs and Co: no characters.
    seen = (" " if each == "\t" else each for each in text[: limit * 4] if each in "\n\t" or _shows(each))
    clean = "".join(seen).strip()
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"


def _shows(letter: str) -> bool:
    # The joiner holds emoji together.
    return letter == "\u200d" or unicodedata.category(letter) not in {"Cc", "Cf", "Cs", "Co", "Cn"}


def acceptable(schema: object) -> dict[str, Any]:
    """The schema as endpoints take it. Raises `Unfit`."""
    if not isinstance(schema, Mapping):
        raise Unfit(NO_SCHEMA)
    whole = _Spelling(schema).of(schema, 0, ())
    top = _one_object(whole)
    properties = top.get("properties", {})
    if top.get("type", "object") != "object" or not isinstance(properties, dict):
        raise Unfit(NO_SCHEMA)
    required = top.get("required")
    required = [each for each in required if each in properties] if isinstance(required, list) else []
    rest = {key: value for key, value in top.items() if key in {"additionalProperties"}}
    made = {"type": "object", "properties": properties, **rest}
    if required:
        made["required"] = list(dict.fromkeys(required))
    if len(json.dumps(made)) > LONGEST_SCHEMA:
        raise Unfit(TOO_LARGE)
    return made


class _Spelling:
    """Writes out what a schema refers to in itself."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._parts = 0

    def of(self, schema: Any, depth: int, within: tuple[str, ...]) -> Any:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise Unfit(TOO_LARGE)
        if depth > DEEPEST:
            raise Unfit(TOO_DEEP)
        if isinstance(schema, list):
            return [self.of(each, depth + 1, within) for each in schema]
        if not isinstance(schema, Mapping):
            return schema
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        if isinstance(reference, str):
            beside = {key: value for key, value in schema.items() if key not in {"$ref", "$dynamicRef"}}
            found = {} if reference in within else self._found(reference)
            # What refers to itself ends where it would begin anew: anything goes there.
            return self.of({**found, **beside}, depth + 1, (*within, reference))
        return {
            str(key): self._kept(str(key), value, depth, within)
            for key, value in schema.items()
            if key not in _DROPPED or not isinstance(value, str | dict | list)
        }

    def _kept(self, key: str, value: Any, depth: int, within: tuple[str, ...]) -> Any:
        if key in _VALUES:
            return value
        if key == "description":
            return told(value, TOLD_OF_PARAMETER)
        if key == "properties" and isinstance(value, Mapping):
            # Names of properties are no words of the schema.
            return {str(name): self._property(each, depth, within) for name, each in value.items()}
        return self.of(value, depth + 1, within)

    def _property(self, schema: Any, depth: int, within: tuple[str, ...]) -> Any:
        return {} if isinstance(schema, bool) else self.of(schema, depth + 2, within)

    def _found(self, reference: str) -> Mapping[str, Any]:
        """What a reference into the schema itself means; anything, where it leads nowhere or outside."""
        if not reference.startswith("#"):
            return {}
        place: Any = self._root
        for step in reference[1:].strip("/").split("/") if reference.strip("#/") else ():
            key = step.replace("~1", "/").replace("~0", "~")
            place = place.get(key) if isinstance(place, Mapping) else None
        return place if isinstance(place, Mapping) else {}


def _one_object(schema: Any) -> dict[str, Any]:
    """One object of all that alternatives and parts at the top say: what all of them need is needed."""
    if not isinstance(schema, dict):
        raise Unfit(NO_SCHEMA)
    made = dict(schema)
    kind = made.get("type")
    if isinstance(kind, list) and "object" in kind:
        made["type"] = "object"
    parts = _objects(made.pop("allOf", None))
    for part in parts:
        _take(made, part, _needed(part))
    for word in ("anyOf", "oneOf"):
        ways = _objects(made.pop(word, None))
        needed = set.intersection(*(set(_needed(way)) for way in ways)) if ways else set()
        for way in ways:
            _take(made, way, sorted(needed))
    return made


def _objects(parts: Any) -> list[dict[str, Any]]:
    found = [_one_object(each) for each in parts if isinstance(each, dict)] if isinstance(parts, list) else []
    return [each for each in found if each.get("type", "object") == "object"]


def _needed(schema: Mapping[str, Any]) -> Sequence[str]:
    required = schema.get("required")
    return [each for each in required if isinstance(each, str)] if isinstance(required, list) else []


def _take(made: dict[str, Any], part: Mapping[str, Any], needed: Iterable[str]) -> None:
    more = part.get("properties")
    have = made.get("properties")
    if isinstance(more, dict):
        made["properties"] = {**more, **(have if isinstance(have, dict) else {})}
    made["required"] = [*_needed(made), *needed]
    made.pop("additionalProperties", None)
