"""What tests share: the GPU mark, the project's folder, and variants written for a test."""

from pathlib import Path
from textwrap import dedent

import pytest

from warpbook import devices, variants
from warpbook.variants import Variant

PROJECT = Path(__file__).parents[1]
SHARED = PROJECT.parent / "shared"

HEADER = """\
title: A variant made for a test
idea: None.
expect: Nothing.
"""


def pytest_addoption(parser):
    parser.addoption("--require-gpu", action="store_true", help="fail GPU tests where there is no GPU")


def pytest_collection_modifyitems(config, items):
    found = devices.probe()
    if isinstance(found, devices.Device) or config.getoption("--require-gpu"):
        return
    skip = pytest.mark.skip(reason=f"no CUDA device: {found}")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def reference_model() -> Path:
    """The trained model that nobody here made, beside the project where there is one."""
    path = SHARED / "reference" / "ece408-sp19" / "ece408-0002.params"
    if not path.exists():
        pytest.skip(f"{path} is not here: it stands beside the project, not in it")
    return path


@pytest.fixture
def cpu_variant(tmp_path):
    """Make a CPU variant of the body of its call, which gets x, w, y and `convolve`, a right convolution."""

    def make(body: str, before: str = "", header: str = "") -> Variant:
        source = f'"""\n{HEADER}device: cpu\n{header}"""\n'
        source += "import numpy as np\nfrom warpbook.reference import convolve\n\n"
        source += "def prepare(layer, images):\n" + _indented(before or "pass", 1)
        source += "    def call(x, w, y):\n" + _indented(body, 2) + "    return call\n"
        (tmp_path / "mine.py").write_text(source)
        return variants.read("mine", tmp_path)

    return make


@pytest.fixture
def cuda_variant(tmp_path):
    """Make a GPU variant of CUDA C++ code, one thread an output unless the header says otherwise."""

    def make(code: str, header: str = "", name: str = "mine", folder: Path = tmp_path) -> Variant:
        launch = "launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16}}\n"
        text = f"/*\n{HEADER}{header}{'' if 'launch:' in header else launch}*/\n{dedent(code)}"
        (folder / f"{name}.cu").write_text(text)
        return variants.read(name, folder)

    return make


def _indented(code: str, levels: int) -> str:
    return "".join("    " * levels + line + "\n" for line in dedent(code).strip("\n").splitlines())
