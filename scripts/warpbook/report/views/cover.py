"""The cover: what the report is about, and what it was made from."""

from collections.abc import Iterator
from datetime import datetime
from itertools import product
from pathlib import Path

from warpbook.common import units
from warpbook.problems.case_sets import CaseSet
from warpbook.problems.layers import Activation, DenseLayer, Layer, PoolLayer
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case
from warpbook.report.evidence import Evidence
from warpbook.report.views.components import HtmlTable, View, words


def cover_view(ev: Evidence, made: datetime, commit: str, dirty: bool | None) -> View:
    """The cover of a report on figures of a time, made from the code of a commit, empty where there is no git."""
    report = ev.config.report
    return View(
        title=report.title if ev.is_network else ev.study.title,
        kicker=_kicker(ev),
        subtitle=ev.study.title if ev.is_network else ev.problem.title,
        authors=tuple(report.authors),
        affiliation=report.affiliation,
        created=made.isoformat(),
        date=made.strftime("%-d %B %Y"),
        day=made.strftime("%Y-%m-%d"),
        is_network=ev.is_network,
        subject=_subject(ev),
        dataset=_dataset(ev.network),
        sizes=", ".join(map(units.count, ev.sizes)),
        gpu=_gpu(ev),
        cpu=f"none: {why}" if (why := ev.missing_reason("cpu")) else f"{ev.device_name('cpu')}, measured here",
        commit=commit[:12],
        dirty=bool(dirty),
        runs=tuple(dict.fromkeys(run.run_id for run in (ev.local, ev.gpu_run) if run)),  # the supplement has all
        motif=tuple(_motif()),
    )


_ACTIVATIONS: dict[Activation, list[str]] = {
    "none": [],
    "tanh": ["tanh"],
    "relu": ["ReLU"],
    "sigmoid": ["sigmoid"],
    "leaky_relu": ["leaky ReLU"],
}


def _dataset(network: Network | CaseSet) -> str:
    if not isinstance(network, Network) or not network.has_labels:
        return "random numbers"
    return Path(network.input.data).name or "Fashion-MNIST"


def _kicker(ev: Evidence) -> str:
    if not ev.is_network:
        return "Kernel report"
    return f"{'Final' if ev.study.section_label == 'Baseline' else ev.study.section_label} report"


def _subject(ev: Evidence) -> str:
    """What the report is about: a network's layers, or a problem's cases."""
    if not isinstance(ev.network, Network):
        return f"{ev.problem.title}; {', '.join(case.name for case in ev.layers)}"
    height, width = ev.network.image
    channels = f"{ev.network.input.channels}×" * (ev.network.input.channels > 1)
    said = []
    for step in ev.network.steps:
        said.append(_layer(step.layer))
        said += _ACTIVATIONS[step.activation]
    return f"{channels}{height}×{width} images; {', '.join(said)}"


def _layer(layer: Layer) -> str:
    if isinstance(layer, DenseLayer):
        return f"FC {layer.outputs}"
    if isinstance(layer, PoolLayer):
        rows, columns = layer.window
        steps = "" if layer.strides == layer.window else f" at stride {_sides(*layer.strides)}"
        return f"{rows}×{columns} {'average ' * (layer.kind == 'average')}pool{steps}"
    return f"{layer.M} maps of {layer.K}×{layer.KW}{_unusual(layer)}"


def _unusual(conv: Case) -> str:
    """Stride, padding and what else is not usual of a convolution."""
    padding = (conv.P, conv.PW, conv.P_end, conv.PW_end)
    parts = [
        f" at stride {_sides(conv.S, conv.SW)}" * ((conv.S, conv.SW) != (1, 1)),
        f" with padding {padding[0] if len(set(padding)) == 1 else padding}" * any(padding),
        f" with dilation {_sides(conv.D, conv.DW)}" * ((conv.D, conv.DW) != (1, 1)),
        f" in {conv.G} groups" * (conv.G > 1),
        " with bias" * bool(conv.optional),
    ]
    return "".join(parts)


def _sides(rows: int, columns: int) -> str:
    return str(rows) if rows == columns else f"{rows}×{columns}"


def _gpu(ev: Evidence) -> str:
    if ev.gpu_run is None:
        return f"none: {ev.source.why}"
    several = f" ({units.number_word(ev.times.gpus)} of them)" if ev.times.gpus > 1 else ""
    name = f"{ev.device_name('gpu')}{several}"
    if ev.gpu_run is ev.local:
        return f"{name}, measured here"
    changed = " with uncommitted changes" * ev.gpu_run.record["dirty"]
    code = f", code of commit {ev.gpu_run.record['commit'][:12]}{changed}" if ev.gpu_run.record["commit"] else ""
    return f"{name}, from the archived run {ev.gpu_run.run_id}{code}"


def _motif() -> Iterator[View]:
    """A tile of outputs within its halo, and the filter's taps over both, in a grid of squares."""
    for row, column in product(range(16), range(17)):
        inside, tap = row in range(3, 13) and column in range(6, 15), row in range(4, 9) and column in range(5, 10)
        opacities = {"stroke_opacity": 0.5 if inside else 0.22, "fill_opacity": 0.34 if tap else 0.1 if inside else 0.0}
        yield View(x=8 + 7.4 * column, y=1 + 7.4 * row, **opacities)


def division_of_labour_view(ev: Evidence) -> HtmlTable | None:
    """Who did what, the authors' contributions; None where the configuration names none."""
    contributions = ev.config.report.contributions
    if not contributions:
        return None
    caption = "Who did what, as the configuration has it."
    return HtmlTable("labour-table", caption, words("Author", "Contribution"), tuple(contributions.items()))
