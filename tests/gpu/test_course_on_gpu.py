"""Files of the course on a GPU: built with their driver, checked and timed in a process of their own."""

import pytest

import measure_course
from warpbook.common.files import PROJECT
from warpbook.harness import ece408_gpu, nvcc
from warpbook.kernels import ece408, variants
from warpbook.problems import networks

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(nvcc.find_compiler() is None, reason=nvcc.MISSING)]

FILES = PROJECT / "tests" / "data" / "course"
NAMES = sorted(path.stem for path in FILES.glob("*.cu"))
FIRST, SECOND = ece408.LAYERS
ECE408 = networks.find("ece408").convs


@pytest.fixture
def changed(tmp_path):
    """A file of tests/data/course with some of its text changed, as a variant."""

    def change(name, *changes):
        code = (FILES / f"{name}.cu").read_text()
        for old, new in changes:
            assert old in code
            code = code.replace(old, new)
        (tmp_path / f"{name}.cu").write_text(code)
        return variants.read(name, tmp_path)

    return change


@pytest.mark.parametrize("name", NAMES)
def test_a_right_file_passes_on_the_gpu_and_is_timed(name, tmp_path):
    variant = variants.read(name, FILES)
    rows = [row for rows in ece408_gpu.check(variant, ECE408, False) for row in rows]
    assert [row["reason"] for row in rows if not row["ok"]] == []
    assert len(rows) == 8
    samples = measure_course.time_all(variant, [FIRST.at(100), SECOND.at(1000)], None, False, 120)
    for line in measure_course.summary_lines(variant, samples):
        print(line)
    expected = {"layer": "ok"} | dict.fromkeys(("op", "gpu"), "refused" if name == "streams_half2" else "ok")
    assert {row["status"] == expected[row["kind"]] for row in samples} == {True}
    first = {row["kind"] for row in samples if row["case"] == "conv1"}
    assert first == {"op", "layer"} if name == "one_call" else {"op", "layer", "gpu"}
    median = {kind: _median(samples, "conv2", kind) for kind in first}
    assert median["op"] <= median["layer"]


def _median(samples, layer, kind):
    times = sorted(row["time_ms"] for row in samples if (row["case"], row["kind"]) == (layer, kind))
    return times[len(times) // 2]


WRONG = {
    "a launch that CUDA refuses": (
        "unrolled_blas", [("#define BLOCK 256", "#define BLOCK 2048")],
        "wrong_result", "argument after convolution",
    ),
    "an access to no memory": (
        "constant_atomics", [(">>>(device_y, device_x, B,", ">>>((float *)64, device_x, B,")],
        "launch_failed", "CUDA: ",
    ),
    "a call that fails, checked with exit": (
        "one_call", [("cudaMalloc((void **)&y, sizeof(float) * B", "cudaMalloc((void **)&y, (1ull << 50) + B")],
        "launch_failed", "its process died: exit status 255 (out of memory)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_on_the_gpu_is_a_row_with_its_reason(changed, fault):
    name, changes, status, words = WRONG[fault]
    (row, *_) = next(ece408_gpu.check(changed(name, *changes), ECE408, False))
    assert row["status"] == status
    assert words in row["reason"]
