import pytest

from warpbook import networks, variants
from warpbook.errors import UserError

FOUND = variants.discover()
CONV2 = networks.find("fa19").convs[1]


@pytest.mark.parametrize("name", FOUND)
def test_every_shipped_variant_says_what_it_tries_and_expects(name):
    header = FOUND[name].header
    assert FOUND[name].problem == ""
    assert header.title
    assert len(header.idea) > 40
    assert len(header.expect) > 40


@pytest.mark.parametrize("name", FOUND)
def test_every_shipped_variant_builds_on_one_of_its_own_device(name):
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


def test_grid_covers_ragged_outputs(cuda_variant):
    header = "launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 8, M: 5, N: 3}}\n"
    launch = cuda_variant("", header=header).header.launch
    layer = networks.ConvLayer("ragged", 2, 21, 40, 11, 5)  # outputs 17 x 36
    assert launch.grid(layer, 7) == (3 * 3, 3, 3)


def test_a_layer_beyond_a_limit_is_unsupported_with_value_and_limit(cuda_variant):
    variant = cuda_variant("", header="limits: {K: 5}\n")
    assert variant.unsupported(CONV2, 10) == "mine: K = 7 exceeds its limit 5 (`limits` in mine.cu)"
    assert variant.unsupported(networks.find("fa18").convs[0], 10) == ""


def test_the_number_of_weights_can_be_limited(cuda_variant):
    variant = cuda_variant("", header="limits: {weights: 14111}\n")
    assert "M*C*K*K = 14112 exceeds its limit 14111" in variant.unsupported(CONV2, 1)


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("// no header", "does not begin with a /*"),
        ("/*\ntitle: x\n", "does not begin with a /*"),
        ("/* just words */", "not YAML of the form"),
        ("/*\ntitle: a: b\n*/", "header line 2: mapping values are not allowed"),
        ("/*\ntitle: x\nidea: x\nexpect: x\nbuild_on: direct\n*/", "unknown key 'build_on': did you mean 'builds_on'"),
        ("/*\ntitle: x\nidea: x\n*/", "expect: Field required"),
        ("/*\ntitle: x\nidea: x\nexpect: x\n*/", "no `launch`, and there is no launcher"),
        (
            "/*\ntitle: x\nidea: x\nexpect: x\nbuilds_on: drect\n"
            "launch: {threads: [1, 1, 1], outputs_per_block: {W: 1, H: 1}}\n*/",
            "builds_on 'drect' is no variant",
        ),
    ],
)
def test_a_header_that_cannot_be_read_makes_a_variant_that_says_why(tmp_path, text, words):
    (tmp_path / "broken.cu").write_text(text)
    assert words in variants.discover(tmp_path)["broken"].problem
    assert variants.discover(tmp_path)["broken"].problem.startswith("broken.cu: ")


def test_variants_that_build_on_each_other_are_found_all_the_same(cuda_variant, tmp_path):
    cuda_variant("", name="one", header="builds_on: two\n")
    cuda_variant("", name="two", header="builds_on: one\n")
    assert set(variants.discover(tmp_path)) == {"one", "two"}


def test_a_package_that_is_not_installed_makes_a_variant_unsupported(cpu_variant):
    variant = cpu_variant("pass", header="requires: no_such_package\n")
    assert "needs the Python package no_such_package" in variant.unsupported(CONV2, 1)


def test_a_launcher_that_does_not_import_is_named_with_its_error(tmp_path, cpu_variant):
    variant = cpu_variant("pass")
    variant.launcher.write_text(variant.launcher.read_text() + "\nimport no_such_module\n")
    with pytest.raises(UserError, match=r"mine\.py does not import: ModuleNotFoundError"):
        variants.read("mine", tmp_path).prepare(CONV2, 1)


def test_unknown_variant_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="no variant is called 'dircet': did you mean 'direct'"):
        variants.find("dircet", FOUND)
