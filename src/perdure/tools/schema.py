"""A function's parameters as a JSON schema, and arguments checked against it (pydantic)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from perdure.errors import ToolError


def described(function: Callable[..., Any]) -> str:
    """What the docstring says the function does, without the section on its parameters."""
    parsed = _docstring(function)
    return "\n".join(part for part in (parsed.short_description, parsed.long_description) if part)


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of the arguments: an object, nothing beyond its properties, no references
    where they can be spelled out. Raises `TypeError` where a parameter has no type or no name."""
    schema = _model(function).model_json_schema()
    definitions = schema.pop("$defs", {})
    spelled: dict[str, Any] = _without_titles(_spelled_out(schema, definitions, ()))
    spelled.setdefault("properties", {})
    spelled["additionalProperties"] = False
    spelled.pop("description", None)
    if _holds_references(spelled):
        spelled["$defs"] = _without_titles(definitions)
    return spelled


def validated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called only with arguments that fit its schema; else `ToolError`."""
    model = _model(function)

    def checked(arguments: dict[str, Any]) -> dict[str, Any]:
        from pydantic import ValidationError

        try:
            found = model.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(f"error: {_short(error)}") from None
        return {field.alias: getattr(found, name) for name, field in type(found).model_fields.items()}

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run_async(**arguments: Any) -> Any:
            return await function(**checked(arguments))

        return run_async

    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        return function(**checked(arguments))

    return run


#: The models of functions that are still there: what a tool of a run holds goes with it.
_MODELS: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()


def _model(function: Callable[..., Any]) -> Any:
    with suppress(KeyError, TypeError):  # not every callable can be referred to so
        return _MODELS[function]
    model = _modelled(function)
    with suppress(TypeError):
        _MODELS[function] = model
    return model


def _modelled(function: Callable[..., Any]) -> Any:
    from pydantic import ConfigDict, Field, PydanticUserError, create_model

    called = getattr(function, "__name__", type(function).__name__)
    told = {each.arg_name: each.description for each in _docstring(function).params}
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise TypeError(f"{called}: a model gives arguments by name, which *{name} has not")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"{called}: the parameter {name} needs a type")
        default = ... if parameter.default is parameter.empty else parameter.default
        told_here = {"description": told[name]} if told.get(name) else {}
        # Under its own name a parameter called `json`, `copy` or `model_config` would be taken for
        # a part of the pydantic model.
        fields[f"parameter_{name}"] = (parameter.annotation, Field(default, alias=name, **told_here))
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        model = create_model(called, __config__=config, **fields)
        model.model_json_schema()
    except PydanticUserError as error:
        raise TypeError(f"{called}: a parameter has a type that JSON can't carry: {error.message}") from error
    return model


def _docstring(function: Callable[..., Any]) -> Any:
    from docstring_parser import parse

    return parse(inspect.getdoc(function) or "")


def _short(error: Any) -> str:
    """A validation error in one line that names each argument."""
    said = []
    for each in error.errors(include_url=False)[:5]:
        where = ".".join(str(part) for part in each["loc"]) or "arguments"
        kinds = {
            "missing": f"the argument {where!r} is missing",
            "extra_forbidden": f"unknown argument {where!r}",
        }
        said.append(kinds.get(each["type"], f"the argument {where!r}: {each['msg']}"))
    return "; ".join(said)


def _spelled_out(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """References replaced by what they name, except where that has no end."""
    if isinstance(schema, list):
        return [_spelled_out(each, definitions, inside) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions and name not in inside:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _spelled_out({**definitions[name], **beside}, definitions, (*inside, name))
    return {key: _spelled_out(value, definitions, inside) for key, value in schema.items()}


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key in {"default", "const", "enum", "examples"} else _without_titles(value)
        for key, value in schema.items()
        # A property may itself be named "title"; then its value is a schema, not a text.
        if not (key == "title" and isinstance(value, str))
    }


def _holds_references(schema: Any) -> bool:
    if isinstance(schema, dict):
        return "$ref" in schema or any(_holds_references(value) for value in schema.values())
    return isinstance(schema, list) and any(_holds_references(each) for each in schema)
