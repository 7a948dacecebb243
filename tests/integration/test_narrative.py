"""Authors' words with live figures: right names give the report's own, wrong ones are told with file and line."""

import os

import pytest
import yaml

import render_report
from warpbook.common import units
from warpbook.common.errors import UserError
from warpbook.common.supervision import process_pool
from warpbook.config import settings
from warpbook.report import narrative
from warpbook.runs import catalog


def rendered(folder, ev, text):
    (folder / f"{ev.name}.md").write_text(text)
    return str(narrative.render_narrative(ev, folder))


def test_markdown_becomes_html_with_the_report_s_own_figures_and_no_html_of_the_text_s(ev, tmp_path):
    text = (
        '## Weights\n\nThey gave **{{ speedup("constant_weights") }}**, {{ verdict("constant_weights", size=10) }}.\n'
    )
    document = rendered(tmp_path, ev, text)
    expected = ev.times.total_speedup("constant_weights", ev.largest)
    assert "<h2>Weights</h2>" in document
    assert f"<strong>{units.ratio_beside_interval(expected.ratio)} [" in document
    assert ev.times.total_speedup("constant_weights", 10).verdict in document

    text = (
        '<script>x</script> <link rel=attachment href="file:///etc/passwd"> [a](javascript:x) ![b](file:///etc/passwd)'
    )
    document = rendered(tmp_path, ev, f"{text}\n\n<div onclick=x>\n")
    assert "<script" not in document and "<link" not in document and "<div" not in document
    assert "href=" not in document.replace("href=&quot;", "") and "<img" not in document
    assert "&lt;script&gt;" in document


def test_a_picture_of_another_machine_is_told_by_its_words(ev, tmp_path):
    """As an image, each reader's browser would ask that machine for it."""
    document = rendered(tmp_path, ev, "![a plot](https://example.com/p.png) ![](//example.com/q.png)\n")
    assert "<img" not in document and "src=" not in document
    assert "[picture: a plot] [picture: //example.com/q.png]" in document


def test_a_wrong_name_fails_with_file_and_line(ev, tmp_path):
    for call, words in [
        ('speedpu("direct")', "'speedpu' is undefined"),
        ('speedup("constnat_weights")', "'constnat_weights' is not known: did you mean 'constant_weights'?"),
        ('op_time("direct", layer="conv3")', "'conv3' is not known"),
        ('op_time("direct", sizes=10)', "unexpected keyword argument 'sizes'"),
        ('op_time("direct"', "unexpected"),
    ]:
        with pytest.raises(UserError, match=r"fa18\.md, line 3: ") as told:
            rendered(tmp_path, ev, f"First.\n\nThen {{{{ {call} }}}}.\n\nLast.\n")
        assert words in str(told.value)


def test_a_text_runs_nothing_but_its_figures_and_not_for_long(ev, tmp_path, monkeypatch):
    for text, words in [
        ("{{ speedup.__func__.__globals__ }}", "access to attribute '__func__' of 'method' object is unsafe"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ '{0.__class__}'.format(1) }}", "access to attribute '__class__' of 'int' object is unsafe"),
        (
            "{% for i in 'x' * 99999 %}{% for j in 'x' * 99999 %}{% endfor %}{% endfor %}",
            "still not rendered after 2 s",
        ),
        ("{% for i in 'x' * 99999 %}sixteen letters.{% endfor %}", "longer than the 1000000 characters"),
        ("{{ 'x' * 10 ** 10 }}", "MemoryError"),
        ("{{ 1 // 0 }}", "integer division or modulo by zero"),
        ("{% include '../report.html.j2' %}", "../report.html.j2"),
    ]:
        monkeypatch.setattr(narrative, "SECONDS", 2)
        with pytest.raises(UserError, match=r"fa18\.md, line 3: ") as told:
            rendered(tmp_path, ev, f"First.\n\n{text}\n")
        assert words in str(told.value)


def test_a_computation_that_nothing_interrupts_is_ended(ev, tmp_path, monkeypatch):
    monkeypatch.setattr(narrative, "SECONDS", 1)
    with pytest.raises(UserError, match=r"fa18\.md: it cannot be rendered: (still running after 2 s|its process died)"):
        rendered(tmp_path, ev, "{{ 10 ** (10 ** 9) }}")


def test_a_figure_or_a_text_that_is_not_there_is_said_to_be_missing(ev, tmp_path):
    assert "(not measured)" in rendered(tmp_path, ev, '{{ op_time("direct", size=7) }}')

    lacking = '{{ op_time("direct", size=7) }} '
    assert rendered(tmp_path, ev, lacking * narrative.MOST_MISSING).count("(not measured)") == narrative.MOST_MISSING
    note = rendered(tmp_path, ev, lacking * (narrative.MOST_MISSING + 1))
    assert (
        "(not measured)" not in note and f"{narrative.MOST_MISSING + 1} values that it quotes were not measured" in note
    )

    assert "fa18.md" in str(narrative.render_narrative(ev, tmp_path / "none"))


def test_every_text_that_ships_belongs_to_a_study(ev):
    names = {path.stem for path in narrative.FOLDERS[0].glob("*.md")}
    assert names <= set(ev.config.studies)


def write_text(document, target, _=()):
    target.write_text(document)


def test_texts_of_others_whose_pages_take_too_much_are_left_out_and_the_report_says_so(
    small_archive, few_variants, tmp_path, monkeypatch, capsys
):
    limited, tried = render_report.layout.within_limits, []

    def within_limits(work):
        tried.append(work)
        limited(work if tried[1:] else lambda: bytearray(8 << 30))

    monkeypatch.setattr(render_report.layout, "within_limits", within_limits)
    monkeypatch.setattr(render_report.layout, "write_pdf", write_text)
    measuring = catalog.open_run(small_archive).record["measuring"]
    values = yaml.safe_load(settings.FILE.read_text()) | {"study": "fa18-m1", "measuring": measuring} | few_variants
    render_report.render("fa18-m1", values, small_archive, tmp_path / "m1.html", tmp_path / "m1.pdf")
    words = "discussion and imported profiles are left out: laying it out takes more than 300 s"
    assert words in (tmp_path / "m1.html").read_text() and words in (tmp_path / "m1.pdf").read_text()
    assert words in capsys.readouterr().err


def test_a_process_that_is_killed_while_it_lays_out_tells_of_a_limit():
    def lay_out():
        with process_pool(1) as pool:
            pool.submit(os._exit, 1).result()

    with pytest.raises(render_report.layout.LayoutLimit, match="BrokenProcessPool"):
        render_report.layout.within_limits(lay_out)
