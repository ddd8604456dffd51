from __future__ import annotations

import pytest

from perdure.agent.truncation import cut_to


@pytest.mark.parametrize(
    ("counted", "reported", "exact", "window"),
    [
        (7_900, 2_050, True, 2_050),
        (9_000, 4_096, True, 4_096),
        (9_000, 4_096, False, 4_096),
        (65_600, 32_770, False, 32_770),
        (9_000, 4_500, True, 4_500),
        (9_000, 4_500, False, None),
        (9_000, 3_300, False, 3_300),
        (9_000, 6_800, True, None),
        (9_000, 9_400, True, None),
        (9_000, 0, True, None),
        (1_200, 300, True, None),
    ],
)
def test_a_cut_is_told_from_counts_that_differ(
    counted: int, reported: int, exact: bool, window: int | None
) -> None:
    assert cut_to(counted, reported, exact=exact) == window
