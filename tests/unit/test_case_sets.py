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


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ([{"m": 1, "n": 1, "q": 1}], "cases.0: 'q' is no extent of gemm"),
        ([{"m": 1, "n": 1}], "cases.0: gemm case"),
        ([{"m": 1, "n": 1, "k": "len(x)"}], "cases.0: k: `len(x)`"),
        ([{"m": 1, "n": 1, "k": 0}], "cases.0: k: 0 is below its limit 1"),
        ([{"name": "one", "m": 1, "n": 1, "k": 1}] * 2, "cases: 'one' is there twice"),
    ],
)
def test_a_case_that_is_none_is_named_with_the_reason(listed, words):
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
    assert (config.cases_of("mine"), config.case_set("mine").problem) == ("mine", problem.find("gemm"))


@pytest.mark.parametrize(
    ("study", "words"),
    [
        ({"cases": []}, "studies.mine: `problem` and `cases` go together"),
        ({"cases": [{"m": 1, "n": 1, "k": 1}], "network": "fa18"}, "say `network`, or `problem` with its `cases`"),
        ({"cases": [{"m": 1, "n": 1, "z": 1}]}, "studies.mine.cases.0: 'z' is no extent of gemm"),
        ({"cases": [{"m": "size - 8", "n": 1, "k": 1}]}, "studies.mine.m: 0 is below its limit 1"),
        (
            {"problem": "gem", "cases": [{"m": 1}]},
            "studies.mine.problem: no problem is called 'gem': did you mean 'gemm'",
        ),
        ({"cases": [{"m": 1, "n": 1, "k": 1}], "variants": ["direct"]}, "no variant is called 'gemm/direct'"),
    ],
)
def test_a_study_that_cannot_be_is_refused_in_a_line(study, words):
    with pytest.raises(UserError) as error:
        configured(**study)
    assert any(words in line for line in str(error.value).splitlines()), error.value
