"""What a variant changes in its baseline's source, in a few highlighted lines."""

import re

import pytest

from warpbook.kernels import variants
from warpbook.problems import problem
from warpbook.report import excerpts
from warpbook.report.excerpts import ADDED, GAP, MOST_LINES, REMOVED

KNOWN = variants.discover()
BUILT_ON = {name: one.header.builds_on for name, one in KNOWN.items() if one.cuda_source and one.header.builds_on}


def conv(kernel_size: int):
    """A convolution with a kernel of this size."""
    return problem.find("conv").case("layer", {"C": 1, "H": 28, "W": 28, "M": 50, "K": kernel_size})


def shown(found) -> list[tuple[str, str]]:
    return [(line.sign, line.code.striptags()) for line in found.lines]


@pytest.fixture
def change(cuda_variant, tmp_path):
    """The excerpt of what one code makes of another."""

    def made(old: str, new: str, **headers: str):
        sides = (cuda_variant(code, name=name, header=headers.get(name, "")) for name, code in
                 (("before", old), ("after", new)))  # fmt: skip
        baseline, variant = sides
        return excerpts.excerpt(variant, baseline)

    return made


def test_a_changed_line_stands_between_its_neighbours(change):
    found = change("int a;\nint b;\nint c;\nint d;\n", "int a;\nint b;\nint x;\nint d;\n")
    assert shown(found) == [(" ", "int b;"), (REMOVED, "int c;"), (ADDED, "int x;"), (" ", "int d;")]
    assert (found.file, found.over, found.more) == ("after.cu", "before.cu", 0)


def test_comments_brackets_and_indentation_are_no_change(change):
    found = change("int a;\nif (a)\n    b();\n", "int a;\n// why\nif (a)\n{\n  b();\n}\n")
    assert found is None


def test_what_is_far_between_two_changes_is_a_gap(change):
    same = "".join(f"int kept_{place};\n" for place in range(9))
    found = change(f"int a;\n{same}int b;\n", f"int x;\n{same}int y;\n")
    assert [sign for sign, _ in shown(found)] == [REMOVED, ADDED, " ", GAP, " ", REMOVED, ADDED]


def test_of_a_long_change_the_stretch_with_most_new_words_is_shown_and_the_rest_counted(change):
    dull = "".join(f"a[{place}] = 0;\n" for place in range(40))
    found = change("int a[40];\n", f"int a[40];\n{dull}stage(patch, taps, barrier);\nwait(barrier);\n")
    assert len(found.lines) == MOST_LINES
    assert (ADDED, "stage(patch, taps, barrier);") in shown(found)
    assert found.more == 42 - MOST_LINES


def test_a_loop_tells_more_than_wrappers_of_instructions_and_names_of_templates(change):
    wrappers = "".join(f'void wrap_{n}() {{ asm volatile("cp.async.wait_group {n};"); }}\n' for n in range(20))
    wrappers += "".join(f"using Kind{n} = Some<First{n}, Second{n}>;\n" for n in range(20))
    found = change(
        "int a;\n", f"int a;\n{wrappers}for (int tile = 0; tile < tiles; ++tile)\n    multiply(stages[tile]);\n"
    )
    assert (ADDED, "multiply(stages[tile]);") in shown(found)
    alone = change("int a;\n", f"int a;\n{wrappers}")
    assert len(alone.lines) == MOST_LINES


def test_where_the_code_is_the_same_the_constants_are_compared(change):
    launch = "launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16}}\nconstants: "
    found = change("int a;\n", "int a;\n", before=f"{launch}{{TILE: 16}}\n", after=f"{launch}{{TILE: 32}}\n")
    assert shown(found) == [(REMOVED, "-DTILE=16"), (ADDED, "-DTILE=32")]


def test_code_is_escaped_and_its_keywords_bear_pygments_classes(change):
    found = change("int a;\n", "int a;\nfor (int i = 0; i < 3; ++i) a <<= 1;\n")
    code = found.lines[-1].code
    assert '<span class="k">for</span>' in code
    assert "&lt;" in code and "<span" in code and " < " not in re.sub("<[^>]+>", "", code)


def test_kernels_for_unusual_cases_are_left_out_where_a_study_has_none():
    both, over = KNOWN["constant_weights_shared_input"], KNOWN["shared_input"]
    assert any("conv_general" in text for _, text in shown(excerpts.excerpt(both, over)))
    usual = excerpts.excerpt(both, over, cases=[conv(5)])
    assert [text for sign, text in shown(usual) if sign == ADDED] == [
        "__constant__ float weights[WEIGHTS_MAX];",
        "const float* taps = weights + (map * C + c) * K * K;",
    ]
    assert (usual.added, usual.removed, usual.more) == (2, 1, 0)


def test_code_for_the_extents_of_other_studies_gives_way_to_that_for_this_one_s():
    for name, kernel_size, shown_name, other in [
        ("unrolled_kernel_loops", 5, "row_of_5", "row_of_7"),
        ("unrolled_kernel_loops", 7, "row_of_7", "row_of_5"),
        ("constant_shapes", 5, "1, 28, 28, 50, 5", "1, 64, 64, 6, 5"),
    ]:
        found = excerpts.excerpt(KNOWN[name], KNOWN[BUILT_ON[name]], cases=[conv(kernel_size)])
        words = " ".join(text for _, text in shown(found))
        assert words.count(shown_name) > words.count(other)


def test_every_kernel_s_excerpt_is_made_of_lines_of_the_two_sources():
    for name in BUILT_ON:
        found = excerpts.excerpt(KNOWN[name], KNOWN[BUILT_ON[name]])
        own = {ADDED: KNOWN[name], REMOVED: KNOWN[BUILT_ON[name]], " ": KNOWN[name]}
        assert 1 <= sum(line.sign != GAP for line in found.lines) <= MOST_LINES
        for sign, text in shown(found):
            if sign != GAP:
                whole = own[sign].code + own[sign].launcher_code + "\n".join(own[sign].defines)
                assert " ".join(text.split()) in " ".join(whole.split())


def test_code_that_no_launched_kernel_calls_is_left_out():
    variant, over = KNOWN["layer_specialised"], KNOWN["constant_weights"]

    def added(launched):
        found = excerpts.excerpt(variant, over, 10_000, [conv(5)], {"layer_specialised": launched})
        return "\n".join(text for sign, text in shown(found) if sign == ADDED)

    first, later = added({"arrange", "first_layer_5"}), added({"arrange", "later_layer_5"})
    assert "first_layer<5>" in first and "later_layer" not in first and "template" in first
    assert "later_layer<5>" in later and "first_layer" not in later
    unknown = added({"of_a_library"})
    assert "first_layer<5>" in unknown and "later_layer<5>" in unknown
