"""Data races: found with both lines, the array and what is missing, and no right kernel accused."""

import os
import re
import subprocess
import sys

import pytest

from warpbook.common.files import PROJECT
from warpbook.harness import data_races
from warpbook.harness.emulator import emulation
from warpbook.kernels import ece408, variants
from warpbook.runs import tables

TREE = "for (int o = 32; o; o /= 2) { if (t < o) s[t] += s[t + o]; __syncthreads(); }"
NO_BARRIER, NO_ATOMIC, NO_FENCE = "__syncthreads() between them", "no atomic operation", "no __threadfence()"
# The block that draws the last ticket adds up what the others left.
TICKET = (
    "__shared__ bool last; if (!t) { part[b] = x[i];\ncuda::atomic_ref<unsigned, cuda::HOW == 3; if (last) count = 0; }\n"
    "__syncthreads(); if (last && !t) y[0] = part[0] + part[3];"
)
# Two stages, each filled anew by copies that may write as soon as they begin.
STAGES = (
    "__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state; __shared__ float s[2][64]; float sum = 0;\n"
    "auto block = cooperative_groups::this_thread_block(); auto pipe = cuda::make_pipeline(block, &state);\n"
    "auto fetch = [&](int j) { pipe.producer_acquire();\ncuda::memcpy_async(block, s[j % 2], x + 64 * b, 256, pipe);\n"
    "pipe.producer_commit(); }; fetch(0); for (int j = 0; j < 4; ++j) { fetch(j + 1); pipe.consumer_wait(); EARLY\n"
    "sum += s[j % 2][63 - t];\nLATE } atomicAdd(y, sum);"
)
RELEASE = "pipe.consumer_release();"
PTX_TICKET = (
    "if (t) return; part[b] = x[i];\nunsigned old; "
    'asm volatile("atom.HOW.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(&count), "r"(3u) : "memory");\n'
    "if (old == 3) y[0] = part[0] + part[3];"
)
# By name: a kernel of `x, y, n` on four blocks of 64 threads, the array that a race is on, and what is missing.
KERNELS = {
    "tree": ("__shared__ float s[64]; s[t] = x[i]; __syncthreads(); TREE if (!t) atomicAdd(y, s[0]);", "", ""),
    "tree_without_barriers": ("__shared__ float s[64]; s[t] = x[i]; __syncthreads();\nfor (int o = 32; o; o /= 2)\n"
                              "if (t < o) s[t] += s[t + o];\nif (!t) atomicAdd(y, s[0]);", "s", NO_BARRIER),
    "halo_before_barrier": ("__shared__ float s[65]; s[t] = x[i];\natomicAdd(y, s[63 - t]);", "s", NO_BARRIER),
    "tile_written_again": ("__shared__ float s[64]; float sum = 0;\nfor (int j = 0; j < 3; ++j) {\ns[t] = x[i] + j; "
                           "__syncthreads();\nsum += s[63 - t]; }\natomicAdd(y, sum);", "s", NO_BARRIER),
    "double_buffer": ("__shared__ float s[2][64]; float sum = 0; for (int j = 0; j < 5; ++j) { s[j % 2][t] = x[i] + j; "
                      "__syncthreads(); sum += s[j % 2][63 - t]; } atomicAdd(y, sum);", "", ""),
    "named_barrier_before": (
        'for (int j = 0; j < 4; ++j) asm volatile("bar.sync 1, 64;"); __syncthreads(); asm volatile("bar.sync 1, 64;");\n'
        "__shared__ float s[64]; s[t] = x[i];\natomicAdd(y, s[63 - t]);",
        "s",
        NO_BARRIER,
    ),
    "dynamic_memory": ("extern __shared__ float tile[]; tile[t] = x[i];\natomicAdd(y, tile[t ^ 40]);", "tile", NO_BARRIER),
    "written_last_in_a_block": ("__shared__ float s[64]; s[t] = x[i]; __syncthreads(); atomicAdd(y, s[t]); __syncthreads(); "
                                "if (t == 63) s[0] = b + 5;", "", ""),
    "sum_without_atomic": ("__shared__ float sum; if (!t) sum = 0; __syncthreads();\nsum += x[i]; __syncthreads(); "
                           "if (!t) atomicAdd(y, sum);", "sum", NO_ATOMIC),
    "blocks_without_atomic": ("*y += x[i];", "y", NO_ATOMIC),
    "list_append": ("__shared__ float list[64]; __shared__ int used; if (!t) used = 0; __syncthreads();\n"
                    "list[used++] = x[i]; __syncthreads(); if (!t) atomicAdd(y, list[0]);", "used", NO_ATOMIC),
    "volatile_counter": ("__shared__ volatile int used; if (!t) used = 0; __syncthreads();\nused = used + 1; "
                         "__syncthreads(); if (used == 64) atomicAdd(y, x[i]);", "used", NO_ATOMIC),
    "zero_before_atomics": ("__shared__ float sum; if (!t) sum = 0;\natomicAdd(&sum, x[i]); __syncthreads(); "
                            "if (!t) atomicAdd(y, sum);", "sum", NO_BARRIER),
    "warp_in_step": ("__shared__ volatile float s[64]; s[t] = x[i]; __syncthreads(); if (t < 32) {\n"
                     "s[t] += s[t + 32]; s[t] += s[t + 16]; }\n__syncthreads(); if (!t) atomicAdd(y, s[0]);", "s",
                     NO_BARRIER),
    "warp_in_turn": ("__shared__ float s[64]; s[t] = x[i]; __syncthreads(); if (t < 32) { float v = s[t] + s[t + 32]; "
                     "for (int o = 16; o; o /= 2) { __syncwarp(); s[t] = v; __syncwarp(); v += s[t + o]; } "
                     "if (!t) atomicAdd(y, v); }", "", ""),
    "shuffle_for_barrier": ("__shared__ float s[64]; s[t] = x[i]; float v = __shfl_sync(~0u, x[i], 0);\n"
                            "atomicAdd(y, v + s[t ^ 1]);", "s", "no __syncwarp() or __syncthreads() between them"),
    "vote_for_barrier": ("__shared__ float s[64]; s[t] = x[i]; unsigned v = __ballot_sync(~0u, n > t);\n"
                         "atomicAdd(y, v + s[t ^ 1]);", "s", "no __syncwarp() or __syncthreads() between them"),
    "shuffles_alone": ("float v = x[i]; for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o); __shared__ float s[2]; "
                       "if (t % 32 == 0) s[t / 32] = v; __syncthreads(); if (!t) atomicAdd(y, s[0] + s[1]);", "", ""),
    "last_block": ("s4[b] = 1; __threadfence(); __shared__ bool last; if (!t) last = atomicAdd(&count, 1u) == 3;\n"
                   "__syncthreads(); if (last && !t) { y[0] = s4[0] + s4[1] + s4[2] + s4[3]; count = 0; }", "", ""),
    "last_block_without_fence": ("__shared__ bool last; if (!t) { part[b] = x[i];\nlast = atomicAdd(&count, 1u) == 3; }\n"
                                 "__syncthreads(); if (last && !t) y[0] = part[0] + part[1] + part[2] + part[3];",
                                 "part", NO_FENCE),
    "last_block_that_resets": ("__shared__ bool last; if (!t) { part[b] = x[i]; __threadfence(); last = atomicAdd(&count, 1u) == 3; "
                               "if (last) count = 0; __threadfence(); }\n__syncthreads(); if (last && !t) y[0] = part[0] + "
                               "part[3];", "", ""),
    "fence_of_block": ("__shared__ bool last; if (!t) { part[b] = x[i]; __threadfence_block();\n"
                       "last = atomicAdd(&count, 1u) == 3; if (last) count = 0; __threadfence_block(); }\n"
                       "__syncthreads(); if (last && !t) y[0] = part[0] + part[3];", "part",
                       "__threadfence_block() is for one block"),
    "ticket": (TICKET.replace("HOW", "thread_scope_device> ticket(count); last = ticket.fetch_add(1, cuda::memory_order_acq_rel)"), "", ""),
    "relaxed_ticket": (TICKET.replace("HOW", "thread_scope_device> ticket(count); last = ticket.fetch_add(1, cuda::memory_order_relaxed)"),
                       "part", NO_FENCE),
    "ticket_of_block": (TICKET.replace("HOW", "thread_scope_block> ticket(count); last = ticket.fetch_add(1)"), "count",
                        "block scope is none for other blocks"),
    "atomics_of_two_sizes": ("if (t) return; if (b) atomicAdd(&wide, 1ull);\nelse atomicAdd((unsigned*)&wide, 1u);", "wide",
                             "different sizes"),
    "atomics_of_block": ("atomicAdd_block(y, x[i]);", "y", "block scope is none for other blocks"),
    "atomics_of_block_in_shared_memory": ("__shared__ float sum; if (!t) sum = 0; __syncthreads(); "
                                          "atomicAdd_block(&sum, x[i]); __syncthreads(); if (!t) atomicAdd(y, sum);", "", ""),
    "read_only_cache": ("if (!t) { part[b] = x[i];\nif (__ldg(&part[b]) > 9) atomicAdd(y, 1.f); }", "part", "__ldg is for what"),
    "look_back": ("if (t) return; float sum = x[i]; if (b) { while (!ready[b - 1]); __threadfence(); sum += part[b - 1]; }"
                  " part[b] = sum; __threadfence(); ready[b] = 1; if (b == 3) y[0] = sum;", "", ""),
    "flag_without_fence": ("if (t) return; float sum = x[i];\nif (b) { while (!ready[b - 1]); sum += part[b - 1]; }\n"
                           "part[b] = sum; ready[b] = 1; if (b == 3) y[0] = sum;", "part", NO_FENCE),
    "warps_by_flag": ("__shared__ volatile int full; __shared__ float s[32]; if (!t) full = 0; __syncthreads(); "
                      "if (t >= 32) { s[t - 32] = x[i]; __threadfence_block(); __syncwarp(); if (t == 32) full = 1; } "
                      "else { while (!full); __threadfence_block(); atomicAdd(y, s[31 - t]); }", "", ""),
    "lock": ("if (t) return; while (atomicCAS(&held, 0, 1)) {} __threadfence(); total = total + x[i]; __threadfence(); "
             "atomicExch(&held, 0);", "", ""),
    "sum_by_compare_and_swap": ("int* a = (int*)y; int old = *a, guess;\ndo { guess = old; "
                                "old = atomicCAS(a, guess, __float_as_int(x[i] + __int_as_float(guess))); } while (old != guess);", "", ""),
    "largest_by_compare_and_swap": ("int* a = (int*)y; int old = *a, guess;\nwhile (x[i] > __int_as_float(old)) { guess = old; "
                                    "old = atomicCAS(a, guess, __float_as_int(x[i])); if (old == guess) break; }", "", ""),
    "sum_by_compare_and_swap_read_too_early": (
        "__shared__ int s[2]; if (!t) s[0] = 0; __syncthreads(); if (t < 63) { int old = s[0], guess;\n"
        "do { guess = old; old = atomicCAS(s, guess, guess + 1); } while (old != guess); }\nelse y[0] = s[n == 0];",
        "s", "no __syncthreads"),
    "sum_by_guess_that_is_not_compared": ("int old = *(int*)y;\natomicExch((int*)y, old + t);", "y", ""),
    "lock_without_fence": ("if (t) return; while (atomicCAS(&held, 0, 1)) {}\ntotal = total + x[i];\n"
                           "atomicExch(&held, 0);", "total", NO_FENCE),
    "same_value": ("__shared__ bool any; if (!t) any = false; __syncthreads(); if (n) any = true; __syncthreads(); "
                   "if (any) atomicAdd(y, x[i]);", "", ""),
    "largest_looked_at_first": ("if (t > largest) atomicMax(&largest, t);", "", ""),
    "added_by_comparing": ("int old = held, seen; do { seen = old; old = atomicCAS(&held, seen, seen + 1); } while (seen != old);",
                           "", ""),
    "stage_released_behind_its_reads": (STAGES.replace("EARLY", "").replace("LATE", RELEASE), "", ""),
    "stage_released_before_its_reads": (STAGES.replace("EARLY", RELEASE).replace("LATE", ""), "s", NO_BARRIER),
    "copy_into_what_others_read": ("__shared__ float s[64]; s[t] = x[i]; __syncthreads(); float sum = s[63 - t];\n"
                                   "__pipeline_memcpy_async(s + t, x + i, 4); __pipeline_commit(); __syncthreads();\n"
                                   "__pipeline_wait_prior(0); atomicAdd(y, sum + s[t]);", "s", NO_BARRIER),
    "ticket_by_ptx": (PTX_TICKET.replace("HOW", "acq_rel.gpu"), "", ""),
    "relaxed_ticket_by_ptx": (PTX_TICKET.replace("HOW", "relaxed.gpu"), "part", NO_FENCE),
    "volatile_data_and_flag": ("if (!t) { if (b) { while (!ready[b - 1]) ; part[b] = s4[b - 1]; }\n"
                               "s4[b] = x[b]; ready[b] = 1; }", "s4", "no __threadfence() between"),
    "volatile_data_and_ticket": ("if (!t) { s4[b] = x[b];\nif (atomicAdd(&count, 1) == 3) *y = s4[0]; }",
                                 "s4", "no __threadfence() between"),
    "volatile_data_fence_and_flag": ("if (!t) { if (b) { while (!ready[b - 1]) ; __threadfence(); part[b] = s4[b - 1]; }\n"
                                     "s4[b] = x[b]; __threadfence(); ready[b] = 1; }", "", ""),
    "volatile_data_of_a_block": ("if (t < 4 && !b) s4[t] = x[t]; __syncthreads(); if (t) return; __threadfence();\n"
                                 "if (atomicAdd(&count, 1) == 3) for (int j = 0; j < 4; ++j) *y += s4[j];", "", ""),
    "flag_reset_by_its_reader": ("if (!t) { if (b) { while (!ready[b - 1]) ; ready[b - 1] = 0; } ready[b] = 1; }", "", ""),
    "flag_behind_a_ticket": ("if (!t) { ready[b] = 1; atomicAdd(&next, 1); int r; if (b) do { r = ready[b - 1]; } while (!r); }",
                             "", ""),
    "bytes_side_by_side": ("__shared__ unsigned char s[64]; s[t] = t; if (s[t] == t) atomicAdd(y, x[i]);", "", ""),
    "work_queue": ("__shared__ int mine; for (;;) { if (!t) mine = atomicAdd(&next, 1); __syncthreads(); const int j = mine; "
                   "__syncthreads(); if (j >= 4) return; atomicAdd(y, x[j * 64 + t]); }", "", ""),
}  # fmt: skip
GLOBALS = """\
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/pipeline>
__device__ unsigned long long wide;
__device__ unsigned count; __device__ float part[4], total; __device__ volatile int ready[4];
__device__ int held, largest, next; __device__ volatile float s4[4];
"""
# A process of its own for each kernel, since a race ends it; what it wrote stands behind its name.
RUN = """\
import os, sys, numpy as np
from warpbook.harness.emulator import emulation
kernels = emulation.EmulatedKernels(sys.argv[1], {})
x, y = emulation.allocate((256,)), emulation.allocate((1,))
x[...], y[...] = np.random.default_rng(1).standard_normal(256), 0
for name in sys.argv[2:]:
    print(f"== {name}", file=sys.stderr, flush=True)
    if not (process := os.fork()):
        kernels.function(name, 256 if name == "dynamic_memory" else 0)((4,), (64,), (x, y, np.int32(256)))
        os._exit(0)
    os.waitpid(process, 0)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What the emulator said of each kernel, and the source's lines."""
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")
    folder = tmp_path_factory.mktemp("races")
    head = "const int t = threadIdx.x, b = blockIdx.x, i = b * 64 + t;"
    functions = [
        f'extern "C" __global__ void {name}(const float* x, float* y, int n)\n{{ {head} {body.replace("TREE", TREE)} }}\n'
        for name, (body, _, _) in KERNELS.items()
    ]
    (folder / "races.cu").write_text(f"/*\nkernel: tree\n*/\n{GLOBALS}{''.join(functions)}")
    (folder / "races.py").write_text("def prepare(case, kernels):\n    return None\n")
    library = emulation.compile_host(variants.read("races", folder), folder, sandboxed=False, races=True)
    command = [sys.executable, "-c", RUN, str(library), *KERNELS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    return {
        name: (emulation.with_lines(emulation.sanitizer_message(text), library), text)
        for name, text in re.findall(r"^== (\w+)\n(.*?)(?=^== |\Z)", words, re.MULTILINE | re.DOTALL)
    }


def test_a_data_race_is_reported_with_its_array_both_lines_and_what_is_missing(said):
    raced = {name: (array, missing) for name, (_, array, missing) in KERNELS.items() if array}
    wrong = {}
    for name, (array, missing) in raced.items():
        words, text = said[name]
        message = rf"^a data race on {array}\b.*: line \d+ \w+ in thread .* what line \d+ \w+ in thread"
        if not re.search(message, words) or missing not in words:
            wrong[name] = text
    assert len(raced) > 25 and wrong == {}


def test_a_kernel_whose_accesses_are_ordered_is_not_accused(said):
    ordered = [name for name, (_, array, _) in KERNELS.items() if not array]
    assert len(ordered) > 20 and {name: said[name] for name in ordered if said[name] != ("", "")} == {}


def test_the_lines_of_a_race_are_those_of_the_two_accesses(said):
    words, text = said["halo_before_barrier"]
    first, second = map(int, re.findall(r"line (\d+) (?:reads|writes) in", words))
    assert abs(first - second) == 1, text


LONG = """
/*
kernel: many
*/
__device__ float part[5000];
__device__ unsigned arrived[2500];
extern "C" __global__ void many(float* y)
{
    __shared__ float s[64];
    for (int i = 0; i < 20000; ++i) s[threadIdx.x] += i;
    if (threadIdx.x) return;
    const int half = gridDim.x / 2, pair = blockIdx.x % half;
    part[blockIdx.x] = gridDim.x;
    __threadfence();
    if (atomicInc(&arrived[pair], 1) == 0) return;
    __threadfence();
    atomicAdd(y, part[pair] + part[pair + half]);
}
"""
RUN_LONG = """
import sys, numpy as np
from warpbook.harness.emulator import emulation
kernels, y = emulation.EmulatedKernels(sys.argv[1], {}), emulation.allocate((1,))
for blocks in 5000, 16:  # the first launch is cut short, and leaves counts of one block in two
    kernels.function("many")((blocks,), (64,), (y,))
"""


@pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")
def test_of_a_grid_that_would_take_minutes_the_first_blocks_are_looked_at_and_what_they_count_accuses_nobody(tmp_path):
    (tmp_path / "many.cu").write_text(LONG)
    (tmp_path / "many.py").write_text("def prepare(case, kernels):\n    return None\n")
    library = emulation.compile_host(variants.read("many", tmp_path), tmp_path, sandboxed=False, races=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    before = os.times()
    subprocess.run([sys.executable, "-c", RUN_LONG, str(library)], env=environment, check=True, timeout=200)
    after = os.times()
    assert after.children_user - before.children_user < 20


NO_SECOND_BARRIER = """\
/*
threads: [64]
grid: [ceil(H_out * W_out / 64), M, N]
*/
extern "C" __global__ void conv_forward(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
{
    const int Ho = H - K + 1, Wo = W - K + 1, i = blockIdx.x * 64 + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
    float sum = 0;
    for (int c = 0; c < C; ++c) {
        __shared__ float taps[64];
        for (int t = threadIdx.x; t < K * K; t += 64) taps[t] = w[(m * C + c) * K * K + t];
        __syncthreads();
        for (int t = 0; i < Ho * Wo && t < K * K; ++t)
            sum += x[((n * C + c) * H + i / Wo + t / K) * W + i % Wo + t % K] * taps[t];
    }
    if (i < Ho * Wo) y[(n * M + m) * Ho * Wo + i] = sum;
}
"""


NEXT_IMAGE = NO_SECOND_BARRIER.replace("x[((n * C", "x[(((n + 1) * C").replace(
    "    }\n    if", "        __syncthreads();\n    }\n    if"
)
"""Reads behind x, where y lies."""


@pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")
@pytest.mark.parametrize(
    "code, reason",
    [
        (NO_SECOND_BARRIER, "a data race on taps (shared memory of line 10)"),
        (NEXT_IMAGE, "heap-buffer-overflow in conv_forward at own.cu:14"),
    ],
)
def test_the_cause_is_told_first_a_race_or_the_access_that_leaves_its_array(code, reason, tmp_path):
    (tmp_path / "own.cu").write_text(code)
    command = [sys.executable, "scripts/check_variant.py", "--device", "emulator", "--cases", "fa18"]
    command += ["--variant", "own", "--kernels", str(tmp_path), "--sizes", "1", "--timeout", "60", "--sandbox", "none"]
    subprocess.run([*command, "--out", str(tmp_path / "out.csv")], cwd=PROJECT, check=True, capture_output=True)
    failed = [row for row in tables.CORRECTNESS.rows(tmp_path / "out.csv") if not row["ok"]]
    assert {row["test"] for row in failed} > {"races"}
    assert reason in tables.first_failure(failed)["reason"]


STREAMS = r"""
#include <cstdlib>
#include "gpu-new-forward.h"
__global__ void conv(float *y, const float *x, const float *k, int B, int M, int C, int H, int W, int K)
{
    const int Ho = H - K + 1, Wo = W - K + 1, i = blockIdx.x * 64 + threadIdx.x, m = blockIdx.y, b = blockIdx.z;
    if (i >= Ho * Wo) return;
    float sum = 0;
    for (int c = 0; c < C; ++c) for (int p = 0; p < K; ++p) for (int q = 0; q < K; ++q)
        sum += x[((b * C + c) * H + i / Wo + p) * W + i % Wo + q] * k[((m * C + c) * K + p) * K + q];
    y[((size_t)b * M + m) * Ho * Wo + i] = sum;
}
static cudaStream_t up, work;
static cudaEvent_t copied;
static bool is(const char *fault) { return std::getenv("FAULT") && std::string(std::getenv("FAULT")) == fault; }
void GPUInterface::conv_forward_gpu_prolog(const float *y, const float *x, const float *k, float **dy, float **dx,
    float **dk, const int B, const int M, const int C, const int H, const int W, const int K)
{
    const size_t bytes = sizeof(float) * B * C * H * W;
    cudaMalloc(dy, sizeof(float) * B * M * (H - K + 1) * (W - K + 1));
    cudaMalloc(dx, bytes);
    cudaMalloc(dk, sizeof(float) * M * C * K * K);
    cudaHostRegister((void *)x, bytes, 0);
    cudaHostRegister((void *)y, sizeof(float) * B * M * (H - K + 1) * (W - K + 1), 0);
    cudaMemcpy(*dk, k, sizeof(float) * M * C * K * K, cudaMemcpyHostToDevice);
    cudaStreamCreateWithFlags(&up, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking);
    cudaEventCreate(&copied);
    cudaMemcpyAsync(*dx, x, bytes, cudaMemcpyHostToDevice, up);
    cudaEventRecord(copied, up);
}
void GPUInterface::conv_forward_gpu(float *dy, const float *dx, const float *dk, const int B, const int M, const int C,
    const int H, const int W, const int K)
{
    if (!is("event")) cudaStreamWaitEvent(work, copied, 0); if (is("copy")) cudaMemcpy(dy, dk, 64, cudaMemcpyDeviceToDevice);
    conv<<<dim3(((H - K + 1) * (W - K + 1) + 63) / 64, M, B), 64, 0, work>>>(dy, dx, dk, B, M, C, H, W, K);
    if (is("free")) cudaFreeAsync((void *)dk, up);
}
void GPUInterface::conv_forward_gpu_epilog(float *y, float *dy, float *dx, float *dk, const int B, const int M,
    const int C, const int H, const int W, const int K)
{
    cudaMemcpyAsync(y, dy, sizeof(float) * B * M * (H - K + 1) * (W - K + 1), cudaMemcpyDeviceToHost, work);
    if (is("polled")) while (cudaStreamQuery(work) == cudaErrorNotReady) {}
    else if (is("query")) cudaStreamQuery(work);
    else if (!is("wait")) cudaStreamSynchronize(work);
}
"""


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")
    folder = tmp_path_factory.mktemp("streams")
    (folder / "streams.cu").write_text(STREAMS)
    return variants.read("streams", folder), folder


NOT_AWAITED = (
    r"a data race on the host's y: the program reads what cudaMemcpyAsync of line 42 writes, and nothing "
    r"waits for it \(cudaStreamSynchronize"
)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", ""),
        ("polled", ""),
        ("event", r"a data race on dx \(of line 21\): the kernel of line 36 reads what cudaMemcpyAsync of line 29 writes, "
                  r"and its stream does not wait for the other's \(cudaStreamWaitEvent\)"),
        ("free", r"a data race on dk \(of line 22\): cudaFreeAsync of line 37 frees what the kernel of line 36 reads"),
        ("copy", r"a data race on dy \(of line 20\): the kernel of line 36 writes what cudaMemcpy of line 35 writes"),
        ("wait", NOT_AWAITED),
        ("query", NOT_AWAITED),
    ],
)  # fmt: skip
def test_what_a_stream_or_the_host_does_not_wait_for_is_reported_with_its_line(streams, monkeypatch, fault, words):
    variant, folder = streams
    monkeypatch.setenv("FAULT", fault)
    row = data_races.find(variant, [ece408.LAYERS[0].at(2)], False, folder)
    assert row["status"] == ("wrong_result" if words else "ok"), row["reason"]
    assert re.search(words, row["reason"]), row["reason"]


@pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")
def test_a_copy_to_constant_memory_that_the_kernel_s_stream_does_not_wait_for_is_reported(tmp_path):
    code = (PROJECT / "tests" / "data" / "course" / "constant_atomics.cu").read_text()
    copy = "cudaMemcpyToSymbol(weights, host_k, M * C * K * K * sizeof(float)"
    assert copy in code
    stream = "cudaStream_t s; cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); "
    other = f"{stream}{copy}, 0, cudaMemcpyHostToDevice, s".replace("Symbol(", "SymbolAsync(")
    (tmp_path / "mine.cu").write_text(code.replace(copy, other))
    row = data_races.find(variants.read("mine", tmp_path), [ece408.LAYERS[0].at(2)], False, tmp_path)
    words = (
        r"a data race on weights \(of line 6\): the kernel of line \d+ reads what cudaMemcpyToSymbol of line \d+ writes"
    )
    assert row["status"] == "wrong_result" and re.search(words, row["reason"]), row["reason"]
