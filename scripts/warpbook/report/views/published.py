"""Figures that the report which a study follows stated, and ours beside them."""

from dataclasses import dataclass
from typing import Any

from warpbook import units
from warpbook.report.evidence import Evidence
from warpbook.report.views.parts import Cell, Table, numbers, words
from warpbook.units import MISSING

QUANTITIES = {
    "op_ms": "op time",
    "kernel_ms": "kernel time",
    "elapsed_s": "program, elapsed",
    "user_s": "program, user",
    "system_s": "program, system",
    "max_rss_kib": "program, peak memory",
    "accuracy": "accuracy",
}


@dataclass(frozen=True)
class Published:
    """from_course: the course stated the figures, not a student report. table: None where nothing was published."""

    from_course: bool
    images: str
    table: Table | None


def view(ev: Evidence) -> Published:
    """What was published, each figure beside ours of the variant that comes nearest."""
    return Published(ev.name == "sp19", units.count(ev.largest), None if ev.published.table.empty else _table(ev))


def _table(ev: Evidence) -> Table:
    names = {f"framework_{device}": _framework(ev, device) for device in ("cpu", "gpu")}
    rows = (row for row in ev.published.table.itertuples() if row.quantity in QUANTITIES and row.variant)
    return Table(
        "published-table",
        f"As published on the course's machines, and measured now on {ev.device_name('gpu')} or "
        f"{ev.device_name('cpu')}.",
        (*words("Figure", "Variant"), *numbers("Images", "Published", "Now"), *words("Where it was published")),
        tuple(_row(ev, row, names) for row in rows),
        "sentences",
    )


def _framework(ev: Evidence, device: str) -> str:
    framework = ev.programs.framework(device)
    return f"framework, {device.upper()}" + (f"; {framework.name}" if framework else "")


def _row(ev: Evidence, row: Any, names: dict[str, str]) -> tuple[Cell, ...]:
    ours = ev.published.beside(row)
    return (
        QUANTITIES[row.quantity] + (f", {row.layer}" if row.layer else ""),
        names.get(row.variant, row.variant),
        row.size or "not stated",
        units.quantity(row.value, row.quantity),
        MISSING if ours is None else units.quantity(ours, row.quantity),
        row.where + (f"; {row.note}" if row.note else ""),
    )
