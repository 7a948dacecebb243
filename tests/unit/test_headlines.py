"""Headline cards: a figure only where its interval deserves one."""

import math

from warpbook.common.statistics import Estimate
from warpbook.report.evidence import Speedup
from warpbook.report.views import cards


def test_a_card_shows_a_figure_only_where_its_interval_deserves_one():
    for value, low, high, n, drift, shown in [
        (10.6, 10.5, 10.7, 300, 0.0, "10.6×"),
        (304.0, 197.0, 664.0, 3, 0.0, cards.INCONCLUSIVE),
        (2.0, 1.9, 2.1, 2, 0.0, cards.INCONCLUSIVE),
        (2.0, math.nan, math.nan, 1, 0.0, cards.INCONCLUSIVE),
        (2.0, 1.7, 2.3, 9, 0.0, "2.00×"),
        (5.462, 5.376, 5.654, 10, 0.0743, "5.5×"),
        (22.74, 22.71, 22.88, 6, 0.0, "22.7×"),
        (2.0, 1.7, 2.3, 9, 0.2, cards.INCONCLUSIVE),
    ]:
        card = cards.summary_card(
            "Over", Speedup(Estimate(value, low, high, n).widen(drift), False, "faster"), "not measured"
        )
        assert card.value == shown
        assert f"n\u202f{n}" in card.detail


def test_a_card_without_a_speedup_says_why():
    assert cards.summary_card("Over cuDNN", None, "not measured").detail == "not measured"
