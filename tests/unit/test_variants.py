import os
import shutil

import pytest

from warpbook.common.errors import UserError
from warpbook.harness import checking
from warpbook.harness.bench import CpuBench
from warpbook.kernels import sources, variants
from warpbook.kernels.launch_inference import launch_sites
from warpbook.problems import networks

FOUND = variants.discover()
CONV2 = networks.find("fa19").convs[1]


def test_every_shipped_variant_says_what_it_tries_and_expects():
    for name in FOUND:
        header = FOUND[name].header
        assert FOUND[name].read_error == ""
        assert header.title
        assert len(header.idea) > 40
        assert len(header.expect) > 40


def test_every_shipped_variant_builds_on_one_of_its_own_device():
    for name in FOUND:
        baseline = FOUND[name].header.builds_on
        assert not baseline or FOUND[baseline].device == FOUND[name].device


def test_variants_come_after_what_they_build_on():
    names = list(FOUND)
    for name, variant in FOUND.items():
        if variant.header.builds_on:
            assert names.index(variant.header.builds_on) < names.index(name)


def test_adding_a_variant_is_adding_its_file(cuda_variant, tmp_path):
    cuda_variant("", name="first")
    cuda_variant("", name="second", header="builds_on: first\n")
    assert list(variants.discover(tmp_path)) == ["first", "second"]
    (tmp_path / "second.cu").unlink()
    assert list(variants.discover(tmp_path)) == ["first"]


def test_a_file_name_that_is_no_name_of_a_variant_is_a_failed_variant_with_the_remedy(cuda_variant, tmp_path):
    for name in ["my-kernel", "my kernel", "direct.v2"]:
        cuda_variant("", name="sound")
        cuda_variant("", name=name)
        known = variants.discover(tmp_path)
        assert known["sound"].read_error == ""
        assert known[name].read_error == (
            f"{name}.cu: a variant's file name has letters, digits and underscores alone before its ending; "
            "rename the file"
        )


def test_a_file_name_that_cannot_even_be_shown_is_refused_by_name(cuda_variant, tmp_path):
    for name in ["-x", "a{b}", "a\nb"]:
        cuda_variant("", name=name)
        with pytest.raises(UserError, match="rename the file") as refused:
            variants.discover(tmp_path)
        assert repr(str(tmp_path / f"{name}.cu")) in str(refused.value)
        (tmp_path / f"{name}.cu").unlink()


def test_what_is_no_readable_source_file_is_no_variant(cuda_variant, tmp_path):
    cuda_variant("", name="sound")
    (tmp_path / "._sound.cu").write_bytes(b"\0\5\26\7")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "folder.cu").mkdir()
    (tmp_path / "dangling.cu").symlink_to("nowhere.cu")
    os.mkfifo(tmp_path / "pipe.cu")
    os.mkfifo(tmp_path / "sound.py")
    assert list(variants.discover(tmp_path)) == ["sound"]
    assert variants.discover(tmp_path)["sound"].launcher is None


def test_grid_covers_ragged_outputs(cuda_variant):
    header = "launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 8, M: 5, N: 3}}\n"
    launch = cuda_variant("", header=header).header.launch
    layer = networks.ConvLayer("ragged", 2, 21, 40, 11, 5)  # outputs 17 x 36
    assert launch.grid(layer.at(7)) == (3 * 3, 3, 3)


def test_a_layer_beyond_a_limit_is_unsupported_with_value_and_limit(cuda_variant):
    variant = cuda_variant("", header="limits: {K: 5}\n")
    assert variant.unsupported(CONV2.at(10)) == "mine: K = 7 exceeds its limit 5 (`limits` in mine.cu)"
    assert variant.unsupported(networks.find("fa18").convs[0].at(10)) == ""


def test_limits_are_bounds_below_and_above_exact_values_multiples_and_layers(cuda_variant):
    for limits, words in [
        ("{K: {at_least: 8, at_most: 9}}", "K = 7 is below its limit 8"),
        ("{K: {at_least: 3, at_most: 7}, C: {is: 1}}", "C = 12 must be 1"),
        ("{K: {at_least: 3, at_most: 7}, C: {is: 12}}", ""),
        ("{N: {multiple_of: 4}}", "N = 10 must be a multiple of 4"),
        ("{W_out: {multiple_of: 9}}", ""),
        ("{layers: [conv1]}", "it is not written for the layer conv2, but for conv1"),
        ("{layers: [conv1, 12x33x33 * 24@7x7]}", ""),
    ]:
        variant = cuda_variant("", header=f"limits: {limits}\n")
        assert variant.read_error == ""
        assert variant.unsupported(CONV2.at(10)) == (f"mine: {words} (`limits` in mine.cu)" if words else "")


STRANGER = """// A kernel as somebody published it.
/* Author: a student */
extern "C" __global__ void conv_forward(
    const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K) {}
"""
LAUNCH = "launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16}}\n"


def test_a_file_that_says_nothing_of_itself_is_a_variant_compared_with_direct(tmp_path):
    shutil.copy(variants.FOLDER / "direct.cu", tmp_path)
    (tmp_path / "strangers.cu").write_text(STRANGER)
    (tmp_path / "strangers.yaml").write_text(LAUNCH)
    variant = variants.discover(tmp_path)["strangers"]
    assert variant.read_error == ""
    assert (variant.title, variant.header.builds_on) == ("strangers", "direct")
    assert variant.undocumented_fields == (
        "strangers.cu, or strangers.yaml beside it, does not say its `title`, `idea` and `expect`."
    )
    assert variant.code == STRANGER


def test_cpp_that_says_nothing_of_itself_is_compared_with_the_loop_nest_of_its_problem(tmp_path):
    for problem, baseline in [("conv", "loop_nest"), ("gemm", "gemm/loop_nest")]:
        folder = shutil.copytree(variants.FOLDER.parent / problem, tmp_path / problem)
        (folder / "strangers.cpp").write_text('extern "C" void strangers() {}\n')
        assert variants.read("strangers", folder).header.builds_on == baseline


def test_a_starting_point_with_an_idea_is_compared_with_nothing(cuda_variant, tmp_path):
    shutil.copy(variants.FOLDER / "direct.cu", tmp_path)
    assert cuda_variant("").header.builds_on == ""


def test_facts_beside_a_source_are_its_files_and_its_identity_as_a_header_s_are(tmp_path):
    (tmp_path / "mine.cu").write_text(STRANGER)
    hashes = []
    for facts in ("", "title: Another\n", "constants: {TILE: 8}\n"):
        (tmp_path / "mine.yaml").write_text(LAUNCH + facts)
        variant = variants.read("mine", tmp_path)
        hashes.append(variant.source_sha256)
    assert variant.files == [tmp_path / "mine.cu", tmp_path / "mine.yaml"]
    assert hashes[0] == hashes[1] != hashes[2]
    (tmp_path / "mine.cu").write_text(f"/*\n{LAUNCH}*/{STRANGER}")
    (tmp_path / "mine.yaml").unlink()
    assert variants.read("mine", tmp_path).source_sha256 == hashes[0]


def test_facts_beside_a_source_complete_its_header(cuda_variant, tmp_path):
    cuda_variant("")
    (tmp_path / "mine.yaml").write_text("limits: {K: {is: 5}}\n")
    variant = variants.read("mine", tmp_path)
    assert variant.header.title == "A variant made for a test"
    assert variant.unsupported(CONV2.at(1)) == "mine: K = 7 must be 5 (`limits` in mine.yaml)"


def test_facts_beside_a_source_that_cannot_be_read_are_named(cuda_variant, tmp_path):
    for facts, words in [
        ("title: Twice\n", "mine.yaml: `title` stands in the source's header too; say it in one of the two"),
        ("titel: x\n", "mine.yaml: unknown key 'titel': did you mean 'title'?"),
        ("- title\n", "mine.yaml: the header is not YAML of the form `key: value`"),
        ("limits: {K: 0}\n", "mine.yaml: limits.K.at_most: Input should be greater than 0"),
    ]:
        cuda_variant("")
        (tmp_path / "mine.yaml").write_text(facts)
        assert variants.read("mine", tmp_path).read_error == words


def test_a_header_that_does_not_fit_its_problem_is_named_and_not_the_facts_beside_it(cuda_variant, tmp_path):
    (tmp_path / "mine.yaml").write_text("sweep: {TILE: [8]}\n")
    for header, words in [
        ("limits: {Q: 3}\n", "mine.cu: limits: unknown key 'Q'"),
        ("arguments: [x, w, y, Q]\n", "mine.cu: arguments: `Q`: 'Q' is no extent or constant"),
        ("claims: [{quantity: op_time, change: falls, where: {Q: 1}}]\n", "mine.cu: claims.0.where: unknown key 'Q'"),
    ]:
        assert cuda_variant("", header=header).read_error.startswith(words)


def test_facts_beside_nothing_are_a_failed_variant(tmp_path):
    (tmp_path / "mine.yaml").write_text(LAUNCH)
    (variant,) = variants.discover(tmp_path).values()
    assert variant.read_error == "mine.yaml: there is no mine.cu, mine.cpp or mine.py beside it"


def test_the_number_of_weights_can_be_limited(cuda_variant):
    variant = cuda_variant("", header="limits: {weights: 14111}\n")
    assert "M*C//G*K*KW = 14112 exceeds its limit 14111" in variant.unsupported(CONV2.at(1))


def test_prose_is_no_part_of_a_variant_s_identity_but_code_and_constants_are(cuda_variant):
    code = 'extern "C" __global__ void conv_forward() {}'
    plain = cuda_variant(code)
    assert cuda_variant(code, header="reference: elsewhere\n").source_sha256 == plain.source_sha256
    assert cuda_variant(code, header="constants: {TILE: 8}\n").source_sha256 != plain.source_sha256
    assert cuda_variant(code + " ").source_sha256 != plain.source_sha256


def test_a_launcher_s_code_is_part_of_the_identity_and_its_docstring_is_not(cuda_variant, tmp_path):
    cuda_variant("")
    hashes = []
    for docstring, value in (("Copies.", 1), ("Copies weights.", 1), ("Copies.", 2)):
        (tmp_path / "mine.py").write_text(f'"""{docstring}"""\nVALUE = {value}\n')
        hashes.append(variants.read("mine", tmp_path).source_sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_header_that_cannot_be_read_makes_a_variant_that_says_why(tmp_path):
    for text, words in [
        ("// no header", "it defines no kernel, no function that is `__global__`"),
        ("/*\ntitle: x\n", "it defines no kernel"),
        ("/* just words */", "it defines no kernel"),
        ("/*\ntitle: a: b\n*/", "header line 2: mapping values are not allowed"),
        ("/*\ntitle: x\nidea: x\nexpect: x\nbuild_on: direct\n*/", "unknown key 'build_on': did you mean 'builds_on'"),
        ("/*\nlaunch: {thread: [1, 1, 1]}\n*/", "unknown key 'launch.thread': did you mean 'threads'"),
        ("/*\nlimits: {K: {atleast: 3}}\n*/", "unknown key 'limits.K.atleast': did you mean 'at_least'"),
        ("/*\nlimits: {kernel_size: 3}\n*/", "limits: unknown key 'kernel_size': valid: C, "),
        ("/*\nlimits: {K: {is: 3, at_most: 7}}\n*/", "limits.K: `is` stands alone"),
        ("/*\nlimits: {K: {at_least: 9, at_most: 7}}\n*/", "limits.K: no number is within these bounds"),
        *(
            (f"/*\ntitle: {opener * times}\n*/", "more than 100 lists and mappings lie in each other")
            for opener, times in [("[", 101), ("[", 100_000), ("{", 100_000)]
        ),
        ("/*\ntitle: x\nidea: x\nexpect: x\n*/", "it defines no kernel"),
        (
            "/*\ntitle: x\n*/ __global__ void a() {} __global__ void b() {}",
            "no `launch`, nor `threads` and `grid`, and no launcher is beside it",
        ),
        (
            "/*\ntitle: x\nidea: x\nexpect: x\nbuilds_on: drect\n"
            "launch: {threads: [1, 1, 1], outputs_per_block: {W: 1, H: 1}}\n*/",
            "builds_on 'drect' is no variant",
        ),
    ]:
        (tmp_path / "broken.cu").write_text(text)
        problem = variants.discover(tmp_path)["broken"].read_error
        assert problem.startswith("broken.cu: ")
        assert words in problem


def test_variants_that_build_on_each_other_are_found_all_the_same(cuda_variant, tmp_path):
    cuda_variant("", name="one", header="builds_on: two\n")
    cuda_variant("", name="two", header="builds_on: one\n")
    assert set(variants.discover(tmp_path)) == {"one", "two"}


def test_a_package_that_is_not_installed_makes_a_variant_unsupported(cpu_variant):
    for package in ["no_such_package", "no_such.package"]:
        variant = cpu_variant("pass", header=f"requires: {package}\n")
        assert f"needs the Python package {package}" in variant.unsupported(CONV2.at(1))


def test_a_launcher_that_does_not_import_is_named_with_its_error(tmp_path, cpu_variant):
    variant = cpu_variant("pass")
    variant.launcher.write_text(variant.launcher.read_text() + "\nimport no_such_module\n")
    with pytest.raises(UserError, match=r"mine\.py, line 16: the launcher does not import: ModuleNotFoundError"):
        variants.read("mine", tmp_path).prepare(CONV2.at(1))


UNREADABLE = [
    (b"def prepare(:\n", "line {}: invalid syntax"),
    (b"# na\xefve\n", "line {}: byte 0xef is not UTF-8"),
    (b"x = '\0'\n", "line {}: a NUL byte"),
    (b"-" * 100_000 + b"1\n", ": "),
]


def test_a_cpu_variant_that_python_cannot_read_is_a_failed_cpu_variant(tmp_path, cpu_variant):
    for code, words in UNREADABLE:
        lines = cpu_variant("pass").launcher.read_bytes().count(b"\n")
        with (tmp_path / "mine.py").open("ab") as file:
            file.write(code)
        variant = variants.discover(tmp_path)["mine"]
        assert variant.device == "cpu"
        assert variant.read_error.startswith("mine.py")
        assert words.format(lines + 1) in variant.read_error
        (row,) = checking.check_case(CpuBench(), variant, CONV2.at(1))
        assert (row["status"], row["reason"]) == ("compile_failed", variant.read_error)


def test_a_launcher_that_python_cannot_read_is_named_and_fails_its_variant_alone(tmp_path, cuda_variant):
    for code, words in UNREADABLE:
        cuda_variant("", name="sound")
        cuda_variant("")
        (tmp_path / "mine.py").write_bytes(code)
        known = variants.discover(tmp_path)
        assert words.format(1) in known["mine"].read_error
        assert known["mine"].read_error.startswith("mine.py")
        assert known["mine"].source_sha256
        assert known["sound"].read_error == ""


def test_cuda_source_in_latin_1_is_read(tmp_path, cuda_variant):
    cuda_variant("// line 7\n")
    with (tmp_path / "mine.cu").open("ab") as file:
        file.write(b"// \xb5s\r\n")
    variant = variants.discover(tmp_path)["mine"]
    assert variant.read_error == ""
    assert variant.code.endswith("// µs\n")


def test_cuda_source_with_a_nul_names_its_line(tmp_path, cuda_variant):
    cuda_variant("// line 7\n")
    with (tmp_path / "mine.cu").open("ab") as file:
        file.write(b"// \xb5\0s\n")
    assert variants.discover(tmp_path)["mine"].read_error == "mine.cu, line 8: a NUL byte; remove it"


def test_a_file_that_cannot_be_read_is_a_failed_variant(tmp_path):
    (tmp_path / "mine.cu").symlink_to("/proc/self/mem")  # a read fails even for root
    assert variants.read("mine", tmp_path).read_error == "mine.cu cannot be read: Input/output error"


def test_a_byte_order_mark_is_no_part_of_a_source(tmp_path, cuda_variant):
    plain = cuda_variant("int one;")
    (tmp_path / "mine.cu").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "mine.cu").read_bytes())
    assert variants.read("mine", tmp_path).source_sha256 == plain.source_sha256


def test_a_launcher_that_exits_when_imported_is_named(tmp_path, cpu_variant):
    variant = cpu_variant("pass")
    variant.launcher.write_text(variant.launcher.read_text() + "\nraise SystemExit(0)\n")
    with pytest.raises(UserError, match=r"mine\.py, line 16: the launcher does not import: SystemExit"):
        variants.read("mine", tmp_path).prepare(CONV2.at(1))


def test_unknown_variant_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="no variant is called 'dircet': did you mean 'direct'"):
        variants.find("dircet", FOUND)


def test_only_a_peer_on_a_gpu_takes_its_arrays_in_another_order(cuda_variant):
    words = "order: NHWC is for peers on a GPU; kernels get x, w and y in NCHW order"
    assert words in cuda_variant("", header="order: NHWC\n").read_error
    assert FOUND["cudnn_fp32_nhwc"].header.order == "NHWC"


def test_a_name_that_a_macro_gives_its_kernels_is_no_kernel():
    macro = '#define EACH(NAME, SIZE) \\\n    extern "C" __global__ void NAME(float* y) \\\n    { y[SIZE] = 0; }\n'
    assert launch_sites.kernel_names(f"{macro}EACH(first, 1)\n__global__ void real(float* y) {{}}\n") == ("real",)


INCLUDING = """
#include "double_it.cuh"
extern "C" __global__ void conv_forward(
    const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
{
    y[0] = double_it(x[0]);
}
"""
DOUBLE = "// Twice a number.\n__device__ float double_it(float value) { return 2 * value; }\n"


def test_an_included_file_is_part_of_a_variant_s_files_code_and_identity(tmp_path, cuda_variant):
    included = tmp_path / "double_it.cuh"
    included.write_text(DOUBLE)
    before = cuda_variant(INCLUDING)
    assert not before.read_error and before.files == [tmp_path / "mine.cu", included]
    assert "return 2 * value" in before.code and "#line" not in before.code
    included.write_text(DOUBLE.replace("2 *", "3 *"))
    assert variants.read("mine", tmp_path).source_sha256 != before.source_sha256


def test_identity_depends_on_neither_a_variant_s_name_nor_its_folder(tmp_path, cuda_variant):
    (tmp_path / "double_it.cuh").write_text(DOUBLE)
    before = cuda_variant(INCLUDING)
    (other := tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "double_it.cuh", other)
    assert cuda_variant(INCLUDING, name="yours", folder=other).source_sha256 == before.source_sha256


def test_an_include_that_is_no_file_is_named_with_its_line_and_where_it_was_looked_for(tmp_path, cuda_variant):
    variant = cuda_variant(INCLUDING)
    line = (tmp_path / "mine.cu").read_text().split("\n").index('#include "double_it.cuh"') + 1
    assert variant.read_error == (
        f'mine.cu, line {line}: #include "double_it.cuh": there is no such file in {tmp_path}/ or kernels/include/'
    )


def test_a_file_is_included_once_from_kernels_include_too_and_not_from_a_comment(tmp_path, cuda_variant, monkeypatch):
    include = tmp_path / "include"
    monkeypatch.setattr(sources, "INCLUDES", (include,))
    include.mkdir()
    (include / "double_it.cuh").write_text(DOUBLE)
    (include / "more.cuh").write_text('#include "double_it.cuh"\n')
    variant = cuda_variant('// #include "nothing.cuh"\n#include "more.cuh"\n' + INCLUDING)
    assert not variant.read_error
    assert [path.name for path in variant.included] == ["more.cuh", "double_it.cuh"]
    assert variant.text.count("return 2 * value") == variant.code.count("return 2 * value") == 1


def test_lines_of_a_source_and_of_what_it_includes_keep_their_numbers(tmp_path, cuda_variant):
    (tmp_path / "double_it.cuh").write_text(DOUBLE)
    text = cuda_variant(INCLUDING).text
    lines, own = text.split("\n"), (tmp_path / "mine.cu").read_text().split("\n")
    inside = next(number for number, line in enumerate(lines, 1) if "return 2" in line)
    behind = next(number for number, line in enumerate(lines, 1) if "y[0] =" in line)
    line = next(number for number, line in enumerate(own, 1) if "y[0] =" in line)
    assert sources.own_line(text, inside, "mine.cu") == "line 2 of double_it.cuh"
    assert sources.own_line(text, behind, "mine.cu") == f"line {line}"


def test_a_launcher_that_was_just_changed_is_read_as_it_is_now_and_leaves_no_compiled_form(tmp_path):
    for value in ("1", "2"):
        (tmp_path / "own.py").write_text(f"VALUE = {value}\n")
        os.utime(tmp_path / "own.py", (1e9, 1e9))
        assert str(variants.read("own", tmp_path).module.VALUE) == value
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]
