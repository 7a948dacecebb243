"""The harness attacked, by emulation, by CPU variants and on a GPU where there is one: each attack is caught, and by
which check is said."""

import shutil
from dataclasses import replace

import pytest

from warpbook.common.files import PROJECT
from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking
from warpbook.harness.attacks import catalog
from warpbook.harness.attacks.catalog import ATTACKS, Attack
from warpbook.harness.emulator import emulation, translation
from warpbook.kernels import variants
from warpbook.runs import tables

needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)


def shown(device):
    return [name for name, attack in ATTACKS.items() if attack.words(device) is not None]


def assert_caught(name, device, folder):
    failure = catalog.first_failure(ATTACKS[name], device, folder)
    assert failure, "it passed"
    assert ATTACKS[name].words(device) in failure["reason"]
    assert catalog.check_behind(failure["reason"]) == catalog.check_behind(ATTACKS[name].words(device)) != ""


@needs_compiler
@pytest.mark.parametrize("attack", shown("emulator"))
def test_the_emulator_catches_a_kernel_that(attack, tmp_path):
    assert_caught(attack, "emulator", tmp_path)


@pytest.mark.parametrize("attack", shown("cpu"))
def test_the_harness_catches_a_cpu_variant_that(attack, tmp_path):
    assert_caught(attack, "cpu", tmp_path)


def test_a_replay_is_caught_though_its_calls_are_so_slow_that_a_usual_series_would_lose_patience(tmp_path):
    name = "replays an answer once it is called often"
    images = catalog.TIMED_IMAGES["cpu"]
    slow = f"import time; time.sleep(0.5 if len(x) == {images} else 0)"
    attack = ATTACKS[name]
    attack = replace(attack, launcher=attack.launcher.replace("    launch(", f"    {slow}; launch("))
    failure = catalog.first_failure(attack, "cpu", tmp_path)
    assert failure and attack.cpu in failure["reason"]


@pytest.mark.gpu
@pytest.mark.parametrize("attack", shown("gpu"))
def test_on_a_gpu_the_harness_catches_a_kernel_that(attack, tmp_path):
    assert_caught(attack, "gpu", tmp_path)


def test_a_sound_variant_passes_what_the_attacks_fail(tmp_path):
    sound = Attack(None, None, on_cpu="launch(x, w, y)", timed=True)
    assert catalog.first_failure(sound, "cpu", tmp_path) is None


@pytest.mark.parametrize(("device", "at_least"), [("gpu", 24), ("emulator", 20), ("cpu", 20)])
def test_the_harness_is_attacked_in_many_ways_on_every_device(device, at_least):
    assert len(shown(device)) >= at_least


def test_the_documented_table_of_attacks_is_the_catalog():
    page = PROJECT / "docs" / "explanation" / "tested-attacks.md"
    assert catalog.document() in page.read_text(), "make attacks writes it anew"


def test_a_run_from_before_the_check_was_named_is_read(tmp_path):
    (tmp_path / "attacks.csv").write_text(
        "attack,device,caught,status,reason\nwrites nothing,gpu,true,wrong_result,no\n"
    )
    (row,) = tables.ATTACKS.rows(tmp_path / "attacks.csv")
    assert (row["caught"], row["caught_by"]) == (True, "")


FOUND = {name: variant for name, variant in variants.discover().items() if not emulation.unsupported_reason(variant)}
PLAIN = [name for name, variant in FOUND.items() if not variant.header.limits.layers]  # for layers of any shape


@needs_compiler
@pytest.mark.parametrize("name", PLAIN)
def test_a_variant_s_own_source_is_right_under_the_sanitizers_whatever_the_order_of_threads(name, tmp_path):
    for file in variants.read(name).files:
        shutil.copy(file, tmp_path)
    rows = catalog.check_rows(tmp_path, name, "emulator")
    failed = [row["reason"] for row in rows if not row["ok"] and row["status"] != "unsupported"]
    assert not failed
    assert sum(row["ok"] for row in rows) >= 2 * (len(checking.RAGGED_LAYERS) - 1)


def test_ptx_becomes_calls_with_each_instruction_s_operands_in_their_order():
    source = """__device__ unsigned f(float x) {
        unsigned y, z;
        asm volatile("mov.u32 %1, %%ctaid.y;\\n\\t"
                     "cvt.rna.tf32.f32\\n" "%0, %2;" : "=r"(y), "=r"(z) : "f"(x) : "memory");
        return y + z; }"""
    made = translation.to_host(source, "mine.cu", {})
    assert "(emulator::ptx::mov_u32(z, blockIdx.y), emulator::ptx::cvt_rna_tf32_f32(y, x))" in made
    assert made.count("\n") == source.count("\n")


@pytest.mark.parametrize(
    ("known", "lacking"),
    [
        ("cvt.rna.tf32.f32", "cvt.rz.tf32.f32"),
        ("mma.sync.aligned.m16n8k8", "mma.sync.aligned.m16n8k4"),
        ('%1;" : "=r"(bits)', '1.5;" : "=r"(bits)'),
    ],
)
def test_ptx_that_is_not_emulated_is_named_with_its_line(known, lacking):
    source = (variants.FOLDER / "tensor_cores.cu").read_text()
    line = source.count("\n", 0, source.index(f'asm volatile("{known}' if "mma" in known else known)) + 1
    with pytest.raises(VariantFailure, match=rf"beyond the emulator: inline PTX \(.*\), line {line}") as refused:
        translation.to_host(source.replace(known, lacking), "tensor_cores.cu", {})
    assert refused.value.status == "unsupported"


@needs_compiler
@pytest.mark.parametrize("network", ["fa18", "fa19", "ece408"])
def test_products_of_halves_are_right_on_every_network_s_layers_where_tensor_cores_are_emulated(network, tmp_path):
    for file in variants.read("fp16x3_mma").files:
        shutil.copy(file, tmp_path)
    rows = catalog.check_rows(tmp_path, "fp16x3_mma", "emulator", network)
    assert all(row["ok"] for row in rows)
    of_layers = [row for row in rows if row["layer"].startswith("conv")]
    assert len(of_layers) == 4  # of integers and of real numbers
    assert 0 < max(row["rel_l2_err"] for row in of_layers) < 1e-6  # of FP32 sums


STAGED = """
/*
launch:       {threads: [32, 4, 1], outputs_per_block: {W: 32, H: 4}}
shared_bytes: 16 * ceil(C * K * K / 4)
*/
extern "C" __global__ void conv_forward(
    const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
{
    extern __shared__ float4 taps[];
    float* const tap = (float*)taps;
    const float* source = w + blockIdx.y * C * K * K;
    const int count = C * K * K, thread = threadIdx.y * 32 + threadIdx.x;
    const bool aligned = blockIdx.y * count % 4 == 0;
    for (int i = thread; i < count; i += 128) {
        if (!aligned || i / 4 * 4 + 4 > count) tap[i] = source[i];
        else if (i % 4 == 0) {
            const unsigned place = (unsigned)__cvta_generic_to_shared(tap + i);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(place), "l"(source + i) : "memory");
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    const int H_out = H - K + 1, W_out = W - K + 1, across = (W_out + 31) / 32;
    const int row = blockIdx.x / across * 4 + threadIdx.y, column = blockIdx.x % across * 32 + threadIdx.x;
    if (row >= H_out || column >= W_out) return;
    float sum = 0;
    for (int c = 0; c < C; ++c)
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += x[((blockIdx.z * C + c) * H + row + p) * W + column + q] * tap[(c * K + p) * K + q];
    y[((blockIdx.z * M + blockIdx.y) * H_out + row) * W_out + column] = sum;
}
"""


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", ""),
        ('"cp.async.wait_all;"', '""', "outputs are NaN or infinite"),
        ('"r"(place)', '"r"(place + 4)', "no multiples of 16"),
        ('"r"(place)', '"r"(place + 4096)', "beyond the block's dynamic shared memory"),
    ],
)
def test_what_is_copied_to_shared_memory_is_there_once_it_was_waited_for(old, new, words, tmp_path):
    (tmp_path / "staged.cu").write_text(STAGED.replace(old, new))
    failed = [row["reason"] for row in catalog.check_rows(tmp_path, "staged", "emulator") if not row["ok"]]
    assert words in failed[-1] if words else not failed


NAMED = """
    __syncwarp();
    if (threadIdx.y == 0) asm volatile("bar.arrive 1, 128;" ::: "memory");
    else asm volatile("bar.sync 1, 128;" ::: "memory");
"""


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", ""),
        ('"bar.arrive 1, 128;"', '""', "threads wait at a barrier with a number for others that do not come"),
        ('"bar.arrive 1, 128;"', '"bar.arrive 1, 96;"', "say different numbers of threads"),
        ('"bar.sync 1, 128;"', '""', "outputs are NaN or infinite"),
    ],
)
def test_a_warp_that_only_arrives_at_a_barrier_is_waited_for_by_the_others(old, new, words, tmp_path):
    one_warp = "i = threadIdx.y == 0 ? threadIdx.x : count; i < count; i += 32"
    source = STAGED.replace("i = thread; i < count; i += 128", one_warp).replace("__syncthreads();", NAMED)
    (tmp_path / "staged.cu").write_text(source.replace(old, new))
    failed = [row["reason"] for row in catalog.check_rows(tmp_path, "staged", "emulator") if not row["ok"]]
    assert words in failed[-1] if words else not failed


@needs_compiler
def test_a_product_of_a_warpgroup_in_a_block_of_no_whole_ones_is_told(tmp_path):
    product = """
    float sums[4] = {};
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %4, %4, %4}, %5, 1, 1, 1, 0;"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(0u), "l"(0ull));
"""
    source = STAGED.replace("__syncthreads();", f"__syncthreads();\n{product}").replace("[32, 4, 1]", "[32, 3, 1]")
    (tmp_path / "staged.cu").write_text(source)
    failed = [row["reason"] for row in catalog.check_rows(tmp_path, "staged", "emulator") if not row["ok"]]
    assert "no whole number of warpgroups" in failed[-1]


@needs_compiler
def test_an_address_of_a_fixed_array_in_shared_memory_is_beyond_the_emulator_with_its_line(tmp_path):
    source = STAGED.replace("extern __shared__ float4 taps[]", "__shared__ float4 taps[512]")
    (tmp_path / "staged.cu").write_text(source)
    line = source.count("\n", 0, source.index("__cvta_generic")) + 1
    told = {
        row["reason"] for row in catalog.check_rows(tmp_path, "staged", "emulator") if row["status"] == "unsupported"
    }
    assert any(f"an address of no dynamic shared memory, line {line}" in reason for reason in told)


@needs_compiler
@pytest.mark.parametrize(
    ("network", "layers"),
    [("fa18", ["conv2"]), ("sp19", ["conv2"]), ("fa19", ["conv2"]), ("ece408", ["conv1", "conv2"])],
)
def test_products_of_warpgroups_are_right_on_every_layer_that_they_are_for(network, layers, tmp_path):
    for file in variants.read("fp16x3_wgmma").files:
        shutil.copy(file, tmp_path)
    checked = catalog.check_rows(tmp_path, "fp16x3_wgmma", "emulator", network)
    assert {row["layer"] for row in checked} == {"conv1", "conv2"}  # it names its layers, and is tried on no others
    rows = {(row["layer"], row["test"]): row for row in checked if row["status"] != "unsupported"}
    assert sorted(rows) == [(layer, test) for layer in layers for test in ("integers", "reals")]
    assert all(row["ok"] for row in rows.values())
    for layer in layers:
        assert rows[layer, "integers"]["max_abs_err"] == 0
        assert 0 < rows[layer, "reals"]["rel_l2_err"] < 1e-6  # of FP32 sums


@needs_compiler
@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("fp16x3_wgmma", "wgmma_wait_group<0>();", "wgmma_wait_group<1>();", "outputs are NaN or infinite"),
        ("fp16x3_wgmma", '"wgmma.commit_group.sync.aligned;"', '""', "outputs are NaN or infinite"),
        ("fp16x3_wgmma", "8ull << 16 | 16ull << 32", "16ull << 16 | 8ull << 32", "outputs are wrong"),
        ("fp16x3_wgmma", "weights + lo_weights", "weights + hi_weights", "outputs are wrong"),
        (
            "fp16x3_wgmma",
            "weights + lo_weights",
            "weights + 100 * lo_weights",
            "beyond the block's dynamic shared memory",
        ),
        ("fp16x3_wgmma", "128 * (groups", "96 * (groups", "at an mbarrier where others do not arrive"),
        ("fp16x3_wgmma", "mbarrier_wait(images.full + slot, turn / 2);", "", "outputs are"),
        ("fp16x3_wgmma", "(images.full + slot, turn / 2)", "(images.full, 0)", "mbarrier where others do not arrive"),
        (
            "fp16x3_wgmma",
            "            mbarrier_arrive(full + slot);",
            "",
            "wait at an mbarrier where others do not arrive",
        ),
        ("fp16x3_wgmma", "mbarrier_init(images.full + threadIdx.x, 128)", "{}", "that no mbarrier.init has made"),
        ("fp16x3_wgmma", "(images.empty + threadIdx.x, 128", "(images.empty + threadIdx.x, 64", "outputs are wrong"),
        ("fp16x3_wgmma", "mbarrier_wait(empty + slot, turn / 2);", "", "outputs are wrong"),
        ("fp16x3_wgmma", "cp.async.bulk.wait_group 0;", "", "outputs unwritten"),
        ("fp16x3_wgmma", "cp.async.bulk.wait_group.read 0;", "", "outputs are wrong"),
        ("fp16x3_mma", '"r"(a.y), "r"(a.z)', '"r"(a.z), "r"(a.y)', "outputs are wrong"),
        ("fp16x3_mma", "(first - rounded.x, second - rounded.y)", "(0.0f, 0.0f)", "exceeds what fp32 allows"),
        ("fp16x3_mma", "__syncthreads_or(out_of_range) && threadIdx.x == 0", "false", "outputs are NaN or infinite"),
        ("tensor_cores", 'asm volatile("mma', 'if (threadIdx.x) asm volatile("mma', "wait for others that do not come"),
    ],
)
def test_the_emulator_sees_a_fault_in_a_kernel_on_tensor_cores(name, old, new, words, tmp_path):
    files = variants.read(name).files
    assert any(old in file.read_text() for file in files)
    for file in files:
        (tmp_path / file.name).write_text(file.read_text().replace(old, new))
    network = "fa18" if name == "fp16x3_wgmma" else "fa17"  # it is for no first layer
    rows = [row for row in catalog.check_rows(tmp_path, name, "emulator", network) if row["status"] != "unsupported"]
    failed = [row for row in rows if not row["ok"]]
    assert failed and words in failed[-1]["reason"]
    assert {row["status"] for row in failed} == {"wrong_result"}
