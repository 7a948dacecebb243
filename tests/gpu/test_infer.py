"""The program that the course's students know, on a GPU."""

import subprocess
import sys

import pytest

from warpbook.common.files import PROJECT


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["direct", "constant_weights", "shared_input"])
def test_gpu_program_predicts_what_the_cpu_does(variant):
    command = [sys.executable, "scripts/infer.py", "--network", "fa18", "--variant", variant, "100"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert "Correctness: 0.91 Model: fa18" in done.stdout, done.stderr
