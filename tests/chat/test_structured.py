from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.structured import Fit, Misfit, OutputSchema, as_line
from perdure.errors import ConfigError

NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "when": {"type": "string", "format": "date"}},
    "required": ["n"],
    "additionalProperties": False,
}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Any character but a lone surrogate, which no endpoint can send as UTF-8.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcé中\n\x1b\u202e"), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"n":1}', {"n": 1}),
        ('  {"n":1}\n', {"n": 1}),
        ('```json\n{"n":1}\n```', {"n": 1}),
        ('Here you are:\n```\n{"n": 1}\n```\nAnything else?', {"n": 1}),
        ('It is {"n": 2}.', {"n": 2}),
        ('<think>{"n": 9}</think>{"n": 3}', {"n": 3}),
        ('{"n": 1} as I said, {"n":1}', {"n": 1}),
        ('Not {"m": 1}, but {"n": 1}', {"n": 1}),
        ('{"n": 1, "when": "2026-12-04"}', {"n": 1, "when": "2026-12-04"}),
    ],
)
def test_the_one_value_that_fits_is_found_whatever_stands_around_it(answer: str, value: Any) -> None:
    fitted = OutputSchema(NUMBER).fitted(answer)
    assert isinstance(fitted, Fit)
    assert fitted.value == value
    assert json.loads(fitted.text) == value


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "no JSON stands in it"),
        ("It is 1.", "no JSON stands in it"),
        ('{"n":', "no JSON stands in it"),
        ('{"n": NaN}', "no JSON stands in it"),
        ('so {"n": Infinity}', "no JSON stands in it"),
        ('{"n": 1e999}', "no JSON stands in it"),
        ('{"n": "x"}', "$.n: 'x' is not of type 'integer'"),
        ('{"n": true}', "$.n: True is not of type 'integer'"),
        ('{"n": 1, "m": 2}', "$: Additional properties are not allowed ('m' was unexpected)"),
        ("{}", "$: 'n' is a required property"),
        ('{"n": 1, "when": "tomorrow"}', "$.when: 'tomorrow' is not a 'date'"),
        ('{"n": 1} or {"n": 2}', "several different values in it fit"),
        ("[" * 100_000, "no JSON stands in it"),
    ],
)
def test_of_an_answer_that_does_not_fit_it_is_said_why(answer: str, why: str) -> None:
    fitted = OutputSchema(NUMBER).fitted(answer)
    assert isinstance(fitted, Misfit)
    assert fitted.why[0] == why
    assert fitted.why[1]


@pytest.mark.parametrize(
    "scalar", [{"type": "string"}, {"type": "integer"}, {"type": "null"}, {"const": "no"}]
)
def test_a_single_value_may_be_asked_for(scalar: Any) -> None:
    value = {"string": "yes", "integer": 7, "null": None}.get(scalar.get("type"), "no")
    assert OutputSchema(scalar).fitted(json.dumps(value)) == Fit(value, json.dumps(value))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ([], "a schema is a JSON object, and this is none"),
        (None, "a schema is a JSON object, and this is none"),
        ({"type": "strin"}, "it is no JSON schema: $.type"),
        ({"type": "string", "pattern": "("}, "it is no JSON schema: $.pattern"),
        ({"$schema": 5}, "it is no JSON schema: $schema: 5"),
        (
            {"$ref": "https://example.com/x.json"},
            "it refers to https://example.com/x.json, which isn't in it",
        ),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "it refers to #/$defs/b, which isn't in it"),
        ({"$ref": "other.json"}, "it refers to other.json"),
        ({"$ref": "#"}, "it refers to itself without end"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}}, "it refers to itself"),
    ],
)
def test_what_is_no_schema_is_refused_and_said_why(schema: Any, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OutputSchema(schema)
    assert why in caught.value.say("en")
    assert caught.value.say("zh") != caught.value.say("en")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": {"$ref": {"type": "string"}}},
        {"enum": [{"$ref": "x"}]},
        {"$id": "https://example.com/a", "$defs": {"q": {"$id": "z", "type": "object"}}, "$ref": "z"},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"a": {"type": "string"}},
            "properties": {"x": {"$ref": "#/definitions/a"}},
        },
    ],
)
def test_what_stands_in_a_schema_or_is_json_schemas_own_may_be_referred_to(schema: Any) -> None:
    assert isinstance(OutputSchema(schema).fitted('{"type": "object"}'), Fit) or "enum" in schema


def test_a_schema_that_holds_itself_takes_what_is_nested_and_says_of_what_is_too_deep() -> None:
    tree = OutputSchema(
        {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
    )
    assert isinstance(tree.fitted("[[], [[]]]"), Fit)
    deep = tree.fitted("[" * 900 + "]" * 900)
    assert isinstance(deep, Misfit)
    assert deep.why[0] == "it is nested too deeply"


@given(VALUES)
def test_a_line_is_the_same_value_and_steers_no_terminal(value: Any) -> None:
    line = as_line(value)
    assert json.loads(line) == value
    assert line.isprintable()
    line.encode("utf-8")


def test_a_lone_surrogate_stays_one() -> None:
    assert json.loads(as_line("\ud800")) == "\ud800"


@given(VALUES, st.sampled_from(["{}", "```json\n{}\n```", "\n {} \n"]))
def test_whatever_fits_comes_back_as_it_was(value: Any, around: str) -> None:
    fitted = OutputSchema({"const": value}).fitted(around.replace("{}", json.dumps(value)))
    assert isinstance(fitted, Fit)
    assert json.loads(fitted.text) == value
