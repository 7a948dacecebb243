"""Figures that the report which a study follows stated, and ours beside them."""

from typing import Any

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import Evidence
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
ON_DEVICE = " Kernel time of ours is the whole call's on the GPU (gpu): its kernels, and what lies between them."


def published_comparison_view(ev: Evidence) -> View:
    """What was published, each figure beside ours of the variant that comes nearest."""
    gains = _gains(ev) if any(gain.ours for gain in ev.published.gains) else None
    table = _table(ev)
    short = table if table.short else None
    return View(
        from_course=ev.name == "sp19", images=units.count(ev.largest), figures=len(table.rows), gains=gains, table=short
    )


def full_published_table(ev: Evidence) -> HtmlTable | None:
    """The table of all figures, for the supplement; None where the report has it or there are none."""
    table = _table(ev)
    return None if table.short else table


def _gains(ev: Evidence) -> HtmlTable:
    """Ratios within one machine: what of two machines can be compared."""
    return HtmlTable(
        "published-gains",
        "What each step gained on the published machine and on ours: ratios of two times of one machine, for the same layer and "
        "number of images. Where the two differ much, the gain depends on the hardware or on the launching program. †: times of "
        "two separate jobs." + _on_device({gain.quantity for gain in ev.published.gains}),
        (*words("Variant", "Over", "Time", "Layer"), *numbers("Images", "Published gain", "Ours")),
        tuple(
            (
                gain.variant,
                gain.over,
                QUANTITIES[gain.quantity],
                gain.layer,
                units.count(gain.size),
                units.ratio(gain.published),
                cell_markup.speedup_cell(gain.ours),
            )
            for gain in ev.published.gains
        ),
    )


def _table(ev: Evidence) -> HtmlTable:
    names = {f"framework_{device}": _framework(ev, device) for device in ("cpu", "gpu")}
    devices = [ev.device_name(device) for device in ("gpu", "cpu") if not ev.missing_reason(device)]
    rows = [row for row in ev.published.table.itertuples() if row.quantity in QUANTITIES and row.variant]
    return HtmlTable(
        "published-table",
        f"As published on the course's machines, and measured now on {' or '.join(devices) or 'none'}."
        f"{_on_device({str(row.quantity) for row in rows})}",
        (*words("Figure", "Variant"), *numbers("Images", "Published", "Now"), *words("Where it was published")),
        tuple(_row(ev, row, names) for row in rows),
        "published",
    )


def _on_device(quantities: set[str]) -> str:
    return ON_DEVICE if "kernel_ms" in quantities else ""


def _framework(ev: Evidence, device: str) -> str:
    framework = ev.programs.framework(device)
    return f"framework, {device.upper()}" + (f"; {framework.name}" if framework else "")


def _row(ev: Evidence, row: Any, names: dict[str, str]) -> tuple[Cell, ...]:
    ours = ev.published.own_value(row)
    return (
        QUANTITIES[row.quantity] + (f", {row.layer}" if row.layer else ""),
        names.get(row.variant, row.variant),
        row.size or "not stated",
        units.quantity(row.value, row.quantity),
        MISSING if ours is None else units.quantity(ours, row.quantity),
        row.where + (f"; {row.note}" if row.note else ""),
    )
