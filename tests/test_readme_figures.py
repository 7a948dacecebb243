"""The figures that the README quotes are those of the runs that it names."""

import re

import pytest

from warpbook import runs, stream_tables, streams, tables
from warpbook.files import PROJECT

README = (PROJECT / "README.md").read_text()
RUN = re.search(r"run (\d{8}-[\w-]+)\.", README)[1]
OURS = ("split_fp16", "split_reuse")


def rows_of(head):
    """Rows of the table whose first column has this head: (first cell, figures by their columns' heads)."""
    lines = README[README.index(f"| {head} |") :].split("\n\n")[0].splitlines()
    columns = [cell.strip(" `") for cell in lines[0].strip("|").split("|")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [pytest.param(first, dict(zip(columns, figures, strict=True)), id=first) for first, *figures in cells]


@pytest.fixture(scope="module")
def run():
    return runs.open_run(PROJECT / "reports" / "runs" / f"{RUN}.zip")


@pytest.fixture(scope="module")
def cpu_run():
    named = re.search(r"^CPU times .*?run (\d{8}-[\w-]+)\.", README, re.MULTILINE | re.DOTALL)[1]
    return runs.open_run(PROJECT / "reports" / "runs" / f"{named}.zip")


def as_quoted(value_ms):
    digits = 3 if value_ms < 1 else 2 if value_ms < 10 else 1
    return f"{value_ms:.{digits}f}"


def medians(run, place, state, kind):
    """By variant, of 10,000 images on a network's layer."""
    frame = run.table(tables.OP_TIMES)
    network, layer = place.split()
    chosen = (frame.network == network) & (frame.layer == layer) & (frame["size"] == 10000)
    chosen &= (frame.state == state) & (frame.kind == kind) & (frame.status == "ok")
    return frame[chosen].set_index("variant").median_ms


def busiest(run, place, variant):
    """What has the largest share of its peak while a variant's longest kernel runs on a network's layer."""
    frame = run.table(tables.COUNTERS)
    network, layer = place.split()
    kernels = frame[(frame.variant == variant) & (frame.network == network) & (frame.layer == layer)]
    by_metric = kernels.pivot_table(index="launch", columns="metric", values="value")
    longest = by_metric.loc[by_metric["gpu__time_duration.sum"].idxmax()]
    shares = {
        "DRAM": longest["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"],
        "L2": longest["lts__throughput.avg.pct_of_peak_sustained_elapsed"],
        "L1": longest["l1tex__throughput.avg.pct_of_peak_sustained_active"],
        "multiprocessors": longest["sm__throughput.avg.pct_of_peak_sustained_elapsed"],
    }
    name = max(shares, key=shares.get)
    return f"{name} {shares[name]:.0f} %"


@pytest.mark.parametrize(("place", "quoted"), rows_of("layer"))
def test_a_layer_s_times_are_those_of_the_run(run, place, quoted):
    median = medians(run, place, "cold", "gpu")
    ours = [name for name in OURS if name in median]
    best = {name: min(median[f"cudnn_{name}"], median[f"cudnn_{name}_nhwc"]) for name in ("fp32", "tf32")}
    times = {name: median[name] for name in ours} | {"cuDNN FP32": best["fp32"], "cuDNN TF32": best["tf32"]}
    expected = dict.fromkeys(OURS, "-") | {name: as_quoted(value) for name, value in times.items()}
    expected["busiest"] = busiest(run, place, min(ours, key=median.get))
    assert {name: figure for name, figure in quoted.items() if name != "goal"} == expected


ON_DATA = re.findall(r"([\d.]+) ms in\s`(\w+)` on (\w+)[,.]", README)


def test_times_of_kernels_on_the_data_set_are_quoted():
    assert len(ON_DATA) == 3


@pytest.mark.parametrize(("quoted", "variant", "network"), ON_DATA)
def test_a_kernel_s_time_in_a_profiled_program_is_that_of_the_run(run, quoted, variant, network):
    frame = run.table(tables.ACTIVITIES)
    chosen = (frame.tool == "cupti") & (frame.network == network) & (frame.variant == variant)
    kernels = frame[chosen & (frame["size"] == 10000) & (frame.kind == "kernel") & (frame.name == "sum_in_fp32")]
    assert quoted == as_quoted((kernels.end_ns - kernels.start_ns).max() / 1e6)


@pytest.mark.parametrize(("place", "quoted"), rows_of("layer on a CPU"))
def test_a_layer_s_times_on_a_cpu_are_those_of_their_run(cpu_run, place, quoted):
    median = medians(cpu_run, place, "hot", "op")
    names = {"register_blocked": "register_blocked", "ONNX Runtime": "onnxruntime", "PyTorch": "torch_cpu"}
    assert quoted == {name: as_quoted(median[variant]) for name, variant in names.items()}


@pytest.mark.parametrize(("network", "quoted"), rows_of("whole network"))
def test_a_network_s_times_are_those_of_the_run(run, network, quoted):
    frame = run.table(tables.NETWORK_SAMPLES)
    chosen = (
        (frame.network == network) & (frame["size"] == 10000) & (frame.status == "ok") & (frame.job == frame.variant)
    )
    chosen &= (frame.state == "cold") & (frame.kind == "gpu")
    median = frame[chosen].groupby("variant").time_ms.median()
    best = {
        name: min(median[way] for way in (f"eager_{name}", f"compiled_{name}") if way in median)
        for name in ("fp32", "tf32")
    }
    expected = {"PyTorch FP32": as_quoted(best["fp32"]), "PyTorch TF32": as_quoted(best["tf32"])}
    expected |= {
        name: as_quoted(median[name]) if name in median else "unsupported"
        for name in ("fused", "folded", "library", "warpgroups")
    }
    assert {name: figure for name, figure in quoted.items() if name != "goal"} == expected


@pytest.mark.parametrize(("gpus", "quoted"), rows_of("GPUs"))
def test_a_stream_s_rates_are_those_of_its_run(gpus, quoted):
    named = re.search(r"Ten million images .*?run (\d{8}-[\w-]+)", README, re.DOTALL)[1]
    streamed = runs.open_run(PROJECT / "reports" / "runs" / f"{named}.zip").table(stream_tables.STREAM_SHARDS)
    (row,) = (one for one in streams.summarised(streamed) if (one["images"], str(one["devices"])) == (10_000_000, gpus))
    assert quoted == {
        "in all": f"{row['images_per_s'] / 1e6:.2f}",
        "efficiency": f"{row['efficiency'] * 100:.0f} %",
        "after the start": f"{row['streaming_images_per_s'] / 1e6:.2f}",
        "its efficiency": f"{row['streaming_efficiency'] * 100:.0f} %",
    }
