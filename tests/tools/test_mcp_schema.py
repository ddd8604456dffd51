"""Schemas, names and descriptions of servers, as endpoints take them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.tools.mcp_schema import LONGEST_SCHEMA, Unfit, acceptable, names, told
from perdure.tools.registry import NAME

TEXT = {"type": "string"}


def words_of(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return {*schema, *(word for value in schema.values() for word in words_of(value))}
    return {word for each in schema for word in words_of(each)} if isinstance(schema, list) else set()


def test_what_endpoints_take_stays_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {"a": TEXT, "b": {"type": "integer", "enum": [1]}},
        "required": ["a"],
    }
    assert acceptable(schema) == schema


def test_a_schema_of_nothing_is_one_of_no_parameters() -> None:
    assert acceptable({}) == {"type": "object", "properties": {}}
    assert acceptable({"type": ["object", "null"]}) == {"type": "object", "properties": {}}


def test_references_are_spelled_out() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/place"},
            "all": {"type": "array", "items": {"$ref": "#/$defs/place"}},
        },
        "$defs": {"place": {"type": "object", "properties": {"city": TEXT}}},
    }
    place = {"type": "object", "properties": {"city": TEXT}}
    assert acceptable(schema)["properties"] == {"at": place, "all": {"type": "array", "items": place}}


def test_what_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"name": TEXT, "next": {"$ref": "#/definitions/node"}}}
    schema = {
        "type": "object",
        "properties": {"list": {"$ref": "#/definitions/node"}},
        "definitions": {"node": node},
    }
    assert acceptable(schema)["properties"]["list"] == {
        "type": "object",
        "properties": {"name": TEXT, "next": {}},
    }


@pytest.mark.parametrize(
    "reference", ["https://example.org/x", "#/$defs/none", "other.json#/a", "#/properties/a"]
)
def test_a_reference_that_leads_nowhere_means_anything(reference: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": reference, "description": "a"}}}
    assert acceptable(schema)["properties"] == {"a": {"description": "a"}}


@pytest.mark.parametrize("word", ["oneOf", "anyOf"])
def test_alternatives_at_the_top_become_one_object(word: str) -> None:
    ways = [
        {"type": "object", "properties": {"id": TEXT, "by": TEXT}, "required": ["id", "by"]},
        {"properties": {"name": TEXT, "by": TEXT}, "required": ["name", "by"]},
        {"type": "string"},
    ]
    made = acceptable({word: ways})
    assert made == {
        "type": "object",
        "properties": {"name": TEXT, "by": TEXT, "id": TEXT},
        "required": ["by"],
    }


def test_parts_at_the_top_become_one_object() -> None:
    parts = [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]
    made = acceptable({"type": "object", "allOf": parts, "properties": {"c": TEXT}, "required": ["c"]})
    assert made["properties"].keys() == {"a", "b", "c"}
    assert sorted(made["required"]) == ["a", "c"]


def test_a_property_may_have_the_name_of_a_word_of_schemas() -> None:
    properties = {
        "description": TEXT,
        "$defs": TEXT,
        "default": TEXT,
        "properties": TEXT,
        "definitions": TEXT,
    }
    assert acceptable({"type": "object", "properties": properties})["properties"] == properties


def test_long_descriptions_are_cut_and_controls_are_out() -> None:
    properties = {"a": {"type": "string", "description": "\x1b[31mred\u202e" + "x" * 5_000}}
    described = acceptable({"type": "object", "properties": properties})["properties"]["a"]["description"]
    assert described.startswith("[31mredxxx")
    assert len(described) == 400
    assert told("a\r\nb\tc\u200bd\x00") == "a\nb cd"
    assert told(None) == told(3) == ""
    assert told("👨\u200d👩\u200d👧 天气") == "👨\u200d👩\u200d👧 天气"


@pytest.mark.parametrize(
    "schema",
    [
        3,
        None,
        [],
        {"type": "string"},
        {"type": "array", "items": {}},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {f"p{n}": {"description": "x" * 300} for n in range(200)}},
    ],
)
def test_what_is_no_object_or_too_large_is_refused(schema: Any) -> None:
    with pytest.raises(Unfit) as caught:
        acceptable(schema)
    assert all(caught.value.why)


def test_one_that_is_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    for _ in range(900):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(Unfit, match="too deep"):
        acceptable(schema)


WORDS = [
    "type",
    "properties",
    "required",
    "$ref",
    "$defs",
    "oneOf",
    "anyOf",
    "allOf",
    "items",
    "enum",
    "a",
    "b",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner
            | st.sampled_from(["object", "#", "#/$defs/a", "#/properties/a", "#/$defs"])
            | st.just(["object", "null"]),
            max_size=6,
        )
    ),
    max_leaves=30,
)


@given(JSON)
def test_whatever_a_server_says_is_an_object_or_refused(schema: Any) -> None:
    try:
        made = acceptable(schema)
    except Unfit:
        return
    assert made["type"] == "object"
    assert isinstance(made["properties"], dict)
    assert set(made.get("required", ())) <= set(made["properties"])
    assert not {"$ref", "oneOf", "anyOf", "allOf"} & set(made)
    assert len(json.dumps(made)) <= LONGEST_SCHEMA


def test_names_are_those_that_models_can_call() -> None:
    long = "x" * 80
    made = names("s", ["read", "a.b", "a b", "天气", long, ""])
    assert made["read"] == "s__read"
    assert made["a.b"] != made["a b"]
    assert len(set(made.values())) == 6
    assert all(NAME.fullmatch(each) for each in made.values())
    # Whatever order they come in, and whatever others there are that are as they should be.
    assert names("s", [long, "a b", "x", "a.b"])["a.b"] == made["a.b"]
    assert names("s", [long])[long] == made[long]


@given(st.lists(st.text(max_size=90), unique=True, max_size=12))
def test_no_two_tools_of_a_server_have_one_name(tools: list[str]) -> None:
    made = names("a-server", tools)
    assert len(set(made.values())) == len(tools)
    assert all(NAME.fullmatch(each) for each in made.values())
