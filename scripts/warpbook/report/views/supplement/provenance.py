"""Supplement: machines and software of the runs cited, and weights."""

from typing import Any

from warpbook.common import units
from warpbook.problems import fashion_mnist, weights
from warpbook.problems.case_sets import CaseSet
from warpbook.problems.networks import Network
from warpbook.report.evidence import Evidence
from warpbook.report.views.components import HtmlTable, View, words
from warpbook.runs import tables
from warpbook.runs.catalog import Run

HASH_SHOWN = 16


def provenance_view(ev: Evidence) -> View:
    """Of the runs that the report cites and of the study that it is about."""
    archived = ev.gpu_run is not None and ev.gpu_run is not ev.local
    return View(
        runs=tuple(View(run_id=run.run_id, table=_run(ev, run, place)) for place, run in enumerate(ev.cited_runs, 1)),
        images=_images(ev.network),
        weight_sets=tuple(_weights(ev, name) for name in ev.plan.weight_sets(ev.network.name)),
        archive=f"reports/runs/{ev.gpu_run.run_id}.zip" if ev.gpu_run and archived else "",
    )


def _images(network: Network | CaseSet) -> str:
    """What the network, or the cases, were given."""
    if isinstance(network, CaseSet):
        return "The cases were given random numbers."
    if not network.has_labels:
        return "The network gives no classes: its convolutions were given random numbers, and no images."
    height, width = network.image
    scaled = "" if network.input.scale == 1 else f" times {network.input.scale:g}"
    if network.input.data:
        return f"Images of {network.input.data} and labels of {network.input.labels}, fed as they are{scaled}."
    fitted = ""
    if network.input.resizing == "pad":
        fitted = f"put in the middle of {height}×{width} zeros, "
    elif network.image != fashion_mnist.SIDES:
        fitted = f"resized from 28×28 to {height}×{width} bilinearly and truncated to eight bits, "
    return f"Fashion-MNIST's ten thousand test images, SHA-256 checked, {fitted}fed as 0 to 255{scaled}."


def _run(ev: Evidence, run: Run, place: int) -> HtmlTable:
    record, machine = run.record, run.record["machine"]
    cpu, packages = machine["cpu"], machine["packages"]
    code = f"Warpbook {record['version']}, " if "version" in record else ""  # not told before 0.2.0
    commit = f"commit {record['commit']}{', with uncommitted changes' if record['dirty'] else ''}"
    code += commit if record["commit"] else "commit unknown: no git on that machine"
    memory = units.significant(cpu["memory_gib"], 3)
    took_part = machine.get("measured_on", [])
    put_aside = machine.get("put_aside", [])
    # As a dictionary of names in lower and upper case is read.
    software = ", ".join(f"{name} {packages[name]}" for name in sorted(packages, key=str.lower))
    rows = [
        ("Cited for", _citation_words(ev, run)),
        ("Measured", f"{record['started']} to {record['ended']}"),
        ("Code", code),
        ("Host", f"{cpu['model']}, {cpu['cores']} cores, {memory} GiB; {machine['system']}"),
        *([("Nodes that measured", ", ".join(took_part))] if took_part else []),
        *([("GPUs in quarantine", "; ".join(put_aside))] if put_aside else []),
        *(_gpu(machine["gpu"], sum("/" in name for name in took_part)) if machine["gpu"] else []),
        ("Compiler", machine["compiler"]),
        ("Software", f"Python {machine['python']}; {software}"),
        ("SM clock while timing", clock_span(ev, run)),
    ]
    return HtmlTable(f"a-run-{place}", f"The run {run.run_id}.", words("Fact", "Value"), tuple(rows), "facts")


def _citation_words(ev: Evidence, run: Run) -> str:
    if run is not ev.local and run is not ev.gpu_run:
        return f"What the run of the GPU times lacks: {', '.join(ev.selection.kinds_from(run))}"
    if run is not ev.local:
        return "GPU times"
    if ev.missing_reason("cpu"):
        return "GPU times" if ev.gpu_run is ev.local else "Builds"
    return "CPU and GPU times" if ev.gpu_run is ev.local else "CPU times and builds"


def _gpu(gpu: dict[str, Any], took_part: int) -> list[tuple[str, str]]:
    memory, l2 = units.significant(gpu["memory_bytes"] / 2**30, 3), gpu["l2_bytes"] // 2**20
    sm_clock, memory_clock = (units.significant(gpu[f"{name}_clock_max_mhz"]) for name in ("sm", "memory"))
    power, peak = units.significant(gpu["power_limit_w"], 3), gpu["peak_gflop_per_s"]["fp32"] / 1e3
    copy, copy_low, copy_high = map(units.significant, (gpu["copy_gb_per_s"], *gpu["copy_gb_per_s_ci"]))
    written = f", writes alone {units.significant(gpu['write_gb_per_s'])} GB/s" if "write_gb_per_s" in gpu else ""
    fp32 = ""
    if "fp32_gflop_per_s" in gpu:
        ends = (gpu["fp32_gflop_per_s"], *gpu["fp32_gflop_per_s_ci"])
        rate, low, high = (units.significant(gflop / 1e3) for gflop in ends)
        fp32 = f"; FP32 multiply-adds {rate} TFLOP/s, {low} to {high}"
    device = f"{gpu['name']}, {gpu['arch']}, {gpu['multiprocessors']} multiprocessors, {memory} GiB, L2 {l2} MiB"
    of_several = f"; the one described of {took_part} that took part" if took_part > 1 else ""
    return [
        ("GPU", f"{device}; UUID SHA-256 {gpu['uuid_sha256'][:HASH_SHOWN]}…{of_several}"),
        ("Clocks and power", f"SM at most {sm_clock} MHz, memory {memory_clock} MHz, power limit {power} W"),
        (
            "Measured ceilings",
            f"copy {copy} GB/s read and written, 95 % interval {copy_low} to {copy_high}{written}{fp32}",
        ),
        ("Peak by specification", f"FP32 {units.significant(peak, 3)} TFLOP/s at the highest SM clock"),
        ("Driver and CUDA", f"driver {gpu['driver']} (CUDA {gpu['driver_cuda']})"),
    ]


def clock_span(ev: Evidence, run: Run) -> str:
    """SM clocks read while a run's samples were taken, and how many were taken under a slowdown."""
    samples = run.table(tables.SAMPLES)
    samples = samples[(samples.network == ev.network.name) & (samples.status == "ok")]
    clocks = samples.sm_clock_mhz.dropna()
    if clocks.empty:
        return "not read: no GPU samples" if run.gpu is None else "not read: NVML did not answer"
    spread = f"{clocks.min():.0f} to {clocks.max():.0f} MHz, median {clocks.median():.0f}"
    return f"{spread}; {int(samples.throttled.sum())} of {len(samples)} samples under a slowdown"


def _weights(ev: Evidence, name: str) -> View:
    assert isinstance(ev.network, Network)  # which alone has weights
    return View(model=ev.network.model(name), **weights.provenance(ev.network, name))
