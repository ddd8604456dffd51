"""A list of sessions fits whatever it is shown on."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from perdure.faces.cli.listing import NAME_COLUMNS, rows
from perdure.store.journal import SessionSummary

TIME = "2026-12-02T20:13:08.000+00:00"
texts = st.text(st.sampled_from("ab c/汉字🙂é\u0301"), max_size=80)
names = st.text(st.sampled_from("ab-汉"), min_size=1, max_size=NAME_COLUMNS // 2)
summaries = st.builds(
    SessionSummary,
    name=names,
    created=st.just(TIME),
    changed=st.just(TIME),
    entries=st.integers(0, 10**6),
    turns=st.integers(0, 10**5),
    size=st.integers(0, 10**12),
    request=texts,
    workspace=texts,
)


@given(st.lists(summaries, max_size=5), st.integers(80, 200), st.sampled_from(["en", "zh"]))
def test_no_line_is_longer_than_the_width_and_all_is_there_that_fits(
    every: list[SessionSummary], width: int, lang: Literal["en", "zh"]
) -> None:
    whole, fitted = rows(every, lang), rows(every, lang, width)
    assert rows(every, lang, max(map(cell_len, whole), default=0)) == whole
    assert len(fitted) == len(every)
    assert all(cell_len(line) <= width for line in fitted)
    for each, line in zip(every, fitted, strict=True):
        assert line.startswith(each.name)
        assert f"{each.entries} {'条记录' if lang == 'zh' else 'entr'}" in line


def test_a_name_that_is_too_long_stays_whole_and_spoils_no_other_line() -> None:
    usual = SessionSummary("s", TIME, TIME, 2, 1, 90, "What is 2+3?", "/srv/work")
    long = SessionSummary("n" * 120, TIME, TIME, 2, 1, 90, "What is 2+3?", "/srv/work")
    short, longer = rows([usual, long], "en", 90)
    assert "/srv/work" in short
    assert "…" not in longer
    assert longer.startswith("n" * 120)
    assert "/srv/work" not in longer
