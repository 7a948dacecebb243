"""Supplement: every kernel as built, with its resources."""

from collections.abc import Hashable
from typing import Any

import pandas as pd

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.harness import building
from warpbook.report.evidence import Evidence
from warpbook.report.views.components import Cell, HtmlTable, View, numbers, words

LOG_LENGTH = 400


def build_tables_view(ev: Evidence) -> View:
    """Builds made on this machine, or in the run cited for the GPU."""
    host = None if ev.builds.host.empty else _host(ev)
    failed = None if ev.builds.failed.empty else _failure_table(ev)
    in_others = [variant.name for variant in ev.compared_variants("gpu") if variant.language]
    languages = ev.builds.table[ev.builds.table.variant.isin(in_others)].compiler.unique()
    return View(
        table=_table(ev),
        host=host,
        failed=failed,
        options=" ".join(building.OPTIONS),
        languages=units.join_all(list(languages)),
    )


def _table(ev: Evidence) -> HtmlTable:
    archs = list(ev.builds.table.arch.unique())
    sound = ev.builds.table[ev.builds.table.ok]
    return HtmlTable(
        "a-builds",
        f"Builds by {units.join_all(list(sound.compiler.unique()))}: registers of a thread on each architecture (sm_…; –: not built "
        "for it). Static shared memory of a block, local memory and spilled bytes of a thread are the most on any. Theoretical "
        f"occupancy and its limit are those on {ev.arch}, where the header declares the block or a profile shows it.",
        (
            *words("Variant", "Kernel"),
            *numbers(*archs, "Shared, B", "Local, B", "Spills, B", "Occupancy"),
            *words("Limit"),
        ),
        tuple(_row(ev, archs, place, group) for place, group in sound.groupby(["variant", "kernel"], sort=False)),
        "wide",
    )


def _row(ev: Evidence, archs: list[str], place: tuple[Hashable, ...], group: pd.DataFrame) -> tuple[Cell, ...]:
    """A kernel's registers by architecture, the most of the rest on any, and its occupancy on the GPU cited."""
    registers = dict(zip(group.arch, group.registers, strict=True))
    most = group[["shared_bytes", "local_bytes", "spill_bytes"]].max()
    cited: list[Any] = [row for row in group.itertuples() if row.arch == ev.arch]
    share, limiter = (ev.builds.occupancy(cited[0]) if cited else None) or (None, MISSING)
    return (
        *map(str, place),
        *(str(registers.get(arch, MISSING)) for arch in archs),
        *map(str, most),
        units.percent(share, 0),
        limiter,
    )


def _host(ev: Evidence) -> HtmlTable:
    rows = ev.builds.host
    built = rows.ok.map({True: "yes", False: "no"})
    return HtmlTable(
        "a-builds-host",
        "C++ for the processor, compiled by this machine's compiler for any processor of its architecture; what a "
        "variant uses beyond that it finds at run time.",
        words("Variant", "For", "Compiler", "Options", "Built"),
        tuple(zip(rows.variant, rows.arch, rows.compiler, rows.options, built, strict=True)),
        "wide",
    )


def _failure_table(ev: Evidence) -> HtmlTable:
    failed = ev.builds.failed
    return HtmlTable(
        "a-builds-failed",
        "Builds that failed.",
        words("Variant", "Arch", "The compiler's words"),
        tuple(zip(failed.variant, failed.arch, failed.log.str[:LOG_LENGTH], strict=True)),
    )
