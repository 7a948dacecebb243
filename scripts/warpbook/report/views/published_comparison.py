"""Figures that the report which a study follows stated, and ours beside them."""

from typing import Any

import pandas as pd

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import API_KINDS, GPU_KINDS, Evidence, ProfileRow, Speedup
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, HtmlTable, View, numbers, words

QUANTITIES = {
    "op_ms": "op time",
    "kernel_ms": "kernel time",
    "elapsed_s": "program, elapsed",
    "user_s": "program, user",
    "system_s": "program, system",
    "max_rss_kib": "program, peak memory",
    "accuracy": "accuracy",
}
PROFILED = {
    "profile_ms": "Time", "share_percent": "Share", "calls": "Calls", "registers": "Registers",
    "static_shared_bytes": "Static shared, B",
}  # fmt: skip
"""Quantities of a row of a profile, which has a name."""
TIMES = ("op_ms", "kernel_ms")
ON_DEVICE = " Kernel time of ours is the whole call's on the GPU (gpu): its kernels, and what lies between them."


def published_comparison_view(ev: Evidence) -> View:
    """What was published, each figure beside ours of the variant that comes nearest. sources: whose they are, where
    those may be named; more: what of it the supplement has."""
    table, profiles = _table(ev), published_profiles(ev)
    more = [] if _is_in_report(ev, table) else [f"all {len(table.rows)} values"]
    more += [f"{len(profiles.rows)} rows of profiles"] if profiles else []
    return View(
        from_course=ev.name == "sp19",
        sources=() if ev.is_network else tuple(dict.fromkeys(ev.published["where"])),
        machines=tuple(dict.fromkeys(ev.published.device)),
        figures=len(table.rows),
        more=tuple(more),
        gains=_gains(ev),
        table=table if _is_in_report(ev, table) else None,
    )


def full_published_table(ev: Evidence) -> HtmlTable | None:
    """The table of all figures, for the supplement; None where the report has it or there are none."""
    table = _table(ev)
    return None if _is_in_report(ev, table) else table


def published_profiles(ev: Evidence) -> HtmlTable | None:
    """The rows of published profiles, each beside ours of the same name in the same program; None where there are none."""
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    own_kernels = set[str]()
    one: Any
    for one in ev.published[ev.published.quantity.isin([*PROFILED, "kernel_ms"])].itertuples():
        if one.name:
            told_apart = one.note if " of this name" in one.note else ""
            place = (one.where, one.variant, one.size, one.name, told_apart, _weights(ev, one))
            quantity = "profile_ms" if one.quantity == "kernel_ms" else one.quantity
            rows.setdefault(place, {})[quantity] = one.value
            if one.quantity == "kernel_ms":
                own_kernels.add(one.name)
    if not rows:
        return None
    told = [quantity for quantity in PROFILED if any(quantity in figures for figures in rows.values())]
    forms = {"profile_ms": units.time, "share_percent": lambda percent: units.percent(percent / 100, 2)}
    cells = []
    for (where, variant, size, name, _, weights), figures in rows.items():
        ours = _own_profile_row(ev, variant, size, name, weights, name in own_kernels)
        theirs = (forms.get(each, "{:g}".format)(figures[each]) if each in figures else MISSING for each in told)
        mine = (
            (units.time(ours.total_ns / 1e6), units.percent(ours.share, 2), str(ours.calls)) if ours else (MISSING,) * 3
        )
        cells.append((where, name, *theirs, *mine))
    return HtmlTable(
        "published-profiles",
        "Rows of published profiles, and ours of the same name in the program of the same variant. Beside a kernel of the "
        "convolution stands ours. –: not stated, or nothing is called so. Libraries' kernels have other names today.",
        (
            *words("Where it was published", "Name"),
            *numbers(*map(PROFILED.__getitem__, told), "Now: time", "Share", "Calls"),
        ),
        tuple(cells),
        "dense",
    )


def _own_profile_row(
    ev: Evidence, variant: str, size: str, name: str, weights: str, of_variant: bool
) -> ProfileRow | None:
    """Our row of that name; of a kernel of the variant's own, that called alike, else its convolution's."""
    framework = ev.programs.framework(variant.removeprefix("framework_")) if variant.startswith("framework_") else None
    own = framework.name if framework else variant
    at = int(size) if size.isdigit() else ev.largest
    by_name = {row.name: row for kinds in (GPU_KINDS, API_KINDS) for row in ev.profiles.rows(own, at, kinds, weights)}
    if name in by_name or not of_variant:
        return by_name.get(name)
    alike = name.rpartition("::")[2].lower().removesuffix("_kernel")
    return by_name.get(alike, by_name.get("conv_forward"))


def _weights(ev: Evidence, row: Any) -> str:
    """The weights of a published figure, where they are a set besides the first; else empty."""
    return "low" if "weights: low" in row.note and "low" in ev.network.weight_sets else ""


def _is_in_report(ev: Evidence, table: HtmlTable) -> bool:
    """A ladder's gains say all that its times do."""
    return table.short and (ev.is_network or _gains(ev) is None)


def _gains(ev: Evidence) -> HtmlTable | None:
    """What each published variant gained over the nearest that it builds on, and where a library was timed too its share of
    that one's speed: ratios within one machine, which two machines can be compared by. None where we have none of them."""
    found: dict[tuple[Any, ...], tuple[tuple[Any, ...], tuple[Cell, ...]]] = {}
    table, measured = ev.published, False
    times = table[table.quantity.isin(TIMES) & table.layer.isin([*ev.layer_names, "both"])]
    rows: list[Any] = list(times.itertuples())
    libraries = {row.layer: row.variant for row in rows if _is_library(ev, row.variant)}
    same = ["quantity", "layer", "size", "weights"]
    times = times.assign(weights=times.note.str.extract("weights: (high|low)", expand=False).fillna(""))
    rough = times.printed.str.startswith("~")
    row: Any
    for row in times[times.variant.isin(list(ev.plan.variants))].itertuples():
        alike = times[(times[same] == [getattr(row, name) for name in same]).all(axis=1)]
        # A rough figure is comparable with what the same sentence tells of the step before alone.
        alike = alike[(alike["where"] == row.where) | ~(rough[alike.index] | row.printed.startswith("~"))]
        above = _predecessors(ev, row.variant)
        over = next((name for name in above if (alike.variant == name).any()), "")
        if not over:
            continue
        bases = alike[alike.variant == over]
        beside = bases[bases["where"] == row.where]
        published = (beside if len(beside) else bases).iloc[0].value / row.value
        key = (row.variant, over, row.quantity, row.layer, _own_size(ev, row))
        ours = _own_gain(ev, *key)
        measured |= ours is not None
        cells: tuple[Cell, ...] = (units.ratio(published), cell_markup.speedup_cell(ours))
        if libraries:
            cells += _library_shares(ev, row, alike[alike.variant == libraries.get(row.layer)])
        step = (row.variant, *key[2:])
        if step not in found or above.index(over) < above.index(found[step][0][2]):  # the nearest that was published
            found[step] = ((row.weights, *key), cells)
    if not measured:
        return None
    steps = dict(found.values())
    weights, quantities, layers, our_sizes = ({place[end] for place in steps} for end in (0, 3, 4, 5))
    alone = not ev.is_network and len(quantities) == len(layers) == len(our_sizes) == 1
    columns = (
        *words("Variant", "Over", *["Weights"] * (weights != {""}), *["Time", ev.case_word.capitalize()] * (not alone)),
        *numbers(*[ev.size_word if ev.is_network else "Our size"] * (not alone), "Published gain", "Ours"),
        *numbers(*["Published over the library", "Ours over the fastest"] * bool(libraries)),
    )
    place = f" Ours are of {layers.pop()} at {ev.at_size(our_sizes.pop())}." if alone else ""
    known = ev.plan.variants
    if any(known[new].device != known[old].device for _, new, old, *_ in steps if old in known):
        place += " A gain over CPU code is between two processors, also of ours."
    theirs = {int(size) for size in times["size"] if size.isdigit()}
    if alone and len(theirs) == 1 and not theirs <= {*ev.sizes}:
        place += f" Those published are of size {units.count(theirs.pop())}."
    return HtmlTable(
        "published-gains",
        "What each step gained on the published machine and on ours: ratios of two times of one machine, for the same "
        f"{'layer and number of images' if ev.is_network else 'case'}. "
        f"Where the two differ much, the gain depends on the hardware or on the launching program.{place} †: times of "
        f"two separate jobs.{ON_DEVICE * ('kernel_ms' in quantities)}",
        columns,
        tuple(
            (
                _stem(variant),
                _stem(over),
                *[used or "not stated"] * (weights != {""}),
                *([QUANTITIES[quantity], layer, units.count(size)] * (not alone)),
                *cells,
            )
            for (used, variant, over, quantity, layer, size), cells in steps.items()
        ),
        "dense" if libraries else "",
    )


def _library_shares(ev: Evidence, row: Any, library: pd.DataFrame) -> tuple[Cell, Cell]:
    """A published time of a library over that of a variant, and the same of our fastest library at FP32 accuracy."""
    peer = ev.ranking.fastest_peer(row.layer) if row.layer in ev.layer_names else None
    if library.empty or peer is None:
        return MISSING, MISSING
    published = units.ratio(library.iloc[0].value / row.value)
    if row.variant == library.iloc[0].variant:
        return "1×", "1×"
    ours = _own_gain(ev, row.variant, peer.name, row.quantity, row.layer, _own_size(ev, row))
    return published, cell_markup.ratio_cell(ours)


def _is_library(ev: Evidence, name: str) -> bool:
    one = ev.plan.variants.get(name)
    return one is not None and one.header.peer and one.header.precision == "fp32"


def _stem(name: str) -> str:
    return name.rpartition("/")[2]


def _predecessors(ev: Evidence, name: str) -> list[str]:
    """The variants that a variant builds on, nearest first; the CPU's starting point comes last."""
    above = [step.name for step in ev.ranking.chain(ev.plan.variants[name])][-2::-1]
    return [*above, *(["loop_nest"] if "loop_nest" not in (name, *above) else [])]


def _own_gain(ev: Evidence, variant: str, over: str, quantity: str, layer: str, size: int) -> Speedup | None:
    kind = "op" if quantity == "op_ms" else "gpu"
    if over not in ev.plan.variants:
        return None
    if layer not in ev.layer_names:
        return ev.times.total_speedup(variant, size, over, kind)
    return ev.times.speedup(variant, layer, size, over, kind)


def _own_size(ev: Evidence, row: Any) -> int:
    """The size of ours that a published figure is compared with: the smallest that is as large as its own, or larger. Where
    there is none, or the figure tells no size, the largest."""
    return min((size for size in ev.sizes if row.size.isdigit() and size >= int(row.size)), default=ev.largest)


def _table(ev: Evidence) -> HtmlTable:
    frameworks = {f"framework_{device}": ev.programs.framework(device) for device in ("cpu", "gpu")}
    names = {
        name: f"framework, {name[-3:].upper()}{f'; {one.name}' if one else ''}" for name, one in frameworks.items()
    }
    devices = [ev.device_name(device) for device in ("gpu", "cpu") if not ev.missing_reason(device)]
    rows: list[Any] = [row for row in ev.published.itertuples() if row.quantity in QUANTITIES and row.variant]
    cells = []
    for row in rows:
        one = frameworks.get(row.variant, ev.plan.variants.get(row.variant))
        ours = _own_value(ev, row, one.name) if one else None
        cells.append(_row(row, names.get(row.variant, row.variant), ours))
    return HtmlTable(
        "published-table",
        f"As published{' on the course machines' * ev.is_network}, and "
        f"{'measured now on ' + ' or '.join(devices) if devices else 'not measured here'}."
        f"{ON_DEVICE * any(row.quantity == 'kernel_ms' for row in rows)}",
        (
            *words("Figure", "Variant"),
            *numbers("Images" if ev.is_network else "Size", "Published", "Now"),
            *words("Where it was published"),
        ),
        tuple(cells),
        "published",
    )


def _row(row: Any, name: str, ours: float | None) -> tuple[Cell, ...]:
    return (
        QUANTITIES[row.quantity] + (f", {row.layer}" if row.layer else ""),
        name,
        row.size or "not stated",
        units.quantity(row.value, row.quantity),
        MISSING if ours is None else units.quantity(ours, row.quantity),
        row.where + (f"; {row.note}" if row.note else ""),
    )


def _own_value(ev: Evidence, row: Any, name: str) -> float | None:
    """Our own value for a published one: of the same variant and layer."""
    size = _own_size(ev, row)
    if row.quantity not in TIMES:
        runs = ev.programs.runs(name, size, _weights(ev, row) or None)
        return float(runs[row.quantity].median()) if len(runs) else None
    kind = "op" if row.quantity == "op_ms" or ev.plan.variants[name].device == "cpu" else "gpu"
    if row.layer in ev.layer_names:
        time = ev.times.op(name, row.layer, size, kind)
    elif row.layer == "both" or len(ev.layers) == 1:
        time = ev.times.total(name, size, kind)
    else:
        return None  # one layer's, not said which
    return time.value if time else None
