"""The figures that the README quotes are those of the runs that it names."""

import re

import pytest

from warpbook.common.files import PROJECT
from warpbook.runs import catalog, tables
from warpbook.workflow import streams

README = (PROJECT / "README.md").read_text()
OURS = ("fp16x3_mma", "fp16x3_wgmma")
NETWORKS = ("fused_mma", "fused_conv_fc_algebra", "fused_cublas", "fused_wgmma")


def rows_of(head):
    """Rows of the table whose first column has this head: (first cell, figures by their columns' heads)."""
    lines = README[README.index(f"| {head} |") :].split("\n\n")[0].splitlines()
    columns = [cell.strip(" `") for cell in lines[0].strip("|").split("|")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [pytest.param(first, dict(zip(columns, figures, strict=True)), id=first) for first, *figures in cells]


def named(beginning):
    """The run that a paragraph names, which begins so."""
    paragraph = README[README.index(f"\n{beginning}") :].split("\n\n")[0]
    name = re.search(r"run (\d{8}-[\w-]+)", paragraph)[1]
    return catalog.open_run(PROJECT / "reports" / "runs" / f"{name}.zip")


@pytest.fixture(scope="module")
def run():
    return named("GPU times of")


@pytest.fixture(scope="module")
def networks_run():
    return named("Whole networks on")


@pytest.fixture(scope="module")
def cpu_run():
    return named("CPU times of")


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
    if kernels.empty:
        return "-"
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
def test_a_layer_s_times_are_those_of_the_run(run, networks_run, place, quoted):
    median = medians(run, place, "cold", "gpu")
    ours = [name for name in OURS if name in median]
    best = {name: min(median[f"cudnn_{name}"], median[f"cudnn_{name}_nhwc"]) for name in ("fp32", "tf32")}
    times = {name: median[name] for name in ours} | {"cuDNN FP32": best["fp32"], "cuDNN TF32": best["tf32"]}
    expected = dict.fromkeys(OURS, "-") | {name: as_quoted(value) for name, value in times.items()}
    expected["busiest"] = busiest(run, place, min(ours, key=median.get))
    there = medians(networks_run, place, "cold", "gpu")[ours]
    expected |= {"on an H100": as_quoted(there.min()), "busiest there": busiest(networks_run, place, there.idxmin())}
    assert {name: figure for name, figure in quoted.items() if name != "goal"} == expected


ON_DATA = re.findall(r"([\d.]+) ms in\s`(\w+)` on (\w+)[,.]", README)


def test_times_of_kernels_on_the_data_set_are_quoted():
    assert len(ON_DATA) == 3


@pytest.mark.parametrize(("quoted", "variant", "network"), ON_DATA)
def test_a_kernel_s_time_in_a_profiled_program_is_that_of_the_run(run, quoted, variant, network):
    frame = run.table(tables.ACTIVITIES)
    chosen = (frame.tool == "cupti") & (frame.network == network) & (frame.variant == variant)
    kernels = frame[
        chosen & (frame["size"] == 10000) & (frame.kind == "kernel") & (frame.name == "fp32_fallback_kernel")
    ]
    assert quoted == as_quoted((kernels.end_ns - kernels.start_ns).max() / 1e6)


@pytest.mark.parametrize(("place", "quoted"), rows_of("layer on a CPU"))
def test_a_layer_s_times_on_a_cpu_are_those_of_their_run(cpu_run, place, quoted):
    median = medians(cpu_run, place, "hot", "op")
    names = {"register_blocked": "register_blocked", "ONNX Runtime": "onnxruntime", "PyTorch": "torch_cpu"}
    assert quoted == {name: as_quoted(median[variant]) for name, variant in names.items()}


def of_network(run, network, images=10000):
    """Medians, by kind of time and implementation, of a whole network."""
    frame = run.table(tables.NETWORK_SAMPLES)
    chosen = (frame.network == network) & (frame["size"] == images) & (frame.status == "ok")
    chosen &= (frame.state == "cold") & (frame.job == frame.variant)
    return frame[chosen].groupby(["kind", "variant"]).time_ms.median()


@pytest.mark.parametrize(("network", "quoted"), rows_of("whole network"))
def test_a_network_s_times_are_those_of_the_run(networks_run, network, quoted):
    median = of_network(networks_run, network)
    gpu, fastest = median["gpu"], median["host"].idxmin()
    best = {name: min(gpu[f"eager_{name}"], gpu[f"compiled_{name}"]) for name in ("fp32", "tf32")}
    expected = {name: as_quoted(gpu[name]) if name in gpu else "unsupported" for name in NETWORKS}
    expected |= {"PyTorch FP32": as_quoted(best["fp32"]), "PyTorch TF32": as_quoted(best["tf32"])}
    from_host, larger = median["host", fastest], max(median["copy", fastest], gpu[fastest])
    expected |= {"from the host": as_quoted(from_host), "over": f"{from_host / larger:.2f}"}
    assert {name: figure for name, figure in quoted.items() if name != "goal"} == expected


def test_networks_times_on_an_h200_are_those_of_its_run(run):
    quoted = re.search(r"\(([\d., ]+) and ([\d.]+) ms in its run above", README).groups()
    fastest = [
        of_network(run, network)["gpu"].reindex(NETWORKS).min() for network in ("fa17", "fa18", "fa19", "ece408")
    ]
    assert ", ".join(quoted) == ", ".join(map(as_quoted, fastest))


def test_times_of_few_images_are_those_of_the_run(networks_run):
    quoted = re.search(r"`(\w+)` (\d+) µs on the H100, a hundred (\d+) µs", README)
    times = [of_network(networks_run, "fa17", images)["gpu", quoted[1]] for images in (10, 100)]
    assert [quoted[2], quoted[3]] == [f"{time_ms * 1e3:.0f}" for time_ms in times]


@pytest.mark.parametrize(("gpus", "quoted"), rows_of("GPUs"))
def test_a_stream_s_rates_are_those_of_its_run(gpus, quoted):
    streamed = named("Ten million images").table(tables.STREAM_SHARDS)
    (row,) = (one for one in streams.summarised(streamed) if (one["images"], str(one["devices"])) == (10_000_000, gpus))
    assert quoted == {
        "in all": f"{row['images_per_s'] / 1e6:.2f}",
        "efficiency": f"{row['efficiency'] * 100:.0f} %",
        "after the start": f"{row['streaming_images_per_s'] / 1e6:.2f}",
        "its efficiency": f"{row['streaming_efficiency'] * 100:.0f} %",
    }
