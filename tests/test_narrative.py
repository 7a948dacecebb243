"""Authors' words with live figures: right names give the report's own, wrong ones are told with file and line."""

import pytest

from test_report import ARCHIVE
from test_runs import evidence_of
from warpbook import narrative, runs, units
from warpbook.errors import UserError


@pytest.fixture(scope="module")
def figures():
    measuring = runs.open_run(ARCHIVE).record["measuring"]
    return evidence_of(ARCHIVE, measuring=measuring)


def rendered(folder, ev, text):
    (folder / f"{ev.name}.md").write_text(text)
    return str(narrative.rendered(ev, folder))


def test_markdown_becomes_html_with_the_report_s_own_figures(figures, tmp_path):
    text = (
        '## Weights\n\nThey gave **{{ speedup("constant_weights") }}**, {{ verdict("constant_weights", size=10) }}.\n'
    )
    document = rendered(tmp_path, figures, text)
    expected = figures.total_speedup("constant_weights", figures.largest)
    assert "<h2>Weights</h2>" in document
    assert f"<strong>{units.ratio_within(expected.ratio)} [" in document
    assert figures.total_speedup("constant_weights", 10).verdict in document


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('speedpu("direct")', "'speedpu' is undefined"),
        ('speedup("constnat_weights")', "'constnat_weights' is not known: did you mean 'constant_weights'?"),
        ('op_time("direct", layer="conv3")', "'conv3' is not known"),
        ('op_time("direct", sizes=10)', "unexpected keyword argument 'sizes'"),
        ('op_time("direct"', "unexpected"),
    ],
)
def test_a_wrong_name_fails_with_file_and_line(call, words, figures, tmp_path):
    with pytest.raises(UserError, match=r"fa18\.md, line 3: ") as told:
        rendered(tmp_path, figures, f"First.\n\nThen {{{{ {call} }}}}.\n\nLast.\n")
    assert words in str(told.value)


def test_a_figure_that_is_not_there_is_said_to_be_missing(figures, tmp_path):
    assert "(not measured)" in rendered(tmp_path, figures, '{{ op_time("direct", size=7) }}')


def test_a_study_without_a_text_says_so(figures, tmp_path):
    assert "fa18.md" in str(narrative.rendered(figures, tmp_path))


def test_every_text_that_ships_belongs_to_a_study(figures):
    names = {path.stem for path in narrative.FOLDER.glob("*.md")}
    assert names <= set(figures.config.studies)
