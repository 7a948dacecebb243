"""The first files of a problem, and of a kernel."""

import shutil

import pytest

import new
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.kernels import variants
from warpbook.problems import problem


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with matrix products alone."""
    (tmp_path / "kernels" / "gemm").mkdir(parents=True)
    for name in ("problem.py", "naive.cu"):
        shutil.copy(PROJECT / "kernels" / "gemm" / name, tmp_path / "kernels" / "gemm")
    (tmp_path / "config.yaml").write_text("studies:\n  other: {}\n")
    monkeypatch.setattr(new, "PROJECT", tmp_path)
    monkeypatch.setattr(problem, "FOLDER", tmp_path / "kernels")
    return tmp_path


def test_a_new_problem_is_read_as_it_is_written(project):
    made = [path.relative_to(project).as_posix() for path in new.write_problem("layer_norm")]
    assert made == ["kernels/layer_norm/problem.py", "kernels/layer_norm/naive.cu", "config.yaml"]
    of = problem.read(project / "kernels" / "layer_norm")
    assert [str(case) for case in of.ragged] == ["n=1", "n=1023"]
    variant = variants.read("naive", of.folder)
    assert (variant.name, variant.read_error) == ("layer_norm/naive", "")
    assert "  layer_norm:\n    title: Layer norm\n    problem: layer_norm\n" in (project / "config.yaml").read_text()


def test_a_new_kernel_takes_what_its_problem_s_kernels_take(project):
    of = problem.read(project / "kernels" / "gemm")
    path = new.write_kernel(of, "mine", "")
    assert "gemm(const float* a, const float* b, float* c, int m, int n, int k)" in path.read_text()
    variant = variants.read("mine", of.folder)
    assert (variant.read_error, variant.header.builds_on, variant.header.grid) == (
        "",
        "gemm/naive",
        ["ceil(m * n / 256)"],
    )


def test_what_is_there_is_not_written_over(project):
    new.write_problem("layer_norm")
    with pytest.raises(UserError, match=r"kernels/layer_norm/problem\.py is there already"):
        new.write_problem("layer_norm")


def test_a_name_that_makes_no_folder_is_refused():
    for name in ["Layer Norm", "../up", "1st", ""]:
        with pytest.raises(UserError, match="is no name of small letters"):
            new.check_name(name)
