"""Nothing timed on a CPU that other programs keep busy is a figure: neither a variant's time nor a program's."""

import json
import os
import subprocess
import sys

import pytest

import run_program
from warpbook.common.files import PROJECT
from warpbook.runs import summaries, tables
from workspaces import working_beside

MEASURING = {
    "target_rel_ci": 0.01,
    "equivalence_margin": 0.01,
    "cpu": {"warmup": 0, "min_samples": 3, "max_samples": 30, "max_time_s": 0.3, "min_samples_timeout_s": 2},
    "programs": {"runs": 1, "min_samples_timeout_s": 2},
    "timeout_s": 60,
}
MEASURING["gpu"] = MEASURING["cpu"]


@pytest.fixture
def busy():
    """Twice as many programs as there are processors, all of which work."""
    with working_beside(2 * len(os.sched_getaffinity(0))):
        yield


def test_times_of_a_variant_beside_other_programs_are_kept_and_are_no_figure(busy, tmp_path):
    (tmp_path / "machine.json").write_text(json.dumps({"gpu": None, "cpu": {}}))
    tables.CORRECTNESS.write([], tmp_path / "passed.csv")
    command = [sys.executable, "scripts/measure_variant.py", "--device", "cpu", "--cases", "fa18", "--aa", "1"]
    command += ["--variant", "im2col_blas", "--sizes", "10", "--measuring", json.dumps(MEASURING)]
    command += ["--correctness", tmp_path / "passed.csv", "--machine", tmp_path / "machine.json", "--sandbox", "none"]
    subprocess.run([*command, "--out", tmp_path / "samples.csv.gz"], cwd=PROJECT, check=True)
    samples = tables.SAMPLES.read(tmp_path / "samples.csv.gz")
    assert len(samples) > 6
    assert samples.throttled.all()
    own = samples[samples.variant == "im2col_blas"].assign(job="im2col_blas", network="fa18", layer="conv1")
    row = summaries.summarize_series(own, {"gpu": None}).iloc[0]
    assert (row.status, row.n) == ("refused", 0)
    assert "other programs kept the CPU busy" in row.reason and "--forcerun measure_variant" in row.reason


def test_a_program_s_run_beside_other_programs_is_refused_and_says_how_busy_they_were(busy):
    command = [sys.executable, "-c", "for _ in range(10**7): pass\nprint('Correctness: 1.0')"]
    made = run_program.run_once(command, 60, tolerated_load=0.15)
    assert made["status"] == "refused"
    assert "busy machine: other programs kept " in made["reason"] and "tolerated_load in config.yaml" in made["reason"]
    assert run_program.run_once(command, 60, tolerated_load=1000)["status"] == "ok"
