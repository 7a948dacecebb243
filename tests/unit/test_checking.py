"""The harness attacked: cheating and broken variants, and which check catches each."""

import dataclasses
import shutil

import numpy as np
import pytest

import check_variant
from warpbook.common.errors import UserError
from warpbook.harness import checking, full_size, reference
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants
from warpbook.problems import networks, problem

LAYER = networks.ConvLayer("odd", 3, 19, 23, 5, 4)
RIGHT = "y[...] = convolve(x, w)"


def reason_of(variant, layer=LAYER, images=2):
    """The reason of the first test that a variant fails."""
    rows = checking.check_case(CpuBench(), variant, layer.at(images))
    failed = [row for row in rows if not row["ok"]]
    assert failed, "the variant passed"
    return failed[0]["reason"]


def test_a_right_variant_passes_exactly_on_integers_and_within_tolerance_on_reals(cpu_variant):
    integers, reals = checking.check_case(CpuBench(), cpu_variant(RIGHT), LAYER.at(2))
    assert integers["ok"]
    assert integers["max_abs_err"] == 0
    assert reals["ok"]
    assert 0 < reals["max_abs_err"] < reals["tolerance"]


def test_a_kernel_on_cases_of_another_problem_is_refused_with_both(tmp_path):
    shutil.copy(variants.variant_folder("gemm/naive") / "naive.cu", tmp_path / "mine.cu")
    words = f"--device emulator --kernels {tmp_path} --variant mine --cases gemm --sizes 1 --timeout 9 --out {tmp_path}/a.csv"
    with pytest.raises(
        UserError, match="mine is a kernel of conv, and the cases of gemm are of gemm: name cases of conv"
    ):
        check_variant.main(words.split())


def test_the_error_of_a_small_output_is_told_from_one_beyond_the_largest_output_s_tolerance(cpu_variant):
    variant, case = cpu_variant(RIGHT), LAYER.at(2)
    unit = reference.unit_error(case, variant)
    for error, words in [(0.5, "a small output's error exceeds what fp32 allows 5 times over"), (5, "largest error")]:
        found = reference.Difference(error * unit, 5 * unit, 0, max_magnitude=1, not_finite=0)
        reason = checking.comparison_columns(variant, case, {"y": found}, integers=False)["reason"]
        assert f"is wrong on {case}: {words}" in reason


def test_a_variant_that_is_right_for_ordinary_numbers_alone_is_wrong_on_a_ragged_shape(cpu_variant):
    for body in ["np.clip(convolve(x, w), -1e15, 1e15)", "np.where(abs(z := convolve(x, w)) < 1e-18, 0, z)"]:
        variant = cpu_variant(f"y[...] = {body}")
        assert checking.check_case(CpuBench(), variant, LAYER.at(2))[-1]["ok"]
        ragged = [case for case in problem.find("conv").ragged if not case.unusual and not case.optional]
        rows = [row for case in ragged for row in checking.check_case(CpuBench(), variant, case)]
        assert {row["test"] for row in rows if not row["ok"]} == {"reals"}


@pytest.mark.parametrize(
    ("formula", "largest"), [("x.sum()", 2.0**40), ("(x * x).sum()", 2.0**40), ("(x**4).sum()", 2.0**20)]
)
def test_reals_are_made_as_large_as_products_of_them_allow(formula, largest, tmp_path):
    text = (problem.FOLDER / "reduce" / "problem.py").read_text()
    (tmp_path / "problem.py").write_text(text.replace("x.sum(keepdims=True)", f"{formula}.reshape(1)"))
    (tmp_path / "mine.py").write_text("def prepare(case, kernels):\n    return None\n")
    variant = variants.read("mine", tmp_path)
    scales = {checking.scale_of(variant, case, integers=False) for case in variant.problem.ragged}
    usual = scales - {largest, 1 / largest}
    assert len(scales - usual) == 2 and usual and usual <= {1.0, 4.0, 16.0, 64.0, 256.0}


@pytest.mark.parametrize("least", [3.0, 12.0])
def test_a_kernel_that_is_wrong_for_a_narrow_band_of_values_is_wrong(least, tmp_path):
    shutil.copy(problem.FOLDER / "gemm" / "problem.py", tmp_path)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef prepare(case, size):\n    def call(a, b, c):\n"
        f"        band = (a > {least}) & (a < {least * 1.05})\n"
        "        c[...] = np.where(band, a * np.float32(1.001), a) @ b\n    return call\n"
    )
    (tmp_path / "mine.yaml").write_text("device: cpu\n")
    variant = variants.read("mine", tmp_path)
    cases, drawn = checking.ragged_cases(variant), checking.drawn_cases(variant, [])
    rows = [row for each in check_variant.check_places(CpuBench(), variant, cases, brief=drawn) for row in each]
    assert {row["test"] for row in rows if not row["ok"]} == {"reals"}


def test_small_cases_that_stand_for_large_ones_keep_what_divides_them_and_one_long_extent():
    variant, large = variants.read("gemm/vectorised"), problem.find("gemm").case("", {"m": 4096, "n": 4096, "k": 4096})
    made = [case.extents for case in checking.excerpts(variant, [large.at(1)])]
    assert made[0] == {"m": 64, "n": 128, "k": 128}
    assert [max(each, key=each.get) for each in made[1:]] == ["m", "n", "k"]
    assert {max(each.values()) for each in made[1:]} == {4097}


def test_no_case_is_checked_twice_whatever_the_types_and_limits(tmp_path):
    for type_name, multiple in [("int", 256), ("float", 4096), ("double", 2048)]:
        (tmp_path / "problem.py").write_text((problem.FOLDER / "reduce" / "problem.py").read_text())
        (tmp_path / "mine.yaml").write_text(f"limits: {{n: {{multiple_of: {multiple}}}}}\n")
        (tmp_path / "mine.cu").write_text(
            f"__global__ void sum(const {type_name} *x, {type_name} *y, int n) {{}}\n"
            f"void run({type_name} *x, {type_name} *y, int n) {{ sum<<<n, 1>>>(x, y, n); }}\n"
        )
        variant = variants.read("mine", tmp_path)
        for n in (64, *range(65536, 65536 + 20 * multiple, multiple)):
            large = [problem.read(tmp_path).case("", {"n": n}).at(1)]
            made = [cases(variant, large) for cases in (checking.drawn_cases, checking.excerpts)]
            checked = [str(case) for case in [*checking.ragged_cases(variant), *made[0], *made[1]]]
            assert len(checked) == len(set(checked))


def test_no_case_is_drawn_that_another_is_in_other_words():
    studied = {"conv/implicit_gemm": networks.find("fa18").convs, "gemm/naive": ()}
    for name, layers in studied.items():
        for number in range(40):
            variant = variants.read(name)
            changed = dataclasses.replace(variant, code=variant.code + " " * number)
            cases = [*checking.ragged_cases(changed), *checking.drawn_cases(changed, [one.at(1000) for one in layers])]
            assert len(cases) == len({(str(case), case.size) for case in cases}), (name, number)


def test_some_small_cases_within_a_variants_limits_follow_by_chance_from_its_source():
    variant, large = variants.read("gemm/vectorised"), problem.find("gemm").case("", {"m": 4096, "n": 4096, "k": 4096})
    changed = dataclasses.replace(variant, code=f"{variant.code} ")
    first, again, other = (checking.drawn_cases(one, [large.at(1)]) for one in (variant, variant, changed))
    assert first == again != other
    assert len(first) == len(other) == checking.DRAWN + checking.SMALL
    assert not any(variant.unsupported(case) or case in checking.ragged_cases(variant) for case in [*first, *other])


def test_drawn_cases_have_every_remainder_of_a_vector_lengths_about_tiles_and_equal_extents():
    for name in ["gemm/naive", "gemm/tiled", "gemm/vectorised", "softmax/naive", "softmax/online"]:
        small = [case.extents for case in checking.drawn_cases(variants.read(name), [])]
        for extent in small[0]:
            assert {each[extent] % 8 for each in small} == set(range(8)), extent
            assert len({each[extent] for each in small} & checking.EDGES) > 6, extent
        assert any(len(set(each.values())) == 1 for each in small)


def test_small_cases_of_a_convolution_join_what_is_unusual():
    variant = variants.read("conv/direct")
    sources = [dataclasses.replace(variant, code=variant.code + " " * number) for number in range(8)]
    small = [case for source in sources for case in checking.drawn_cases(source, [])]
    joined = ("S > K", "S > 1 and D > 1", "P > 0 and P_end == 0", "G > 1 and P > 0", "K * KW > 64")
    assert [words for words in joined if not any(eval(words, {}, case.extents) for case in small)] == []
    # A kernel may hold the taps of a row beside a warp's: more than the problem says are no sizes of a kernel.
    assert max(case.extents[name] for case in small for name in ("K", "KW")) == variant.problem.facts.extents["K"].most


def test_batches_are_drawn_too():
    studied = [case.at(10_000) for case in networks.find("fa18").convs]
    names = ("conv/direct", "conv/block_1d", "conv/coarsened", "conv/no_restrict")
    sizes = {case.size for name in names for case in checking.drawn_cases(variants.read(name), studied)}
    assert len(sizes) > 5
    assert max(sizes) > 64


def test_of_one_extent_a_small_case_is_beyond_what_the_blocks_of_a_second_launch_add_up():
    sums = problem.find("reduce").case("", {"n": 1 << 26}).at(1)
    assert [case.n for case in checking.excerpts(variants.read("reduce/shuffles"), [sums])] == [1 << 22]


def test_outputs_are_independent_along_a_batch_or_along_rows():
    for name, extent in [("conv", "N"), ("gemm", "m"), ("softmax", "rows"), ("reduce", "")]:
        assert full_size.batch_of(problem.find(name)) == extent


def test_rows_whose_reference_joins_them_are_no_batch(monkeypatch):
    softmax = problem.find("softmax")
    monkeypatch.setattr(softmax.module, "reference", lambda x, xp: x - x.mean(axis=0))
    assert full_size.batch_of(softmax) == ""


def test_long_whole_numbers_show_a_rounding_that_long_sums_of_small_ones_hide():
    variant, case = variants.read("gemm/vectorised"), problem.find("gemm").case("", {"m": 4, "n": 4, "k": 4096}).at(1)
    values = np.zeros((4, 4096), np.float32)
    assert checking.lengthen(variant, case, values)
    assert (values != values.astype(np.float16)).any()
    assert abs(values).max() < 2**checking.LONG_BITS


CHEATS = {
    "writes nothing": ("pass", "leaves 3200 of 3200 outputs unwritten"),
    "writes zeros": ("y[...] = 0", "must be exact on small integers"),
    "skips the last row": ("y[:, :, :-1] = convolve(x, w)[:, :, :-1]", "leaves 200 of 3200 outputs unwritten"),
    "writes one element outside": (
        RIGHT + "\nbefore = np.lib.stride_tricks.as_strided(y, (1,), writeable=True)\n"
        "np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1).from_address(y.ctypes.data - 4))[0] = 1",
        "writes outside its output y: 1 of the words around it",
    ),
    "reads outside": (
        RIGHT
        + "\nbeyond = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1).from_address(x.ctypes.data + x.nbytes))\n"
        "y[-1, -1, -1, -1] += beyond[0]",
        "1 outputs are NaN or infinite",
    ),
    "changes its input": (RIGHT + "\nx[0, 0, 0, 0] += 1", "changes its input x"),
    "changes its weights": (RIGHT + "\nw[...] = 0", "changes its input w"),
    "writes before its input": (
        RIGHT + "\nnp.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1).from_address(w.ctypes.data - 4))[0] = 1",
        "changes its input w, or the memory around it",
    ),
    "right for square shapes only": (
        "h = min(y.shape[2:])\ny[...] = 0\ny[:, :, :h, :h] = convolve(x, w)[:, :, :h, :h]",
        "must be exact on small integers",
    ),
    "swaps rows and columns": ("y[...] = convolve(x, w.transpose(0, 1, 3, 2))", "must be exact on small integers"),
    "convolves instead of correlating": (
        "y[...] = convolve(x, w[:, :, ::-1, ::-1])",
        "must be exact on small integers",
    ),
    "forgets the last channel": ("y[...] = convolve(x[:, :-1], w[:, :-1])", "must be exact on small integers"),
    "raises": ("raise ValueError('no such tile')", "mine, called: ValueError: no such tile"),
    "returns another shape": ("return convolve(x, w)[:, :1]", "returns shape"),
}


def test_a_variant_is_caught_that(cpu_variant):
    for cheat, (body, words) in CHEATS.items():
        assert words in reason_of(cpu_variant(body)), cheat


def test_a_variant_is_caught_that_replays_its_previous_answer(cpu_variant):
    body = "if not kept: kept.append(convolve(x, w))\ny[...] = kept[0]"
    rows = checking.check_case(CpuBench(), cpu_variant(body, before="kept = []"), LAYER.at(2))
    assert [row["ok"] for row in rows] == [True, False]
    assert "exceeds what fp32 allows" in rows[1]["reason"]


def test_more_calls_find_what_plain_inputs_or_a_later_call_show(cpu_variant):
    for body, words in [
        (RIGHT, ""),
        ("y[...] = convolve(x, w) + (not x.any())", "all of x is 0"),
        (
            "largest = np.float32(2) ** np.frexp(abs(x).max())[1]\ny[...] = convolve(x, w) * (x.any() / largest) * largest",
            "",
        ),
        ("y[...] = convolve(x, w) + (x == x[0, 0, 0, 0]).all()", "all of x is 0"),
        (f"if not x.any(): raise VariantFailure('launch_failed', 'it fails')\n{RIGHT}", "it fails"),
        ("y[...] = np.minimum(convolve(x, w), 1e7)", "all of x is 1048576"),
        ("y[...] = np.maximum(convolve(x, w), -1e7)", "all of x is -1048576"),
        ("kept.append(1)\ny[...] = convolve(x, w) if len(kept) < 8 else 0", "call 8 after one preparation"),
    ]:
        variant = cpu_variant(body, before="kept = []\nfrom warpbook.common.supervision import VariantFailure")
        assert checking.check_case(CpuBench(), variant, LAYER.at(2))[-1]["ok"]
        rows = checking.check_case(CpuBench(), variant, LAYER.at(2), more=True)
        assert sorted(row["test"] for row in rows) == ["integers", "reals"]
        assert all(row["ok"] for row in rows) == (not words)
        assert words in rows[-1]["reason"]


def test_plain_inputs_of_which_a_problem_says_nothing_are_left_out(monkeypatch):
    softmax = problem.find("softmax").case("", {"rows": 3, "columns": 17}).at(1)
    variant, inputs = variants.read("softmax/numpy_rows"), {"x": np.empty((3, 17), np.float32)}
    assert checking.fill_plain(variant, softmax, inputs, 1.0)
    assert not checking.fill_plain(variant, softmax, inputs, 2.0**20)
    module = softmax.problem.module
    monkeypatch.setattr(module, "reference", lambda x: x / abs(x).sum(axis=1, keepdims=True))
    assert not checking.fill_plain(variant, softmax, inputs, 0.0)
    monkeypatch.setattr(module, "magnitude", lambda x: x - x.mean(axis=1, keepdims=True), raising=False)
    assert not checking.fill_plain(variant, softmax, inputs, 1.0)


def test_a_variant_is_caught_that_is_right_at_multiples_of_sixteen_images_only(cpu_variant):
    body = "y[...] = 0\nn = len(x) // 16 * 16\ny[:n] = convolve(x[:n], w)"
    variant = cpu_variant(body)
    assert all(row["ok"] for row in checking.check_case(CpuBench(), variant, LAYER.at(16)))
    assert "must be exact" in reason_of(variant, images=17)


def test_ragged_shapes_have_no_two_equal_extents():
    ragged = problem.find("conv").ragged
    assert len(ragged) > 9
    for case in ragged:
        assert len({case.C, case.H, case.W, case.M}) == 4, case
        assert min(case.H_out, case.W_out) >= 1, case


def in_half(array):
    return f"{array}.astype(np.float16).astype(np.float32)"


def test_a_variant_is_caught_that_computes_in_less_than_its_declared_precision(cpu_variant):
    variant = cpu_variant(f"y[...] = convolve({in_half('x')}, {in_half('w')})")
    for name in ("fa17", "fa18", "fa19"):
        for layer in networks.find(name).convs:
            assert "must be exact on small integers" in reason_of(variant, layer, 1), layer
            (reals,) = checking.check_case(CpuBench(), variant, layer.at(1), ("reals",))
            assert "exceeds what fp32 allows" in reals["reason"], layer


def test_a_lower_precision_passes_where_it_is_declared(cpu_variant):
    variant = cpu_variant(f"y[...] = convolve({in_half('x')}, {in_half('w')})", header="precision: fp16\n")
    assert all(row["ok"] for row in checking.check_case(CpuBench(), variant, LAYER.at(2)))


def test_a_method_that_is_not_direct_need_not_be_exact_on_integers(cpu_variant):
    body = "y[...] = convolve(x, w) * (1 + 3e-7)"
    assert "must be exact" in reason_of(cpu_variant(body))
    assert all(
        row["ok"] for row in checking.check_case(CpuBench(), cpu_variant(body, header="method: any\n"), LAYER.at(2))
    )


def test_an_unsupported_layer_is_no_failure(cpu_variant):
    variant = cpu_variant("raise AssertionError('never called')", header="limits: {K: 3}\n")
    (row,) = checking.check_case(CpuBench(), variant, LAYER.at(2))
    assert row["status"] == "unsupported"
    assert "K = 4 exceeds its limit 3" in row["reason"]


def test_a_variant_that_asks_for_too_much_memory_is_unsupported_there(cpu_variant):
    variant = cpu_variant("raise MemoryError('140 GiB')")
    (row,) = checking.check_case(CpuBench(), variant, LAYER.at(2))
    assert row["status"] == "unsupported"


def test_inputs_are_fresh_on_every_check(cpu_variant, tmp_path):
    seen = tmp_path / "seen.txt"
    drawn = "str(__import__('zlib').crc32(x.tobytes() + w.tobytes()))"
    body = RIGHT + f"\nopen({str(seen)!r}, 'a').write({drawn} + '\\n')"
    for _ in range(3):
        checking.check_case(CpuBench(), cpu_variant(body), LAYER.at(2))
    assert len(set(seen.read_text().splitlines())) == 6


def test_drawn_reals_use_the_whole_mantissa_and_integers_stay_small():
    bench = CpuBench()
    values = np.empty(10_000, np.float32)
    bench.draw(values, 7, integers=False)
    assert np.abs(values).max() <= 1
    assert (values.astype(np.float16) != values).mean() > 0.99
    bench.draw(values, 7, integers=True)
    assert set(np.unique(values)) == set(range(-4, 5))
