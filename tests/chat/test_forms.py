from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.histories import assert_paired, assistant, histories, tool_rounds, user
from perdure.chat.forms import BETWEEN, FILLER, OPENING, Form, formed, most_added
from perdure.chat.messages import Message, call_ids, text_of
from perdure.chat.tokens import counter_for
from scripted_endpoint import alternating_as_gemma, alternating_as_mistral, system_role, user_first

SYSTEM = {"role": "system", "content": "be brief"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "4"}

ALTERNATE = Form(alternate=True)
FORMS = [Form(*flags) for flags in itertools.product((False, True), repeat=3)]


@st.composite
def wild(draw: st.DrawFn) -> list[Message]:
    """Histories as sessions leave them: begun anywhere, spoken twice, interrupted, with pictures."""
    messages: list[Message] = [SYSTEM] * draw(st.integers(0, 2))
    texts = st.sampled_from(["hello", "好的，继续", " padded ", "", "x" * 50])
    for _ in range(draw(st.integers(0, 10))):
        what = draw(
            st.sampled_from(["user", "user", "parts", "assistant", "tools", "tools", "said", "system"])
        )
        if what == "tools":
            messages += draw(tool_rounds())
        elif what == "said":
            first, *rest = draw(tool_rounds())
            messages += [{**first, "content": draw(texts)}, *rest]
        elif what == "parts":
            messages.append({"role": "user", "content": [{"type": "text", "text": draw(texts)}, IMAGE]})
        else:
            messages.append({"role": what, "content": draw(texts)})
    return messages


def words_of(messages: list[Message]) -> str:
    return " ".join(" ".join(map(text_of, messages)).split())


forms = st.sampled_from(FORMS)


@given(wild() | histories)
def test_the_default_form_changes_nothing(messages: list[Message]) -> None:
    assert formed(messages, Form()) == messages


@given(form=forms, messages=wild() | histories)
def test_calls_keep_their_results_and_their_arguments(form: Form, messages: list[Message]) -> None:
    before = copy.deepcopy(messages)
    shaped = formed(messages, form)
    assert messages == before
    assert_paired(shaped)
    assert [m["tool_calls"] for m in shaped if call_ids(m)] == [
        m["tool_calls"] for m in messages if call_ids(m)
    ]
    assert [m for m in shaped if m["role"] == "tool"] == [m for m in messages if m["role"] == "tool"]


@given(form=forms, messages=wild() | histories)
def test_nothing_of_what_was_said_is_lost_or_moved(form: Form, messages: list[Message]) -> None:
    shaped = words_of(formed(messages, form))
    for added in (*OPENING, *FILLER):
        shaped = " ".join(shaped.replace(added, "").split())
    assert shaped == words_of(messages)
    pictures = [part for m in messages if isinstance(m["content"], list) for part in m["content"]].count(
        IMAGE
    )
    kept = [part for m in formed(messages, form) if isinstance(m["content"], list) for part in m["content"]]
    assert kept.count(IMAGE) == pictures


@given(form=forms, messages=wild() | histories)
def test_each_template_takes_the_form_it_demands(form: Form, messages: list[Message]) -> None:
    body: dict[str, Any] = {"messages": formed(messages, form)}
    if form.alternate:
        assert alternating_as_mistral(body) is None
        if not any(m["role"] == "tool" for m in messages) and not form.system:
            assert alternating_as_gemma(body) is None
    if form.alternate or form.user_first:
        assert user_first(body) is None
    if not form.system:
        assert system_role(body) is None


@given(form=forms, messages=wild() | histories, data=st.data())
def test_a_growing_prompt_keeps_what_was_formed_before(
    form: Form, messages: list[Message], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(messages)))
    shorter, longer = formed(messages[:cut], form), formed(messages, form)
    assert longer[: max(0, len(shorter) - 1)] == shorter[:-1]
    if shorter:
        last, grown = shorter[-1], longer[len(shorter) - 1]
        assert grown["role"] == last["role"]
        assert text_of(grown).startswith(text_of(last))


@given(form=forms, messages=wild() | histories)
def test_a_formed_prompt_is_in_form(form: Form, messages: list[Message]) -> None:
    once = formed(messages, form)
    assert formed(once, form) == once


@given(form=forms, messages=wild() | histories)
def test_what_forming_adds_is_bounded(form: Form, messages: list[Message]) -> None:
    counter = counter_for(None)
    most = most_added(form, counter)
    behind = sum(
        a["role"] == "tool" and b["role"] in {"user", "system"} for a, b in itertools.pairwise(messages)
    )
    before, after = (sum(map(counter.message, each)) for each in (messages, formed(messages, form)))
    assert after <= before + most.once + behind * most.behind_results


def test_the_system_prompt_stands_before_the_first_request() -> None:
    form = Form(system=False)
    assert formed([SYSTEM, user("hello"), user("you")], form) == [user("be brief\n\nhello"), user("you")]
    parts = [{"type": "text", "text": "look"}, IMAGE]
    assert formed([SYSTEM, {"role": "user", "content": parts}], form) == [
        {"role": "user", "content": [{"type": "text", "text": "be brief\n\nlook"}, IMAGE]}
    ]
    assert formed([SYSTEM, {"role": "user", "content": [IMAGE]}], form) == [
        {"role": "user", "content": [{"type": "text", "text": "be brief"}, IMAGE]}
    ]


def test_the_system_prompt_is_a_message_of_its_own_where_no_user_begins() -> None:
    shaped = formed([SYSTEM, CALLS, RESULT, user("so?")], Form(system=False))
    assert shaped == [user("be brief"), CALLS, RESULT, user("so?")]


@pytest.mark.parametrize("form", [Form(user_first=True), ALTERNATE])
def test_a_prompt_that_begins_in_the_middle_is_opened_in_its_language(form: Form) -> None:
    assert formed([SYSTEM, assistant("as I said")], form)[1] == user(OPENING[0])
    assert formed([SYSTEM, assistant("如前所述")], form)[1] == user(OPENING[1])
    assert formed([{**SYSTEM, "content": "请简短回答"}, CALLS, RESULT], form)[1] == user(OPENING[1])
    assert formed([SYSTEM, user("hi")], form) == [SYSTEM, user("hi")]


def test_neighbours_of_one_role_are_merged() -> None:
    shaped = formed([user("a"), user("b"), assistant("c"), assistant("d"), CALLS, RESULT], ALTERNATE)
    assert shaped == [user(f"a{BETWEEN}b"), {**CALLS, "content": f"c{BETWEEN}d"}, RESULT]


def test_a_request_behind_results_without_an_answer_gets_a_filler() -> None:
    shaped = formed([user("a"), CALLS, RESULT, user("stop"), CALLS, RESULT, user("停下来")], ALTERNATE)
    assert [m["content"] for m in shaped if m["role"] == "assistant"] == [None, FILLER[0], None, FILLER[1]]


def test_messages_of_two_people_don_t_become_one_person_s() -> None:
    (merged,) = formed([{**user("a"), "name": "ann"}, {**user("b"), "name": "bob"}], ALTERNATE)
    assert merged == user("a\n\nb")
    (merged,) = formed([{**user("a"), "name": "ann"}, {**user("b"), "name": "ann"}], ALTERNATE)
    assert merged["name"] == "ann"
