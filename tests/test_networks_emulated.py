"""Kernels of whole networks on the CPU: their own source, emulated, against float64."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from warpbook import implementations, networks, reference, variants
from warpbook.harness import emulator

CALLED = """
import sys
import numpy as np
from warpbook import implementations, networks
from warpbook.harness import emulator

library, arrays, out = sys.argv[1:]
emulator.CuPy.install()
given = np.load(arrays)

def on_device(array):
    placed = emulator.allocated(array.shape, array.dtype)
    placed[...] = array
    return placed

one = implementations.read("warpgroups")
first, y = one.module.first_layer(
    emulator.Kernels(library, one.constants), networks.find("fa17").convs[0], len(given["x"]), on_device(given["w"])
)
y[...] = np.nan
first(on_device(given["x"]))
np.save(out, y)
"""


@pytest.fixture
def windows(tmp_path):
    """A function of x, w and a change of the source: the pooled first layer of fa17, emulated, (images, numbers)."""
    if emulator.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")

    def call(x, w, old="", new=""):
        one = implementations.read("warpgroups")
        constants = ", ".join(f"{name}: {value}" for name, value in one.constants.items())
        assert old in one.text
        text = f"/*\nconstants: {{{constants}}}\n*/\n{one.text.replace(old, new)}"
        (tmp_path / "windows.cu").write_text(text)
        (tmp_path / "windows.py").write_text("")  # for a launcher every kernel is compiled
        library = emulator.compile_host(variants.read("windows", tmp_path), tmp_path, sandboxed=False)
        np.savez(tmp_path / "given.npz", x=x, w=w)
        command = [sys.executable, "-c", CALLED, library, tmp_path / "given.npz", tmp_path / "y.npy"]
        environment = {**os.environ, **emulator.sanitizing(), "PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, emulator.sanitizer_words(ended.stderr) or ended.stderr
        low, high = np.moveaxis(np.load(tmp_path / "y.npy").astype(np.float64), 1, 0)
        return np.ldexp(low + high, -14)

    return call


@pytest.fixture
def drawn():
    """Five images and the weights of fa17's first layer, and its pooled tanh in float64."""
    (conv,), source = networks.find("fa17").convs, np.random.default_rng(3)
    x = source.standard_normal(conv.x_shape(5)).astype(np.float32)
    x[1] *= 2.0**12
    x[3, 0, 4, 5] = np.inf
    w = (source.standard_normal(conv.w_shape) / 5).astype(np.float32)
    with np.errstate(invalid="ignore"):
        y = reference.convolve(x.astype(np.float64), w.astype(np.float64))
        y = y.reshape(5, conv.M, 12, 2, 12, 2).max(axis=(3, 5))
    return SimpleNamespace(x=x, w=w, expected=np.tanh(y).reshape(5, -1))


def error(made, expected):
    """The largest relative error of an image, in the norm, where the expected numbers are finite."""
    known = np.isfinite(expected)
    assert np.array_equal(np.isfinite(made), known)
    return max(np.linalg.norm((a - b)[k]) / np.linalg.norm(b[k]) for a, b, k in zip(made, expected, known, strict=True))


def test_windows_of_warpgroups_are_tanh_of_float64_s_to_fp32(windows, drawn):
    assert error(windows(drawn.x, drawn.w), drawn.expected) < 2e-7


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0x5432", "0x5410"),  # odd columns begin at even ones
        ("series * square", "series"),
    ],
)
def test_a_fault_in_the_windows_of_warpgroups_is_seen(windows, drawn, old, new):
    made = windows(drawn.x, drawn.w, old, new)
    assert not np.isfinite(made).all() or error(made, drawn.expected) > 2e-6
