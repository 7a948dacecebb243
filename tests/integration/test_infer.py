"""The program that the course's students know, run as they run it."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import infer as infer_program
from warpbook.common import errors
from warpbook.common.files import PROJECT
from warpbook.harness import inference
from warpbook.kernels import variants
from warpbook.machine import cuda_devices
from warpbook.problems import networks, weights


def infer(*arguments):
    command = [sys.executable, "scripts/infer.py", *map(str, arguments)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("variant", ["loop_nest", "simd"])
def test_output_is_that_of_the_course_s_scripts(variant):
    done = infer("--network", "fa18", "--variant", variant, "--device", "cpu", 100)
    assert done.returncode == 0, done.stderr
    expected = (
        r"Loading fashion-mnist data\.\.\. done\n"
        r"Loading model\.\.\. done\n"
        r"New Inference\n"
        r"Op Time: \d+\.\d{6} N=100 M=6 C=1 H=64 W=64 K=5\n"
        r"Op Time: \d+\.\d{6} N=100 M=16 C=6 H=30 W=30 K=5\n"
        r"Correctness: 0\.91 Model: fa18\n"
    )
    assert re.fullmatch(expected, done.stdout)
    assert done.stderr == ""


@pytest.mark.parametrize("variant", ["onnxruntime", "torch_cpu"])
def test_a_framework_prints_its_metric(variant):
    if missing := variants.read(variant).missing:
        pytest.skip(missing)
    done = infer("--network", "fa18", "--variant", variant, 100)
    assert done.stdout.endswith("New Inference\nEvalMetric: {'accuracy': 0.91}\n")
    assert done.stderr == ""


def test_ten_images_can_all_be_right():
    assert "Correctness: 1.0 Model: fa18" in infer("--variant", "loop_nest", 10).stdout


def test_a_network_s_other_weights_are_named_in_the_output():
    done = infer("--network", "fa17", "--weights", "low", "--variant", "im2col_blas", 1000)
    assert "Correctness: 0.634 Model: fa17-low" in done.stdout


def test_predicted_labels_can_be_kept(tmp_path):
    path = tmp_path / "labels.npy"
    infer("--variant", "im2col_blas", "--predictions", path, 120)
    assert np.load(path).shape == (120,)


def test_a_wrong_name_or_size_ends_with_status_2_and_one_line(monkeypatch, capsys):
    for arguments, words in [
        (["--variant", "dircet"], "no variant is called 'dircet': did you mean 'direct'?"),
        (["--variant", "simd", "--network", "fa188"], "no network is called 'fa188': did you mean 'fa18'?"),
        (["--variant", "simd", "0"], "size '0' is no whole number from 1 to 10000"),
        (["--variant", "simd", "10001"], "size '10001' is no whole number from 1 to 10000"),
        (["--variant", "simd", "ten"], "size 'ten' is no whole number from 1 to 10000"),
        (["--variant", "simd", "--weights", "best"], "fa18 has no weights called 'best': valid: trained"),
        (["--variant", "simd", "--device", "gpu"], "simd runs on the cpu, not the gpu; there: direct,"),
    ]:
        monkeypatch.setattr(sys, "argv", ["infer.py", *arguments])
        assert errors.exit_status(infer_program.main) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert words in err


def test_a_device_that_is_not_there_ends_with_status_2_and_one_line():
    if isinstance(cuda_devices.probe(), cuda_devices.Device):
        pytest.skip("there is a GPU here")
    done = infer("--variant", "direct", "--device", "gpu", 10)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no CUDA device here: no CUDA driver")
    assert len(done.stderr.splitlines()) == 1


def test_ten_thousand_images_of_the_largest_network_need_little_memory():
    script = (
        "import sys; sys.argv = ['infer.py', '--network', 'fa19', '--variant', 'onnxruntime', '10000']\n"
        "import runpy; sys.path.insert(0, 'scripts')\n"
        "try: runpy.run_path('scripts/infer.py', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "from warpbook.machine import host; print('peak', host.peak_memory_kib())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert int(done.stdout.split("peak ")[1]) < 2 << 20  # KiB; conv1's outputs of all images are 2 GiB


def test_chunks_do_not_change_the_labels():
    network = networks.find("fa18")
    images = np.random.default_rng(3).integers(0, 256, (207, 1, 64, 64), dtype=np.uint8)
    predict = inference.load(variants.read("im2col_blas"), network, weights.load(network, "trained"))
    together, _ = predict(images)
    apart = np.concatenate([predict(images[start : start + 30])[0] for start in range(0, 207, 30)])
    assert np.array_equal(together, apart)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor here: none to keep off")
def test_cpu_variants_keep_to_the_processors_that_they_are_given():
    """One process for all of them: who starts threads starts them there."""
    names = ["im2col_blas", "loop_nest", "onnxruntime", "register_blocked", "simd", "torch_cpu"]
    there = [name for name in names if not variants.read(name).missing]
    assert len(there) > 3
    script = f"""
import os
from pathlib import Path
os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})
import numpy as np
from warpbook.problems import networks
from warpbook.kernels import variants
from warpbook.harness import cpp_compiler
case = networks.find("fa17").convs[0].at(8)
x, w, y = (np.ones(case.shape(name), np.float32) for name in ("x", "w", "y"))
for name in {there!r}:
    operation = cpp_compiler.prepare(variants.read(name), case)
    operation(x, w, y)
    kept_to = set().union(*(os.sched_getaffinity(int(task.name)) for task in Path("/proc/self/task").iterdir()))
    print(name, kept_to)
"""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines() == [f"{name} {{{min(os.sched_getaffinity(0))}}}" for name in there], done.stderr
