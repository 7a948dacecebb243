"""Kernels in other languages than CUDA C++: interpreted on a CPU, and what the assembler tells of their PTX."""

import shutil

import pytest

import check_variant
from small_run import shipped
from warpbook.harness import building, checking
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import languages, variants
from warpbook.kernels.languages import Language
from warpbook.runs import tables

SHIPPED = {name: one for name, one in shipped().items() if one.language and one.language.interpreter}

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 y)
{
    .reg .b64 %address<2>;
    .reg .b32 %value<2>;
    .shared .align 4 .b8 tile[512];
    ld.param.u64 %address0, [y];
    cvta.to.global.u64 %address1, %address0;
    ld.shared.b32 %value0, [tile];
    ld.global.b32 %value1, [%address1];
    add.s32 %value1, %value1, %value0;
    st.global.b32 [%address1], %value1;
    ret;
}
"""


@pytest.fixture
def variant_in_ours(tmp_path, monkeypatch):
    """Make a variant in a language that is installed wherever the tests are, of the rest of its source."""
    monkeypatch.setitem(languages.LANGUAGES, "numpy", Language("NumPy", "numpy", {"INTERPRETED": "1"}))

    def make(source: str) -> variants.Variant:
        (tmp_path / "mine.py").write_text(f'"""\ntitle: Mine\nrequires: numpy\n"""\n{source}')
        return variants.read("mine", tmp_path)

    return make


def checked(variant: variants.Variant, case: int):
    """The rows of one of its ragged cases, interpreted."""
    if variant.missing:
        pytest.skip(variant.missing)
    with IsolatedBench(variant, sandboxed=False) as bench:
        rows = checking.check_case(bench, variant, checking.ragged_cases(variant)[case])
    if "does not interpret with NumPy" in rows[-1]["reason"]:
        pytest.skip(rows[-1]["reason"])
    return rows


@pytest.mark.parametrize("name", SHIPPED)
def test_a_kernel_is_interpreted_and_right_on_a_ragged_shape(name):
    assert {row["status"] for row in checked(SHIPPED[name], 1)} == {"ok"}


def test_an_interpreted_kernel_without_its_mask_is_wrong(tmp_path):
    source = SHIPPED["softmax/triton_rows"].launcher
    shutil.copy(source.with_name("problem.py"), tmp_path)
    text = source.read_text()
    assert text.count("mask=places < columns, other") == 1
    (tmp_path / source.name).write_text(text.replace("mask=places < columns, other", "mask=places <= columns, other"))
    rows = checked(variants.read(source.stem, tmp_path), 1)
    assert rows[-1]["status"] == "wrong_result"


def test_a_grid_of_more_threads_than_are_simulated_is_unsupported():
    (row,) = checked(SHIPPED["softmax/numba_rows"], 3)
    assert (row["status"], row["reason"][:43]) == ("unsupported", "softmax: 16768 threads exceed the 4096 that")


def test_what_takes_an_interpreter_too_long_is_unsupported(variant_in_ours, tmp_path, monkeypatch):
    variant_in_ours("import time\n\ndef prepare(layer, images):\n    return lambda x, w, y: time.sleep(60)\n")
    out = tmp_path / "correctness.csv"
    asked = ["--device", "emulator", "--cases", "fa17", "--variant", "mine", "--kernels", str(tmp_path), "--sizes", "1"]
    monkeypatch.setattr("sys.argv", ["check_variant.py", *asked, "--timeout", "1", "--out", str(out)])
    check_variant.main()
    (row,) = tables.CORRECTNESS.rows(out)
    assert (row["status"], row["reason"][:20]) == ("unsupported", "too slow to interpre")


def test_the_assembler_tells_what_a_kernel_in_another_language_takes(variant_in_ours, tmp_path):
    if building.ptxas() is None:
        pytest.skip("no ptxas: pip install 'warpbook[course]'")
    source = f'''
from warpbook.kernels.languages import Compiled

def prepare(layer, images): ...

def compiled(arch):
    return {{"twice": Compiled("""{PTX}""", shared_bytes=1024)}}
'''
    variant = variant_in_ours(source)
    (made,) = building.build_all(variant, ["sm_90"], tmp_path / "builds", False)
    (row,) = made.rows
    assert (row["ok"], row["kernel"], row["shared_bytes"], row["spill_bytes"]) == (True, "twice", 512 + 1024, 0)
    assert row["registers"] > 0 and row["compiler"].startswith("NumPy ")
    assert (tmp_path / "builds" / "sm_90.twice.ptx").read_text() == PTX

    (made,) = building.build_all(
        variant_in_ours(source.replace("add.s32", "add.s31")), ["sm_90"], tmp_path / "b", False
    )
    assert not made.ok and "Unknown modifier '.s31'" in made.log
