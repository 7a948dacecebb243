"""The first files of a problem, and of a kernel."""

import shutil

import pytest

import new
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.kernels import variants
from warpbook.problems import networks, problem

LISTED = """\
study: mine   # the first
studies:
  # of matrices
  mine:
    problem: gemm
    variants: [naive, tiled]    # two
  other:
    problem: gemm
    variants:
      - naive
report: {title: T}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with matrix products alone."""
    (tmp_path / "kernels" / "gemm").mkdir(parents=True)
    for name in ("problem.py", "naive.cu"):
        shutil.copy(PROJECT / "kernels" / "gemm" / name, tmp_path / "kernels" / "gemm")
    (tmp_path / "config.yaml").write_text("studies:\n  other: {}\n")
    monkeypatch.setattr(new, "PROJECT", tmp_path)
    monkeypatch.setattr(problem, "FOLDER", tmp_path / "kernels")
    monkeypatch.setattr(problem, "FOLDERS", (tmp_path / "kernels", PROJECT / "kernels"))
    monkeypatch.setattr(variants, "PROJECT", tmp_path)
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


def test_a_new_kernel_stands_in_the_study_that_lists_its_variants(project, monkeypatch):
    monkeypatch.setattr(networks, "LIBRARY", PROJECT / "none")  # the project is a notebook, and no clone
    monkeypatch.setattr(networks, "library_configuration", lambda: {"studies": {}})
    (project / "config.yaml").write_text(LISTED)
    made, study = new.write_kernel_of_study("fast")  # of the problem of `study:`
    assert [path.name for path in made] == ["fast.cu", "config.yaml"] and study == ""
    listed = LISTED.replace("[naive, tiled]", "[fast, naive, tiled]")
    assert (project / "config.yaml").read_text() == listed
    (project / "config.yaml").write_text(LISTED.replace("study: mine", "study: other"))
    new.write_kernel_of_study("second", "gemm")
    assert "    variants:\n      - second\n      - naive\n" in (project / "config.yaml").read_text()


def test_a_new_kernel_of_a_built_in_study_that_lists_its_variants_is_listed_in_the_notebook(project, monkeypatch):
    monkeypatch.setattr(networks, "LIBRARY", PROJECT / "none")
    theirs = {"problem": "gemm", "cases": [{}], "variants": ["tiled"]}
    monkeypatch.setattr(networks, "library_configuration", lambda: {"studies": {"theirs": theirs}})
    assert new.write_kernel_of_study("fast", "gemm")[1] == "theirs"
    added = "studies:\n  other: {}\n\n  theirs:\n    variants: [fast, tiled]\n"
    assert (project / "config.yaml").read_text() == added


def test_a_new_kernel_has_no_name_of_a_built_in_one(project):
    with pytest.raises(UserError, match="tiled is a built-in kernel of gemm"):
        new.write_kernel_of_study("tiled", "gemm")
    with pytest.raises(UserError, match="softmax is a built-in problem"):
        new.write_problem("softmax")


def test_a_study_is_added_within_studies_wherever_they_stand(project):
    study = "\n  added:\n    problem: gemm\n"
    for text, expected in [
        (LISTED, LISTED.replace("report:", "\n  added:\n    problem: gemm\nreport:")),
        ("study: a\n", f"study: a\n\nstudies:{study}"),
        (
            "studies:\n    a:\n        title: T\n",
            "studies:\n    a:\n        title: T\n\n    added:\n      problem: gemm\n",
        ),
        (
            "studies:\n  a:\n    title: |\n      T\nstudy: a\n",
            f"studies:\n  a:\n    title: |\n      T\n{study}study: a\n",
        ),
    ]:
        assert new.add_study(text, "added", study) == expected
    for text, reason in [("studies: {a: {}}\n", "does not hold a study a line"), (LISTED, "has a study mine already")]:
        with pytest.raises(UserError, match=reason):
            new.add_study(text, "mine", study)
    (project / "config.yaml").write_text("studies: [")
    with pytest.raises(UserError, match=r"config\.yaml cannot be read"):
        new.write_problem("layer_norm")
    assert not (project / "kernels" / "layer_norm").exists()


def test_what_is_there_is_not_written_over(project):
    new.write_problem("layer_norm")
    with pytest.raises(UserError, match=r"kernels/layer_norm/problem\.py is there already"):
        new.write_problem("layer_norm")


def test_a_name_that_makes_no_folder_is_refused():
    for name in ["Layer Norm", "../up", "1st", ""]:
        with pytest.raises(UserError, match="is no name of small letters"):
            new.check_name(name)
