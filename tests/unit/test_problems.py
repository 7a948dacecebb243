"""Problems of any kind: what a problem file says, and what checking makes of variants that compute it rightly or not."""

import json
import pickle
from itertools import count

import numpy as np
import pytest

from warpbook.common.errors import UserError
from warpbook.harness import checking, reference
from warpbook.harness.bench import CPU_CHUNK, CpuBench, allocate
from warpbook.kernels import variants
from warpbook.problems import problem

COPY = "def reference(x):\n    return x\n"
SCALED = """\
title: A scaled sum along rows
extents: {m: rows, k: {words: columns, usual: m}, s: {words: step, usual: 1}}
derived: {n: (k - 1) // s + 1, area: m * n}
conditions: {a step is no longer than a row: k - s + 1}
inputs: {a: [m, k], "b?": {shape: [m], dtype: float16}}
outputs: {y: [m], z: {shape: [m, n], dtype: int32}}
flops: 2 * area
sums: n
ragged: [{m: 3}, {m: 2, k: 7, s: 3}]
"""
SCALED_REFERENCE = """\
import numpy as np

def reference(a, s, b=None, xp=np):
    held = a[:, ::s]
    return held.sum(axis=1) * (1 if b is None else b), xp.ones(held.shape, xp.int64)
"""


@pytest.fixture
def make(tmp_path):
    """Make a problem of facts and code, each in a folder of its own."""
    numbers = count()

    def made(facts: str, code: str = COPY) -> problem.Problem:
        folder = tmp_path / f"p{next(numbers)}"
        folder.mkdir()
        (folder / problem.FILE).write_text(f'"""\n{facts}"""\n\n{code}')
        return problem.read(folder)

    return made


def variant_of(of: problem.Problem, body: str, header: str = "") -> variants.Variant:
    """A CPU variant of a problem, by the body of its call, where an optional input that a case lacks is None."""
    names = ", ".join((*of.inputs, *of.outputs))
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    code = "import numpy as np\n\ndef prepare(case, size):\n    def call(*arrays):\n"
    code += "        given = dict(zip(case.arrays, arrays, strict=True))\n"
    code += f"        {names} = map(given.get, {[*of.inputs, *of.outputs]})\n{lines}    return call\n"
    facts = f"title: t\nidea: i\nexpect: e\ndevice: cpu\n{header}"
    (of.folder / "mine.py").write_text(f'"""\n{facts}"""\n{code}')
    variant = variants.read("mine", of.folder)
    assert not variant.read_error, variant.read_error
    return variant


def checked(of: problem.Problem, body: str, header: str = "", case: problem.Case | None = None) -> list[dict]:
    return checking.check_case(CpuBench(), variant_of(of, body, header), case or of.ragged[0])


def failure(rows: list[dict]) -> tuple[str, str]:
    """(status, reason) of the one test that failed, the last that was made."""
    assert [row["ok"] for row in rows] == [*[True] * (len(rows) - 1), False], rows
    return rows[-1]["status"], rows[-1]["reason"]


# --- cases ----------------------------------------------------------------------------------------------------------


def test_a_case_has_its_extents_what_follows_from_them_shapes_and_costs(make):
    scaled = make(SCALED, SCALED_REFERENCE)
    case = scaled.case("one", {"m": 5, "k": 7, "s": 3})
    assert case.extents == {"m": 5, "k": 7, "s": 3, "n": 3, "area": 15}
    assert (case.k, case.n, case.value("2 * area - m")) == (7, 3, 25)
    assert {name: case.shape(name) for name in case.arrays} == {"a": (5, 7), "y": (5,), "z": (5, 3)}
    assert (case.flops, case.sums, case.bytes) == (30, 3, 4 * (35 + 5 + 15))
    assert case.unusual == {"k": 7, "s": 3}
    assert str(case) == "m=5 columns 7 step 3"
    with_scale = scaled.case("one", {"m": 5, "k": 7, "s": 3}, ["b"])
    assert with_scale.shape("b") == (5,) and list(with_scale.arrays) == ["a", "b", "y", "z"]
    assert with_scale.bytes == case.bytes + 2 * 5
    assert str(with_scale) == "m=5 columns 7 step 3 b"


def test_what_a_case_leaves_out_has_its_usual_value_which_may_be_another_extent(make):
    case = make(SCALED, SCALED_REFERENCE).case("square", {"m": 4})
    assert (case.k, case.s, case.unusual) == (4, 1, {})
    assert str(case) == "m=4"


def test_an_extent_may_follow_the_size_that_a_study_sweeps():
    case = problem.find("gemm").case("tall", {"m": "64 * size", "n": "max(size, 8)", "k": 16})
    assert case.extents == {"k": 16}
    with pytest.raises(AttributeError, match="m depends on the size, and this case has none"):
        _ = case.m
    sized = [case.at(size) for size in (2, 32)]
    assert [one.shape("c") for one in sized] == [(128, 8), (2048, 32)]
    assert [(one.size, one.flops) for one in sized] == [(2, 2 * 128 * 8 * 16), (32, 2 * 2048 * 32 * 16)]


def test_the_size_is_the_extent_that_a_problem_names_where_a_case_does_not_say_it():
    conv = problem.find("conv")
    extents = {"C": 2, "H": 5, "W": 6, "M": 3, "K": 3}
    assert conv.case("layer", extents).at(7).shape("x") == (7, 2, 5, 6)
    assert conv.case("layer", {**extents, "N": 4}).at(7).shape("x") == (4, 2, 5, 6)


def test_a_case_is_the_same_in_another_process(make):
    scaled = make(SCALED, SCALED_REFERENCE)
    case = scaled.case("one", {"m": "size", "k": 7}, ["b"]).at(5)
    assert scaled.module and case.extents  # which are kept
    for other in (
        problem.from_description(scaled, json.loads(json.dumps(case.describe()))),
        pickle.loads(pickle.dumps(case)),
    ):
        assert other == case and hash(other) == hash(case)
        assert (other.shape("a"), other.optional) == ((5, 7), {"b"})


def test_an_impossible_case_is_refused_with_the_reason(make):
    scaled = make(SCALED, SCALED_REFERENCE)
    for extents, words in [
        ({"m": 3, "q": 2}, "'q' is no extent of p0: valid: k, m, s"),
        ({"m": "sise"}, "m: `sise`: 'sise' is no extent or constant: did you mean 'size'"),
        ({"k": 3}, "p0 case one: m is not said"),
        ({"m": 0}, "m: 0 is below its limit 1"),
        ({"m": "4 - 3 * size"}, "m: -2 is below its limit 1"),
        ({"m": "size / 3"}, "m: `size / 3`: 2/3 is no whole number"),
        ({"m": 3, "k": 2, "s": 4}, "p0 case one: a step is no longer than a row"),
        ({"m": 3, "k": 3, "s": 0}, "n: `(k - 1) // s + 1`: a division by 0"),
    ]:
        with pytest.raises(ValueError, match=r".") as raised:
            _ = scaled.case("one", extents).at(2).extents
        assert words in str(raised.value), extents


def test_a_problem_is_found_by_its_name_else_the_nearest_is_named():
    assert {"conv", "gemm"} <= set(problem.names())
    for name in problem.names():
        assert problem.find(name).name == name and problem.find(name).ragged
    with pytest.raises(UserError, match="no problem is called 'gem': did you mean 'gemm'"):
        problem.find("gem")


# --- problem files --------------------------------------------------------------------------------------------------

PLAIN = "title: t\nextents: {m: rows}\ninputs: {x: [m]}\noutputs: {y: [m]}\n"
MISTAKES = {
    "a shape that does not parse": (PLAIN.replace("x: [m]", "x: ['m +']"), "x.shape: `m +`: no expression: invalid"),
    "a shape of nothing known": (PLAIN.replace("x: [m]", "x: [mm]"), "x.shape: `mm`: 'mm' is no extent or constant"),
    "an extent nobody binds": (PLAIN.replace("m: rows", "m: rows, n: columns") + "ragged: [{m: 3}]\n", "n is not said"),
    "an array called like another": (PLAIN.replace("{y:", "{x:"), "x is named twice"),
    "an array called like an extent": (PLAIN.replace("{y:", "{m:"), "m is named twice"),
    "a number called like an extent": (PLAIN + "derived: {m: 2}\n", "m is named twice"),
    "a number of a later one": (PLAIN + "derived: {a: b + 1, b: m}\n", "derived.a: `b + 1`: 'b' is no extent"),
    "a usual value of a later extent": (
        PLAIN.replace("{m: rows}", "{m: {words: rows, usual: k}, k: columns}"), "extents.m.usual: `k`: 'k' is no extent"
    ),
    "an alias of nothing": (PLAIN + "aliases: {q: [Q]}\n", "aliases: 'q' is neither an extent nor an array"),
    "a label of nothing": (PLAIN + "label: '{q}'\n", "label: 'q' is no extent"),
    "a size that is no extent": (PLAIN + "size: n\n", "size: 'n' is no extent: valid: m"),
    "flops of nothing known": (PLAIN + "flops: 2 * n\n", "flops: `2 * n`: 'n' is no extent"),
    "a ragged case with another extent": (PLAIN + "ragged: [{m: 3, q: 1}]\n", "'q' is no extent of"),
    "a ragged case that is impossible": (
        PLAIN + "conditions: {m is even: 1 - m % 2}\nragged: [{m: 3}]\n", "case {'m': 3}: m is even"
    ),
    "a key misspelt": (PLAIN + "flopps: 2\n", "flopps: unknown key: did you mean 'flops'"),
    "a type that there is not": (PLAIN.replace("x: [m]", "x: {shape: [m], dtype: float33}"), "inputs.x.dtype: Input"),
    "a range that its type lacks": (
        PLAIN.replace("x: [m]", "x: {shape: [m], dtype: int8, most: 128}"), "-4 to 128 is no range within -128 to 127"
    ),
    "no YAML": ("title: [t\n", "line 1 of its docstring: expected ',' or ']'"),
    "prose": ("Copies an array.\n", "its docstring is not YAML of the form `key: value`"),
}  # fmt: skip


def test_a_mistake_in_a_problem_file_is_one_line_with_the_file(make):
    make(PLAIN)
    for mistake, (facts, words) in MISTAKES.items():
        with pytest.raises(UserError) as raised:
            make(facts)
        said = str(raised.value)
        assert words in said, mistake
        assert said.count(f"/{problem.FILE}") == 1 and "\n" not in said and ": :" not in said, mistake
        assert f"{problem.FILE}: " in said or f"{problem.FILE}, line" in said, mistake


def test_every_mistake_of_a_problem_file_is_listed_at_once(make):
    with pytest.raises(UserError) as raised:
        make(PLAIN.replace("title", "titel"))
    first, *others = str(raised.value).splitlines()
    assert first.endswith(f"{problem.FILE}:")
    assert others == ["  title: missing", "  titel: unknown key: did you mean 'title'?"]


def test_a_problem_file_that_python_cannot_read_or_import_is_named(make, tmp_path):
    with pytest.raises(UserError, match=r"problem\.py, line 5: .* was never closed"):
        make("title: t\n", "def reference(x:\n")
    with pytest.raises(UserError, match=r"problem\.py cannot be read: No such file"):
        problem.read(tmp_path / "nothing")
    for code, words in [
        ("import nothing_of_that_name", "does not import: ModuleNotFoundError: No module named"),
        ("def referense(x):\n    return x", "has no function `reference`"),
        ("reference = 3", "has no function `reference`"),
    ]:
        with pytest.raises(UserError, match=rf"problem\.py {words}"):
            _ = make(PLAIN, code).module


def test_a_reference_that_gives_another_shape_or_too_few_outputs_is_named(make):
    two = PLAIN.replace("y: [m]", "y: [m], z: [m, 2]")
    for facts, result, words in [
        (PLAIN, "x[:-1]", "`reference` gives y of shape (2,), and the facts say (3,)"),
        (PLAIN, "x.sum()", "`reference` gives y of shape (), and the facts say (3,)"),
        (PLAIN, "None", "`reference` gives y of shape (), and the facts say (3,)"),
        (two, "x", "`reference` gives z of shape (), and the facts say (3, 2)"),
        (two, "(x, x)", "`reference` gives z of shape (3,), and the facts say (3, 2)"),
    ]:
        wrong = make(facts, f"def reference(x):\n    return {result}\n")
        with pytest.raises(UserError) as raised:
            problem.compute(wrong.case("", {"m": 3}), {"x": np.zeros(3, np.float32)}, np)
        assert str(raised.value) == f"{wrong.folder / problem.FILE}: {words}"


def test_a_reference_gets_what_its_parameters_name_and_whole_numbers_do_not_overflow(make):
    facts = PLAIN.replace("x: [m]", "x: {shape: [m], dtype: int8, least: -128, most: 127}")
    code = "def reference(x, m, unknown=5, xp=None):\n    return x * 100 + m + unknown + xp.zeros(m)\n"
    case = make(facts, code).case("", {"m": 2})
    given = {"x": np.array([-128, 127], np.int8)}
    assert problem.compute(case, given, np)["y"].tolist() == [-12793, 12707]
    (magnitude,) = reference.magnitudes(case, given, np).values()
    assert magnitude.tolist() == [12807, 12707]


# --- checking what is computed --------------------------------------------------------------------------------------

DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8")
BYTES = ("int8", "uint8")


def copied(make, dtype: str) -> problem.Problem:
    """The problem of copying an array of a type."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    array = f"{{shape: [m, 3], dtype: {dtype}}}"
    return make(f"title: t\nextents: {{m: rows}}\ninputs: {{x: {array}}}\noutputs: {{y: {array}}}\n"
                "exact: true\nragged: [{m: 5}]\n")  # fmt: skip


def test_values_of_every_type_are_drawn_in_its_range_and_stay_as_they_are(make):
    for dtype in DTYPES:
        of, bench = copied(make, dtype), CpuBench()
        array = of.inputs["x"]
        values = bench.allocate_guarded((4000,), dtype).values
        assert values.dtype == problem.numpy_type(dtype)
        bench.draw(values, 7, True, array)
        least = 0 if dtype == "uint8" else -4
        assert set(values.astype(np.float64)) == set(range(least, 5))
        bench.draw(values, 7, False, array)
        wide = values.astype(np.float64)
        if array.is_real:
            assert -1 <= wide.min() < -0.99 < 0.99 < wide.max() <= 1
            assert len(set(wide)) > 200
        else:
            assert set(wide) == set(range(least, 5))


def test_inputs_of_timed_calls_come_from_their_seeds_and_share_no_run_of_values(make):
    """Sums of what one call saw would be answers to the next."""
    for dtype in ["float32", "float16", "int8"]:
        bench, case = CpuBench(), copied(make, dtype).case("", {"m": 25_000})
        filled = []
        for seed in (1, 2, 1):
            buffers = allocate(bench, case)
            bench.refill(case, buffers, seed, seed)
            filled.append(buffers.inputs["x"].values.ravel().view(f"V{buffers.inputs['x'].values.itemsize * 20}"))
        assert (filled[0] == filled[2]).all()
        shifted = (np.frombuffer(filled[0].tobytes(), filled[0].dtype, len(filled[0]) - 1, begin)
                   for begin in range(0, filled[0].itemsize, filled[0].itemsize // 20))  # fmt: skip
        assert not any(set(each.tolist()) & set(filled[1].tolist()) for each in shifted)


LEFT_OUT = {
    "a quarter of a long sum": ("reduce", {"n": 1 << 24}, lambda x: x[: 3 * x.size // 4].sum(keepdims=True, dtype=np.float64)),
    "each row's largest value": ("softmax", {"rows": 3, "columns": 17}, lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)),
}  # fmt: skip


def test_inputs_of_timed_calls_show_that_a_kernel_leaves_out():
    """What fails it in its checks alone, it could leave out where it is timed."""
    for what in LEFT_OUT:
        name, extents, kernel = LEFT_OUT[what]
        case, bench = problem.find(name).case("", extents), CpuBench()
        buffers = allocate(bench, case)
        bench.refill(case, buffers, 1, 2)
        exact = problem.compute(case, buffers.input_values, np)["y"].astype(np.float32)
        with np.errstate(all="ignore"):
            found = kernel(buffers.input_values["x"]).astype(np.float32)
        variant = variants.read({"reduce": "numpy_sum", "softmax": "numpy_rows"}[name], problem.find(name).folder)
        for values, right in ((exact, True), (found, False)):
            differences = bench.compare(case, buffers.input_values, {"y": values})
            assert checking.comparison_columns(variant, case, differences, integers=False)["ok"] == right


def test_every_type_is_poisoned_between_margins(make):
    for dtype in DTYPES:
        bench, case = CpuBench(), copied(make, dtype).ragged[0]
        buffers = allocate(bench, case)
        for one in (*buffers.inputs.values(), *buffers.outputs.values()):
            assert one.values.shape == (5, 3) and one.inner.nbytes == one.values.nbytes
            assert one.inner.nbytes + sum(words.nbytes for words in one.margins) == one.words.nbytes
            bench.fill(one.inner, checking.POISON[one.unit])
            one.values[0, 0] = 0
            assert bench.count_changed(one.inner, checking.POISON[one.unit]) == max(1, one.values.itemsize // 4)
            assert not any(bench.count_changed(words, checking.MARGIN[one.unit]) for words in one.margins)
            if dtype in ("float32", "float16", "bfloat16"):
                with np.errstate(invalid="ignore"):
                    assert np.isnan(one.values.astype(np.float64)).sum() == 14


def test_a_right_variant_of_every_type_passes_and_wrong_ones_are_caught(make):
    for dtype in DTYPES:
        of = copied(make, dtype)
        rows = checked(of, "y[...] = x")
        assert all(row["ok"] and row["max_abs_err"] == 0 for row in rows)
        assert [row["test"] for row in rows] == (["integers", "reals"] if "float" in dtype else ["integers"])

        beside = "(np.ctypeslib.ctypes.c_ubyte * 1).from_address(y.ctypes.data {})[0] ^= 255"
        for place in ("- 1", "+ y.nbytes"):
            status, reason = failure(checked(of, f"y[...] = x\n{beside.format(place)}"))
            assert (status, "writes outside its output y: 1 of the words" in reason) == ("wrong_result", True), reason

        status, reason = failure(checked(of, "y[1:] = x[1:]\ny[0, 1:] = x[0, 1:]"))
        expected = "must be exact" if dtype in BYTES else "leaves 1 of 15 outputs unwritten"
        assert (status, expected in reason) == ("wrong_result", True), reason

        status, reason = failure(checked(of, "y[...] = x\nx[0, 0] += 1"))
        assert (status, "changes its input x" in reason) == ("wrong_result", True), reason

        status, reason = failure(checked(of, "y[...] = x\ny[4, 2] += 1"))
        assert (status, "must be exact" in reason) == ("wrong_result", True), reason


TWO = """\
title: Sums and products
extents: {m: rows}
inputs: {a: [m], b: [m]}
outputs: {sums: [m], products: [m, 1]}
exact: true
ragged: [{m: 5}]
"""
TWO_REFERENCE = "def reference(a, b):\n    return a + b, (a * b)[:, None]\n"
BOTH = "sums[...] = a + b\nproducts[...] = (a * b)[:, None]"


def test_of_two_outputs_each_is_written_guarded_and_compared(make):
    two = make(TWO, TWO_REFERENCE)
    for right in (BOTH, "return a + b, (a * b)[:, None]"):
        assert all(row["ok"] for row in checked(two, right))
    for body, words in [
        ("sums[...] = a + b", "leaves 5 of 5 outputs unwritten"),
        (BOTH.replace("a * b", "a * b + 1"), "must be exact on small integers"),
        (BOTH.replace("a + b", "a - b"), "outputs are wrong, the first sums["),
        (BOTH.replace("a * b", "a / (b - b)"), "5 outputs are NaN or infinite"),
        ("return a + b", "returns 1 arrays, and there are 2 outputs"),
        ("return (a * b)[:, None], a + b", "returns shape (5, 1), expected (5,)"),
        ("return [a + b, (a * b)[:, None]]", "returns a list, not an array"),
        (
            BOTH + "\n(np.ctypeslib.ctypes.c_float * 1).from_address(products.ctypes.data + products.nbytes)[0] = 0",
            "writes outside its output products: 1 of the words",
        ),
    ]:
        with np.errstate(divide="ignore", invalid="ignore"):
            status, reason = failure(checked(two, body))
        assert (status, words in reason) == ("wrong_result", True), (body, reason)


def test_the_worst_of_two_outputs_decides_the_row(make):
    row = checked(make(TWO, TWO_REFERENCE), BOTH.replace("a + b", "(a + b) * np.float32(1 + 2e-7)"), "method: any\n")[0]
    assert row["ok"] and 0 < row["max_abs_err"] < 8 * 2e-7 * 1.5


CENTRED = """\
title: Deviations from the mean
extents: {m: rows}
inputs: {x: [m]}
outputs: {y: [m]}
sums: m
ragged: [{m: 64}]
"""
CENTRED_REFERENCE = "def reference(x):\n    return x - x.mean()\n"


def test_a_problem_s_own_magnitude_makes_its_tolerance(make):
    """Its reference of absolute values is near 0, where a result may well be off by the rounding of what it is of."""
    off = "y[...] = x - x.mean(dtype=np.float64) + 1e-5"
    usual = make(CENTRED, CENTRED_REFERENCE)
    _, reason = failure(checked(usual, off))
    assert "exceeds what fp32 allows" in reason
    own = make(CENTRED, CENTRED_REFERENCE + "\ndef magnitude(x, m):\n    return abs(x) + 100 + 0 * x\n")
    (row,) = checked(own, off)
    assert row["ok"] and row["max_abs_err"] == pytest.approx(1e-5, rel=0.1)
    assert row["tolerance"] == pytest.approx(65 * 2.0**-24 * 101, rel=0.01)
    assert "exceeds what fp32 allows" in failure(checked(own, off.replace("1e-5", "1e-2")))[1]


PRODUCT = """\
title: Matrix product of bytes
extents: {m: rows, n: columns, k: length of a sum}
inputs: {a: {shape: [m, k], dtype: int8, least: -128, most: 127}, b: {shape: [k, n], dtype: uint8, most: 255}}
outputs: {c: {shape: [m, n], dtype: int32}}
sums: k
ragged: [{m: 3, n: 5, k: 300}]
"""


def test_whole_numbers_must_be_exact_whatever_precision_is_claimed(make):
    product = make(PRODUCT, "def reference(a, b):\n    return a @ b\n")
    right = "c[...] = a.astype(np.int64) @ b.astype(np.int64)"
    for header in ("", "precision: fp16\nmethod: any\n"):
        (row,) = checked(product, right, header)
        assert (row["ok"], row["test"], row["tolerance"]) == (True, "integers", 0)
        assert failure(checked(product, right + "\nc[2, 4] += 1", header))[1].startswith(
            f"{product.name}/mine is wrong on m=3 n=5 k=300: largest error 1 must be exact"
        )
    assert "must be exact" in failure(checked(product, "c[...] = a @ b.astype(np.int8)"))[1]


def test_the_rounding_of_a_narrow_output_is_allowed_and_no_more(make):
    half = make(PLAIN.replace("y: [m]", "y: {shape: [m], dtype: float16}") + "ragged: [{m: 600}]\n")
    assert all(row["ok"] for row in checked(half, "y[...] = x"))
    rounded = "y[...] = x * np.float32(1 + 2.0**-10)"  # where float16 is off by 2**-11 of a value at most
    assert "exceeds what fp32 allows" in failure(checked(half, rounded))[1]


# --- optional inputs ------------------------------------------------------------------------------------------------

RIGHT = """\
held = a[:, ::case.s]
y[...] = held.sum(axis=1, dtype=np.float32) * (1 if b is None else b.astype(np.float32))
z[...] = 1"""
TOLD = "arguments: [a, b, y, z, m, k, s]\n"


def test_an_optional_input_is_there_in_a_ragged_case_of_its_own_and_null_elsewhere(make):
    scaled = make(SCALED, SCALED_REFERENCE)
    assert (scaled.optional, scaled.arrays) == (("b",), ("a", "y", "z"))
    assert [(str(case), sorted(case.optional)) for case in scaled.ragged] == [
        ("m=3", []), ("m=3 b", ["b"]), ("m=2 columns 7 step 3", []), ("m=2 columns 7 step 3 b", ["b"])
    ]  # fmt: skip
    told = variant_of(scaled, RIGHT, TOLD)
    for case in scaled.ragged:
        assert all(row["ok"] for row in checking.check_case(CpuBench(), told, case)), case
    passed = [told.header.argument_values(case) for case in scaled.ragged]
    assert passed == [*[("a", "b", "y", "z", 3, 3, 1)] * 2, *[("a", "b", "y", "z", 2, 7, 3)] * 2]
    forgets = variant_of(scaled, RIGHT.replace("1 if b is None else", "1 if True else"), TOLD)
    assert [checking.check_case(CpuBench(), forgets, case)[-1]["ok"] for case in scaled.ragged] == [True, False] * 2


def test_a_variant_that_is_not_told_of_an_optional_input_says_so_and_where_to_name_it(make):
    scaled = make(SCALED, SCALED_REFERENCE)
    plain, _, without, with_scale = scaled.ragged
    untold = variant_of(scaled, RIGHT, "limits: {k: 9, s: 9}\n")
    assert checking.ragged_cases(untold) == [plain, without]
    assert untold.unsupported(without) == ""
    (row,) = checking.check_case(CpuBench(), untold, with_scale)
    assert row["status"] == "unsupported"
    assert row["reason"].endswith(
        "mine does not say that it handles the optional input b; name b in `arguments` in mine.py if it does"
    )


# --- many at a time -------------------------------------------------------------------------------------------------


def test_a_case_is_computed_in_parts_where_its_problem_has_a_batch_that_is_its_size(make):
    batched = make(PLAIN + "size: m\nbatch: m\n")
    case = batched.case("long", {}).at(2 * CPU_CHUNK + 7)
    assert [part.shape("x") for part in CpuBench().parts(case)] == [(CPU_CHUNK,), (CPU_CHUNK,), (7,)]
    said = batched.case("said", {"m": 500}).at(2 * CPU_CHUNK)
    assert CpuBench().parts(said) == [said]
    whole = make(PLAIN + "size: m\n").case("long", {}).at(500)
    assert CpuBench().parts(whole) == [whole]
