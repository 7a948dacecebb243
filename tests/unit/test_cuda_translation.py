"""CUDA C++ as C++ for the emulator: what nvcc's passes see, launches wherever they stand, names that CUDA declares."""

import time

import pytest

from warpbook.common.supervision import VariantFailure
from warpbook.harness.emulator import architecture, cuda_names, emulation, translation


def host(source):
    made = translation.to_host(source, "mine.cu", {})
    assert made.count("\n") == source.count("\n")
    return made


def test_a_kernel_checks_the_threads_that_its_launch_bounds_allow():
    made = host("template <int T> __global__ void __launch_bounds__(T * 32, 2) k(float* y) { y[0] = 1; }")
    assert "{ EMULATOR_LAUNCH_BOUNDS(T * 32, 2); y[0] = 1; }" in made


def test_a_kernel_checks_that_its_grid_is_whole_clusters():
    for head in ("__global__ void __cluster_dims__(2, W)", "__cluster_dims__(2,\n W) __global__ void"):
        made = host(
            f"/* {'é' * 40} */ {head} __launch_bounds__(64) k(float* y) {{ y[0] = 1; }}\n__global__ void other() {{ }}"
        )
        assert "EMULATOR_CLUSTER_DIMS(2, W);" in made.partition("other")[0] and "__cluster_dims__" not in made
    made = host("__global__ void __cluster_dims__(2) k(float*);\n__global__ void other() { } // __cluster_dims__(3)")
    assert "EMULATOR_CLUSTER_DIMS" not in made


def test_the_brackets_of_a_launch_may_stand_apart():
    for opening, closing in (("<<<", ">>>"), ("<< <", ">> >"), ("<< <", ">>>")):
        made = host(f"__global__ void k(int* y);\nvoid f(int* y) {{ k {opening} 2, 32 {closing} (y); }}")
        assert "emulator::launch(emulator::Config(2,  2, 32 )" in made.replace("   ", "  ") and "<" not in made


def test_an_array_in_constant_memory_must_fit_there():
    assert 'static_assert(sizeof(w) <= 65536, "w is too long' in host("__constant__ float w[4][SIZE * 2];")
    for other in ("__constant__ int n;", "__device__ float w[1 << 20];", "extern __constant__ float w[];"):
        assert "static_assert" not in host(other)
    error = "mine.cu:2:1: error: static assertion failed: w is too long: constant memory has 65536 bytes"
    assert emulation.missing_feature(error, "mine.cu") == ""  # nvcc refuses it too


def test_ptx_keeps_what_orders_memory_and_for_whom():
    for written, made in [
        ('"ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(u) : "l"(p)', ("strong(", ", __threadfence())")),
        ('"st.release.cta.global.u32 [%0], %1;" :: "l"(p), "r"(u)', ("(__threadfence_block(), ", "strong(")),
        ('"red.relaxed.cta.global.add.u32 [%0], %1;" :: "l"(p), "r"(u)', ("atomicAdd_block(",)),
        ('"fence.acq_rel.cta;" ::', ("__threadfence_block()",)),
    ]:
        text = host(f"__global__ void k(unsigned* p) {{ unsigned u; asm volatile({written}); }}")
        assert [words for words in made if words not in text] == []


CONDITIONAL = """{head} {{
#{condition}
  first();
#else
  second();
#endif
}}
"""


def test_device_code_sees_the_architecture():
    for head in ["__global__ void k()", "__host__ __device__ int f()", "struct S { __device__ int f()"]:
        for condition in ["ifdef __CUDA_ARCH__", "if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800"]:
            made = architecture.settle(CONDITIONAL.format(head=head, condition=condition), "sm_80")
            assert made.splitlines()[1] == "#if 1"


def test_host_code_sees_no_architecture():
    for condition in ["ifdef __CUDA_ARCH__", "if defined(__CUDA_ARCH__)", "if __CUDA_ARCH__"]:
        made = architecture.settle(CONDITIONAL.format(head="void launch()", condition=condition), "sm_80")
        assert made.splitlines()[1] == "#if 0"


def test_outside_functions_what_is_chosen_from_decides_which_pass_sees_it():
    device = "#if __CUDA_ARCH__ < 600\n__device__ double atomicAdd(double*, double);\n#endif\n"
    assert architecture.settle(device, "sm_80").startswith("#if 0\n")
    both = "#ifndef __CUDA_ARCH__\nvoid prepare();\n#endif\n"
    assert architecture.settle(both, "sm_80").startswith("#if 1\n")


def test_an_architecture_with_features_of_its_own_is_seen_by_both_names():
    source = "__global__ void k() {\n#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && __CUDA_ARCH__ == 900\n#endif\n}\n"
    assert "#if 1\n" in architecture.settle(source, "sm_90a")
    assert "__CUDA_ARCH_FEAT_SM90_ALL" in architecture.settle(source, "sm_90")


def test_architectures_on_which_a_source_is_another_program_are_told():
    for condition, others in [
        ("__CUDA_ARCH__ >= 700", []),
        ("__CUDA_ARCH__ >= 900", ["sm_90"]),
        ("__CUDA_ARCH__ == 900 || !(__CUDA_ARCH__ < 1000)", ["sm_90"]),
        ("__CUDA_ARCH__ > 900 && defined(OWN)", ["sm_90", "sm_100"]),  # what OWN is, nobody knows here
        ("__CUDA_ARCH__ / 100 > 9", ["sm_90", "sm_100"]),
    ]:
        source = f"__global__ void k() {{\n#if {condition}\n#endif\n}}\n"
        assert architecture.others(source, "sm_80") == others
        assert architecture.others(source, "sm_90a") == []  # it runs on no other


def test_a_source_that_asks_whether_it_is_emulated_is_not_judged():
    for code in [
        "#ifdef __SANITIZE_ADDRESS__\n#endif",
        "#if defined(__syncthreads)\n#endif",
        "#ifndef EMULATOR_AT\n#endif",
        "#if 1 \\\n && __has_feature(address_sanitizer)\n#endif",
        "#if !__has_include(<sanitizer/asan_interface.h>)\n#endif",
        "#ifdef __OPTIMIZE__\n#endif",
        "#ifdef _GLIBCXX_VECTOR\n#endif",
        'extern "C" void __asan_init() __attribute__((weak));',
    ]:
        with pytest.raises(VariantFailure, match="which tells the emulator from a GPU, line 2") as raised:
            host(f"// __SANITIZE_ADDRESS__ in a comment is none\n{code}\n")
        assert raised.value.status == "unsupported"


def test_what_a_conditional_asks_for_through_macros_is_seen():
    with pytest.raises(VariantFailure, match="asks for __PIC__, which tells the emulator from a GPU, line 4"):
        host("#define HERE (0 \\\n || IS)\n#define IS defined(__PIC__) && HERE\n#if HERE\n#endif\n")


def test_what_cuda_defines_may_be_asked_for():
    names = ("__CUDACC__", "__launch_bounds__", "CUDART_VERSION", "__GNUC__", "NDEBUG", "M_PI")
    host("".join(f"#ifdef {name}\n#endif\n" for name in names))


def test_an_argument_that_changes_something_is_evaluated_once():
    made = host("void f() { k<<<g, b, 0, s[n++ % 4]>>>(x, m++, next()); }")
    assert "Config(1, g, b, 0, s[n++ % 4])" in made
    assert "[&, given_1 = m++, given_2 = next()] { k(x, given_1, given_2); }" in made


def test_a_launch_in_a_macro_is_launched():
    for macro, launched in [
        ("#define GO(k, g, ...) k<<<g, 256>>>(__VA_ARGS__)", "Config(__LINE__, g, 256), [&] { k (__VA_ARGS__); })"),
        ("#define GO(k, g, list) do { k<16, T><<<g, 9>>> list; } while (0)", "[&] { k<16, T> list; })"),
        ("#define GO(k, g) \\\n    k##_fast \\\n    <<<g, 32>>>(x)", "[&] { k##_fast (x); })"),
    ]:
        assert launched in host(f"{macro}\n__global__ void other() {{}}\n")


def test_a_macro_s_long_text_is_read_at_once():
    for text in ["a_word_of_many_letters" * 400, "(" * 9000, "a ## " * 2000, "k<T" * 3000, "k " * 9000]:
        began = time.process_time()
        host(f"#define GO(k) {text}\n__global__ void other() {{}}\n")
        assert time.process_time() - began < 5


def test_an_argument_of_a_launching_macro_that_changes_something_is_named():
    source = "#define GO(k, ...) k<<<1, 1>>>(__VA_ARGS__)\nvoid f() { GO(k, n++); }\n"
    with pytest.raises(VariantFailure, match="an argument of GO, which launches, that changes what it names, line 2"):
        host(source)


def test_a_kernel_whose_address_is_taken_keeps_its_parameters():
    for cast in ["(void*)k", "(const void *)&k", "reinterpret_cast<const void*>(k)"]:
        made = host(f"__global__ void k(int n) {{}}\nvoid f() {{ cudaLaunchKernel({cast}, 1, 1, a); g((void*)n); }}\n")
        assert "emulator::address_of_kernel(" in made
        assert "(void*)n" in made


def test_a_kernel_that_device_code_launches_is_named_with_its_line():
    source = "__global__ void inner() {}\n__global__ void outer()\n{\n  inner<<<1, 1>>>();\n}\n"
    with pytest.raises(VariantFailure, match="a kernel that device code launches, line 4") as refused:
        host(source)
    assert refused.value.status == "unsupported"


def test_a_header_of_cuda_is_left_out_for_its_names_decide():
    for header in ["<cub/cub.cuh>", "<cuda/pipeline>", '"cublas_v2.h"', "<nvtx3/nvToolsExt.h>"]:
        assert host(f"#include {header}\n") == "\n"


def test_a_header_of_c_plus_plus_under_cuda_s_name_is_the_host_s():
    assert host("#include <cuda/std/limits>\n#include <math.h>\n") == "#include <limits>\n#include <math.h>\n"


needs_headers = pytest.mark.skipif(not cuda_names._headers(), reason="CUDA's headers are not installed")
OF_CUDA = (
    "__match_any_sync",
    "norm3df",
    "short4",
    "double4",
    "cudaMallocPitch",
    "cudaLimitPrintfFifoSize",
    "cuFloatComplex",
)
OF_A_LIBRARY = ("cub::BlockReduce", "thrust", "cudnnHandle_t", "CUBLAS_OP_N", "tex2D", "NV_IS_DEVICE")


@needs_headers
def test_a_name_is_cuda_s_where_its_headers_declare_it_or_it_is_a_library_s():
    assert [name for name in (*OF_CUDA, *OF_A_LIBRARY) if not cuda_names.is_of_cuda(name)] == []
    nobody_s = ("my_helper", "cudaMalocc", "__syncthread", "tile_width", "text", "n", "value", "result", "rank")
    assert [name for name in nobody_s if cuda_names.is_of_cuda(name)] == []


def test_without_headers_a_name_s_beginning_decides(monkeypatch):
    monkeypatch.setattr(cuda_names, "_headers", lambda: "")
    assert [name for name in ("__brand_new", "cudaBrandNew", "thrust::sort") if not cuda_names.is_of_cuda(name)] == []
    assert not cuda_names.is_of_cuda("my_helper")


@needs_headers
def test_a_name_that_the_emulator_lacks_excuses_the_errors_that_follow_from_it():
    words = (
        "mine.cu:4:17: error: expected ‘,’ before ‘*’ token\n"
        "mine.cu:4:5: error: ‘cudaSurfaceObject_t’ was not declared in this scope; did you mean ‘cudaStream_t’?\n"
    )
    assert "‘cudaSurfaceObject_t’" in emulation.missing_feature(words, "mine.cu")
    assert emulation.missing_feature(words.splitlines()[0], "mine.cu") == ""
    assert emulation.missing_feature("mine.cu:4:5: error: expected ‘;’ before ‘__shfl_sync’", "mine.cu") == ""
    assembled = "mine.cu: Assembler messages:\nmine.cu:7: Error: no such instruction: `ldmatrix.sync'"
    assert emulation.missing_feature(assembled, "mine.cu") == "beyond the emulator: PTX in a macro, line 7"


def test_a_bad_access_of_a_template_is_told_by_the_kernel_s_name():
    report = (
        "==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1\nREAD of size 4 at 0x1 thread T0\n"
        "    #0 0x7f01 in void rows::add<float>(float const*, float*, int) /tmp/mine.cu:28\n"
    )
    assert emulation.sanitizer_message(report) == "heap-buffer-overflow in rows::add at mine.cu:28"
