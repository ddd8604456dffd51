from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.messages import Entry, Kind
from perdure.memory.calibration import BELIEVED, LOWEST, Calibration
from perdure.memory.growth import CALLS, HIGHEST, KNOWN, LOW_WATER, Growth
from perdure.memory.growth import LOWEST as LOWEST_WATER


def grown(tokens_per_call: int, calls: int) -> Growth:
    growth = Growth()
    for number in range(calls):
        growth = growth.after(Entry(number + 1, Kind.ASSISTANT, {}, tokens_per_call))
    return growth


def test_until_the_growth_is_known_the_mark_is_the_default() -> None:
    assert grown(100, KNOWN - 1).low_water(10_000) == LOW_WATER


def test_the_mark_leaves_room_for_thirty_calls_within_its_bounds() -> None:
    assert grown(100, 20).low_water(7_500) == 1 - CALLS * 100 / 7_500
    assert grown(10, 20).low_water(100_000) == HIGHEST
    assert grown(900, 20).low_water(7_500) == LOWEST_WATER


def test_what_came_last_weighs_more() -> None:
    growth = grown(1_000, 200)
    for number in range(60):
        growth = growth.after(Entry(number + 1, Kind.ASSISTANT, {}, 10))
    assert growth.tokens / growth.calls < 400


reports = st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 100_000)), max_size=20)


@given(reports, st.booleans())
def test_the_scale_is_an_upper_bound_of_every_telling_report(
    pairs: list[tuple[int, int]], exact: bool
) -> None:
    calibration = Calibration()
    for counted, reported in pairs:
        calibration = calibration.after(counted, reported)
    scale = calibration.scale(exact=exact)
    for counted, reported in pairs:
        if counted >= 500 and reported:
            assert reported <= counted * scale + 0.001 * counted
    assert scale >= (1.0 if exact else LOWEST)


def test_a_lower_ratio_is_believed_only_after_some_reports_and_never_for_an_exact_count() -> None:
    calibration = Calibration()
    for number in range(BELIEVED):
        assert calibration.scale(exact=False) == 1.0, number
        calibration = calibration.after(1_000, 700)
    assert calibration.scale(exact=False) == 0.721
    assert calibration.scale(exact=True) == 1.0
    assert calibration.after(1_000, 1_100).scale(exact=True) == 1.133
    assert Calibration.from_json(calibration.as_json()) == calibration
