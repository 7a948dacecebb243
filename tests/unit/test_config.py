import copy

import pytest
import yaml

from warpbook.common.errors import UserError, one_screen
from warpbook.config import settings
from warpbook.kernels import variants

KNOWN = list(variants.discover())


VALUES = yaml.safe_load(settings.FILE.read_text())


def values():
    """config.yaml's values, to be changed."""
    return copy.deepcopy(VALUES)


def changed(path, value):
    """config.yaml's values with one of them set, at a path such as studies.fa18.sizes."""
    content = place = values()
    *parents, last = path.split(".")
    for parent in parents:
        place = place[int(parent) if isinstance(place, list) else parent]
    place[last] = value
    return content


def test_shipped_configuration_is_sound():
    found = settings.read(KNOWN)
    assert found.study == "fa18"
    assert found.studies["fa18"].sizes == [10, 100, 1000, 10000]


def test_a_mistake_is_named_with_its_place_and_the_nearest_valid_name():
    for path, value, words in [
        ("stuby", "fa18", "stuby: unknown key: did you mean 'study'?"),
        ("measuring.target_rel_c", 0.1, "measuring.target_rel_c: unknown key: did you mean 'target_rel_ci'?"),
        ("studies.fa18.size", [10], "studies.fa18.size: unknown key: did you mean 'sizes'?"),
        ("measuring.gpu.warm_up", 1, "measuring.gpu.warm_up: unknown key: did you mean 'warmup'?"),
        ("studies.fa18.timeline.layer", "conv", "studies.fa18.timeline.layer: 'conv' is not known: did you mean 'conv"),
        ("study", "fa81", "study: no study is called 'fa81'"),
        ("study", "fa19,fa17-fnal", "study: no study is called 'fa17-fnal': did you mean 'fa17-final'?"),
        ("studies.fa18.network", "fa188", "studies.fa18.network: no network is called 'fa188': did you mean 'fa18'?"),
        (
            "studies.fa18.variants",
            ["dircet"],
            "studies.fa18.variants: no variant is called 'dircet': did you mean 'direct'?",
        ),
        (
            "studies.fa18.first_kernel",
            "dircet",
            "studies.fa18.first_kernel: no variant is called 'dircet': did you mean 'direct'?",
        ),
        ("studies.fa18.sections", ["milestone_5"], "no section is called 'milestone_5': did you mean 'milestone_"),
        ("studies.fa18.sizes", [10, 20000], "studies.fa18.sizes.1: 20000 is outside 1 to 10000"),
        ("studies.fa18.sizes", [100, 10], "is not in ascending order"),
        ("studies.fa18.sizes", [], "at least 1 item"),
        ("studies.fa18.sizes", "10", "Input should be a valid list (it is '10')"),
        ("measuring.target_rel_ci", "small", "Input should be a valid number (it is 'small')"),
        ("measuring.gpu.min_samples", 0, "greater than or equal to 1 (it is 0)"),
        ("gpus", 0, "gpus: 0 is neither a number of GPUs, 1 to 64, nor `all`"),
        ("gpus", 10**9, "gpus: 1000000000 is neither a number of GPUs, 1 to 64, nor `all`"),
        ("gpus", "both", "gpus: 'both' is neither a number of GPUs, 1 to 64, nor `all`"),
        ("studies", {"../../x": VALUES["studies"]["fa18"]}, "'../../x' is no name of a study"),
        ("studies", {"all": VALUES["studies"]["fa18"]}, "'all' stands for every study: give this one another name"),
        ("networks.fa18.layers", [VALUES["networks"]["fa18"]["layers"][0]] * 100_000, "at most 1000 items"),
        ("architectures", ["90"], "architectures.0: '90' is no architecture of the form sm_90"),
        ("architectures", ["sm_35"], "sm_35 is Kepler or older"),
        ("report.authors", [], "report.authors: List should have at least 1 item"),
    ]:
        with pytest.raises(UserError) as raised:
            settings.load(changed(path, value), KNOWN)
        assert words in str(raised.value)
        assert str(raised.value).startswith("config.yaml:\n")


def test_thousands_of_mistakes_and_the_longest_values_are_told_on_one_screen():
    for path, value in (("studies.fa18.sizes", list(range(1, 100_000))), ("studies.fa18.sizes", [10**9] * 100_000),
                        ("networks.fa18.layers", VALUES["networks"]["fa18"]["layers"] * 10_000), ("study", "x" * 10**6)):  # fmt: skip
        with pytest.raises(UserError) as raised:
            settings.load(changed(path, value), KNOWN)
        lines = one_screen(raised.value).splitlines()
        assert len(lines) <= 21 and max(map(len, lines)) < 1100, path
    assert one_screen(UserError("a\nb")) == "a\nb"


def as_snakemake_has_them(value):
    """What Snakemake makes of a value of `--config`: texts of all numbers and truth values within."""
    if isinstance(value, dict):
        return {key: as_snakemake_has_them(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_snakemake_has_them(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


CONV, POOL = (
    {"conv": {"out_channels": 6, "kernel_size": 5, "stride": 2, "padding": 1}},
    {"pool": {"size": 2, "ceil": True}},
)


def test_numbers_within_a_value_may_be_the_texts_that_snakemake_makes_of_them():
    for path, value in [
        ("target", {"name": "NVIDIA H200", "memory_gib": 140.4}),
        ("stream", {"images": 30000, "shards": 2}),
        ("stream", {"images": 30000, "shards": "auto"}),
        ("measuring", values()["measuring"]),
        (
            "measuring.gpu",
            {"warmup": 0, "min_samples": 2, "max_samples": 9, "max_time_s": 1, "min_samples_timeout_s": 0.5},
        ),
        ("measuring.programs", {"runs": 2, "min_samples_timeout_s": 1e-3}),
        ("networks.fa18", {"input": {"channels": 3, "size": 64, "scale": 0.5}, "layers": [CONV, POOL, CONV]}),
        ("networks.fa18", {"input": {"size": [48, 72]}, "layers": [CONV, POOL, CONV, {"fc": {"out_features": 10}}]}),
        ("studies.fa18.sizes", [10, 100]),
        ("studies.fa18.timeline", {"variant": "direct", "layer": "conv1", "size": 100}),
        ("studies.fa19.framework_section", 3),
        ("studies.sp25.course", values()["studies"]["sp25"]["course"]),
    ]:
        texts = as_snakemake_has_them(value)
        assert texts != value
        assert settings.load(changed(path, texts), KNOWN) == settings.load(changed(path, value), KNOWN)


def test_a_text_that_is_no_such_number_is_named_as_a_number_would_be():
    for path, value, words in [
        ("target", {"arch": "sm_90", "memory_gib": "lots"}, "memory_gib: Input should be a valid number (it is 'lo"),
        ("target", {"arch": "sm_90", "memory_gib": "-1"}, "memory_gib: Input should be greater than or equal to 0 (it"),
        ("stream", {"images": "1.5"}, "stream.images: Input should be a valid integer (it is '1.5')"),
        ("measuring.gpu.min_samples", "0", "gpu.min_samples: Input should be greater than or equal to 1 (it is 0)"),
        ("networks.fa18.input.size", "big", "networks.fa18.input.size: 'big' is no size; write 64, or [48, 72] for 48"),
        ("networks.fa18.layers.1.pool.ceil", "yes", "valid boolean (it is 'yes')"),
        ("studies.fa18.sizes", ["10", "20000"], "studies.fa18.sizes.1: 20000 is outside 1 to 10000"),
    ]:  # fmt: skip
        with pytest.raises(UserError) as raised:
            settings.load(changed(path, value), KNOWN)
        assert words in str(raised.value)


def test_a_missing_key_is_named():
    content = values()
    del content["measuring"]["cpu"]
    with pytest.raises(UserError, match=r"measuring\.cpu: missing"):
        settings.load(content, KNOWN)


def test_every_mistake_is_listed_at_once():
    content = changed("stuby", 1)
    content["architectures"] = ["sm_90", "90"]
    content["studies"]["fa18"]["network"] = "nine"
    with pytest.raises(UserError) as raised:
        settings.load(content, KNOWN)
    assert len(str(raised.value).splitlines()) == 4


def test_all_studies_but_those_of_submissions_and_those_chosen_by_name_can_be_chosen_at_once():
    chosen = settings.load(changed("study", "all"), KNOWN).chosen_studies
    left_out = {name for name, study in values()["studies"].items() if "course" in study or study.get("by_name")}
    assert {"fa24", "deepbench"} <= left_out and chosen.keys() == values()["studies"].keys() - left_out


def test_several_studies_are_chosen_in_the_order_in_which_they_are_named_each_once():
    assert list(settings.load(changed("study", "fa19,fa18, fa19"), KNOWN).chosen_studies) == ["fa19", "fa18"]
    every = list(settings.load(changed("study", "all"), KNOWN).chosen_studies)
    assert list(settings.load(changed("study", "all,layers"), KNOWN).chosen_studies) == [*every, "layers"]


def test_a_submission_goes_with_a_term_and_a_term_with_a_submission():
    for keys, words in [
        (
            {"study": "sp25"},
            "sp25 is of a submission; snakemake --cores 1 submission --config path=<its folder> study=sp",
        ),
        (
            {"path": "mine"},
            "path: fa18 is no term of the course; say which the submission is of: study=fa25 (terms: fa21, sp24",
        ),
        ({"submissions": "all"}, "submissions: fa18 is no term of the course"),
        ({"study": "fa18,sp25"}, "study: sp25 is of a submission"),
        ({"study": "fa25,sp25", "path": "mine"}, "path: fa25,sp25 is no term of the course"),
    ]:
        with pytest.raises(UserError) as raised:
            settings.load(values() | keys, KNOWN)
        assert words in str(raised.value)


def test_a_file_that_is_no_yaml_is_named(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("study: [fa18\n")
    with pytest.raises(UserError, match=r"config\.yaml cannot be read: line 2: expected"):
        settings.read(KNOWN, path)
    path.write_text("- fa18\n")
    with pytest.raises(UserError, match="is not YAML of the form"):
        settings.read(KNOWN, path)
