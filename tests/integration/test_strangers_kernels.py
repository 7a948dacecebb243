"""Kernels in the style of public course repositories, taken as they are: facts beside them, checked on the CPU."""

import pytest

from emulated import checked
from warpbook.harness import building
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants
from warpbook.problems import networks
from warpbook.runs import tables

pytestmark = pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")

# Dynamic shared memory, the arguments and the grid of the course's skeleton of 2017 and 2018.
SHARED = """
#define TILE_WIDTH 16

__global__ void forward_kernel(float *y, const float *x, const float *k, const int B, const int M, const int C,
                               const int H, const int W, const int K)
{
#define y4d(i3, i2, i1, i0) y[(i3) * (M * H_out * W_out) + (i2) * (H_out * W_out) + (i1) * (W_out) + i0]
#define x4d(i3, i2, i1, i0) x[(i3) * (C * H * W) + (i2) * (H * W) + (i1) * (W) + i0]
#define k4d(i3, i2, i1, i0) k[(i3) * (C * K * K) + (i2) * (K * K) + (i1) * (K) + i0]
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int W_grid = (W_out + TILE_WIDTH - 1) / TILE_WIDTH;
    const int X_tile_width = TILE_WIDTH + K - 1;
    extern __shared__ float shmem[];
    float *X_shared = &shmem[0];
    float *K_shared = &shmem[X_tile_width * X_tile_width];
    int n = blockIdx.x, m = blockIdx.y;
    int h0 = threadIdx.x, w0 = threadIdx.y;
    int h_base = (blockIdx.z / W_grid) * TILE_WIDTH, w_base = (blockIdx.z % W_grid) * TILE_WIDTH;
    int h = h_base + h0, w = w_base + w0;
    float acc = 0;
    for (int c = 0; c < C; c++) {
        for (int i = h0 * TILE_WIDTH + w0; i < K * K; i += TILE_WIDTH * TILE_WIDTH)
            K_shared[i] = k4d(m, c, i / K, i % K);
        for (int i = h; i < h_base + X_tile_width; i += TILE_WIDTH)
            for (int j = w; j < w_base + X_tile_width; j += TILE_WIDTH)
                X_shared[(i - h_base) * X_tile_width + (j - w_base)] = i < H && j < W ? x4d(n, c, i, j) : 0;
        __syncthreads();
        for (int p = 0; p < K; p++)
            for (int q = 0; q < K; q++)
                acc += X_shared[(h0 + p) * X_tile_width + (w0 + q)] * K_shared[p * K + q];
        __syncthreads();
    }
    if (h < H_out && w < W_out) y4d(n, m, h, w) = acc;
#undef y4d
#undef x4d
#undef k4d
}
"""
SHARED_FACTS = """
kernel: forward_kernel
arguments: [y, x, w, N, M, C, H, W, K]
threads: [16, 16, 1]
grid: [N, M, tiles]
shared_bytes: 4 * ((16 + K - 1) ** 2 + K * K)
"""

# A block for each output, its products added up by atomics in one shared variable.
SUMMED = """
extern "C" __global__ void sum_products(const float* input, const float* mask, int W_grid, float* output,
                                        int Channel, int Height, int Width, int Map_out, int Kernel)
{
    __shared__ float sum;
    const int side = Height - Kernel + 1, across = Width - Kernel + 1;
    const int row = blockIdx.x / W_grid, column = blockIdx.x % W_grid;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < Channel * Kernel * Kernel; i += blockDim.x) {
        const int c = i / (Kernel * Kernel), p = i / Kernel % Kernel, q = i % Kernel;
        atomicAdd(&sum, input[((blockIdx.z * Channel + c) * Height + row + p) * Width + column + q]
                        * mask[blockIdx.y * Channel * Kernel * Kernel + i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) output[((blockIdx.z * Map_out + blockIdx.y) * side + row) * across + column] = sum;
}
"""
SUMMED_FACTS = """
arguments: [x, w, W_out, y, C, H, W, M, K]
threads: [THREADS]
grid: [H_out * W_out, M, N]
constants: {THREADS: 32}
"""


@pytest.fixture
def verdict(tmp_path):
    """What checking a stranger's file with facts beside it says: empty where it is right, else the first failure."""

    def judge(code: str, facts: str, wrong: bool = False) -> str:
        (tmp_path / "strangers.cu").write_text(code)
        (tmp_path / "strangers.yaml").write_text(facts)
        rows = checked(tmp_path, "strangers", wrong=wrong)
        failure = tables.first_failure(rows)
        return failure["reason"] if failure else "" if any(row["ok"] for row in rows) else rows[0]["reason"]

    return judge


RIGHT = {
    "as it is": (SHARED, SHARED_FACTS),
    "its grid spelled out, its shared array outside, with bounds, and a kernel that is commented out": (
        "/* __global__ void old(float* y) {} */ extern __shared__ float shmem[];"
        + SHARED.replace("    extern __shared__ float shmem[];\n", "").replace("void f", "void __launch_bounds__(256) f"),
        SHARED_FACTS.replace("tiles", "ceil(H_out / TILE) * ceil(W_out / TILE)").replace("kernel: forward_kernel\n", "")
        + "constants: {TILE: 16}\n",
    ),
    "as a template": (
        SHARED.replace("#define TILE_WIDTH 16", "template <int TILE_WIDTH>"),
        SHARED_FACTS.replace("forward_kernel", "forward_kernel<16>"),
    ),
    "in clusters of blocks": (
        SHARED.replace("void f", "void __cluster_dims__(1, 1, 3) f"), SHARED_FACTS.replace("tiles", "3 * ceil(tiles / 3)")
    ),
    "scalars and arrays in one declaration": (
        SUMMED.replace("__shared__ float sum;", "__shared__ float sum, unused[2],\n        more [3];"), SUMMED_FACTS
    ),
}  # fmt: skip


def test_right_kernels_pass(verdict):
    assert {name: told for name, files in RIGHT.items() if (told := verdict(*files))} == {}


def test_right_kernels_build_for_a_gpu(tmp_path):
    for name, (code, facts) in RIGHT.items():
        (tmp_path / "strangers.cu").write_text(code)
        (tmp_path / "strangers.yaml").write_text(facts)
        made = building.build(variants.read("strangers", tmp_path), "sm_90" if "__cluster_dims__" in code else "sm_80")
        assert made.cubin, (name, made.log)


WRONG = {
    "two arguments the wrong way round": (SHARED, SHARED_FACTS.replace("[y, x, w", "[y, w, x"), "strangers"),
    "too few arguments": (SHARED, SHARED_FACTS.replace(", W, K", ", W"), "takes others than the 8 `arguments`"),
    "threads the wrong shape": (SHARED, SHARED_FACTS.replace("[16, 16, 1]", "[16, 8, 1]"), "strangers"),
    "a grid too small": (SHARED, SHARED_FACTS.replace("tiles", "1"), "outputs unwritten"),
    "a grid of no whole clusters": (
        SHARED.replace("void f", "void __cluster_dims__(1, 1, 3) f"), SHARED_FACTS, "no whole clusters of blocks at line 6"
    ),
    "too little shared memory": (
        SHARED, SHARED_FACTS.replace(" + K * K)", ")"),
        "heap-buffer-overflow in forward_kernel at strangers.cu:24",
    ),
    "no shared memory": (
        SHARED, SHARED_FACTS.partition("shared_bytes")[0],
        "dynamic shared memory is used, and the launch asks for none (`shared_bytes`) at line 14",
    ),
    "no barrier": (SHARED.replace("        __syncthreads();\n        for", "        for"), SHARED_FACTS, "NaN"),
    "reads outside the image": (
        SHARED.replace("i < H && j < W ? x4d(n, c, i, j) : 0", "x4d(n, c, i, j)"), SHARED_FACTS,
        "heap-buffer-overflow in forward_kernel at strangers.cu:27",
    ),
    "a shared scalar that nobody sets": (
        SUMMED.replace("if (threadIdx.x == 0) sum = 0;", ""), SUMMED_FACTS,
        "nobody had written reached the output, from shared memory declared at line 5; is a __syncthreads() missing",
    ),
    "a variable that nobody sets": (
        SHARED.replace("float acc = 0;", "float acc;"), SHARED_FACTS,
        "nobody had written reached the output, from the variable acc declared at line 21; is it set before it is read?",
    ),
    "an array of a thread that is set in part": (
        SHARED.replace("float acc = 0;", "float acc = 0, part[3]; part[0] = part[2] = 0;").replace("= acc;", "= acc + part[n % 3];"),
        SHARED_FACTS, "from the variable part declared at line 21",
    ),
    "a barrier that some threads do not reach": (
        SUMMED.replace("if (threadIdx.x == 0) sum = 0;", "if (threadIdx.x > 8) return; if (threadIdx.x == 0) sum = 0;"),
        SUMMED_FACTS, "some threads wait at a barrier that others have returned before",
    ),
}  # fmt: skip


def test_a_wrong_kernel_or_fact_is_named(verdict):
    told = {name: verdict(code, facts, wrong=True) for name, (code, facts, _) in WRONG.items()}
    assert {name: words for name, words in told.items() if WRONG[name][2] not in words} == {}


REFUSED = [
    (("tiles", "tile"), "grid: `tile`: 'tile' is no extent or constant: did you mean 'tiles'?"),
    (("[16, 16, 1]", "[64, 64, 1]"), "64 x 64 x 1 is 4096 a block, and CUDA allows 1024"),
    (("grid: [N, M, tiles]\n", ""), "`threads` needs `grid` beside it"),
    (("[y, x, w,", "[y, x, x,"), "arguments: x stands there 2 times, and must once"),
    (("K * K)", "K * K"), "shared_bytes: `4 * ((16 + K - 1) ** 2 + K * K`: no expression: '(' was never closed"),
    (("kernel:", "launch: {threads: [1, 1, 1], outputs_per_block: {W: 1, H: 1}}\nkernel:"), "keep one of them"),
]


def test_a_fact_that_cannot_be_is_refused_before_anything_is_built(tmp_path):
    (tmp_path / "strangers.cu").write_text(SHARED)
    for change, words in REFUSED:
        (tmp_path / "strangers.yaml").write_text(SHARED_FACTS.replace(*change))
        assert words in variants.read("strangers", tmp_path).read_error


def test_of_several_kernels_the_facts_say_which(tmp_path):
    (tmp_path / "strangers.cu").write_text(SHARED + SUMMED)
    (tmp_path / "strangers.yaml").write_text(SHARED_FACTS.replace("kernel: forward_kernel\n", ""))
    expected = "strangers.yaml: there are the kernels forward_kernel, sum_products; say which: `kernel: forward_kernel`"
    assert variants.read("strangers", tmp_path).read_error == expected


def test_a_launch_that_only_some_layers_allow_is_unsupported_on_the_others(tmp_path):
    (tmp_path / "strangers.cu").write_text(SHARED)
    (tmp_path / "strangers.yaml").write_text(SHARED_FACTS.replace("tiles", "H_out / 3"))
    variant = variants.read("strangers", tmp_path)
    first, second = networks.find("fa18").convs
    assert variant.unsupported(first.at(1)) == ""
    assert "grid: `H_out / 3`: 26/3 is no whole number" in variant.unsupported(second.at(1))
    (tmp_path / "strangers.yaml").write_text(SHARED_FACTS.replace("tiles", "C - 1"))
    assert "grid: z = 0 is outside 1" in variants.read("strangers", tmp_path).unsupported(first.at(1))
    (tmp_path / "strangers.yaml").write_text(SHARED_FACTS.replace("4 * (", "4000 * ("))
    reason = variants.read("strangers", tmp_path).unsupported(first.at(1))
    assert "shared_bytes = 1700000 is outside 0 to 232448, which CUDA allows a block" in reason


def test_what_decides_the_launch_is_part_of_the_identity(tmp_path):
    (tmp_path / "strangers.cu").write_text(SHARED)
    hashes = set()
    for change in (("", ""), ("[y, x, w", "[y, w, x"), ("16, 1]", "8, 1]"), ("tiles", "9"), ("4 *", "8 *")):
        (tmp_path / "strangers.yaml").write_text(SHARED_FACTS.replace(*change))
        hashes.add(variants.read("strangers", tmp_path).source_sha256)
    assert len(hashes) == 5
