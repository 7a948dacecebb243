"""Cases that a study of a problem lists."""

import json

import pytest
import yaml

from warpbook.common.errors import UserError
from warpbook.config import settings
from warpbook.kernels import variants
from warpbook.problems import case_sets, networks, problem

GEMM = {"title": "Products", "problem": "gemm", "sizes": [8, 16], "sections": ["ladder"]}


def test_a_case_is_named_or_called_by_its_extents():
    cases = case_sets.read_set(
        "mine", "gemm", [{"m": "size", "n": 4, "k": "2 * size"}, {"name": "tall", "m": 9, "n": 1, "k": 3}]
    )
    assert [case.name for case in cases.cases] == ["m=size n=4 k=2 size", "tall"]
    assert cases.cases[0].at(8).extents == {"m": 8, "n": 4, "k": 16}
    assert (cases.has_labels, cases.weight_sets, cases.problem.name) == (False, (), "gemm")


def test_a_case_that_is_none_is_named_with_the_reason():
    for listed, words in [
        ([{"m": 1, "n": 1, "q": 1}], "cases.0: 'q' is no extent of gemm"),
        ([{"m": 1, "n": 1}], "cases.0: gemm case"),
        ([{"m": 1, "n": 1, "k": "len(x)"}], "cases.0: k: `len(x)`"),
        ([{"m": 1, "n": 1, "k": 0}], "cases.0: k: 0 is below its limit 1"),
        ([{"name": "one", "m": 1, "n": 1, "k": 1}] * 2, "cases: 'one' is there twice"),
    ]:
        with pytest.raises(ValueError, match="^" + words.replace("(", r"\(").replace(")", r"\)")):
            case_sets.read_set("mine", "gemm", listed)


def test_another_extent_is_another_identity():
    one, other = (case_sets.read_set("mine", "gemm", [{"m": "size", "n": 4, "k": k}]) for k in (4, 5))
    assert one.shapes_sha256 != other.shapes_sha256


def test_programs_find_the_cases_of_a_command_s_own_configuration(monkeypatch):
    study = GEMM | {"cases": [{"name": "square", "m": "size", "n": "size", "k": "size"}]}
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps({"networks": {}, "studies": {"mine": study}}))
    (case,) = case_sets.find("mine").cases
    assert (case.name, case.at(3).flops) == ("square", 54)
    with pytest.raises(UserError, match="no network and no study with cases is called 'yours'"):
        case_sets.find("yours")


def configured(**study):
    values = yaml.safe_load(settings.FILE.read_text())
    return settings.load(values | {"study": "mine", "studies": {"mine": GEMM | study}}, list(variants.discover()))


def test_variants_of_a_study_are_those_of_its_problem():
    config = configured(cases=[{"m": "size", "n": 4, "k": 4}], variants=["naive", "tiled"], first_kernel="naive")
    assert config.studies["mine"].variants == ["gemm/naive", "gemm/tiled"]
    assert (config.case_set_name("mine"), config.case_set("mine").problem) == ("mine", problem.find("gemm"))


def test_a_study_that_cannot_be_is_refused_in_a_line():
    for study, words in [
        ({"cases": []}, "studies.mine: `problem` and `cases` go together"),
        ({"cases": [{"m": 1, "n": 1, "k": 1}], "network": "fa18"}, "say `network`, or `problem` with its `cases`"),
        ({"cases": [{"m": 1, "n": 1, "z": 1}]}, "studies.mine.cases.0: 'z' is no extent of gemm"),
        ({"cases": [{"m": "size - 8", "n": 1, "k": 1}]}, "studies.mine.cases.0: m: 0 is below its limit 1"),
        (
            {"problem": "gem", "cases": [{"m": 1}]},
            "studies.mine.problem: no problem is called 'gem': did you mean 'gemm'",
        ),
        ({"cases": [{"m": 1, "n": 1, "k": 1}], "variants": ["direct"]}, "no variant is called 'gemm/direct'"),
    ]:
        with pytest.raises(UserError) as error:
            configured(**study)
        assert any(words in line for line in str(error.value).splitlines()), error.value


@pytest.fixture
def file(tmp_path):
    """Write a CSV file of cases; its path as a study says it, from the project's folder or whole."""

    def write(text: str) -> str:
        (tmp_path / "cases.csv").write_text(text)
        return str(tmp_path / "cases.csv")

    return write


def test_a_file_s_rows_are_cases(file, monkeypatch):
    path = file("\ufeffname,N,C,H,W,M,K,S,bias\nfirst,,3,size,9,4,3,2,true\n,2,1,8,9,1,3,,\n\n")
    study = {"title": "Layers", "problem": "conv", "cases_file": path, "sizes": [8], "sections": ["ladder"]}
    values = yaml.safe_load(settings.FILE.read_text()) | {"study": "mine", "studies": {"mine": study}}
    config = settings.load(values, list(variants.discover()))
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps({"networks": {}, "studies": {"mine": study}}))
    for cases in (config.case_set("mine").cases, case_sets.find("mine").cases):
        assert [case.name for case in cases] == ["first", "N=2 C=1 H=8 W=9 M=1 K=3"]
        assert [(case.at(8).N, case.at(8).H, case.S, case.optional) for case in cases] == [
            (8, 8, 2, {"bias"}),
            (2, 8, 1, set()),
        ]
    # What a run records stands without the file.
    recorded = json.loads(config.studies["mine"].model_dump_json())
    assert "cases_file" not in recorded and recorded["cases"] == case_sets.read_rows(path)


def test_each_row_that_is_no_case_is_named_in_a_line(file):
    for text, words in [
        ("m,n,k\n1,1,1\n0,1,1\n1,x,1\n", ["row 3: m: 0 is below its limit 1", "row 4: n: `x`: 'x' is no extent"]),
        ("m,n,q,z\n1,1,1,1\n2,1,1,1\n", ["csv: 'q' is no extent of gemm", "csv: 'z' is no extent of gemm"]),
        ("m,n,k\n1,1,1\n1,1,1\n", ["csv: 'm=1 n=1 k=1' is there twice; give one a name of its own (name)"]),
        ("m,n,k\nsize - 8,1,1\n", ["row 2: m: 0 is below its limit 1"]),
        ("m,n,k\n1,1\n", ["row 2: gemm case"]),
        ("m,n,k\n1,1,1,1\n", ["row 2: a cell has no column's name above it"]),
        ("m,n,k\n", ["csv has no rows below the names of its columns"]),
    ]:
        with pytest.raises(UserError) as error:
            configured(cases_file=file(text))
        lines = str(error.value).splitlines()[1:]
        assert len(lines) == len(words)
        for line, expected in zip(lines, words, strict=True):
            assert "cases_file: " in line and expected in line


def test_a_file_that_is_not_there_or_stands_beside_cases_is_refused(file):
    with pytest.raises(UserError, match=r"cases_file: none\.csv cannot be read: No such file"):
        configured(cases_file="none.csv")
    with pytest.raises(UserError, match="say `cases` or `cases_file`; one of the two"):
        configured(cases_file=file("m,n,k\n1,1,1\n"), cases=[{"m": 2, "n": 2, "k": 2}])


def test_an_optional_input_is_there_or_not():
    with pytest.raises(ValueError, match=r"cases\.0: bias: 1\.5 is neither true nor false"):
        case_sets.read_set("mine", "conv", [{"C": 1, "H": 5, "W": 5, "M": 1, "K": 3, "bias": 1.5}])


def test_variants_of_convolutions_go_by_their_files_names_alone():
    config = configured(problem="conv", cases=[{"C": 1, "H": 5, "W": 5, "M": 1, "K": 3}], variants=["direct"])
    assert config.studies["mine"].variants == ["direct"]


def test_cases_are_the_same_in_whatever_order_their_extents_are_listed():
    one, other = ({"name": "a", "m": "size", "n": 8, "k": 9}, {"k": 9, "n": 8, "m": "size", "name": "a"})
    hashes = {case_sets.read_set("x", "gemm", [listed]).shapes_sha256 for listed in (one, other)}
    assert len(hashes) == 1
