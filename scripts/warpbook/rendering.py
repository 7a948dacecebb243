"""A study's evidence as HTML and PDF. Nothing is measured here, and nothing is typed that was measured."""

import base64
import html
import itertools
import logging
import math
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from warpbook import (
    bench,
    building,
    comparison,
    counters,
    devices,
    evidence,
    figures,
    narrative,
    profiled,
    profilers,
    reference,
    tables,
    units,
    weights,
)
from warpbook.comparison import Comparison
from warpbook.errors import UserError
from warpbook.evidence import API_KINDS, GPU_KINDS, Evidence, ProfileRow
from warpbook.variants import Variant

FOLDER = Path(__file__).parents[2] / "reports"
NAME_WIDTH = 96


@dataclass
class Headings:
    """The headings of a report in the order rendered, numbered as the stylesheet numbers them."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=lambda: {"chapter": 0, "appendix": 0, "section": 0})

    def __call__(self, level: int, id: str, title: str, numbered: bool = True, lettered: bool = False) -> Markup:
        """An h1 or h2 with its place in the contents."""
        if level == 1:
            self._counts["section"] = 0
            if numbered:
                self._counts["appendix" if lettered else "chapter"] += 1
        else:
            self._counts["section"] += 1
        letter = chr(ord("A") + self._counts["appendix"] - 1)
        chapter = letter if lettered else str(self._counts["chapter"])
        number = "" if not numbered else chapter if level == 1 else f"{chapter}.{self._counts['section']}"
        self.entries.append({"level": level, "id": id, "title": title, "number": number})
        kind = "" if not numbered else ' class="lettered"' if lettered else ' class="numbered"'
        return Markup(f'<h{level} id="{html.escape(id)}"{kind}>{html.escape(title)}</h{level}>')


def data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def short_name(name: str) -> str:
    """A kernel's name without its template and function arguments, which can fill a page."""
    if name.startswith("["):
        return name
    depth, kept = 0, []
    for character in name.removeprefix("void "):
        depth -= character in ">)"
        if depth == 0 and character not in ">)":
            kept.append(character)
        if character in "<(":
            kept.append("…" if depth == 0 else "")
            depth += 1
        if character in ">)" and depth == 0:
            kept.append(character)
    return "".join(kept).replace("(…)", "")


def profile_rows(rows: list[ProfileRow], program_s: float | None = None) -> list[list[Any]]:
    """Profile rows as cells: name, share, [share of the program,] time, calls, average, least, most."""
    return [
        [
            short_name(row.name),
            units.percent(row.share, 2),
            *([units.percent(row.total_ns / 1e9 / program_s, 2)] if program_s else []),
            units.nvprof_time(row.total_ns),
            row.calls,
            units.nvprof_time(row.avg_ns),
            units.nvprof_time(row.min_ns),
            units.nvprof_time(row.max_ns),
        ]
        for row in rows
    ]


def nvprof_table(ev: Evidence, variant: str, size: int, api: bool = True) -> str:
    """A program's whole profile in fixed width, as nvprof prints it; without its API calls where not wanted."""
    lines = [f"{'Type':>16}  {'Time(%)':>7}  {'Time':>9}  {'Calls':>6}  {'Avg':>9}  {'Min':>9}  {'Max':>9}  Name"]
    for kind, kinds in (("GPU activities:", GPU_KINDS), *([("API calls:", API_KINDS)] if api else [])):
        for place, row in enumerate(ev.profile(variant, size, kinds)):
            times = "  ".join(f"{units.nvprof_time(ns):>9}" for ns in (row.avg_ns, row.min_ns, row.max_ns))
            name = row.name if len(row.name) <= NAME_WIDTH else row.name[: NAME_WIDTH - 1] + "…"
            head = kind if place == 0 else ""
            whole = units.nvprof_time(row.total_ns)
            lines.append(f"{head:>16}  {100 * row.share:6.2f}%  {whole:>9}  {row.calls:>6}  {times}  {name}")
    return "\n".join(lines)


def _launches(ev: Evidence, variant: str) -> list[dict[str, Any]]:
    """Kernels of a variant's program at the largest size that was traced; none where none was."""
    return next((found for size in reversed(ev.sizes) if (found := ev.launches(variant, size))), [])


def occupancy(ev: Evidence, row: Any) -> tuple[float, str] | None:
    """Theoretical occupancy of a built kernel and its limit, in the block that a profile shows, else in its
    header's; None where there is neither."""
    if not row.ok or row.arch not in devices.LIMITS:
        return None
    traced = [launch for launch in _launches(ev, row.variant) if launch["name"] == row.kernel]
    if traced:
        main = max(traced, key=lambda launch: launch["total_ns"])
        threads = math.prod(int(extent) for extent in main["block"].split("x"))
        return devices.occupancy(row.arch, threads, int(row.registers), int(main["shared_bytes"]))
    launch = ev.plan.variants[row.variant].header.launch
    if launch is None or row.kernel != "conv_forward":
        return None
    return devices.occupancy(row.arch, math.prod(launch.threads), int(row.registers), int(row.shared_bytes))


def kernels_built(ev: Evidence) -> list[dict[str, Any]]:
    """Every kernel with its resources: registers by architecture, the most of the rest on any of them."""
    arch = ev.gpu_run.gpu["arch"] if ev.gpu_run and ev.gpu_run.gpu else ev.config.architectures[-1]
    rows = []
    for (variant, kernel), group in ev.builds[ev.builds.ok].groupby(["variant", "kernel"], sort=False):
        most = group[["shared_bytes", "local_bytes", "spill_bytes"]].max().to_dict()
        own = [row for row in group.itertuples() if row.arch == arch]
        registers = dict(zip(group.arch, group.registers, strict=True))
        place = {"variant": variant, "kernel": kernel, "registers": registers}
        rows.append({**place, **most, "occupancy": occupancy(ev, own[0]) if own else None})
    return rows


def failed_builds(ev: Evidence) -> list[list[str]]:
    """Variant, architecture and the compiler's words of every build that failed."""
    failed = ev.builds[~ev.builds.ok]
    return [[row.variant, row.arch, row.log[:400]] for row in failed.itertuples()]


def built(ev: Evidence, variant: str) -> dict[str, Any] | None:
    """Resources of a variant's main kernel for the architecture of the GPU cited; None for peers and failures.

    The main kernel is the one that took most of the profiled program; without a profile it is conv_forward.
    """
    arch = ev.gpu_run.gpu["arch"] if ev.gpu_run and ev.gpu_run.gpu else ev.config.architectures[-1]
    rows = ev.builds[(ev.builds.variant == variant) & (ev.builds.arch == arch) & ev.builds.ok]
    if rows.empty:
        return None
    traced = [launch for launch in _launches(ev, variant) if launch["name"] in set(rows.kernel)]
    main = max(traced, key=lambda launch: launch["total_ns"])["name"] if traced else "conv_forward"
    row = rows[rows.kernel == main].iloc[0]
    share, limiter = occupancy(ev, row) or (None, "unknown")
    return {**row.to_dict(), "occupancy": share, "limiter": limiter}


def invariant(ev: Evidence) -> str:
    """Whether gpu <= op <= layer <= program holds for every variant at the largest size, as a sentence."""
    broken = []
    for variant in ev.measured("gpu"):
        runs = ev.program(variant.name, ev.largest)
        program_ms = runs.elapsed_s.median() * 1e3 if len(runs) else math.inf
        for layer in ev.layers:
            times = [ev.op(variant.name, layer.name, ev.largest, kind=kind) for kind in ("gpu", "op", "layer")]
            spans = [(one.low, one.high) if math.isfinite(one.low) else (one.value, one.value) for one in times if one]
            spans.append((program_ms, program_ms))
            # Two series of their own: only intervals that do not overlap contradict the order.
            if any(before[0] > after[1] for before, after in itertools.pairwise(spans)):
                broken.append(f"{variant.name} on {layer.name}")
    if broken:
        return f"The order gpu ≤ op ≤ layer ≤ program is broken for {', '.join(broken)}: do not trust these times."
    return "The order gpu ≤ op ≤ layer ≤ program holds for every one, as far as their intervals tell them apart."


def clock_span(ev: Evidence, run: Any) -> str:
    """SM clocks read while a run's samples were taken, and how many were taken under a slowdown."""
    samples = run.table(tables.SAMPLES)
    samples = samples[(samples.network == ev.network.name) & (samples.status == "ok")]
    clocks = samples.sm_clock_mhz.dropna()
    if clocks.empty:
        return "not read: no GPU samples" if run.gpu is None else "not read: NVML did not answer"
    spread = f"{clocks.min():.0f} to {clocks.max():.0f} MHz, median {clocks.median():.0f}"
    return f"{spread}; {int(samples.throttled.sum())} of {len(samples)} samples under a slowdown"


def watched(ev: Evidence, variant: Variant) -> str:
    """What became of the counter that a variant's header names, to follow the header's own words."""
    metric = counters.metric_of(variant.header.check)
    if ev.counters.empty:
        return "; hardware counters were not read in this run"
    if not metric:
        return ""
    sides = (variant.header.builds_on, variant.name)
    found = ev.watched(variant)
    if not found:
        failed = ev.counters[ev.counters.variant.isin(sides) & (ev.counters.status != "ok")]
        if len(failed):
            return f"; it was not read: {failed.reason.iloc[0]}"
        lacking = [name for name in sides if not any(place[0] == name for place in ev.calls)]
        programs = "whose program is" if len(lacking) == 1 else "whose programs are"
        return f"; it was not read for {' and '.join(lacking)}, {programs} not among those watched here"
    verdicts = {True: ", the direction expected", False: ", not as expected", None: ""}
    words = [
        f"{counters.amount(one.before, metric)} before and {counters.amount(one.after, metric)} after on {one.layer}"
        f"{counters.change(one.before, one.after)}{verdicts[one.as_expected]}"
        for one in found
    ]
    counted = {name: ev.calls[name, found[0].layer] for name in sides}
    cut = [
        f"; {name}'s sum is scaled up from the first {len(call.launches)} of its {call.made} launches"
        for name, call in counted.items()
        if call.cut and metric.endswith(".sum")
    ]
    images = units.count(counted[variant.name].images)
    return f". At {images} images: {'; '.join(words)}{''.join(cut)}"


NUMBERS = {
    name: getattr(units, name)
    for name in (
        "time", "milliseconds", "significant", "scientific", "seconds", "spread", "ratio", "ratio_interval",
        "ratio_within", "percent", "count", "mebibytes", "nvprof_time", "quantity",
    )
}  # fmt: skip


def _templates(autoescape: bool = True) -> Environment:
    env = Environment(loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, autoescape=autoescape)
    env.filters |= NUMBERS
    return env


def environment(ev: Evidence, headings: Headings) -> Environment:
    """The template environment: undefined names raise, and what sections call is here."""
    env = _templates()
    env.filters |= {
        "data_uri": data_uri,
        "short_name": short_name,
        "billions": lambda value: units.significant(value / 1e9, 3),
        "megabytes": lambda value: units.significant(value / 1e6, 3),
        "flops": lambda layer, images: layer.flops(images),
    }
    env.globals |= {
        "ev": ev,
        "heading": headings,
        "headings": headings.entries,
        "figures": figures,
        "counters": counters,
        "profiled": profiled,
        "PROFILERS": profilers.NAMES,
        "watched": lambda variant: watched(ev, variant),
        "gnu_time": units.gnu_time,
        "most_of": evidence.most_of,
        "profile_rows": profile_rows,
        "nvprof_table": nvprof_table,
        "kernels_built": kernels_built,
        "failed_builds": failed_builds,
        "built": lambda variant: built(ev, variant),
        "invariant": invariant,
        "clock_span": clock_span,
        "narrative": lambda: narrative.rendered(ev),
        "GPU_KINDS": GPU_KINDS,
        "API_KINDS": API_KINDS,
        "ATTACKS": tables.ATTACKS,
        "SANITIZER": tables.SANITIZER,
        "SWEEP": tables.SWEEP,
        "run_tables": tables.RUN_TABLES,
        "HOT_WITHIN": bench.HOT_WITHIN,
        "shared_columns": tables.shared_columns(),
        "options": building.OPTIONS,
        "deviations": reference.DEVIATIONS,
    }
    return env


def _stylesheets() -> list[Markup]:
    return [Markup((FOLDER / "style" / f"{name}.css").read_text()) for name in ("tokens", "page", "type", "parts")]


def to_html(ev: Evidence, made: datetime, commit: str, dirty: bool | None) -> str:
    """The report as one HTML document, stylesheets within."""
    env = environment(ev, Headings())
    stories = {
        weight_set: weights.provenance(ev.network, weight_set) for weight_set in ev.plan.weight_sets(ev.network.name)
    }
    configuration = yaml.safe_dump(ev.config.model_dump(mode="json", exclude={"studies"}), sort_keys=False, width=100)
    study = yaml.safe_dump({ev.name: ev.study.model_dump(mode="json", exclude_none=True)}, sort_keys=False, width=100)
    return env.get_template("report.html.j2").render(
        made=made,
        commit=commit,
        dirty=dirty,
        stylesheets=_stylesheets(),
        stories=stories,
        configuration=f"{configuration}studies:\n" + "".join(f"  {line}\n" for line in study.splitlines()),
    )


def comparison_text(found: Comparison, figure: str = "") -> str:
    """Two runs compared, as Markdown."""
    return (
        _templates(autoescape=False)
        .get_template("compare.md.j2")
        .render(
            c=found,
            figure=figure,
            outcome=comparison.OUTCOMES[found.outcome],
            alarms=comparison.FALSE_ALARMS,
            names={device: found.head.device_name(device) for device in found.devices},
            measured={row.place.variant for row in found.moved},
        )
    )


def comparison_html(found: Comparison) -> str:
    """The same as an HTML document, with a picture of how far each variant moved."""
    picture = data_uri(figures.moved(found)) if found.places else ""
    kinds = "grey what did not change, in colour what did, with its interval" if found.moved else "none of them changed"
    words = f"Base's op time over head's of each variant on each network, corrected by the drift; {kinds}. Shaded: the "
    words += "same; lighter: ambiguous." if found.moved else "same."
    figure = f'<figure><img src="{picture}" alt="{words}"><figcaption>{words}</figcaption></figure>' if picture else ""
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(comparison_text(found, figure))
    return (
        _templates()
        .get_template("compare.html.j2")
        .render(c=found, stylesheets=_stylesheets(), body=Markup(body.replace("<table>", '<table class="data">')))
    )


def to_pdf(document: str, target: Path) -> None:
    """Write HTML as a tagged PDF. Raises UserError where Pango is missing or WeasyPrint found something wrong."""
    complaints: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(record.getMessage())

    try:
        import weasyprint
    except OSError as error:
        raise UserError(
            f"WeasyPrint cannot load Pango ({error}); install it with: "
            "apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0"
        ) from error
    handler = Collector(logging.WARNING)
    weasyprint.LOGGER.addHandler(handler)
    try:
        page = weasyprint.HTML(string=document, base_url=str(FOLDER / "style") + "/")
        page.write_pdf(target, pdf_variant="pdf/ua-1")
    finally:
        weasyprint.LOGGER.removeHandler(handler)
    if complaints:
        raise UserError("WeasyPrint could not draw everything:\n" + "\n".join(f"  {line}" for line in complaints[:20]))


def standalone(document: str) -> str:
    """HTML with its fonts inside, so that the file can be sent alone."""
    for path in sorted((FOLDER / "fonts").glob("*.ttf")):
        font = base64.b64encode(path.read_bytes()).decode()
        document = document.replace(f'url("../fonts/{path.name}")', f'url("data:font/ttf;base64,{font}")')
    return document
