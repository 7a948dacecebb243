"""Charts: what is drawn is what was measured."""

import itertools
import re
from xml.etree import ElementTree

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from warpbook.common import intervals
from warpbook.common.statistics import Estimate
from warpbook.report import rendering
from warpbook.report.evidence import Speedup
from warpbook.report.figures import bound_plots, speedup_plots, svg_drawing, timelines
from warpbook.report.views import cell_markup


def speedup(value, low, high, paired=True, verdict="faster"):
    return Speedup(Estimate(value, low, high, 10), paired, verdict)


def test_intervals_closer_than_a_gap_are_one():
    assert intervals.merge([(0, 1), (1.5, 2), (5, 6), (5.5, 5.7)], gap=1) == [(0, 2), (5, 6)]
    assert intervals.merge([(0, 1), (1.5, 2)], gap=0.1) == [(0, 1), (1.5, 2)]


def test_a_chart_s_words_are_text_and_its_markers_stand_where_they_were_measured():
    figure = Figure(figsize=(2, 1))
    figure.text(0.5, 0.25, "µs < 1", size=8, weight=600, color="#0b5cad")
    figure.text(0.5, 0.5, "up", size=8, rotation=90, ha="right")
    drawn = ElementTree.fromstring(svg_drawing.svg(figure))
    assert drawn.attrib["font-family"] == "IBM Plex Sans"
    words, up = drawn.iter("{http://www.w3.org/2000/svg}text")
    assert (words.text, words.attrib["fill"], words.attrib["font-weight"]) == ("µs < 1", "#0b5cad", "600")
    assert (words.attrib["transform"], words.attrib["font-size"]) == ("translate(72.00 54.00)", "8")
    assert up.attrib["transform"].endswith(" rotate(-90)") and "font-weight" not in up.attrib

    figure = Figure(figsize=(1, 1))
    figure.add_axes((0, 0, 1, 1)).plot([0, 1, 2], [0, 1, 2], "s-", color="#0b5cad", linewidth=1.25)
    svg = svg_drawing.svg(figure)
    drawn = ElementTree.fromstring(svg)
    assert drawn.attrib["stroke-linejoin"] == "round"
    paths = [one.attrib for one in drawn.iter("{http://www.w3.org/2000/svg}path")]
    assert sum(path.get("fill") == "none" and path.get("stroke-width") == "1.25" for path in paths) == 1
    assert sum(path.get("fill") == "#0b5cad" for path in paths) == 3
    assert not re.search(r"style|<use|\.\d{4}", svg)


def test_in_a_page_for_browsers_a_chart_is_an_element_with_its_words_and_ids_of_its_own():
    svg = '<svg width="1pt"><path id="p1"/><use xlink:href="#p1" clip-path="url(#p1)"/><text>10</text></svg>'
    picture = f'<img src="{cell_markup.data_uri(svg)}" alt="Bars &amp; lines">'
    page = rendering.embed_assets(f'<figure id="one">{picture}</figure><td>{picture}</td>')
    assert '<figure id="one"><svg role="img" aria-label="Bars &amp; lines" width="1pt"><path id="one-p1"/>' in page
    assert '<use xlink:href="#one-p1" clip-path="url(#one-p1)"/><text>10</text></svg></figure>' in page
    assert page.count("<img ") == 1  # a picture in a cell, which has no words, stays one


def test_a_timeline_of_many_launches_stays_small(evidence_of, small_archive):
    ev = evidence_of(small_archive)
    frame = ev.profiles.events(ev.ranking.naive.name, ev.largest)
    kernel = frame[frame.kind == "kernel"].iloc[[0]]
    copies = kernel.loc[kernel.index.repeat(10_000)].reset_index(drop=True)
    copies["start_ns"] = kernel.start_ns.iloc[0] + copies.index * 900
    copies["end_ns"] = copies.start_ns + 500
    many = pd.concat([frame, copies], ignore_index=True)
    assert len(timelines.program_timeline(many)) < 400_000


def test_numbers_of_a_crowd_of_points_cover_neither_each_other_nor_a_point():
    figure = Figure(figsize=(6.5, 2.75))
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1, 100)
    axes.set_ylim(0.3, 200)
    points = [(10.0, 2 * 1.1**number, str(number)) for number in range(14)]
    points += [(12.5, 3.0, "20"), (13.0, 3.2, "21"), (60.0, 30.0, "22"), (7.0, 3.0, "23")]
    bound_plots.number_points([(axes, points)])
    figure.draw_without_rendering()
    # The text alone, without its line, and of the text the digits, which fill the middle of its height.
    boxes = [Text.get_window_extent(note).shrunk(1, 0.75).translated(0, 1) for note in axes.texts]
    assert len(boxes) == len(points)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    at = axes.transData.transform([(x, y) for x, y, _ in points])
    assert not any(box.contains(x, y) for box in boxes for x, y in at)


def test_the_names_at_the_ends_of_lines_lie_within_their_chart_and_apart(ev):
    for variant in ev.ranking.measured_variants("gpu", peers=False):
        svg = speedup_plots.speedup_by_layer(ev, variant) if variant.header.builds_on else ""
        heights = [
            float(re.search(rf"translate\([\d.]+ ([\d.]+)\)[^>]*>{name}<", svg)[1])
            for name in (ev.layer_names if svg else [])
        ]
        assert all(height > 6 for height in heights), variant.name  # a line of 7.5 pt begins so far above its foot
        assert all(abs(a - b) > 8.9 for a, b in itertools.combinations(heights, 2)), variant.name
