"""Supplement: millions of images streamed over one device and over several: rates, efficiency, where time goes."""

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import Evidence
from warpbook.report.figures import time_plots
from warpbook.report.views.components import Figure, HtmlTable, View, numbers, words
from warpbook.runs.schema import Row
from warpbook.workflow import streams

PLACE_HEAD = (*words("Variant"), *numbers("Images"), *words("Over"))


def stream_tables_view(ev: Evidence) -> View | None:
    """Of the study's network; None where nothing was streamed."""
    rows = ev.streams.rows
    if not rows:
        return None
    return View(
        rates=_rates(ev, rows),
        spent=_time_table(rows),
        figure=_figure(ev) if len({row["images"] for row in rows}) > 1 else None,
        mismatched=units.count(sum(row["mismatched_labels"] for row in rows)),
    )


def _device_words(row: Row) -> str:
    """A stream's devices, and the number of its shards where that differs."""
    over = streams.device_words(row)
    return over if row["shards"] == row["devices"] else f"{over}, {row['shards']} shards"


def _place(row: Row) -> tuple[str, str, str]:
    return row["variant"], units.count(row["images"]), _device_words(row)


def _rates(ev: Evidence, rows: list[Row]) -> HtmlTable:
    machines = ", ".join(dict.fromkeys(ev.device_name(row["device"]) for row in rows))
    return HtmlTable(
        "stream-rates-table",
        f"Images streamed through {ev.network.name} on {machines}, once each: the time in which any worker ran, from "
        "the start of its process, and that in which any was past its start. Efficiency: images a second over those "
        "of one device times the devices.",
        (
            *PLACE_HEAD,
            *numbers("Time, s", "Images/s", "Efficiency", "Past start, s", "Images/s", "Efficiency"),
        ),
        tuple(
            (
                *_place(row),
                units.seconds(row["wall_s"]),
                units.count(round(row["images_per_s"])),
                units.percent(row["efficiency"]),
                units.seconds(row["streaming_s"]),
                units.count(round(row["streaming_images_per_s"])),
                units.percent(row["streaming_efficiency"]),
            )
            for row in rows
        ),
    )


def _time_table(rows: list[Row]) -> HtmlTable:
    return HtmlTable(
        "stream-spent-table",
        "Where a worker's time goes, the mean of the stream's workers. Start: Python, libraries, the device, weights and a first "
        "chunk. On a GPU, copies and kernels overlap reading. Memory: the most of a worker, on its device as the driver counts "
        "it. The system keeps the file in memory.",
        (
            *PLACE_HEAD,
            *numbers("Start, s", "Reading, s", "Copies, s", "Network, s", "Device, MiB", "Host, MiB"),
        ),
        tuple(
            (
                *_place(row),
                *(units.seconds(row[name]) for name in ("start_s", "read_s", "copy_s", "compute_s")),
                MISSING if row["device"] == "cpu" else f"{row['device_bytes'] / 2**20:.0f}",
                units.mebibytes(row["max_rss_kib"]),
            )
            for row in rows
        ),
    )


def _figure(ev: Evidence) -> Figure:
    return Figure(
        "stream-figure",
        time_plots.streams(ev, _device_words),
        "Time against the number of images, logarithmic both ways, a line for each number of devices.",
        "Time against images, both logarithmic: in whole, and hollow past the workers' start. Dashed: in proportion to "
        "the images, from one device's longest stream past its start.",
    )
