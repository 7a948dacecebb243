"""Charts with a panel for each case: beside each other while there is room, then in rows."""

from types import SimpleNamespace

import pytest

from warpbook.problems import networks
from warpbook.report.figures import style

LAYER = networks.ConvLayer("a layer", 2, 9, 11, 3, 4)


def test_the_panels_of_many_cases_stand_in_rows():
    for count, rows in [(1, 1), (4, 1), (5, 2), (7, 3)]:
        cases = [LAYER.with_name(f"case {number}") for number in range(count)]
        figure, panels = style.case_panels(SimpleNamespace(layers=cases, largest=3), 2.0)
        assert len(panels) == count
        assert figure.get_size_inches().tolist() == pytest.approx([style.WIDTH_IN, 2.0 * rows])
        assert [axes.get_title("left").partition(":")[0] for axes in panels] == [case.name for case in cases]
        assert sum(axes.get_visible() for axes in figure.axes) == count
        style.label_rows(panels, "Op time")
        assert sum(axes.get_ylabel() == "Op time" for axes in panels) == rows
