"""Real NVRTC, which needs no GPU."""

import ctypes
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cuda.pathfinder import find_nvidia_header_directory

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.common.supervision import VariantFailure
from warpbook.harness import building, sandbox
from warpbook.harness.emulator import emulation
from warpbook.kernels import occupancy, variants
from warpbook.runs import tables

# What some variant needs at least, and the newest. CUDA 13 begins at Turing; 12 reaches back to Maxwell.
ARCHITECTURES = [arch for arch in ("sm_52", "sm_60", "sm_75", "sm_80", "sm_90", "sm_100") if building.supports(arch)]

RIGHT = """
    extern "C" __global__ void conv_forward(
        const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K) { y[threadIdx.x] = x[0]; }
"""


def redundant(variant, arch):
    """Whether a build for an architecture tells nothing new: the same source is built for the oldest that it is for, which
    allows least; one that asks for the architecture, or for its instructions, also for sm_90 and the newest."""
    its = [one for one in ARCHITECTURES if variant.supports_arch(one)]
    told = {*its[:1], *({"sm_90", *its[-1:]} if "asm" in variant.code or "__CUDA_ARCH__" in variant.code else ())}
    return arch not in told


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_variant_builds_for_an_architecture_that_it_is_for(arch, built):
    failed, odd = {}, {}
    for name, variant in variants.discover().items():
        if not variant.cuda_source or not variant.supports_arch(arch) or redundant(variant, arch):
            continue
        made = built(name, arch)
        registers = {row["kernel"]: row["registers"] for row in made.rows}.get(variant.kernel) or 0
        # Instructions of warpgroups that the compiler serializes would each wait for the one before.
        if made.cubin is None or "wgmma.mma_async instructions are serialized" in made.log:
            failed[name] = made.log
        elif made.cubin[:4] != b"\x7fELF" or not 0 < registers <= 255:
            odd[name] = registers
    assert (failed, odd) == ({}, {})


def test_an_architecture_older_than_a_variant_needs_is_left_out(cuda_variant, tmp_path):
    variant = cuda_variant(RIGHT, header="least_arch: sm_80\n")
    builds = building.build_all(variant, ["sm_75", "sm_80", "sm_90"], tmp_path / "builds")
    assert [made.arch for made in builds] == ["sm_80", "sm_90"]


def test_instructions_of_one_architecture_alone_are_built_for_no_other(cuda_variant, tmp_path):
    code = RIGHT.replace("{ y[", '{ asm volatile("wgmma.fence.sync.aligned;"); y[')
    variant = cuda_variant(code, header="least_arch: sm_90a\n")
    (made,) = building.build_all(variant, ["sm_80", "sm_90", "sm_100"], tmp_path / "builds")
    assert (made.arch, made.ok) == ("sm_90", True)
    assert "--gpu-architecture=sm_90a " in made.rows[0]["options"]
    assert variant.header.architecture_reason("sm_100") == "needs sm_90 and no other; this GPU is sm_100"
    assert not building.build(cuda_variant(code, header="least_arch: sm_90\n"), "sm_90").ok


def test_pascal_and_volta_are_built_where_cuda_12_is_installed():
    if not building.compiler().startswith("NVRTC 12."):
        pytest.skip(f"{building.compiler()} is installed; CUDA 12's install targets Pascal and Volta")
    assert all(map(building.supports, ("sm_60", "sm_70")))


def test_the_project_s_own_kernels_build():
    for name in ("harness.cu", "layers.cu"):
        source = (PROJECT / "scripts" / "warpbook" / "harness" / name).read_text()
        cubin, log = building.compile_source(source, name, building.compiler_options("sm_80", []))
        assert cubin is not None, log
        assert building.resource_usage(log), name


def test_shared_memory_and_registers_are_the_compiler_s_own(cuda_variant):
    code = RIGHT.replace("{ y[", "{ __shared__ float s[300]; s[threadIdx.x] = x[1]; __syncthreads(); y[M] = s[K]; y[")
    (row,) = building.build(cuda_variant(code), "sm_90").rows
    assert row["shared_bytes"] == 1200
    assert row["registers"] >= 8


def test_an_array_indexed_at_run_time_shows_as_local_memory(cuda_variant):
    body = "{ float a[40]; for (int i = 0; i < 40; ++i) a[i] = x[i * N]; a[M % 40] += 1; y[M] = a[K % 40]; y["
    (row,) = building.build(cuda_variant(RIGHT.replace("{ y[", body)), "sm_90").rows
    assert row["local_bytes"] >= 160


def test_constants_of_the_header_reach_the_compiler(cuda_variant):
    code = RIGHT.replace("{ y[", "{ __shared__ float s[TILE]; s[threadIdx.x] = x[1]; __syncthreads(); y[M] = s[K]; y[")
    (row,) = building.build(cuda_variant(code, header="constants: {TILE: 77}\n"), "sm_80").rows
    assert row["shared_bytes"] == 4 * 77
    assert "-DTILE=77" in row["options"]


def test_a_kernel_that_does_not_compile_gives_a_row_with_the_compiler_s_words(cuda_variant):
    variant = cuda_variant(RIGHT.replace("x[0]", "z[0]"))
    made = building.build(variant, "sm_90")
    assert made.cubin is None
    (row,) = made.rows
    assert row["ok"] is False
    assert 'identifier "z" is undefined' in row["log"]
    assert row["registers"] is None
    with pytest.raises(UserError, match="mine does not compile for sm_90"):
        building.cubin_for(variant, "sm_90")


def test_a_kernel_that_is_not_there_is_named_with_those_that_are(cuda_variant):
    made = building.build(cuda_variant(RIGHT, header="kernel: forward\narguments: [x, w, y]\n"), "sm_90")
    assert made.cubin is None
    assert 'identifier "forward" is undefined' in made.log
    launcher = cuda_variant(
        RIGHT.replace("conv_forward", "one") + RIGHT.replace("conv_forward", "two"), "kernel: four\n"
    )
    launcher.cuda_source.with_suffix(".py").write_text("")
    made = building.build(variants.read("mine", launcher.cuda_source.parent), "sm_90")
    assert made.log == "mine.cu has no kernel four, or several of that name: two, one"


PLAIN = RIGHT.replace('extern "C" ', "")


def test_a_kernel_without_c_linkage_is_known_by_its_name_in_the_source(cuda_variant):
    (row,) = building.build(cuda_variant(PLAIN), "sm_90").rows
    assert (row["kernel"], row["ok"]) == ("conv_forward", True)


def test_a_template_s_kernel_is_built_where_the_header_names_it(cuda_variant):
    code = PLAIN.replace("__global__", "template <int TILE, class T> __global__").replace("x[0]", "x[TILE] + T(1)")
    made = building.build(cuda_variant(code, header="kernel: 'conv_forward<16, int>'\n"), "sm_90")
    assert [(row["kernel"], row["ok"]) for row in made.rows] == [("conv_forward", True)], made.log
    assert building.symbols(made.cubin) == ["_Z12conv_forwardILi16EiEvPKfS1_Pfiiiiii"]


def test_kernels_of_one_name_keep_the_names_that_tell_them_apart(cuda_variant):
    other = "__global__ void helper(float* y) { y[0] = 1; }\n__global__ void helper(int* y) { y[0] = 1; }\n"
    names = {row["kernel"] for row in building.build(cuda_variant(RIGHT + other), "sm_90").rows}
    assert names == {"conv_forward", "_Z6helperPf", "_Z6helperPi"}


def test_arguments_that_a_kernel_does_not_take_do_not_compile(cuda_variant, tmp_path):
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for arguments in ("[x, w, y, N, C, H, W, M]", "[x, w, N, y, C, H, W, M, K]"):
        variant = cuda_variant(PLAIN, header=f"arguments: {arguments}\n", folder=kernels)
        assert "conv_forward takes others than the" in building.build(variant, "sm_90").log, arguments
        if emulation.compiler():
            with pytest.raises(UserError, match="conv_forward takes others than the"):
                emulation.compile_host(variant, tmp_path, sandboxed=False)


def test_an_architecture_that_the_compiler_lacks_is_named_with_the_remedy(cuda_variant):
    made = building.build(cuda_variant(RIGHT), "sm_999")
    assert made.cubin is None
    assert "makes no code for sm_999; take it out" in made.log


def test_builds_are_written_whole_with_one_cubin_for_each_architecture_that_compiles(cuda_variant, tmp_path):
    building.build_all(cuda_variant(RIGHT), ["sm_80", "sm_999"], tmp_path / "builds" / "mine")
    folder = tmp_path / "builds" / "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["builds.csv", "sm_80.cubin"]
    assert tables.BUILDS.read(folder / "builds.csv").ok.tolist() == [True, False]


def test_a_stored_cubin_is_used_only_while_it_is_of_this_source(cuda_variant, tmp_path):
    folder = tmp_path / "builds"
    building.build_all(cuda_variant(RIGHT), ["sm_80"], folder / "mine")
    (folder / "mine" / "sm_80.cubin").write_bytes(b"\x7fELF as it was stored")
    assert building.cubin_for(cuda_variant(RIGHT), "sm_80", folder) == b"\x7fELF as it was stored"
    assert building.cubin_for(cuda_variant(RIGHT + "// changed"), "sm_80", folder) != b"\x7fELF as it was stored"


def test_compiling_leaves_python_s_shared_bytes_alone(cuda_variant):
    # A log of one byte once was written over the one-byte string that all of Python shares.
    source = 'extern "C" __global__ void f() {}'
    for _ in range(2):
        building.compile_source(source, "f.cu", building.compiler_options("sm_80", []))
    assert bytes([32]) == b" "
    assert " ".join("ab") == "a b"


def test_occupancy_names_what_limits_it():
    assert occupancy.occupancy("sm_90", threads=256, registers=32, shared_bytes=0) == (1.0, "warps")
    assert occupancy.occupancy("sm_90", threads=256, registers=34, shared_bytes=0) == (0.75, "registers")
    assert occupancy.occupancy("sm_75", threads=32, registers=16, shared_bytes=0) == (0.5, "blocks")
    assert occupancy.occupancy("sm_80", threads=128, registers=16, shared_bytes=40 << 10) == (0.25, "shared memory")


CALCULATOR = """
#include "cuda_occupancy.h"
extern "C" int blocks(int major, int minor, int warps, int shared, int reserved, int threads, int registers, int used) {
    cudaOccDeviceProp device = {};
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = 32 * warps;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = shared;
    device.sharedMemPerBlockOptin = shared - reserved;
    device.reservedSharedMemPerBlock = reserved;
    device.numSms = 1;
    cudaOccFuncAttributes kernel = {};
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = used;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = shared;
    kernel.numBlockBarriers = 1;
    cudaOccDeviceState state = {};
    state.cacheConfig = CACHE_PREFER_SHARED;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result;
    const int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, 0);
    return error ? -error : result.activeBlocksPerMultiprocessor;
}
"""


def test_occupancy_is_what_cuda_s_own_calculator_gives(tmp_path):
    compiler, headers = shutil.which("g++"), find_nvidia_header_directory("cudart")
    if not compiler or not Path(headers, "cuda_occupancy.h").exists():
        pytest.skip("needs g++ and CUDA's cuda_occupancy.h")
    (tmp_path / "calculator.cpp").write_text(CALCULATOR)
    library = tmp_path / "calculator.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-I{headers}", tmp_path / "calculator.cpp", "-o", library], check=True
    )
    calculator = ctypes.CDLL(library)
    for arch, limits in occupancy.SM_LIMITS.items():
        number, drawn = int(arch.removeprefix("sm_")), random.Random(arch)
        for _ in range(500):
            threads, registers = 32 * drawn.randint(1, 32), drawn.choice([16, 31, 34, 40, 48, 64, 72, 96, 128, 255])
            used = drawn.choice([0, 100, 1936, 4096, 20_000, 48 << 10])
            block = (limits.warps, limits.shared_bytes, limits.reserved_shared_bytes, threads, registers, used)
            expected = calculator.blocks(number // 10, number % 10, *block)
            found, _ = occupancy.occupancy(arch, threads, registers, used)
            assert found == expected * (threads // 32) / limits.warps, (arch, block)


def test_the_project_s_own_kernels_are_compiled_once(tmp_path, monkeypatch):
    source = PROJECT / "scripts" / "warpbook" / "harness" / "layers.cu"
    cubin = building.project_cubin(source, "sm_90", tmp_path)
    monkeypatch.setattr(building, "compile_source", lambda *arguments: pytest.fail("compiled again"))
    assert building.project_cubin(source, "sm_90", tmp_path) == cubin
    monkeypatch.undo()
    other = tmp_path / "layers.cu"
    other.write_text(source.read_text() + "// one line more\n")
    assert building.project_cubin(other, "sm_90", tmp_path) != b""
    assert len(list(tmp_path.glob("layers-*.cubin"))) == 2


# Of char: the compiler asks for the bytes at once, and does not fill its memory with one value after the other.
HUGE = "__device__ char held[1LL << 35] = {1};\n"


def test_a_source_that_asks_the_compiler_for_everything_is_refused_in_a_sentence(cuda_variant):
    made = building.build(cuda_variant(HUGE + RIGHT), "sm_90")
    assert made.cubin is None
    assert "the compiler failed (its process died: SIGABRT); it may take 2 GiB" in made.log


def test_what_is_no_header_is_not_read(cuda_variant):
    assert building.build(cuda_variant('#include "/dev/zero"\n' + RIGHT), "sm_90").ok


def test_a_source_that_asks_the_emulator_s_compiler_for_everything_is_refused_in_a_sentence(cuda_variant, tmp_path):
    with pytest.raises(UserError, match="mine does not compile for the emulator: "):
        emulation.compile_host(cuda_variant(HUGE + RIGHT), tmp_path, sandboxed=False)


def test_a_kernel_includes_what_cuda_and_c_have(cuda_variant):
    if building.compiler().startswith("NVRTC 12."):
        pytest.skip("CUDA 12's install has no mma.h that NVRTC could read; CUDA 13's has")
    included = ("cmath", "math.h", "iostream", "algorithm", "stdint.h", "mma.h", "cuda_fp16.h", "cooperative_groups.h")
    code = (
        "".join(f"#include <{name}>\n" for name in included)
        + """
    extern "C" __global__ void conv_forward(
        const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
    {
        nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> tile;
        nvcuda::wmma::fill_fragment(tile, std::max(std::sqrt(x[0]), ceilf(x[1])));
        nvcuda::wmma::store_matrix_sync(y, tile, 16, nvcuda::wmma::mem_row_major);
        cooperative_groups::this_thread_block().sync();
        y[0] += __half2float(__float2half(w[0]));
    }
    """
    )
    made = building.build(cuda_variant(code), "sm_80")
    assert made.ok, made.log


TWICE = "// Twice a number.\n__device__ float twice(float value) { return 2 * value; }\n"
INCLUDING = '#include "twice.cuh"\n' + RIGHT.replace("= x[0]", "= twice(x[0])")


def test_nvrtc_and_the_emulator_both_build_what_a_kernel_includes(cuda_variant, tmp_path):
    (tmp_path / "twice.cuh").write_text(TWICE)
    variant = cuda_variant(INCLUDING)
    made = building.build(variant, "sm_90")
    assert made.ok, made.log
    if emulation.compiler():
        assert emulation.compile_host(variant, tmp_path, sandboxed=False).exists()


def test_a_fault_in_what_a_kernel_includes_is_told_with_its_own_file_and_line(cuda_variant, tmp_path):
    (tmp_path / "twice.cuh").write_text(TWICE.replace("2 * value", "2 * valu"))
    variant = cuda_variant(INCLUDING)
    assert re.search(r"twice\.cuh\(2\): error", building.build(variant, "sm_90").log)
    if emulation.compiler():
        with pytest.raises(UserError, match=r"twice\.cuh:2:"):
            emulation.compile_host(variant, tmp_path, sandboxed=False)


def test_what_the_emulator_lacks_in_an_included_file_is_told_with_that_file_and_line(cuda_variant, tmp_path):
    (tmp_path / "twice.cuh").write_text(TWICE.replace("return", 'asm volatile("pmevent 7;"); return'))
    with pytest.raises(VariantFailure, match=r"inline PTX \(pmevent 7\), line 2 of twice\.cuh"):
        emulation.compile_host(cuda_variant(INCLUDING), tmp_path, sandboxed=False)


def test_an_included_file_can_be_read_in_the_sandbox(cuda_variant, tmp_path):
    if reason := sandbox.unavailable_reason():
        pytest.skip(reason)
    (tmp_path / "twice.cuh").write_text(TWICE)
    (made,) = building.build_all(cuda_variant(INCLUDING), ["sm_90"], tmp_path / "builds", sandboxed=True)
    assert made.ok, made.log
