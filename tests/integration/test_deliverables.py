"""The deliverables of each study: each in its report, with a link, or the report is not rendered."""

import re

import pytest
import yaml
from markupsafe import Markup

from warpbook.common.errors import UserError
from warpbook.config import settings
from warpbook.report.views import deliverables

VALUES = yaml.safe_load(settings.FILE.read_text())
STUDIES = [name for name, study in VALUES["studies"].items() if "course" not in study]


UNSHOWN = "Not measured: |Measured on the GPU only; |Missing|Shown with fewer images; at 10 000: 160874 events, more than the 25000"


def check_list(document: str) -> list[tuple[str, str, str]]:
    """(deliverable, the id that it links to, its state) of each row of a report's check list."""
    table = document[document.index('id="deliverables-table"') :].partition("</table>")[0]
    rows = re.findall(r'<th scope="row"[^>]*>(.*?)</th>.*?href="#([^"]*)".*?<td[^>]*>([^<]*)</td>\s*</tr>', table, re.S)
    return [(Markup(name).unescape(), target, Markup(state).unescape()) for name, target, state in rows]


def test_every_study_renders_with_each_deliverable_where_the_last_page_says(small_documents, report):
    for study in STUDIES:
        text = report.html if study == "fa18" else small_documents(study).whole
        listed = check_list(text) if VALUES["studies"][study].get("deliverables") else []
        assert [name for name, *_ in listed] == list(VALUES["studies"][study].get("deliverables", {})), study
        ids = re.findall(r'<[a-z0-9]+ [^<>]*?\bid="([^"]+)"', text)
        assert {target for _, target, _ in listed} <= {*ids}, study
        for *_, state in listed:
            assert state == "shown" or re.match(UNSHOWN, state), (study, state)
        (*_, last), supplement = (
            re.findall(r'<h1 id="([^"]+)"', part) for part in text.split('<h1 id="supplement-', 1)
        )
        assert last == ("deliverables" if listed else "aside") and supplement, study
        contents = text[text.index('<nav class="contents"') :].partition("</nav>")[0]
        led = re.findall(r'href="#([^"]+)"', contents)
        assert len(led) > 5 and {*led} <= {*ids}, study


def test_a_deliverable_that_the_report_lacks_fails_the_rendering_with_its_name_and_place(documents_with):
    studies = {**VALUES["studies"], "fa18-m1": {**VALUES["studies"]["fa18-m1"], "deliverables": {
        "Framework on the GPU": "m1-gpu", "List of kernels": "m1-kernel"}}}  # fmt: skip
    with pytest.raises(UserError) as refused:
        _ = documents_with("fa18-m1", studies=studies).report
    assert "the report of fa18-m1 lacks" in str(refused.value)
    assert "List of kernels: no place is called 'm1-kernel': did you mean 'm1-kernels'?" in str(refused.value)
    assert "Framework on the GPU" not in str(refused.value)


def test_what_could_not_be_measured_is_not_missing_but_listed_with_its_reason(document_without_gpu):
    found = check_list(document_without_gpu)
    assert [name for name, *_ in found] == list(VALUES["studies"]["fa18"]["deliverables"])
    listed = {name: state for name, _, state in found}
    reason = "Not measured: the configuration asks for no GPU times (gpu: none)."
    assert listed["Kernels over 90 % of the GPU time"] == reason
    assert "gpu: none" in listed["Constant memory for the weights"]
    assert listed["Kernels and API calls compared"] == "shown"


def test_what_is_to_show_cpu_and_gpu_says_which_of_the_two_is_shown_and_which_lacks(documents_with, few_variants):
    few = few_variants["studies"]
    places = {"Times": "m1-times", "CPU against GPU": "m3-cpu-gpu"}
    short = few["fa18"] | {"sections": ["milestone_1", "milestone_3"], "deliverables": places, "show_profile_of": []}
    for cpu, reason in (("none", "asks for no CPU times (cpu: none)."), ("live", " has a")):
        made = documents_with("fa18", cpu=cpu, studies=few | {"fa18": short})
        states = [state for *_, state in check_list(made.whole)]
        assert len(states) == 2
        assert all(state.startswith("Measured on the GPU only; ") for state in states)
        assert all(reason in state for state in states)


def test_a_place_without_content_gives_the_words_of_the_note_that_says_why():
    body = """<h1 id="one">One</h1><p>Text.</p><div class="note" id="no-a" data-lacks="a b"><p>No <em>GPU</em>
        <br>here.</p></div><p id="c">After.</p><h2 id="two">Two</h2><img id="d" alt="Bars.">"""
    places = deliverables.Places(body, ["one", "two"])
    assert (places.target("a"), places.target("b"), places.emptiness_reason("b")) == ("no-a", "no-a", "No GPU here.")
    assert (places.target("c"), places.emptiness_reason("c"), places.heading_of["c"]) == ("c", "", "one")
    assert (places.target("d"), places.heading_of["d"]) == ("d", "two")
    assert places.target("e") == ""
