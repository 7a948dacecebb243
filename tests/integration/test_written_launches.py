"""Files that launch their own kernel build, and compute what they should."""

import pytest

from warpbook.common.files import PROJECT
from warpbook.harness import building, checking
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import variants
from warpbook.problems import networks

FILES = PROJECT / "tests" / "data" / "strangers"
LECTURE = (FILES / "lecture_style.cu").read_text()
LAYER = networks.ConvLayer("ragged", 3, 23, 19, 4, 5)
needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)


def changed(*changes):
    text = LECTURE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_files_with_host_code_build_for_a_gpu():
    found = [variant for variant in variants.discover(FILES).values() if not variant.read_error]
    assert len(found) > 8
    made = {variant.name: building.build(variant, "sm_90") for variant in found}
    assert {name: one.log for name, one in made.items() if not one.cubin} == {}


@needs_compiler
def test_files_with_host_code_compute_what_they_should(tmp_path):
    for name in ("class_wrapper", "dynamic_shared", "namespaced", "whole_program"):
        variant = variants.read(name, FILES)
        (tmp_path / name).mkdir()
        with IsolatedBench(variant, False, tmp_path / name) as bench:
            row = checking.check_case(bench, variant, LAYER.at(2), ("integers",))[-1]
        assert row["ok"], (name, row["reason"])


@needs_compiler
def test_a_launch_that_is_read_is_judged_like_any_other(tmp_path):
    (tmp_path / "small.cu").write_text(changed(("ceil(W_out * 1.0 / TILE_WIDTH)", "1")))
    variant = variants.read("small", tmp_path)
    assert variant.header.grid == ["M", "ceil(H_out / 16)", "N"]
    built = tmp_path / "built"
    built.mkdir()
    with IsolatedBench(variant, False, built) as bench:
        row = checking.check_case(bench, variant, networks.ConvLayer("wide", 1, 9, 40, 2, 3).at(2), ("integers",))[-1]
    assert "outputs unwritten" in row["reason"]


def test_the_lines_to_write_are_right_once_what_was_not_read_is_filled_in(tmp_path):
    loop = ("    dim3 dimGrid", "    int tiles = 0;\n    while (tiles * 16 < W_out) tiles++;\n    dim3 dimGrid")
    (tmp_path / "mine.cu").write_text(changed(loop, ("dimGrid(M, Y, B)", "dimGrid(M, tiles, B)")))
    _, _, instead = variants.read("mine", tmp_path).read_error.partition(":\n")
    (tmp_path / "mine.yaml").write_text(instead.replace("[?]", '[M, "min(W_out, ceil(W_out / 16))", N]'))
    variant = variants.read("mine", tmp_path)
    assert (variant.read_error, variant.inferred_launch) == ("", None)
    assert variant.header.arguments == ["y", "x", "w", "N", "M", "C", "H", "W", "K"]
    assert building.build(variant, "sm_90").cubin
