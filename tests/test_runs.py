"""Archived runs, whole, damaged and foreign, and where a study's GPU figures come from."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import yaml

from conftest import PROJECT
from warpbook import config, devices, evidence, plan, rendering, runs, tables, variants
from warpbook.errors import UserError

ARCHIVES = sorted(path for path in (PROJECT / "reports" / "runs").glob("*.zip") if "profiles" not in path.name)


@pytest.fixture
def archive(tmp_path) -> Path:
    """A copy of the newest archived run."""
    return Path(shutil.copy(ARCHIVES[-1], tmp_path / ARCHIVES[-1].name))


def rewritten(path: Path, name: str, change) -> Path:
    """The zip with one member's bytes changed; None leaves it out."""
    with zipfile.ZipFile(path) as packed:
        members = {entry: packed.read(entry) for entry in packed.namelist()}
    members[name] = change(members[name])
    with zipfile.ZipFile(path, "w") as packed:
        for entry, content in members.items():
            if content is not None:
                packed.writestr(entry, content)
    return path


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.stem)
def test_every_archived_run_is_sound_and_small(path):
    run = runs.open_run(path)
    assert run.problem == ""
    assert run.run_id == path.stem
    assert path.stat().st_size < 15 << 20


def test_a_run_names_its_machine_and_code(archive):
    record = runs.open_run(archive).record
    assert record["machine"]["gpu"]["name"]
    assert record["machine"]["gpu"]["copy_gb_per_s"] > 0
    assert {"commit", "dirty", "measuring", "protocol", "config"} <= record.keys()
    assert all(len(variant["source_sha256"]) == 64 for variant in record["variants"].values())


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("run.json", lambda content: None, "holds no run.json"),
        ("run.json", lambda content: content[:-30], "is damaged"),
        ("run.json", lambda content: b"[]", "run.json lacks 'format'"),
        ("run.json", lambda content: content.replace(b'"format": 1', b'"format": 9'), "is of format 9"),
        ("run.json", lambda content: content.replace(b'"machine"', b'"device"', 1), "run.json lacks 'machine'"),
    ],
)
def test_a_run_without_a_sound_record_is_refused(archive, name, change, words):
    with pytest.raises(UserError, match=words):
        runs.open_run(rewritten(archive, name, change))


def without(part: bytes, instead: bytes = b""):
    return lambda content: content.replace(part, instead, 1)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("builds.csv", lambda content: None, "lacks builds.csv"),
        ("builds.csv", without(b"registers", b"regs"), "builds.csv lacks the column 'registers'"),
        ("op_times.csv", without(b",ci_low_ms"), "op_times.csv lacks the column 'ci_low_ms'"),
        ("samples.csv.gz", lambda content: content[: len(content) // 2], "samples.csv.gz cannot be read"),
        ("programs.csv", without(b",10000,0,", b",many,0,"), "programs.csv, row .*, column size"),
    ],
)
def test_a_damaged_table_is_named_with_file_and_column(archive, name, change, words):
    assert re.search(words, runs.open_run(rewritten(archive, name, change)).problem)


@pytest.mark.parametrize("keep", [0, 100, 10_000])
def test_a_truncated_archive_is_refused(archive, keep):
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(UserError, match="is damaged"):
        runs.open_run(archive)


def planned(**changes):
    content = yaml.safe_load(config.FILE.read_text()) | changes
    return plan.make(config.load(content, list(variants.discover())))


def test_an_unknown_run_is_named_with_the_nearest():
    wrong = ARCHIVES[-1].stem[:-1] + "x"
    with pytest.raises(UserError, match=f"no archived run is called '{wrong}': did you mean '{ARCHIVES[-1].stem}'"):
        _ = planned(gpu=wrong).gpu_sources


def test_a_live_gpu_that_is_not_there_is_an_error_that_says_what_was_looked_for():
    if isinstance(devices.probe(), devices.Device):
        pytest.skip("there is a GPU here")
    with pytest.raises(UserError, match=r"gpu: live needs a CUDA device, and none is here: .*cu"):
        _ = planned(gpu="live").gpu_sources


def test_without_a_gpu_the_newest_archived_run_of_the_network_is_taken(monkeypatch):
    source = plan.Plan(planned().config, variants.discover(), "no device").gpu_sources["fa18"]
    assert source.archived.run_id in [path.stem for path in ARCHIVES]
    assert "no device" in source.why


def test_a_corrupt_newest_archive_is_passed_over_and_said(tmp_path):
    for path in ARCHIVES:
        shutil.copy(path, tmp_path)
    (tmp_path / "99991231-broken-000000.zip").write_bytes(b"PK\x03\x04")
    run, refused = runs.newest_archived("fa18", tmp_path)
    assert run.run_id in [path.stem for path in ARCHIVES]
    assert len(refused) == 1
    assert "99991231-broken-000000.zip is damaged" in refused[0]


def test_without_any_archive_there_are_no_gpu_figures(tmp_path):
    assert runs.newest_archived("fa18", tmp_path) == (None, [])


def evidence_of(run_path, **changes):
    """Evidence whose CPU and GPU figures are those of one run, under the policy that it was measured with."""
    run = runs.open_run(run_path)
    made = planned(**{"gpu": "auto", "measuring": run.record["measuring"], **changes})
    made = plan.Plan(made.config, made.variants, "no device, for the test")
    found = evidence.Evidence(made, "fa18", run)
    found.gpu_run = run
    return found


def test_a_figure_of_changed_sources_is_stale_and_in_no_headline(archive):
    def change(content):
        record = json.loads(content)
        record["variants"]["direct"]["source_sha256"] = "0" * 64
        return json.dumps(record).encode()

    found = evidence_of(rewritten(archive, "run.json", change))
    (row,) = found.set_aside[found.set_aside.variant == "direct"].itertuples()
    assert row.status == "stale"
    assert "its sources changed after it was measured" in row.reason
    assert "direct" not in [variant.name for variant in found.measured("gpu")]
    assert found.op("direct", "conv1", 10000) is None


def test_the_framework_on_the_cpu_is_onnx_runtime_though_pytorch_ran_too_and_pytorch_where_it_ran_alone(archive):
    found = evidence_of(archive)
    ran = pd.DataFrame({"variant": ["torch_cpu", "onnxruntime"], "size": 10000, "weights": "trained", "status": "ok"})
    found.programs = ran
    assert found.framework("cpu").name == "onnxruntime"
    found.programs = ran[ran.variant == "torch_cpu"]
    assert found.framework("cpu").name == "torch_cpu"


def test_figures_of_another_measuring_policy_are_stale(archive):
    measuring = yaml.safe_load(config.FILE.read_text())["measuring"] | {"relative_noise": 0.5}
    found = evidence_of(archive, measuring=measuring)
    assert set(found.set_aside.status) - {"not_measured"} == {"stale"}
    assert "measuring policy differs: `relative_noise`" in found.set_aside.reason.iloc[0]
    assert found.best is None


def test_figures_of_other_shapes_are_stale(archive):
    def change(content):
        record = json.loads(content)
        record["networks"]["fa18"]["shapes_sha256"] = "0" * 64
        return json.dumps(record).encode()

    found = evidence_of(rewritten(archive, "run.json", change))
    assert "shapes changed" in found.set_aside.reason.iloc[0]


def test_figures_of_other_compile_options_are_stale(archive):
    found = evidence_of(
        rewritten(archive, "builds.csv", lambda content: content.replace(b"--std=c++17", b"--std=c++14"))
    )
    stale = found.set_aside[found.set_aside.status == "stale"]
    assert "direct" in set(stale.variant)
    assert "compile options differ" in stale.reason.iloc[0]


def test_the_four_kinds_of_time_keep_their_order(archive):
    found = evidence_of(archive, measuring=runs.open_run(archive).record["measuring"])
    assert rendering.invariant(found).startswith("The order gpu ≤ op ≤ layer ≤ program holds")


def test_a_kernel_time_beyond_its_call_s_own_is_refused_and_counted(archive):
    found = evidence_of(archive, measuring=runs.open_run(archive).record["measuring"])
    before, sound = found.refused_samples, found.op("direct", "conv1", 10_000, "gpu")
    place = (found.samples.variant == "direct") & (found.samples.layer == "conv1") & (found.samples.kind == "gpu")
    place &= (found.samples["size"] == 10_000) & (found.samples.state == "cold") & (found.samples.job == "direct")
    again = evidence_of(archive, measuring=runs.open_run(archive).record["measuring"])
    again.samples.loc[again.samples.index[place][0], "time_ms"] = 500.0
    assert again.refused_samples == before + 1
    assert again.op("direct", "conv1", 10_000, "gpu").high < 1.1 * sound.high


def test_no_recorded_time_is_below_the_hardware_s_bound(archive):
    times = runs.open_run(archive).table(tables.OP_TIMES)
    large = times[(times.device == "gpu") & (times.status == "ok") & (times["size"] == 10000)]
    assert (large.median_ms >= large.bound_ms).all()


def test_the_reference_model_predicts_as_published_with_every_fp32_gpu_variant_of_the_archived_run():
    run, _ = runs.newest_archived("sp19")
    precision = {name: variant["precision"] for name, variant in run.record["variants"].items()}
    labels = run.table(tables.CORRECTNESS)
    labels = labels[(labels.network == "sp19") & (labels.device == "gpu") & (labels.test == "labels")]
    labels = labels[labels.variant.map(precision) == "fp32"]
    plain = [name for name, variant in run.record["variants"].items() if variant["device"] == "gpu"]
    assert set(labels.variant) == {name for name in plain if precision[name] == "fp32"}
    assert set(labels["size"]) >= {100, 1000, 10000}
    # As the float64 reference, whose 8398 of 10000 are one more than published.
    assert (labels.mismatched_labels == 0).all()
    programs = run.table(tables.PROGRAMS)
    own = programs[(programs.network == "sp19") & (programs.variant == "direct")].drop_duplicates("size")
    found = dict(zip(own["size"], own.accuracy, strict=True))
    for size, published in {100: 0.84, 1000: 0.852, 10000: 0.8397}.items():
        assert abs(found[size] - published) * size <= 1 + 1e-9
