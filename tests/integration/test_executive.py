"""The executive page: what changed since the run before."""

from dataclasses import replace
from types import SimpleNamespace

from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.report import figures
from warpbook.report.evidence import Evidence
from warpbook.report.views import executive
from warpbook.runs import catalog, tables


def test_what_changed_since_the_run_before_is_told_of_the_study_s_own_kernels(ev, monkeypatch, opened, small_archive):
    def row(variant: str, verdict: str = "faster") -> SimpleNamespace:
        place = SimpleNamespace(network="fa18", device="gpu", size=ev.largest, variant=variant)
        return SimpleNamespace(place=place, speedup=Estimate(2.0, 1.9, 2.1, 9), verdict=verdict)

    moved = [row("direct"), row("of_another_study"), row("shared_input", "same")]
    earlier = replace(opened(small_archive))  # another object than the run that the report is of
    compared = SimpleNamespace(obstacles={}, movements=moved)
    monkeypatch.setattr(
        catalog,
        "earlier_runs_of_model",
        lambda run, network: [earlier] if run is ev.gpu_run and network == "fa18" else [],
    )
    monkeypatch.setattr(
        executive, "Comparison", lambda base, head, _: compared if base is earlier and head is ev.gpu_run else None
    )
    assert executive.executive_view(ev).changes_since == f"against run {small_archive.stem}: direct 2.00×, faster"
    moved.pop(0)
    assert executive.executive_view(ev).changes_since == ""


def test_nothing_is_compared_with_the_run_before_of_another_gpu_model(ev, monkeypatch, opened):
    model, ended = ev.gpu_run.gpu["name"], ev.gpu_run.record["ended"]
    before = [run for run in map(opened, catalog.archived_paths()) if run.gpu and run.record["ended"] < ended]
    assert any(run.gpu["name"] != model for run in before)
    compared = []

    def compare(base, *_):
        compared.append(base.gpu["name"])
        return SimpleNamespace(obstacles={}, movements=[])

    monkeypatch.setattr(executive, "Comparison", compare)
    executive.executive_view(ev)
    assert set(compared) <= {model}


def with_samples_of(variant, layer, factor, ev):
    """The evidence in whose run a variant takes so many times as long on a layer."""
    samples = ev.gpu_run.table(tables.SAMPLES).copy()
    samples.loc[(samples.variant == variant) & (samples.layer == layer), "time_ms"] *= factor
    run = replace(ev.gpu_run, loaded={**ev.gpu_run.loaded, tables.SAMPLES.name: samples})
    other = Evidence(ev.plan, "fa18", run)
    other.gpu_run = run
    return other


def test_a_kernel_or_library_that_is_ahead_on_one_layer_is_named_with_it_where_the_gain_is_real(
    ev, evidence_of, small_archive
):
    (ahead,) = executive.executive_view(ev).faster_variants
    assert (ahead.layer, ahead.name, ev.ranking.best.name) == ("conv2", "fp16x3_wgmma", "fp16x3_mma")
    assert units.time(ev.times.op("fp16x3_wgmma", "conv2", ev.largest).value) in str(ahead.time)
    assert "fp16x3_wgmma" in figures.time_plots.op_times(ev)
    changed = evidence_of(small_archive)
    changed.ranking.faster_variants = {}
    assert executive.executive_view(changed).faster_variants == ()
    assert "fp16x3_wgmma" not in figures.time_plots.op_times(changed)

    ev = with_samples_of("cudnn_fp32_nhwc", "conv1", 0.9, ev)
    times = {
        name: {layer: ev.times.op(name, layer, ev.largest).value for layer in ev.layer_names}
        for name in ("cudnn_fp32", "cudnn_fp32_nhwc")
    }
    assert times["cudnn_fp32_nhwc"]["conv1"] < 0.99 * times["cudnn_fp32"]["conv1"]
    assert times["cudnn_fp32_nhwc"]["conv2"] > times["cudnn_fp32"]["conv2"]
    (ahead,) = executive.executive_view(ev).faster_peers
    assert (ahead.layer, ahead.name, ev.ranking.best_peer.name) == ("conv1", "cudnn_fp32_nhwc", "cudnn_fp32")
    over = ev.times.speedup(ev.ranking.best.name, "conv1", ev.largest, over=ahead.name)
    assert units.time(times[ahead.name]["conv1"]) in ahead.time
    assert units.ratio_beside_interval(over.ratio) in ahead.speedup
    without = evidence_of(small_archive)
    without.ranking.faster_peers = {}
    assert executive.executive_view(without).faster_peers == ()

    policy = ev.gpu_run.record["measuring"]
    assert evidence_of(small_archive, measuring=policy | {"equivalence_margin": 0.1}).ranking.faster_peers == {}
