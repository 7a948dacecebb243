"""Views: the tables, figures and words of the report's sections, computed apart from the templates that place them."""

import math
from html.parser import HTMLParser
from types import SimpleNamespace

import pandas as pd
import pytest
from markupsafe import Markup, escape

from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.kernels.headers import Header, Split
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall, CountedLaunch
from warpbook.report import rendering
from warpbook.report.evidence import CheckTally, Speedup
from warpbook.report.evidence.ranking import Ranking
from warpbook.report.figures import bound_plots, time_plots, unit_plots
from warpbook.report.figures.unit_plots import UnitRow
from warpbook.report.views import cell_markup, last_page, milestone_1
from warpbook.report.views.components import MOST_SHORT_LINES, Figure, HtmlTable, numbers, words
from warpbook.report.views.supplement import correctness, validity


def speedup(paired: bool = True, n: int = 30, verdict: str = "faster") -> Speedup:
    ends = (1.138, 1.142) if n > 1 else (math.nan, math.nan)
    return Speedup(Estimate(1.14, *ends, n), paired, verdict)


def plain(markup: str) -> str:
    """The words of markup, as a reader sees them."""
    return Markup(markup).striptags().replace("\u202f", " ")


def test_what_a_reason_has_in_backticks_is_set_as_code_wherever_it_is_printed():
    said, printed = (
        "N = 9 & more is above (`limits<T>` in a.cu)",
        "N = 9 &amp; more is above (<code>limits&lt;T&gt;</code> in a.cu)",
    )
    assert cell_markup.code_spans(said) == printed
    assert cell_markup.code_spans("an odd ` alone") == "an odd ` alone"
    assert cell_markup.code_spans(Markup("<b>`</b>`")) == "<b>`</b>`"
    macros = rendering.templates().get_template("macros.html.j2").module
    table = HtmlTable("t", "A table.", words("Variant", "Reason"), ((said, said),))
    assert macros.data_table(table).count(printed) == 2
    assert printed in macros.note(said) and printed in macros.lacking(said, ["m3-table"])


def test_a_time_stands_with_half_its_interval_and_alone_where_it_has_none():
    assert plain(cell_markup.time_cell(Estimate(3.778, 3.7667, 3.7893, 30))) == "3.778 ms ±0.3 % n 30"
    assert plain(cell_markup.time_cell(Estimate(3.778, math.nan, math.nan, 1))) == "3.778 ms"
    assert cell_markup.time_cell(None) == "–"


def test_a_speedup_stands_with_its_interval_and_with_a_dagger_where_it_was_not_taken_in_turn():
    assert plain(cell_markup.speedup_cell(speedup())) == "1.140× [1.138, 1.142] n 30"
    assert plain(cell_markup.speedup_cell(speedup(paired=False))) == "1.140×† [1.138, 1.142] n 30"
    assert cell_markup.speedup_cell(None) == "–"


def test_a_speedup_that_no_one_number_tells_says_what_is_known_of_it_in_every_place():
    few, wide = "fewer than three samples", "differ by a factor of more than 1.5"
    rough = "which give no interval"
    for value, low, high, n, drift, verdict, printed, note in [
        (10.6, 10.5, 10.7, 300, 0.0, "faster", None, []),
        (2.0, 1.7, 2.3, 9, 0.0, "faster", None, []),
        (185.0, 135.0, 264.0, 3, 0.0, "faster", ["135× to 264×† n 3", "135× to 264×†"], [wide]),
        (2.0, 1.7, 2.3, 9, 0.2, "faster", ["1.4× to 2.8×† n 9", "1.4× to 2.8×†"], [wide]),
        (0.02, 0.016, 0.03, 6, 0.0, "slower", ["0.016× to 0.030×† n 6", "0.016× to 0.030×†"], [wide]),
        (1.0, 0.72, 1.41, 9, 0.0, "ambiguous", ["inconclusive (interval [0.72, 1.41])", "inconclusive"], [few, wide]),
        (2.0, 1.9, 2.1, 2, 0.0, "faster", ["no ratio from two samples", "no ratio"], [few]),
        (2.0, math.nan, math.nan, 1, 0.0, "ambiguous", ["inconclusive (one sample)", "inconclusive"], [few, wide]),
        (151.7, math.nan, math.nan, 1, 0.0, "ambiguous", ["≈150×† (one sample)", "≈150×†"], [few, rough]),
        (0.2, 0.19, 0.21, 2, 0.0, "slower", ["≈0.20×† (two samples)", "≈0.20×†"], [few, rough]),
        (5.0, 0.5, 50, 2, 0.0, "ambiguous", ["inconclusive (two samples)", "inconclusive"], [few, wide]),
    ]:
        ours = Speedup(Estimate(value, low, high, n).widen(drift), False, verdict)
        cells = [cell_markup.speedup_cell(ours), cell_markup.ratio_cell(ours)]
        assert [escape(cell) for cell in cells] == cells  # a page shows no tag of theirs
        assert [words for words in (few, rough, wide) if words in cell_markup.doubt_note([cells[1]])] == note
        texts = [text.replace("\u202f", " ") for text in (ours.plain_text, ours.short_text)]
        assert texts == list(map(plain, cells))
        if printed:
            assert texts == printed
        else:
            assert all(words.startswith(units.ratio(value)[:3]) for words in texts)


def test_a_speedup_without_its_interval_and_a_verdict_bear_the_verdict_s_colour():
    assert cell_markup.ratio_cell(speedup(paired=False)) == '<span class="faster">1.14×</span><sup>†</sup>'
    two_alike = Speedup(Estimate(1.0, 0.999, 1.001, 2), False, "same")
    assert cell_markup.ratio_cell(two_alike) == '<span class="ambiguous">inconclusive</span>'
    assert cell_markup.verdict_cell(speedup(verdict="same")) == '<span class="same">same</span>'
    assert cell_markup.ratio_cell(None) == cell_markup.verdict_cell(None) == "–"
    alone = Speedup(Estimate(6.1, math.nan, math.nan, 1), True, "ambiguous")  # and no interval holds 1
    assert cell_markup.comparison_cell(alone, "tiled") == '<span class="ambiguous">inconclusive</span> against tiled'
    unsure = Speedup(Estimate(1.1, 0.9, 1.3, 9), True, "ambiguous")
    assert cell_markup.comparison_cell(unsure, "tiled") == '<span class="ambiguous">ambiguous</span> against tiled'


def test_what_is_not_markup_is_escaped_in_a_cell():
    assert cell_markup.link("m4-a&b", "a<b>") == '<a href="#m4-a&amp;b">a&lt;b&gt;</a>'


def test_a_row_with_a_cell_too_few_is_refused_with_its_table():
    with pytest.raises(ValueError, match="times: a row of 1 cells under 2 columns"):
        HtmlTable("times", "Times.", (*words("Variant"), *numbers("Time")), (("direct",),))


class Placed(HTMLParser):
    """Each element's name, attributes and words, as the macros place them."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), ""))

    def handle_data(self, data):
        tag, attrs, text = self.elements[-1]
        self.elements[-1] = (tag, attrs, text + data)

    def named(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, text.strip()) for name, attrs, text in self.elements if name == tag]


def placed(call: str, **values) -> Placed:
    """What a macro makes of values."""
    source = '{% import "macros.html.j2" as m with context %}{{ m.' + call + " }}"
    return Placed(rendering.templates().from_string(source).render(values))


def test_a_table_is_placed_with_its_heads_kinds_and_escaped_cells():
    rows = (("a<b", Markup("<b>1</b>")), ("c", "2"))
    table = HtmlTable("times", "Times & places.", (*words("Variant"), *numbers("Time")), rows, "named")
    page = placed("data_table(table)", table=table)
    assert page.named("table") == [({"class": "data named short", "id": "times"}, "")]
    assert [attrs for attrs, _ in page.named("th")] == [
        {"scope": "col", "class": ""}, {"scope": "col", "class": "number"},
        {"scope": "row", "class": ""}, {"scope": "row", "class": ""},
    ]  # fmt: skip
    assert [text for _, text in page.named("th")] == ["Variant", "Time", "a<b", "c"]
    assert page.named("td") == [({"class": "number"}, ""), ({"class": "number"}, "2")]
    assert page.named("b") == [({}, "1")]


def test_a_long_table_may_break_over_pages():
    rows = tuple((str(place),) for place in range(MOST_SHORT_LINES + 1))
    assert not HtmlTable("long", "Long.", words("Place"), rows).short
    assert HtmlTable("long", "Long.", words("Place"), rows[:-1]).short


def test_a_table_of_few_rows_whose_names_take_several_lines_may_break_too():
    name = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x32x8_stage3_warpsize2x2x1_g1"
    rows = tuple((f"{name}{place}",) for place in range(MOST_SHORT_LINES - 1))
    assert not HtmlTable("kernels", "Kernels.", words("Name"), rows).short
    assert HtmlTable("kernels", "Kernels.", words("Name"), tuple((f"<b>{row[0][-9:]}</b>",) for row in rows)).short
    links = tuple((Markup('<a href="#{}">first</a>').format(name),) for _ in rows)
    assert HtmlTable("kernels", "Kernels.", words("Name"), links).short
    words_in_brackets = tuple((f"<{name}>",) for _ in rows)
    assert not HtmlTable("kernels", "Kernels.", words("Name"), words_in_brackets).short


def test_a_table_of_few_rows_with_long_reasons_may_break_too():
    reason = "it is not written for the layer conv1, but for 12x33x33 * 24@7x7, 6x30x30 * 16@5x5, 6x22x22 * 16@5x5"
    rows = tuple((str(place), "unsupported", reason) for place in range(MOST_SHORT_LINES // 2 + 1))
    assert not HtmlTable("lacks", "Lacks.", words("Variant", "Status", "Reason"), rows).short
    assert HtmlTable("lacks", "Lacks.", words("Variant", "Status", "Reason"), rows[:-1]).short


def test_a_figure_is_placed_with_its_words_and_caption():
    page = placed("figure(figure)", figure=Figure("times", "<svg/>", 'Bars of "op" time.', "Op time."))
    ((image, _),) = page.named("img")
    assert image == {"src": cell_markup.data_uri("<svg/>"), "alt": 'Bars of "op" time.'}
    assert page.named("figcaption") == [({}, "Op time.")]


def test_bars_far_longer_than_the_next_do_not_stretch_the_axis():
    for times, longest in [
        ([11.3, 3.2, 0.4], 3.2),
        ([11.3, 3.2], 11.3),
        ([3.8, 2.7, 0.4], 3.8),
        ([5.0], 5.0),
        ([9.0, 8.0, 1.0], 9.0),
        ([21.7, 18.9, 5.35, 1.04, 0.92, 0.37, 0.31], 1.04),
        ([11.2, 3.3, 1.6, 1.1, 0.3], 3.3),
    ]:
        assert longest < time_plots.axis_end(times) < 1.3 * longest


def counted(**values: float) -> CountedCall:
    """A call of one kernel of 1 µs with such readings, by the names of their counters in `counters`."""
    read = {getattr(counters, name): value for name, value in {"DURATION": 1000.0, **values}.items()}
    return CountedCall(1, (CountedLaunch("kernel", read),), 1)


def test_bars_are_the_units_read_and_the_operations_done_in_percent_of_their_peaks():
    busy = {"ISSUE": 84.0, "SM": 85.0, "L1": 60.0, "L2": 14.0, "DRAM": 8.0}
    call = counted(**busy, FFMA=2_000.0, FADD=500.0, FMUL=500.0, INSTRUCTIONS=1_250.0, HMMA=25.0, HFMA2=25.0)
    peaks = {"fp32": 50.0, "fp16": 400.0}
    row = unit_plots.unit_row("direct", Header(), 100_000, call, peaks)
    read = {"Issue": 84.0, "Pipes": 85.0, "L1, shared": 60.0, "L2": 14.0, "DRAM": 8.0}
    assert row.shares == read | {"FP32": pytest.approx(100 * 5_000 / (1000 * 50))}
    assert (row.bound, row.words) == ("Issue", ("1.25\u202fk", "5\u202f%", "0\u202f%"))
    split = Header(split=Split(precision="fp16", products=3))
    both = counted(**busy, INSTRUCTIONS=1_250.0, HMMA=150.0, HFMA2=25.0)
    of_split = unit_plots.unit_row("split", split, 100_000, both, peaks)
    assert (of_split.shares["Tensor cores"], of_split.words[-1]) == (pytest.approx(75), "10\u202f%")
    assert "Tensor cores" not in unit_plots.unit_row("split", split, 100_000, call, peaks | {"fp16": None}).shares


def test_a_roof_stands_for_each_lower_precision_that_a_direct_method_multiplies_in():
    split, halves = Header(split=Split(precision="fp16", products=3)), Header(precision="fp16")
    headers = [Header(), halves, split, split, Header(precision="tf32", method="any")]
    roofs = bound_plots.precision_roofs(headers, {"fp32": 50.0, "tf32": 200.0, "fp16": 300.0})
    assert list(roofs.items()) == [("FP16 peak / 3", 100.0), ("FP16 peak", 300.0)]
    assert bound_plots.precision_roofs(headers, {"fp32": 50.0}) == {}


def test_no_unit_bounds_a_kernel_below_its_mark_or_without_the_counters_for_it():
    idle = {"ISSUE": 40.0, "SM": 41.0, "L1": 59.9, "L2": 14.0, "DRAM": 8.0}
    for call in (counted(**idle), counted(DRAM=99.0)):
        row = unit_plots.unit_row("direct", Header(), 0, call, {"fp32": 50.0})
        assert (row.bound, "FP32" in row.shares, "Tensor cores" in row.shares) == ("", False, False)
        assert row.words == ("–", "–", "–")


def test_every_bar_bears_its_number_and_the_bound_alone_is_dark():
    words = ("1.25\u202fk", "5\u202f%", "10\u202f%")
    rows = [
        UnitRow("direct", {"Issue": 84.2, "DRAM": 8.1}, "Issue", words),
        UnitRow("other", {"Issue": 20.0}, "", words),
    ]
    drawn = unit_plots.draw_bars({"conv1": rows})
    assert drawn.count(f'fill="{unit_plots.BOUND}"') == 1
    assert [drawn.count(f">{number}\u202f%<") for number in (84, 8, 20)] == [1, 1, 1]
    assert drawn.count(">–<") == 2 * len(unit_plots.COLUMNS) - 3
    assert all(drawn.count(f">{head}<") == 1 for head in ("conv1", "direct", "other", *unit_plots.COLUMNS))
    assert [drawn.count(f">{cell}<") for cell in words] == [2, 2, 2]


@pytest.mark.parametrize(
    ("best", "shown"),
    [
        ("f", ["abcdf"]),  # most steps alike
        ("h", ["abcde", "agh"]),
        ("c", ["abcde"]),  # the longest passes it
        ("e", ["abcde"]),
        ("b", ["abcde"]),  # two steps are no chain
    ],
)
def test_the_longest_chain_stands_beside_that_to_the_best_where_most_of_its_steps_are_others(best, shown):
    baselines = {"a": "", "b": "a", "c": "b", "d": "c", "e": "d", "f": "d", "g": "a", "h": "g"}
    variants = {
        name: SimpleNamespace(name=name, header=SimpleNamespace(builds_on=on)) for name, on in baselines.items()
    }
    ranking = Ranking(SimpleNamespace(plan=SimpleNamespace(variants=variants), study=SimpleNamespace(first_kernel="")))
    ranking.measured_variants = lambda *_, **__: list(variants.values())
    ranking.best = variants[best]
    assert ["".join(step.name for step in chain) for chain in ranking.chains] == shown


def test_what_lacks_all_its_times_for_one_reason_is_a_sentence_and_else_a_table():
    head = words("Variant", "Device", "Status", "Reason")
    row = "softmax/rows, softmax/loops", "cpu", "not measured", "the run r has no time of it"
    alone = HtmlTable("a", "", head, (row,))
    assert last_page.missing_sentence(alone) == (
        "softmax/rows, softmax/loops (CPU), not measured: the run r has no time of it."
    )
    assert last_page.missing_sentence(HtmlTable("a", "", head, (row, row))) == ""
    assert last_page.missing_sentence(HtmlTable("a", "", (*head, *words("Size")), ((*row, "3"),))) == ""


@pytest.mark.parametrize(
    ("on_cpu", "on_gpu", "said"),
    [
        ([1.0, 1.1], [3.0, 4.0], "takes 3.3 times as long as that on the CPU."),
        ([4.0, 5.0], [1.0, 2.0], "is 3.0 times as fast as that on the CPU."),
        ([2.0, 6.0], [5.0, 5.5], "The ranges of the program's times on GPU and CPU overlap."),
    ],
)
def test_the_programs_of_frameworks_are_compared_where_the_ranges_of_their_times_are_apart(on_cpu, on_gpu, said):
    seconds = {"cpu": on_cpu, "gpu": on_gpu}
    programs = SimpleNamespace(
        framework=lambda device: SimpleNamespace(name=device),
        runs=lambda name, _: pd.DataFrame({"elapsed_s": seconds[name]}),
    )
    ev = SimpleNamespace(programs=programs, profiles=SimpleNamespace(rows=lambda *_: []), largest=10)
    assert milestone_1.compared_programs(ev).endswith(said)


def test_labels_are_a_column_of_networks_alone_and_a_caption_says_what_racecheck_ran_on():
    one = SimpleNamespace(name="mine", device="gpu", header=SimpleNamespace(precision="fp32"))
    checks = SimpleNamespace(
        for_variant=lambda _: CheckTally(9, 9, 0.5, 1e-7, 2, None, ""), emulator_tally=lambda _: None, not_compared=[]
    )
    found = pd.DataFrame(
        {"variant": ["mine"], "tool": "racecheck", "version": "1", "errors": 0, "status": "ok", "reason": ""}
    )
    for is_network in (True, False):
        ev = SimpleNamespace(
            is_network=is_network,
            checks=checks,
            compared_variants=lambda device: [one] * (device == "gpu"),
            trust=SimpleNamespace(sanitizer=found),
            selection=SimpleNamespace(other_run_note=lambda _: ""),
        )
        table = correctness._tests(ev)
        heads = [column.label for column in table.head]
        assert ("Labels" in heads, "labels" in table.caption) == (is_network, is_network)
        assert dict(zip(heads, table.rows[0], strict=True)).get("Labels") == ("2" if is_network else None)
        tried = validity._sanitizer(ev).caption
        assert ("with one image" in tried, "layers" in tried) == (is_network, is_network) and "Racecheck" in tried
