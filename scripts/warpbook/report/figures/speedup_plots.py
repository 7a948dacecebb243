"""What optimizations gain: one over dataset sizes, and chains of them step by step."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence, Speedup
from warpbook.report.figures import style
from warpbook.report.figures.svg_drawing import svg

FAR = 30  # times as long as the shortest, from where on the axis of a chain is logarithmic

SMALL_IN = 2.36  # beside an excerpt of code


def speedups_by_size(ev: Evidence, variant: Variant) -> dict[str, dict[int, Speedup]]:
    """Speedups of a variant over what it builds on, by layer and size, where there are any."""
    found = {
        layer: {size: ev.times.speedup(variant.name, layer, size) for size in ev.sizes} for layer in ev.layer_names
    }
    sound = {
        layer: {size: speedup for size, speedup in speedups.items() if speedup} for layer, speedups in found.items()
    }
    return {layer: speedups for layer, speedups in sound.items() if speedups}


def speedup_by_layer(ev: Evidence, variant: Variant) -> str:
    """One variant's gain by layer against size, for half a column. Grey: the same. Hollow: in separate jobs."""
    figure = Figure(figsize=(SMALL_IN, 0.5 * SMALL_IN))
    axes = figure.add_axes((0.17, 0.32, 0.68, 0.63))
    same = ev.config.measuring.equivalence_margin
    axes.axhspan(1 - same, 1 + same, color=style.RULE, linewidth=0)
    axes.axhline(1, color=style.INK, linewidth=0.8)
    reach, ends = [1 - 2 * same, 1 + 2 * same], []
    for place, (layer, speedups) in enumerate(speedups_by_size(ev, variant).items()):
        colour, marker = style.OURS[place], style.MARKERS[place]
        style.line(axes, {size: one.ratio for size, one in speedups.items()}, (colour, marker), capsize=0)
        apart = {size: one.ratio.value for size, one in speedups.items() if not one.paired}
        axes.plot(list(apart), list(apart.values()), marker, color=colour, markerfacecolor="white")
        for one in speedups.values():
            reach += [end for end in (one.ratio.value, one.ratio.low, one.ratio.high) if end == end]
        ends.append(([one.ratio.value for one in speedups.values()][-1], layer, colour))
    _gain_axis(axes, min(reach), max(reach))
    style.size_axis(axes, ev.sizes, ev.size_label)
    style.value_axis(axes, "y")
    axes.tick_params(length=0)
    style.name_ends(axes, ends)
    return svg(figure)


def _gain_axis(axes: Axes, low: float, high: float) -> None:
    """An axis of ratios, logarithmic where they are far apart."""
    if high > 2.5 * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=6))
        margin = (high / low) ** 0.08
        axes.set_ylim(low / margin, high * margin)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        margin = (high - low) * 0.08
        axes.set_ylim(low - margin, high + margin)
    axes.yaxis.set_major_formatter(FuncFormatter(style.format_ratio))
    axes.yaxis.set_minor_formatter(NullFormatter())


def waterfalls(ev: Evidence, chains: list[list[Variant]]) -> str:
    """Op times of chains, all layers at the largest size, a panel each; beside each step its two speedups."""
    heights = [len(chain) + 1.3 for chain in chains]
    figure = Figure(figsize=(style.WIDTH_IN, 0.25 + 0.132 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(chains), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, chain in zip(panels, chains, strict=True):
        _waterfall(ev, axes, chain)
    panels[-1].set_xlabel("Op time, ms")
    return svg(figure)


def _waterfall(ev: Evidence, axes: Axes, chain: list[Variant]) -> None:
    first, size = chain[0].name, ev.largest
    times = [total.value for step in chain if (total := ev.times.total(step.name, size))]
    rows = range(len(chain) - 1, -1, -1)
    axes.barh(rows[0], times[0], height=0.62, color=style.OURS[0])
    style.note(axes, units.time(times[0]), (times[0], rows[0]), (5, 0))
    for place, before, after, step, last in zip(rows[1:], times, times[1:], chain[1:], chain, strict=False):
        stepped, whole = (ev.times.total_speedup(step.name, size, over=over) for over in (last.name, first))
        colour = style.VERDICTS[stepped.verdict] if stepped else style.INK
        axes.barh(place, after, height=0.62, color=style.OURS[0])
        # What is saved is hatched, what is lost solid: not by colour alone.
        saved = after < before
        axes.barh(place, abs(before - after), left=min(before, after), height=0.62, edgecolor=colour, linewidth=0.6,
                  color="none" if saved else colour, hatch="////" if saved else None)  # fmt: skip
        words = [units.time(after)]
        words += [stepped.plain_text] if stepped else []
        if whole and last.name != first:
            words += [f"in all {whole.short_text}"]
        style.note(axes, "; ".join(words), (max(before, after), place), (5, 0))
    for upper, lower, value in zip(rows, rows[1:], times, strict=False):
        axes.plot([value, value], [upper - 0.31, lower + 0.31], color=style.INK, linewidth=0.5)
    least, most = min(times), max(times)
    if most > FAR * least:  # the last bars would be lines
        axes.set_xscale("log")
        axes.set_xlim(least / 1.5, most * (1.5 * most / least) ** 0.6)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_xlim(0, 1.75 * most)
    style.value_axis(axes, "x")
    style.name_rows(axes, [step.stem for step in reversed(chain)])
