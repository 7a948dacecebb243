"""Launches that CUDA refuses, on a GPU."""

import shutil

import pytest

from warpbook.harness.attacks import attack_registry
from warpbook.kernels import variants

pytestmark = pytest.mark.gpu


def test_a_refused_launch_is_explained_on_a_gpu(tmp_path):
    shutil.copy(variants.FOLDER / "direct.cu", tmp_path / "mine.cu")
    (tmp_path / "mine.py").write_text(
        "def prepare(kernels, layer, images, launch):\n"
        "    return lambda x, w, y: kernels.function('conv_forward')((1, 1, 70000), (16,), ())\n"
    )
    failure = next(row for row in attack_registry.check_rows(tmp_path, "mine", "gpu") if not row["ok"])
    assert "conv_forward: grid: z = 70000 is outside 1 to 65535" in failure["reason"]


def test_a_launcher_learns_its_kernel_s_constants_and_kernels(header_reader):
    rows = attack_registry.check_rows(header_reader, "mine", "gpu")
    assert rows and all(row["ok"] for row in rows), next(row["reason"] for row in rows if not row["ok"])
