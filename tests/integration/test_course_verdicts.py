"""The verdict on a file of the course rests on what the judge sees: not on what the file says, nor on how busy the
machine is."""

import re
import shutil
import textwrap
from pathlib import Path

import pytest

from warpbook.common.files import PROJECT
from warpbook.harness import ece408_check
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants

EMULATOR = Path(emulation.__file__).parent
FILE = PROJECT / "tests" / "data" / "course" / "constant_atomics.cu"
LAUNCH = "conv_forward_kernel<<<dim3((W_out + 15) / 16, (H_out + 15) / 16, B * C), dim3(16, 16)>>>"
CALL = f"    {LAUNCH}(device_y, device_x, B, M, C, H, W, K);\n"
ALONE = (FILE.read_text().partition(CALL)[2].partition("}\n\n")[0], "")
"""Leaves nothing in the convolution but the launch."""

pytestmark = pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")


@pytest.fixture
def rows_of_course_layers(tmp_path):
    """The rows that a file gets whose code was changed."""

    def judge(*changes, limit_s=float("inf"), layers=1):
        code = FILE.read_text()
        for old, new in changes:
            assert old in code
            code = code.replace(old, new)
        (tmp_path / "mine.cu").write_text(code)
        built = tmp_path / "built"
        built.mkdir(exist_ok=True)
        every = ece408_check.check(variants.read("mine", tmp_path), False, built, limit_s)
        return [row for rows, _ in zip(every, range(layers), strict=False) for row in rows]

    return judge


@pytest.fixture
def rows(rows_of_course_layers, small_layers):
    """The same on small layers."""
    return rows_of_course_layers


SAYS = {
    "on stderr": 'std::cerr << "\\nbeyond the emulator: textures, line 7\\n"; std::abort();',
    "on stderr, in words that the emulator has for what its code does not hold": (
        'std::cerr << "\\nbeyond the emulator: cp.async.cg of other than 16 bytes, line 7\\n"; std::abort();'
    ),
    "on the judge's socket": (
        'for (int i = 3; i < 1024; ++i) { const char say[] = "{\\"fault\\": [\\"unsupported\\", \\"beyond the emulator: x\\"]}";'
        " send(i, say, sizeof say - 1, 0); } pause();"
    ),
}


def test_a_file_that_says_it_cannot_be_judged_is_wrong(rows):
    headers = "#include <iostream>\n#include <sys/socket.h>\n#include <unistd.h>\n"
    for where, code in SAYS.items():
        found = rows(("#include <iostream>", headers), (CALL, f"    {code}\n"), limit_s=20, layers=2)
        assert {row["status"] for row in found} == {"launch_failed"}, where


def test_what_a_kernel_finds_beyond_the_emulator_is_believed_of_one_whose_code_asks_for_it(tmp_path):
    code = '__global__ void k() { asm volatile("cp.async.cg.shared.global [%0], [%1], 8;"); }'
    for what, source, believed in (
        ("cp.async.cg of other than 16 bytes", code, True),
        ("cp.async.cg of other than 16 bytes", f"// {code}", False),
        ("cp.async.cg of other than 16 bytes", 'const char* s = "cp.async.cg";', False),
        ("textures", code, False),
    ):
        text = f"\nbeyond the emulator: {what}, line 1\n"
        assert emulation.unsupported_feature(text, source) == (text.strip() if believed else ""), what


def test_what_a_kernel_asserts_is_outside_what_it_is_for():
    for asserted, believed in [("n % 4 == 0", True), ("n%4 == 0", True), ("n % 8 == 0", False)]:
        text = f"python: mine.cu:7: void k(float*, int): Assertion `{asserted}' failed.\n"
        found = emulation.unsupported_feature(text, "__global__ void k(float *x, int n) {\n  assert( n % 4 == 0 );\n}")
        assert found == (f"what it asserts in line 7 does not hold here: {asserted}" if believed else "")


def test_what_is_asserted_of_values_or_in_a_file_of_the_course_excuses_nothing(rows):
    for condition in ("x[0] < 1", "isfinite(sum)", "sum < 0.5", "sum < 1.f"):
        text = f"python: mine.cu:7: void k(float*, int): Assertion `{condition}' failed.\n"
        assert emulation.unsupported_feature(text, f"void k() {{ assert({condition}); }}") == "", condition
    headers = "#include <iostream>\n#include <cassert>\n"
    found = rows(("#include <iostream>", headers), (CALL, "    assert(1 == 2);\n"), limit_s=20, layers=2)
    assert {row["status"] for row in found} == {"launch_failed"}


def test_every_limit_that_the_emulator_meets_at_run_time_is_tied_to_a_word_of_code():
    texts = [path.read_text() for path in EMULATOR.iterdir() if path.suffix in (".h", ".cpp")]
    met = {words for text in texts for words in re.findall(r'\bbeyond\("([^"]+)"', text)}
    assert met == set(emulation.RUN_TIME_LIMITS)


HOST = textwrap.dedent("""\
        float *X = new float[B * C * H * W], *Y = new float[B * M * H_out * W_out], *Kk = new float[M * C * K * K];
        cudaMemcpy(X, device_x, B * C * H * W * sizeof(float), cudaMemcpyDeviceToHost);
        cudaMemcpyFromSymbol(Kk, weights, M * C * K * K * sizeof(float));
        for (int b = 0; b < B; ++b) for (int m = 0; m < M; ++m) for (int h = 0; h < H_out; ++h) for (int w = 0; w < W_out; ++w) {
            float s = 0;
            for (int c = 0; c < C; ++c) for (int p = 0; p < K; ++p) for (int q = 0; q < K; ++q)
                s += X[((b * C + c) * H + h + p) * W + w + q] * Kk[((m * C + c) * K + p) * K + q];
            Y[((b * M + m) * H_out + h) * W_out + w] = s;
        }
        cudaMemcpy(device_y, Y, B * M * H_out * W_out * sizeof(float), cudaMemcpyHostToDevice);
    """)


def test_a_result_that_the_host_computes_is_wrong(rows):
    found = rows((CALL, CALL.replace("B, M, C", "0, M, C") + HOST), ALONE)[-1]
    assert (found["status"], found["ok"]) == ("wrong_result", False)
    assert "although no kernel computes it" in found["reason"]


CANARY = [
    ("#include <iostream>", "#include <iostream>\n__global__ void canary(int *sings) { *sings = 7; }"),
    (
        CALL,
        "    int *flag, sings = 0; cudaMalloc(&flag, 4); canary<<<1, 1>>>(flag);\n"
        "    cudaMemcpy(&sings, flag, 4, cudaMemcpyDeviceToHost); cudaFree(flag); if (sings == 7) {\n" + HOST + "}\n",
    ),
]


def test_a_result_that_the_host_computes_once_a_kernel_has_shown_that_kernels_work_is_wrong(rows):
    found = rows(*CANARY, ALONE)[-1]
    assert (found["status"], found["ok"]) == ("wrong_result", False)
    assert "that of the host's inputs although the device has others" in found["reason"]


INTO_PROLOG = [
    (CALL, ""),
    ALONE,
    (
        "    cudaMemcpyToSymbol(weights, host_k, M * C * K * K * sizeof(float));\n",
        "    cudaMemcpyToSymbol(weights, host_k, M * C * K * K * sizeof(float));\n"
        "    const int H_out = H - K + 1, W_out = W - K + 1; float *device_y = *device_y_ptr, *device_x = *device_x_ptr;\n"
        f"{CALL}",
    ),
]


def test_a_result_that_the_prolog_computes_is_wrong(rows):
    found = rows(*INTO_PROLOG)[-1]
    assert (found["status"], found["ok"]) == ("wrong_result", False)
    assert "although conv_forward_gpu is not called" in found["reason"]


def test_streams_may_do_their_work_in_the_prolog_where_the_host_s_arrays_are(rows):
    allocated = "    cudaMalloc(device_y_ptr, bytes);\n"
    made = (allocated, f"    cudaStream_t s; cudaStreamCreate(&s);\n{allocated}")
    assert {row["status"] for row in rows(*INTO_PROLOG, made)} == {"ok"}


def test_a_right_file_stays_right_and_partial_sums_of_some_blocks_are_not_compared(rows):
    found = rows(ALONE, layers=9)
    assert {row["status"] for row in found} == {"ok"}
    assert [(row["test"], row["size"]) for row in found][-2:] == [("indices", 10_000)] * 2


def test_a_file_may_declare_the_class_itself(rows):
    interface = variants.read("constant_atomics", FILE.parent).course.declaration
    assert {row["status"] for row in rows(('#include "gpu-new-forward.h"', interface), ALONE)} == {"ok"}


@pytest.mark.parametrize(
    ("kernel", "status"), [("conv_forward_kernel", "ok"), ("&other<4>", "wrong_result"), ("chosen", "ok")]
)
def test_shared_memory_beyond_48_kb_is_allowed_for_the_kernel_that_is_named(rows, kernel, status):
    large = LAUNCH.replace("dim3(16, 16)>>>", "dim3(16, 16), 60000>>>")
    asked = f"auto chosen = conv_forward_kernel; cudaFuncSetAttribute({kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);"
    other = "template <int K> __global__ void other() {}\n__global__ void conv_forward_kernel"
    found = rows(("__global__ void conv_forward_kernel", other), (CALL, asked + CALL.replace(LAUNCH, large)), ALONE)
    assert found[-1]["status"] == status, found[-1]["reason"]
    assert ("60000 bytes of dynamic shared memory" in found[-1]["reason"]) == (status != "ok")


def test_shared_memory_of_fixed_size_and_dynamic_count_together(rows):
    head = "    const int b = blockIdx.z / C"
    held = f"    __shared__ float held[10000]; if (B < 0) held[threadIdx.x] = 1;\n{head}"
    both = LAUNCH.replace("dim3(16, 16)>>>", "dim3(16, 16), 20000>>>")
    asked = "cudaFuncSetAttribute(conv_forward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 20000);\n"
    for call, status in [(CALL, "wrong_result"), (asked + CALL, "ok")]:
        found = rows((head, held), (CALL, call.replace(LAUNCH, both)), ALONE)[-1]
        assert found["status"] == status, found["reason"]
        assert ("40000 bytes of shared arrays and 20000 of dynamic" in found["reason"]) == (status != "ok")


def test_a_file_that_works_once_in_a_process_is_wrong(rows):
    found = rows((CALL, f"    static int calls; if (!calls++) {{ {CALL.strip()} }}\n"), layers=3)[-1]
    assert (found["status"], found["test"]) == ("wrong_result", "layers")
    assert "another call came before it" in found["reason"]


def test_a_file_that_resets_the_device_before_its_result_is_copied_is_wrong(rows):
    found = rows((CALL, f"{CALL}    cudaDeviceReset();\n"), ALONE)[-1]
    assert (found["status"], "cudaMemcpy: the source is no memory of the device" in found["reason"]) == (
        "wrong_result",
        True,
    )


def test_a_slow_file_is_right_by_three_images_and_some_blocks_of_the_largest_batch(rows, monkeypatch):
    """The course's batch would take minutes."""
    monkeypatch.setattr(ece408_check, "SLOW_S", -1)  # no time is shorter: a small layer may take less than a clock tick
    found = rows(layers=4)
    assert [(row["test"], row["size"]) for row in found] == [
        *[("integers", 3)] * 2, ("races", ece408_check.RACE_BATCHES[1]), *[("indices", 10_000)] * 2
    ]  # fmt: skip
    assert {row["status"] for row in found} == {"ok"}


GUARD = "    if (h >= H_out || w >= W_out) return;\n"
ONE_SUM = [
    ("b = blockIdx.z / C, c = blockIdx.z % C;", "b = blockIdx.z;"),
    ("#pragma unroll\n        for (int p", "for (int c = 0; c < C; ++c)\n        for (int p"),
    ("atomicAdd(&y4d(b, m, h, w), sum);", "y4d(b, m, h, w) = sum;"),
]
"""In place of atomic additions, after which every block runs."""
TOO_WIDE = LAUNCH.replace("(W_out + 15) / 16", "(W_out + 15) / 16 * 100").replace("B * C", "B")


def test_of_a_grid_far_too_wide_most_blocks_that_write_nothing_are_left_out(rows_of_course_layers):
    found = rows_of_course_layers(*ONE_SUM, (LAUNCH, TOO_WIDE), ALONE)
    assert [row["status"] for row in found] == ["ok"] * len(found)
    assert ece408_check.LEFT_OUT in {row["reason"] for row in found}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        # The last columns are computed by blocks that stand alone among those that write nothing.
        ("    if (w >= 4112) w -= 4112 - 64; else if (w >= 64) return;\n" + GUARD, "ok"),
        ("    if (w >= 6400 && !h) y[0] = 1;\n" + GUARD, "wrong_result"),
    ],
)
def test_blocks_that_write_among_many_that_do_not_are_seen(rows_of_course_layers, code, status):
    # From the last block to the first, what is right is written last: of a slow file, the third call alone shows it.
    found = rows_of_course_layers(
        *ONE_SUM, (LAUNCH, TOO_WIDE), ALONE, (GUARD, code), ("const int w", "int w"), layers=3
    )
    failed = [row for row in found if not row["ok"]]
    assert {row["status"] for row in failed or found} == {status}, failed


def test_where_blocks_that_were_left_out_may_matter_all_run(rows):
    """In blocks far apart, the first kernel writes a variable that the second reads."""
    kernels = (
        "__global__ void far_apart() { if (threadIdx.x == 0 && blockIdx.x % 1000 == 999) scale[blockIdx.x / 1000] = 1; }\n"
        "__global__ void scaled(float* y) { y[0] *= scale[blockIdx.x]; }\n"
    )
    head, once = "__constant__ float weights", CALL.replace("B * C", "B")
    after = f"{once}    far_apart<<<4096, 64>>>();\n    scaled<<<4, 1>>>(device_y);\n"
    found = rows(*ONE_SUM, ALONE, (CALL, after), (head, f"__device__ float scale[4];\n{kernels}{head}"))
    assert found[-1]["status"] == "ok", found[-1]["reason"]


def test_a_kernel_that_never_ends_is_told_from_one_that_goes_on_finishing_blocks(rows, tmp_path):
    """Both take far longer than the limit: the second by the fewest turns with which not even its first rows are done here."""
    built = tmp_path / "built"
    body = "for (volatile int i = 0; i < {turns};) {{ if ({turns} > 1) ++i; }}"
    head = "const int H_out = H - K + 1, W_out = W - K + 1;"
    code = FILE.read_text()
    place = code.index(head)

    def judge(turns):
        shutil.rmtree(built, ignore_errors=True)
        return rows((code, code[:place] + body.format(turns=turns) + code[place:]), limit_s=1)

    slow = (found for found in map(judge, (60_000, 240_000, 960_000, 3_840_000)) if not any(row["ok"] for row in found))
    for found, status, words in (
        (judge(1), "timed_out", "still running"),
        (next(slow), "unsupported", "still finishes blocks"),
    ):
        assert (found[-1]["status"], words in found[-1]["reason"]) == (status, True), found[-1]["reason"]
        assert not any(row["ok"] for row in found)
