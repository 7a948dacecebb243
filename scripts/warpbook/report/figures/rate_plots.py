"""Rates of the variants against size: operations where the problem has some, else bytes."""

from matplotlib.artist import Artist

from warpbook.common.statistics import Estimate
from warpbook.report.evidence import Evidence
from warpbook.report.figures import style
from warpbook.report.figures.svg_drawing import svg


def rates_by_size(ev: Evidence, device: str) -> str:
    """TFLOP/s, or GB/s of a problem without operations, against size: a panel for each case, logarithmic both ways."""
    figure, panels = style.case_panels(ev, 2.9)
    handles: dict[str, Artist] = {}
    for axes, case in zip(panels, ev.layers, strict=True):
        work = {size: case.at(size).flops / 1e9 or case.at(size).bytes / 1e6 for size in ev.sizes}
        for variant in ev.compared_variants(device):
            times = {size: ev.times.op(variant.name, case.name, size) for size in ev.sizes}
            rates = {
                size: Estimate(
                    work[size] / time.value,
                    work[size] / time.high if time.high else time.high,
                    work[size] / time.low if time.low else time.low,
                    time.n,
                )
                for size, time in times.items()
                if time
            }
            if rates:
                style.line(axes, rates, style.variant_look(ev, variant), variant.stem)
        bounds = {size: bound for size in ev.sizes if (bound := ev.times.fp32_bound_ms(case, size))}
        if device == "gpu" and bounds:
            axes.plot(
                list(bounds),
                [work[size] / bound for size, bound in bounds.items()],
                color=style.INK,
                linewidth=0.9,
                linestyle=style.DASHED,
                label="bound of FP32",
            )
        style.size_axis(axes, ev.sizes, ev.size_label)
        axes.set_yscale("log")
        style.log_axis(axes.yaxis, lambda value, _: f"{value:g}")
        style.value_axis(axes, "y")
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    style.label_rows(panels, "TFLOP/s" if any(case.at(ev.largest).flops for case in ev.layers) else "GB/s")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=min(5, len(handles)))
    return svg(figure)
