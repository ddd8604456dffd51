from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.messages import Kind
from perdure.memory.gist import AS_LINES, HEADINGS, KEEPER, TASK, Line, SummaryRequest, folded, rendered
from perdure.memory.judging import judged
from perdure.memory.sources import Source

SOURCES = (
    Source((1,), Kind.USER, "Rename the module billing to invoices and keep /srv/shop/VERSION as it is."),
    Source((2, 3), Kind.TOOL_RESULT, 'bash({"command": "git mv billing invoices"}) -> exit code 0'),
    Source((4,), Kind.ASSISTANT, "Renamed billing to invoices; invoice INV-4711 is due 2026-03-01."),
)
GOOD = "Facts, decisions, answers:\n- billing was renamed to invoices [4]\n- INV-4711 is due 2026-03-01 [4]"


def asked(
    literals: tuple[str, ...] = (), *, limit: int = 200, lang: Any = "en", base: tuple[Line, ...] = ()
) -> SummaryRequest:
    request = folded(base, SOURCES, limit=limit, room=4000, count=len, lang=lang, output=500)
    return replace(request, literals=literals)


def refusal(reply: Any, request: SummaryRequest | None = None, **options: Any) -> str | None:
    return judged(reply, request or asked(), words, **options).refusal


def words(text: str) -> int:
    return len(text.split())


def test_a_summary_under_headings_is_taken_with_the_entries_that_it_names() -> None:
    verdict = judged(GOOD, asked(), words)
    assert verdict.refusal is None
    assert verdict.lines == (
        Line("facts", "billing was renamed to invoices", (4,)),
        Line("facts", "INV-4711 is due 2026-03-01", (4,)),
    )


def test_json_bare_or_fenced_and_headings_in_either_language_are_read() -> None:
    body = {"goals": [{"text": "rename billing to invoices", "entries": [1]}], "open": []}
    expected = (Line("goals", "rename billing to invoices", (1,)),)
    for reply in (
        json.dumps(body),
        f"```json\n{json.dumps(body)}\n```",
        "<think>let me see</think>\n## Goals and requests\n* rename billing to invoices [1]",
        "**Goals**\n1. rename billing to invoices (1)",
        "目标与请求：\n- rename billing to invoices [1]",
    ):
        assert judged(reply, asked(), words).lines == expected, reply


def test_entries_that_do_not_exist_are_replaced_by_those_that_say_it() -> None:
    reply = "Facts:\n- INV-4711 is due 2026-03-01 [77]\n- git mv billing invoices was run"
    lines = judged(f"{reply}", asked(), words).lines
    assert [line.entries for line in lines] == [(4,), (2, 3)]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        (None, "empty"),
        ("None.", "empty"),
        ("<think>hm, what was said</think>", "empty"),
        ("<think>never closed", "empty"),
        ("\n".join(f"{english}:\n- none" for english, _ in HEADINGS.values()), "empty"),
        (json.dumps({section: [] for section in HEADINGS}), "empty"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("抱歉，我无法完成。", "refusal"),
        ('<tool_call>{"name": "bash", "arguments": {}}</tool_call>', "tool_call"),
        ('{"name": "bash", "arguments": {"command": "ls"}}', "tool_call"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, "tool_call"),
        (KEEPER[0], "echo"),
        (TASK[0].format(words=100), "echo"),
        ("事实：\n- 账单模块改名为发票模块，并且保留了版本文件", "language"),
        ("\n".join(f"- point {n} about the billing module" for n in range(60)), "longer"),
    ],
)
def test_what_is_no_good_summary_is_refused_with_its_reason(reply: Any, why: str) -> None:
    assert refusal(reply) == why


def test_a_reply_cut_by_the_output_limit_is_no_summary() -> None:
    assert refusal(GOOD, cut=True) == "cut"


def test_what_was_said_read_back_line_by_line_is_an_echo() -> None:
    said = asked().messages[-1]["content"].partition("Said since:\n")[2].partition("\n\n")[0]
    assert len(said.splitlines()) == 3
    assert refusal(said) == "echo"


def test_a_summary_that_lost_more_of_the_literals_than_it_kept_is_refused() -> None:
    literals = ("INV-4711", "2026-03-01", "/srv/shop/VERSION")
    assert refusal("Facts:\n- an invoice is due, a module was renamed", asked(literals)) == "literals"
    assert refusal(GOOD, asked(literals)) is None


def test_chinese_is_expected_where_the_person_writes_it() -> None:
    assert refusal("Facts:\n- billing was renamed to invoices", asked(lang="zh")) == "language"
    assert (
        refusal("事实：\n- billing 模块已改名为 invoices，INV-4711 于 2026-03-01 到期", asked(lang="zh"))
        is None
    )


def test_a_summary_over_its_limit_is_too_long_and_not_refused() -> None:
    verdict = judged(GOOD, asked(limit=5), words)
    assert verdict.too_long
    assert verdict.refusal is None


@given(
    st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5).map(json.dumps)
)
def test_judging_never_raises_and_what_it_takes_can_be_shown(reply: str) -> None:
    verdict = judged(reply, asked(), words)
    assert (verdict.refusal is None) == bool(verdict.lines)
    for line in verdict.lines:
        assert "\n" not in line.text
        assert line.text in rendered(verdict.lines, "en")


def test_a_long_reply_is_judged_in_time_that_grows_with_its_length_alone() -> None:
    for reply in ("-" * 200_000, " \n" * 100_000, "<think>" * 30_000, "[1" * 50_000, "(entries " * 30_000):
        judged(reply, asked(), words)


def test_the_request_says_what_is_wanted_in_the_conversations_language_and_fits_its_room() -> None:
    many = tuple(Source((n,), Kind.ASSISTANT, f"sentence number {n} " * 8) for n in range(1, 200))
    for lang, heading in (("en", "Notes so far:"), ("zh", "已有笔记：")):
        request = folded((), many, limit=100, room=4000, count=len, lang=lang, output=500)
        assert heading in request.messages[-1]["content"]
        assert sum(len(message["content"]) for message in request.messages) <= 4000
        assert 0 < len(request.sources) < len(many)
        assert request.sources == many[: len(request.sources)], "the rest waits for the next request"
    assert AS_LINES[0].count("{headings}") == 1
