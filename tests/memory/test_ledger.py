from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.counting import entries
from memory.histories import histories, user
from perdure.chat.messages import Entry, Message
from perdure.memory.ledger import MOST, SLACK, Ledger
from perdure.memory.literals import literals_of, shape_of


def take(ledger: Ledger, every: list[Entry]) -> None:
    for entry in every:
        ledger.take(entry.seq, entry.kind, list(literals_of(entry)))


@pytest.mark.parametrize(
    ("literal", "shape"),
    [
        ("https://example.org/a?b=1", "url"),
        ("ann@example.org", "url"),
        ("src/perdure/app.py", "path"),
        ("/srv/shop/VERSION", "path"),
        ("README.md", "path"),
        ("aarav_garcia_1177", "identifier"),
        ("M05KNL", "identifier"),
        ("IFOYYZ", "identifier"),
        ("OPENAI_API_KEY", "identifier"),
        ("v1.2.3", "identifier"),
        ("#4711", "identifier"),
        ("basic_economy", "identifier"),
        ("2026-03-01", "date"),
        ("14:30", "time"),
        ("$1,936", "quantity"),
        ("250 ms", "quantity"),
        ("42", "number"),
        ("ATL", "code"),
        ("Silva", "name"),
        ("economy", "word"),
    ],
)
def test_a_literal_is_known_by_its_shape(literal: str, shape: str) -> None:
    assert shape_of(literal) == shape


def test_literals_are_found_in_prose_and_in_the_values_of_json() -> None:
    said = user("Copy ./a/b.txt to https://x.org/y, ticket AB-12, before 2026-03-01. Ask Maria.")
    shown: Message = {
        "role": "tool",
        "tool_call_id": "c",
        "content": json.dumps(
            {"cabin": "economy", "cards": {"card_77": {"last_four": 1234}}, "note": "see app.py"}
        ),
    }
    prose, values = (dict(literals_of(entry)) for entry in entries(said, shown))
    assert {"./a/b.txt", "https://x.org/y", "AB-12", "2026-03-01", "Maria"} <= prose.keys()
    assert {"economy", "card_77", "1234", "app.py"} <= values.keys()
    assert "cabin" not in values


def test_what_the_window_shows_is_not_listed_and_what_the_person_said_comes_first() -> None:
    ledger = Ledger()
    noise = " ".join(f"row_{n}" for n in range(200))
    take(ledger, entries(user("keep ticket TK-9"), {"role": "assistant", "content": noise}))
    listed = ledger.within(30, len, {"row_199"}, "Request 1: row_198", now=3)
    assert "TK-9" in listed
    assert not {"row_199", "row_198"} & {*listed}
    assert sum(len(f", {literal}") for literal in listed) <= 30


@given(histories, st.integers(0, 300), st.integers(0, 40))
def test_the_list_keeps_its_limit_and_survives_the_journal(
    messages: list[Message], limit: int, later: int
) -> None:
    every = entries(*messages)
    ledger = Ledger()
    take(ledger, every)
    again = Ledger.from_json(json.loads(json.dumps(ledger.as_json())))
    now = len(every) + later
    listed = ledger.within(limit, len, (), "", now)
    assert listed == again.within(limit, len, (), "", now)
    assert sum(len(f", {literal}") for literal in listed) <= limit
    assert len(set(listed)) == len(listed)


@given(st.text(max_size=300))
def test_no_text_makes_it_fail_and_no_literal_spans_lines(text: str) -> None:
    for literal, _ in literals_of(entries(user(text))[0]):
        assert "\n" not in literal
        assert literal in text


def test_it_stays_bounded() -> None:
    ledger = Ledger()
    for start in range(0, 5000, 500):
        said = user(" ".join(f"id_{n}" for n in range(start, start + 500)))
        take(ledger, entries(said, start=start + 1))
    assert len(ledger) <= MOST + SLACK
    listed = ledger.within(100, len, (), "", 5000)
    assert listed
    assert all(int(literal.removeprefix("id_")) >= 4500 for literal in listed), "the newest are kept"
