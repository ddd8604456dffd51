from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from perdure.errors import ToolError
from perdure.tools.schema import described, parameters_of, validated


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Order(BaseModel):
    item: str = Field(description="what is ordered")
    title: str = "none"
    count: int | None = None


@dataclass
class Size:
    width: int
    height: int = 1


def every_type(
    number: float,
    flag: bool,
    choice: Literal["a", "b"],
    colour: Colour,
    order: Order,
    size: Size,
    orders: list[Order],
    table: dict[str, list[int]],
    either: int | str,
    path: Path,
    maybe: str | None = None,
    least: Annotated[int, Field(ge=1, description="how many")] = 1,
) -> str:
    """Takes everything."""
    return ""


def walked(schema: Any) -> list[dict[str, Any]]:
    """The schema and all schemas in it, without the values that aren't any."""
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    inner += [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    return [schema, *(each for part in inner for each in walked(part))]


def test_a_schema_is_what_strict_endpoints_take() -> None:
    schema = parameters_of(every_type)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == [name for name in schema["properties"] if name not in {"maybe", "least"}]
    assert "$defs" not in schema
    for each in walked(schema):
        assert "$ref" not in each
        assert not isinstance(each.get("title"), str)


def test_types_and_descriptions_are_kept() -> None:
    properties = parameters_of(every_type)["properties"]
    assert properties["choice"] == {"enum": ["a", "b"], "type": "string"}
    assert properties["colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert properties["least"] == {"default": 1, "description": "how many", "minimum": 1, "type": "integer"}
    assert properties["maybe"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert properties["order"]["properties"]["item"] == {
        "type": "string",
        "description": "what is ordered",
    }
    assert properties["order"]["properties"]["title"] == {"type": "string", "default": "none"}
    assert properties["size"]["required"] == ["width"]
    assert properties["table"]["additionalProperties"] == {"items": {"type": "integer"}, "type": "array"}


def test_a_default_that_holds_a_title_stays_whole() -> None:
    def book(about: dict[str, str] = {"title": "Walden"}) -> str:  # noqa: B006 -- read only
        return about["title"]

    assert parameters_of(book)["properties"]["about"]["default"] == {"title": "Walden"}


@pytest.mark.parametrize(
    "name", ["schema", "json", "copy", "dict", "validate", "model_config", "model_dump", "_hidden", "title"]
)
def test_a_parameter_may_have_any_name(name: str) -> None:
    written: dict[str, Any] = {}
    exec(f"def named({name}: int) -> int:\n    return {name} + 1", written)
    named = written["named"]
    assert parameters_of(named)["required"] == [name]
    assert parameters_of(named)["properties"] == {name: {"type": "integer"}}
    assert validated(named)(**{name: 4}) == 5
    with pytest.raises(ToolError, match=f"the argument '{name}' is missing"):
        validated(named)()


@pytest.mark.parametrize(
    "docstring",
    [
        "Adds.\n\nArgs:\n    number: the number\n\nReturns:\n    more",
        "Adds.\n\n:param number: the number\n:returns: more",
        "Adds.\n\nParameters\n----------\nnumber : int\n    the number\n",
    ],
    ids=["google", "sphinx", "numpy"],
)
def test_each_style_of_docstring_is_understood(docstring: str) -> None:
    def add(number: int) -> int:
        return number

    add.__doc__ = docstring
    assert described(add) == "Adds."
    assert parameters_of(add)["properties"]["number"]["description"] == "the number"


def callback(then: Callable[[], int]) -> str:
    return str(then())


def keywords(**words: str) -> str:
    return str(words)


def by_place(number: int, /) -> str:
    return str(number)


def untyped(number) -> str:  # type: ignore[no-untyped-def]
    return str(number)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (callback, "callback: a parameter has a type that JSON can't carry"),
        (keywords, "by name"),
        (by_place, "by name"),
        (untyped, "untyped: the parameter number needs a type"),
        (functools.partial(untyped), "the parameter number needs a type"),
    ],
)
def test_what_no_model_could_call_says_why(function: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        parameters_of(function)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "the argument 'order' is missing"),
        ({"order": {}}, "the argument 'order.item' is missing"),
        ({"order": {"item": "x"}, "size": 1}, "unknown argument 'size'"),
        ({"order": {"item": 5}}, "the argument 'order.item': Input should be a valid string"),
        ({"order": None}, "the argument 'order'"),
    ],
)
def test_each_wrong_argument_is_named_in_one_short_line(arguments: dict[str, Any], said: str) -> None:
    def place(order: Order) -> str:
        return order.item

    with pytest.raises(ToolError) as raised:
        validated(place)(**arguments)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "pydantic" not in str(raised.value)


def test_checked_arguments_arrive_as_what_they_are_typed() -> None:
    def take(order: Order, path: Path, colour: Colour, size: Size, count: int = 3) -> Any:
        return order, path, colour, size, count

    said = validated(take)(order={"item": "tea"}, path="a/b", colour="red", size={"width": 2})
    assert said == (Order(item="tea"), Path("a/b"), Colour.RED, Size(2), 3)


def test_a_default_is_not_shared_between_calls() -> None:
    def gather(names: list[str] = []) -> list[str]:  # noqa: B006 -- the point
        names.append("x")
        return names

    assert (validated(gather)(), validated(gather)()) == (["x"], ["x"])
