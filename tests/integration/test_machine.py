"""What a process learns of its machine, and what its forks do."""

import json
import os
import subprocess
import sys

import pytest

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.common.supervision import VariantFailure
from warpbook.harness import ece408_gpu
from warpbook.machine import host
from warpbook.machine.cuda_devices import Device

H200 = Device("NVIDIA H200", "sm_90", "ab" * 32, "13.0", 141 << 30)

PROMISED = {"name": "NVIDIA H200", "arch": "sm_90", "memory_gib": 139.8, "profilers": ["cupti"]}


def test_the_peak_memory_of_a_process_is_its_own_and_not_that_of_the_one_that_started_it():
    small = "from warpbook.machine import host; print(host.peak_memory_kib())"
    large = (
        "import subprocess, sys; from warpbook.machine import host; ballast = b'1' * (600 << 20); "
        f"print(host.peak_memory_kib()); subprocess.run([sys.executable, '-c', {small!r}], check=True)"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts")}
    done = subprocess.run([sys.executable, "-uc", large], capture_output=True, text=True, check=True, env=environment)
    parent, child = map(int, done.stdout.split())
    assert parent > 600 << 10
    assert 1 << 10 < child < 400 << 10


@pytest.fixture
def on(monkeypatch):
    """Let a job run on a node with a device, under a target."""

    def put(device, promised=PROMISED):
        host.visible_devices.cache_clear()
        monkeypatch.setattr(
            "warpbook.machine.cuda_devices.visible_devices", lambda: device if isinstance(device, str) else [device]
        )
        monkeypatch.setenv(host.TARGET, json.dumps(promised))

    yield put
    host.visible_devices.cache_clear()


def test_a_process_that_asked_for_the_gpu_can_still_fork_one_that_uses_it(on, monkeypatch):
    """CUDA that a process has touched answers none of its forks: error 3 of cuInit."""
    on(H200)
    monkeypatch.setattr("warpbook.machine.cuda_devices.visible_devices", lambda: f"asked in {os.getpid()}")
    assert host.gpu().startswith("asked in ")
    assert host.gpu() != f"asked in {os.getpid()}"
    with pytest.raises(
        VariantFailure, match="asked in "
    ) as refused:  # a course file's check asks, and forks a timing after it
        ece408_gpu.device()
    assert f"asked in {os.getpid()}" not in str(refused.value)


def test_a_job_asks_no_driver_for_the_gpus_that_its_snakemake_found(on, monkeypatch):
    on("asked")
    monkeypatch.setenv(host.DEVICES_VARIABLE, "")
    host.share_with_jobs([H200, H200])
    assert host.visible_devices() == [H200, H200]


def test_a_job_asks_the_driver_where_its_snakemake_found_gpus_elsewhere(on, monkeypatch, tmp_path):
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    on("asked")
    monkeypatch.setenv(host.DEVICES_VARIABLE, "")
    host.share_with_jobs([])
    assert host.visible_devices() == "asked"
    for change in [(host, "BOOT", boot), None]:
        with monkeypatch.context() as patch:
            on("asked")
            host.share_with_jobs([H200])
            if change:
                patch.setattr(*change)
            else:
                patch.setenv(host.VISIBLE, "1")
            assert host.visible_devices() == "asked"


def test_a_node_with_what_was_promised_measures(on):
    on(H200)
    host.require_target()
    on(H200, {**PROMISED, "name": ""})
    host.require_target()


def test_a_node_with_something_else_fails_with_both_named(on):
    for device, words in [
        (Device("NVIDIA A100", "sm_80", "", "", 80 << 30), r"NVIDIA A100 \(sm_80\), not NVIDIA H200 \(sm_90\)"),
        (Device("NVIDIA H200", "sm_90", "", "", 70 << 30), "70 GiB of GPU memory, not 139.8"),
        ("the CUDA driver counts no devices", "has no GPU to use: the CUDA driver counts no devices"),
    ]:
        on(device)
        with pytest.raises(UserError, match=words):
            host.require_target()


def test_a_profiler_is_looked_for_where_a_job_needs_it(on, monkeypatch):
    on(H200)
    monkeypatch.setenv("PATH", "/nowhere")
    host.require_target()
    with pytest.raises(UserError, match=r"ncu .* is not on PATH; ask the cluster for such nodes"):
        host.require_target(tool="ncu")


def test_nothing_is_asked_of_a_job_without_a_gpu_or_without_a_target(on):
    for device, promised in [("cpu", PROMISED), ("gpu", None)]:
        on("no device", promised)
        host.require_target(device)


def test_a_run_is_measured_on_one_model_whichever_nodes_have_it(on):
    on(H200)
    run = {"node": "node1", "cpu": host.cpu(), "gpu": {"name": "NVIDIA H200", "arch": "sm_90"}}
    for device in ("cpu", "gpu"):
        host.require_same(run, device)
    with pytest.raises(UserError, match=r"measures on NVIDIA H200, sm_90 .* run is of NVIDIA A100, sm_80 \(node1\)"):
        host.require_same({**run, "gpu": {"name": "NVIDIA A100", "arch": "sm_80"}}, "gpu")
    with pytest.raises(UserError, match=r"run is of another CPU, 3 cores \(node1\): a run belongs to one model"):
        host.require_same({**run, "cpu": {"model": "another CPU", "cores": 3}}, "cpu")


def test_a_figure_names_its_node_and_on_a_gpu_its_device(on):
    on(H200)
    assert host.node_and_gpu("cpu") == host.node()
    assert host.node_and_gpu("gpu") == f"{host.node()}/abababababab"
