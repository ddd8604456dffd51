"""Answers that are JSON under a schema of the person's. Pure, and nothing is fetched: what a schema refers to
stands in it, or is one of JSON Schema's own.

Schemas are those of JSON Schema (2020-12 where one doesn't name another, https://json-schema.org), checked by
the library `jsonschema`, which is loaded when the first schema is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from perdure.chat.json_in_text import json_in
from perdure.chat.messages import without_thoughts
from perdure.errors import ConfigError, Words

NO_OBJECT: Words = ("a schema is a JSON object, and this is none", "模式应为 JSON 对象，而这不是")
NO_SCHEMA: Words = ("it is no JSON schema: {why}", "它不是 JSON 模式：{why}")
ELSEWHERE: Words = (
    "it refers to {reference}, which isn't in it, and nothing is fetched",
    "它引用了 {reference}，其中没有此项，而程序不会去获取",
)
ENDLESS: Words = (
    "it refers to itself without end, so that nothing can fit it",
    "它无止境地引用自身，任何内容都无法符合",
)
#: Why an answer doesn't fit.
NO_JSON: Words = ("no JSON stands in it", "其中没有 JSON")
SEVERAL: Words = ("several different values in it fit", "其中有多个不同的值都符合模式")
TOO_DEEP: Words = ("it is nested too deeply", "它嵌套得太深")

#: Reasons that are told, and characters of one.
MOST_REASONS, LONGEST_REASON = 6, 300
#: Against these, a schema that refers to itself without end shows it.
_PROBES: tuple[Any, ...] = (None, {}, [], "", 0)
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```", re.S)


@dataclass(frozen=True, slots=True)
class Fit:
    """A value that fits, and its JSON in one line."""

    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why an answer doesn't fit."""

    why: Words


class OutputSchema:
    """What an answer must fit. ``schema`` is the person's, as it is.

    Raises `ConfigError` where it is no JSON schema, refers to what isn't in it, or only to itself."""

    def __init__(self, schema: Any) -> None:
        from jsonschema import Draft202012Validator, SchemaError, validators

        if not isinstance(schema, Mapping):
            raise ConfigError(NO_OBJECT)
        self.schema: dict[str, Any] = dict(schema)
        if not isinstance(named := self.schema.get("$schema", ""), str):
            raise ConfigError(NO_SCHEMA, why=f"$schema: {named!r}")
        kind = validators.validator_for(self.schema, default=Draft202012Validator)
        try:
            kind.check_schema(self.schema)
        except SchemaError as error:
            raise ConfigError(
                NO_SCHEMA, why=f"{error.json_path}: {error.message}"[:LONGEST_REASON]
            ) from error
        except RecursionError as error:
            raise ConfigError(NO_SCHEMA, why=TOO_DEEP) from error
        if (reference := _elsewhere(self.schema, kind.META_SCHEMA["$schema"])) is not None:
            raise ConfigError(ELSEWHERE, reference=reference)
        self._validator = kind(self.schema, registry=_known(), format_checker=kind.FORMAT_CHECKER)
        try:
            for probe in _PROBES:
                self._validator.is_valid(probe)
        except RecursionError as error:
            raise ConfigError(ENDLESS) from error

    @property
    def text(self) -> str:
        """The schema in one line, as a model is told of it."""
        return json.dumps(self.schema, ensure_ascii=False)

    def fitted(self, answer: str) -> Fit | Misfit:
        """The one value in an answer that fits, whatever stands around it; or why there is none."""
        whys: list[Words] = []
        fits: dict[str, Any] = {}
        for value in _values(without_thoughts(answer).strip()):
            text = as_line(value)
            if text in fits:
                continue
            why = self._why_not(value)
            if why is None:
                fits[text] = value
            else:
                whys.append(why)
        if len(fits) > 1:
            return Misfit(SEVERAL)
        if fits:
            ((text, value),) = fits.items()
            return Fit(value, text)
        return Misfit(whys[0] if whys else NO_JSON)

    def _why_not(self, value: Any) -> Words | None:
        """Why a value doesn't fit; None where it does. The library's words are English."""
        from jsonschema.exceptions import relevance

        try:
            errors = sorted(self._validator.iter_errors(value), key=relevance)
        except RecursionError:
            return TOO_DEEP
        if not errors:
            return None
        lines = [f"{error.json_path}: {error.message}"[:LONGEST_REASON] for error in errors[:MOST_REASONS]]
        told = "; ".join(lines)
        return told, told


def as_line(value: Any) -> str:
    """JSON in one line. What a terminal might take for a command, and what UTF-8 can't hold, is escaped, so
    that the line is the same value everywhere."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def _values(text: str) -> Iterator[Any]:
    """The values of an answer: it is one, or they stand in fences, or between words."""
    with suppress(ValueError, RecursionError):
        whole = json.loads(text)
        return iter([whole] if _is_finite(whole) else [])
    found: list[Any] = []
    for fenced in _FENCED.findall(text):
        with suppress(ValueError, RecursionError):
            found.append(json.loads(fenced))
    return filter(_is_finite, (*found, *json_in(text)))


def _is_finite(value: Any) -> bool:
    """Python reads NaN and numbers beyond all bounds, which JSON doesn't have."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _known() -> Any:
    """What a schema may refer to beside itself: JSON Schema's own, which the library brings along."""
    from jsonschema_specifications import REGISTRY

    return REGISTRY


def _elsewhere(schema: Mapping[str, Any], dialect: str) -> str | None:
    """The first reference that leads out of a schema; None where none does."""
    from referencing import Resource, exceptions
    from referencing.jsonschema import specification_with

    root = Resource.from_contents(schema, default_specification=specification_with(dialect))
    waiting = [(root, _known().resolver_with_root(root))]
    while waiting:
        resource, resolver = waiting.pop()
        contents = resource.contents
        for word in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = contents.get(word) if isinstance(contents, Mapping) else None
            try:
                if isinstance(reference, str):
                    resolver.lookup(reference)
            except exceptions.Unresolvable:
                return reference
        waiting += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
    return None
