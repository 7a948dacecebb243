"""Files of the course since 2020, taken as they are: recognised, run with their host code on the CPU, judged."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import check_variant
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.harness import building, checking, cpp_compiler, ece408_check, error_diagnosis, nvcc
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import ece408, variants
from warpbook.problems import networks, problem
from warpbook.runs import tables

FILES = PROJECT / "tests" / "data" / "course"
FIRST, SECOND = ece408.LAYERS

COMPILER = emulation.compiler()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here to emulate with")


@pytest.fixture
def verdict(tmp_path):
    """What emulating a changed file of tests/data/course on a layer says: empty where it is right, else the reason."""

    def judge(name, *changes, layer=FIRST, images=2, reverse=False):
        code = (FILES / f"{name}.cu").read_text()
        for old, new in changes:
            assert old in code
            code = code.replace(old, new)
        (tmp_path / f"{name}.cu").write_text(code)
        built = tmp_path / "built"
        built.mkdir(exist_ok=True)
        variant = variants.read(name, tmp_path)
        assert not variant.read_error
        with IsolatedBench(variant, False, built) as bench:
            bench.reversed_order = reverse
            row = checking.check_case(bench, variant, layer.at(images), ("integers",))[-1]
            return "" if row["ok"] else f"{row['status']}: {row['reason']}; {bench.noted}"

    return judge


def test_files_of_the_course_are_variants_as_they_are():
    other = problem.find("conv").ragged[0]
    for name, term, precision in (
        ("one_call", "fa20", "fp32"),
        ("constant_atomics", "fa21", "fp32"),
        ("streams_half2", "fa23", "fp16"),
        ("unrolled_blas", "sp24", "fp32"),
        ("fused_wmma", "sp25", "tf32"),
    ):
        variant = variants.read(name, FILES)
        assert variant.read_error == ""
        assert (variant.course.is_one_call, variant.course.has_stride) == (term == "fa20", term == "fa23"), name
        assert (variant.header.precision, variant.header.builds_on) == (precision, ""), name
        assert [variant.unsupported(layer.at(100)) for layer in ece408.LAYERS] == ["", ""]
        assert f"{name}: a file of the course, which may assume its layers" in variant.unsupported(other.at(1))


def test_a_file_whose_interface_no_term_had_says_what_it_takes_or_which_method_it_has(tmp_path):
    (tmp_path / "mine.cu").write_text("void GPUInterface::conv_forward_gpu(float* y, const float* x) {}")
    assert "conv_forward_gpu takes 2 arguments, as in no term" in variants.read("mine", tmp_path).read_error
    code = (FILES / "one_call.cu").read_text().replace("conv_forward_gpu(", "conv_forward_gpu2(")
    (tmp_path / "mine.cu").write_text(code)
    problem = variants.read("mine", tmp_path).read_error
    assert "no conv_forward_gpu, which the course's program calls; it defines conv_forward_gpu2" in problem


def test_what_is_commented_out_is_no_interface():
    assert ece408.interface("// void GPUInterface::conv_forward_gpu(float* y) {}") is None


@needs_compiler
def test_a_right_file_passes(verdict):
    for name, layer, reverse in [
        ("one_call", FIRST, False),
        ("constant_atomics", FIRST, True),
        ("streams_half2", FIRST, False),
        ("unrolled_blas", FIRST, True),
        ("fused_wmma", SECOND, False),
    ]:
        # Both of its products, and a batch that does not fill the last part.
        images = 21 if name == "unrolled_blas" else 1
        assert verdict(name, layer=layer, images=images, reverse=reverse) == "", name


WRONG = {
    "too little shared memory for its halo": (
        "one_call", [("(TILE + K - 1) * (TILE + K - 1)", "TILE * TILE")],
        "in conv_forward_kernel at one_call.cu:19: a write 716 bytes after the 1220 bytes allocated at line 41",
    ),
    "weights that nobody gave memory": (
        "one_call",
        [
            ("checked(cudaMalloc((void **)&k, sizeof(float) * M * C * K * K));", "k = nullptr;"),
            ("    checked(cudaMemcpy(k, host_k, sizeof(float) * M * C * K * K, cudaMemcpyHostToDevice));\n", "\n"),
        ],
        "SEGV in conv_forward_kernel at one_call.cu:19, through a null pointer",
    ),
    "an output smaller than what is written": (
        "one_call", [("&y, sizeof(float) * B * M *", "&y, sizeof(float) * B *")],
        "overflow in conv_forward_kernel at one_call.cu:28: a write 0 bytes after the 4624 bytes allocated at line 35",
    ),
    "a launch without the shared memory that its kernel declares": (
        "one_call", [(", sizeof(float) * ((TILE + K - 1) * (TILE + K - 1) + K * K)>>>", ">>>")],
        "dynamic shared memory is declared in line 12, and the launch asks for none, with a third value between <<< and >>>, at line 41",
    ),
    "a barrier in a branch": (
        "one_call", [("        __syncthreads();  // used", "        if (h < H_out - 1) __syncthreads();\n")],
        "threads of one block wait at different barriers, at line",
    ),
    "a kernel that reads the host's array": (
        "constant_atomics",
        [
            (">>>(device_y, device_x, B,", ">>>(device_y, kept, B,"),
            ("__constant__", "static const float *kept; __constant__"),
            ("    cudaMemcpyToSymbol(", "    kept = host_x; cudaMemcpyToSymbol("),
        ],
        "use-after-poison in conv_forward_kernel at constant_atomics.cu:21",
    ),
    "a launch that CUDA refuses": (
        "unrolled_blas", [("#define BLOCK 256", "#define BLOCK 2048")],
        "a launch with blocks of 2048 x 1 x 1 threads (invalid configuration argument) at line",
    ),
    "sums added to what nobody set": (
        "constant_atomics", [("cudaMemset(", "(void)sizeof(")],
        "; what nobody had written reached the output, from memory allocated at line 44",
    ),
    "a tile read before the others have loaded it": (
        "one_call", [("        __syncthreads();  // loaded\n", "\n")],
        "; what nobody had written reached the output, from dynamic shared memory of the launch at line 41",
    ),
    "an array of shared memory loaded in part, read by tensor cores": (
        "fused_wmma", [("b[i / 16][i % 16] = value;", "if (i < 100) b[i / 16][i % 16] = value;")],
        "; what nobody had written reached the output, from shared memory declared at line 11",
    ),
    "weights that are never copied, read as half precision": (
        "streams_half2", [("cudaMemcpy(*device_mask_ptr", "(void)sizeof(*device_mask_ptr")],
        "; what nobody had written reached the output, from memory allocated at line 34",
    ),
    "an output whose row and column are swapped": (
        "one_call", [("H_out + h) * W_out + w] = sum", "H_out + w) * W_out + h] = sum")],
        "every value is there, in another's place: is y indexed in the order of its extents?",
    ),
    "a lane that stays away from tensor cores": (
        "fused_wmma", [("        wmma::mma_sync(", "        if (lane) wmma::mma_sync(")],
        "lanes of a warp wait for others that do not come at line 40",
    ),
    "what the emulator lacks": (
        "fused_wmma", [("        __syncwarp();\n        wmma", "        __cluster_barrier_arrive();\n        wmma")],
        "unsupported: fused_wmma: beyond the emulator: ‘__cluster_barrier_arrive’ was not declared in this scope, "
        "line 34",
    ),
    "what is no C++": (
        "streams_half2", [("#define STREAMS 4", "#define STREAMS 4 +")],
        "compile_failed: streams_half2 does not compile for the emulator",
    ),
}  # fmt: skip


@needs_compiler
def test_a_fault_is_named_with_its_line(verdict):
    said = {fault: verdict(name, *changes, layer=SECOND, images=1) for fault, (name, changes, _) in WRONG.items()}
    assert {fault: words for fault, words in said.items() if WRONG[fault][2] not in words} == {}


@pytest.mark.skipif(nvcc.find_compiler() is None, reason=nvcc.MISSING)
def test_a_file_builds_for_a_gpu_where_nvcc_is(tmp_path):
    (built,) = building.build_all(variants.read("fused_wmma", FILES), ["sm_86"], tmp_path / "built")
    assert built.ok, built.log
    (row,) = built.rows
    assert (row["kernel"], row["compiler"][:5], row["shared_bytes"]) == ("fused_kernel", "nvcc ", 2048)


@needs_compiler
def test_a_file_that_assumes_a_divisible_batch_is_right_where_the_course_runs_it(tmp_path, monkeypatch, small_layers):
    monkeypatch.setattr(ece408_check, "LONG_S", 1000)  # no layer takes so long: all are of the course's batch
    code = (FILES / "unrolled_blas.cu").read_text()
    code = code.replace("std::min(at_once, Batch - begin)", "at_once").replace("begin % (2 * at_once)", "false")
    (tmp_path / "divided.cu").write_text(code)
    (tmp_path / "built").mkdir()
    rows = [
        row
        for rows in ece408_check.check(variants.read("divided", tmp_path), False, tmp_path / "built")
        for row in rows
        if row["test"] != "races"
    ]
    assert [(row["size"], row["status"]) for row in rows] == 2 * [(100, "ok"), (3, "unsupported")]
    assert (
        "right for 100 images, not for 3: divided: heap-buffer-overflow in matrix_unrolling_kernel at divided.cu:20"
        in rows[1]["reason"]
    )


@needs_compiler
@pytest.mark.parametrize("again", ["layer != C", "!layer"])
def test_a_file_that_keeps_the_memory_of_a_layer_s_first_batch_is_right_and_one_of_the_first_layer_wrong(
    tmp_path, again, small_layers
):
    code = (FILES / "one_call.cu").read_text()
    for old, new in (
        ("    float *y, *x, *k;", f"    static float *y, *x, *k; static int layer;\n    if ({again}) {{ layer = C;"),
        ("C * K * K));\n    checked(cudaMemcpy(x", "C * K * K)); }\n    checked(cudaMemcpy(x"),
        ("    cudaFree(y), cudaFree(x), cudaFree(k);\n", ""),
    ):
        assert old in code
        code = code.replace(old, new)
    (tmp_path / "kept.cu").write_text(code)
    (tmp_path / "built").mkdir()
    rows = [
        row for rows in ece408_check.check(variants.read("kept", tmp_path), False, tmp_path / "built") for row in rows
    ]
    if again == "!layer":  # the second layer's weights are more
        assert (rows[-2]["test"], rows[-2]["ok"]) == ("layers", False)
    else:
        assert {row["status"] for row in rows} == {"ok"}
        assert {row["size"] for row in rows if row["test"] != "races"} == {3, 100, 10_000}


@pytest.fixture
def counted_compiler(tmp_path, monkeypatch):
    """The calls of a compiler that makes empty files, where it can; nothing of the emulator is kept yet."""
    calls = tmp_path / "calls"
    calls.touch()
    program = tmp_path / "compiler"
    lines = ("#!/bin/sh", '[ "$1" = --version ] && exit', f'echo "$*" >> {calls}', "sleep 0.05", "for last; do :; done")
    program.write_text("\n".join([*lines, ': > "$last"\n']))
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setattr(emulation, "CODE", tmp_path / "code")
    monkeypatch.setattr(cpp_compiler, "LIBRARIES", tmp_path / "libraries")
    return lambda: calls.read_text().splitlines()


def test_what_the_emulator_does_itself_is_compiled_once_though_several_ask_at_a_time(tmp_path, counted_compiler):
    with ThreadPoolExecutor(4) as pool:
        (place,) = set(pool.map(emulation.build_emulator, [tmp_path / "scratch"] * 4))
    assert place.parent == tmp_path / "code" / "results" / "libraries"
    assert len(counted_compiler()) == 1 + len(emulation.OWN)
    assert (place / f"{emulation.HEADER.name}.gch").exists()


def test_where_nothing_can_be_kept_the_emulator_is_compiled_beside_the_source(tmp_path, counted_compiler):
    for place in ("code", "libraries"):
        (tmp_path / place).write_text("no folder")
    assert emulation.build_emulator(tmp_path / "scratch").parent == tmp_path / "scratch"
    assert emulation.build_emulator(tmp_path / "scratch").parent == tmp_path / "scratch"
    assert len(counted_compiler()) == 1 + len(emulation.OWN)


def test_a_compiler_that_fails_leaves_nothing_of_the_emulator(tmp_path, counted_compiler):
    (tmp_path / "compiler").write_text("#!/bin/sh\necho 'error: no more memory' >&2; exit 1\n")
    with pytest.raises(UserError, match="the emulator does not compile: error: no more memory"):
        emulation.build_emulator(tmp_path / "scratch")
    assert [path for path in (tmp_path / "code").rglob("*") if path.name.startswith("emulator-")] == []


@needs_compiler
def test_compiling_what_the_emulator_does_itself_is_not_a_variant_s_time(tmp_path, monkeypatch, request):
    """A slow machine's first check would end in the middle of it, and so would every other."""
    made, for_races = emulation.build_emulator(tmp_path / "made"), emulation.build_emulator(tmp_path / "made", True)
    calls = request.getfixturevalue("counted_compiler")
    # What was made before stands for what this compiler would make of the emulator's files.
    (tmp_path / "compiler").write_text(f"""#!/bin/sh
for last; do :; done
echo "$PPID $*" >> {tmp_path / "calls"}
case "$*" in *EMULATOR_RACES*) made={for_races} ;; *) made={made} ;; esac
case "$*" in
    *" -c "*|*"c++-header"*) cp $made/$(basename "$last") "$last" ;;
    *) exec {COMPILER} "$@" ;;
esac
""")
    out = tmp_path / "correctness.csv"
    asked = ["--device", "emulator", "--cases", "fa18", "--variant", "direct", "--sizes", "3", "--timeout", "60"]
    asked += ["--sandbox", "none", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["check_variant.py", *asked])
    check_variant.main()
    assert set(tables.CORRECTNESS.read(out).status) == {"ok"}
    here = {kind: [call.split()[0] == str(os.getpid()) for call in calls() if re.search(kind, call)]
            for kind in (" -c |c\\+\\+-header", " -include ")}  # fmt: skip
    itself, variants_own = here.values()
    assert itself == [True] * (2 + len(emulation.OWN) + len(emulation.own_sources(races=True)))
    assert variants_own == [False, False]  # in the process whose time is limited


def test_with_another_option_the_emulator_is_compiled_anew(tmp_path, counted_compiler, monkeypatch):
    before = emulation.build_emulator(tmp_path / "scratch")
    monkeypatch.setattr(emulation, "FLAGS", (*emulation.FLAGS, "-O2"))
    assert emulation.build_emulator(tmp_path / "scratch") != before


def test_the_process_of_an_emulated_file_loads_nothing_but_the_standard_library():
    asks = "import sys, warpbook.harness.ece408_worker; print(*{name.partition('.')[0] for name in sys.modules})"
    scripts = Path(ece408_check.__file__).parents[2]
    done = subprocess.run([sys.executable, "-S", "-c", asks], cwd=scripts, capture_output=True, text=True, check=True)
    beyond = set(done.stdout.split()) - sys.stdlib_module_names
    assert {name for name in beyond if not name.startswith("_")} == {"warpbook"}


@needs_compiler
def test_a_function_or_variable_that_a_file_uses_and_nobody_defines_is_named(verdict):
    for declared, used, how in [
        ("void absent(int);", "absent(1);", "called"),
        ("extern __constant__ float absent;", "if (absent) return;", "used"),
    ]:
        changes = [
            ("#define TILE 16", f"#define TILE 16\n{declared}"),
            ("    float *y, *x, *k;\n", f"    float *y, *x, *k; {used}\n"),
        ]
        assert f"compile_failed: absent is {how} and defined nowhere" in verdict("one_call", *changes)


def test_a_reason_asks_for_the_usual_mistake_behind_it():
    unwritten = "mine leaves 12 of 12 outputs unwritten"
    for reason, noted, asked in (
        ("wrong", "what nobody had written came, from dynamic shared memory of the launch", "a __syncthr"),
        ("wrong", "what nobody had written came, from shared memory declared at line 11", "a __syncthr"),
        ("wrong", "what nobody had written came, from memory allocated at line 35", "each output some thr"),
        (unwritten, "", "the result copied back to the host (cudaMemcpyDeviceToHost)"),
        ("mine leaves 2 of 12 outputs unwritten", "", ""),
        (unwritten, "a launch with blocks of 2048 x 1 x 1 threads at line 3", ""),
    ):
        words = error_diagnosis.with_note(
            variants.read("one_call", FILES), networks.find("ece408").cases[0], reason, noted
        )
        told, _, question = words.partition("; is ")
        assert told == (f"{reason}; {noted}" if noted else reason)
        assert question.startswith(asked) and bool(question) == bool(asked), (reason, noted)
