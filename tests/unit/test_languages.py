"""Kernels in other languages than CUDA C++: what is said where one is missing, and what a report shows of them."""

import sys
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

import check_variant
import doctor
from warpbook.common import cuda_toolkit
from warpbook.common.files import PROJECT
from warpbook.harness import building
from warpbook.kernels import languages, variants
from warpbook.kernels.languages import LANGUAGES
from warpbook.problems import networks
from warpbook.report import pdf
from warpbook.report.excerpts import ADDED, REMOVED, excerpt

FA17 = networks.find("fa17")
COMMANDS = {
    "triton": "pip install triton",
    "numba_cuda": "pip install 'numba-cuda[cu13]'",
    "cutlass": "pip install nvidia-cutlass-dsl",
    "cuda.tile": "pip install 'cuda-tile[tileiras]'",
}


def test_each_language_is_an_optional_extra():
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    offered = {requirement.partition(">=")[0] for requirements in extras.values() for requirement in requirements}
    assert {one.package for one in LANGUAGES.values()} <= offered


@pytest.fixture
def variant_in(tmp_path):
    """Make a variant of kernels in the language of a package."""

    def make(package: str) -> variants.Variant:
        text = f'"""\ntitle: Mine\nrequires: {package}\n"""\n\ndef prepare(layer, images): ...\n\ndef compiled(arch): ...\n'
        (tmp_path / "mine.py").write_text(text)
        return variants.read("mine", tmp_path)

    return make


def test_a_missing_language_is_no_failure_and_said_with_what_installs_it(variant_in, tmp_path, monkeypatch):
    for package in LANGUAGES:
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
        variant = variant_in(package)
        (row,) = next(check_variant.emulate(variant, FA17, False, tmp_path))
        assert row["status"] == "unsupported"
        assert row["reason"].endswith(f"{package}, which is not installed here: {COMMANDS[package]}")
        assert building.build_all(variant, ["sm_90"], tmp_path / "builds", False) == []
        assert building.not_compiled_reason(variant) == variant.unsupported(FA17.convs[0].at(1)) == row["reason"]


@pytest.fixture
def installed(monkeypatch):
    """Have a package look as if it were installed, and nothing else."""

    def make(package: str) -> None:
        module = ModuleType(package)
        module.__spec__ = ModuleSpec(package, None)
        monkeypatch.setitem(sys.modules, package, module)

    return make


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A folder on the path for compilers; wheels and toolkits have none."""
    monkeypatch.setattr(cuda_toolkit, "USUAL", tmp_path / "usual")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not (Path(path) / "nvidia").exists()])
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def programs_in(folder, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_a_language_whose_compiler_is_missing_is_no_failure_either(variant_in, installed, compiler):
    installed("cuda.tile")
    words = f"mine needs tileiras, the compiler of cuTile, which is not installed here: {COMMANDS['cuda.tile']}"
    assert variant_in("cuda.tile").missing == words
    programs_in(compiler, "tileiras")
    assert variant_in("cuda.tile").missing == ""


def test_a_language_s_compiler_may_lie_in_a_cuda_toolkit(installed, compiler, monkeypatch):
    installed("cuda.tile")
    programs_in(compiler / "toolkit" / "bin", "tileiras")
    assert languages.missing_words("cuda.tile")
    monkeypatch.setenv("CUDA_HOME", str(compiler / "toolkit"))
    assert languages.missing_words("cuda.tile") == ""
    monkeypatch.delenv("CUDA_HOME")
    for place in (compiler / "usual", compiler / "wheels" / "nvidia" / "cu13"):
        monkeypatch.setattr(sys, "path", [*sys.path, str(compiler / "wheels")])
        programs_in(place / "bin", "tileiras")
        assert languages.missing_words("cuda.tile") == "", place
        (place / "bin" / "tileiras").unlink()


def test_a_language_without_an_interpreter_cannot_be_checked_without_a_gpu(variant_in, installed, compiler, tmp_path):
    programs_in(compiler, *(one.compiler for one in LANGUAGES.values() if one.compiler))
    for package in [package for package, one in LANGUAGES.items() if not one.interpreter]:
        installed(package)
        (row,) = next(check_variant.emulate(variant_in(package), FA17, False, tmp_path))
        assert row["status"] == "unsupported"
        assert row["reason"].startswith("mine cannot be checked without a GPU")


def test_a_doctor_without_pango_prints_its_own_advice_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "weasyprint.py").write_text("print('see https://example.org')\nraise OSError('cannot load libpango')")
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    pdf.weasyprint.cache_clear()
    first = next(doctor.findings())
    assert "apt-get install libpango-1.0-0" in first.remedy and capsys.readouterr().out == ""


def test_a_doctor_tells_what_installs_weasyprint(monkeypatch):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    first = next(doctor.findings())
    assert (first.found, first.remedy, first.needed) == ("", "pip install weasyprint", True)


def test_a_report_shows_the_kernel_itself_where_its_baseline_is_in_another_language():
    variant = variants.read("softmax/triton_rows")
    found = excerpt(variant, variants.read(variant.header.builds_on))
    assert (found.file, found.over, found.more) == ("softmax/triton_rows.py", "", 0)
    assert {line.sign for line in found.lines} == {" "}
    assert found.lines[0].code.striptags() == "@triton.jit"


def test_a_report_shows_the_difference_of_two_variants_in_one_language():
    found = excerpt(variants.read("gemm/triton_tf32x3"), variants.read("gemm/triton_tiled"))
    changed = {line.sign: line.code.striptags() for line in found.lines if '"PRECISION"' in line.code.striptags()}
    assert '"ieee"' in changed[REMOVED] and '"tf32x3"' in changed[ADDED]
