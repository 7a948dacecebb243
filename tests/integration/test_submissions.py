"""Submissions of the course: found in their layout, worked on apart, judged file by file, reported for the upload."""

import csv
import errno
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import page
import pytest
import yaml
from pypdf import PdfReader
from snakemake.io import PeriodicityDetector

import report_submission
from warpbook.common import files, units
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.config.course_term import Term, first_line_with
from warpbook.course import final_submission_rules, program_output, reference_times, submissions
from warpbook.course.grades_table import GRADES
from warpbook.harness import sandbox
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants
from warpbook.report import class_report, excerpts, pdf, rendering, student_answers
from warpbook.report.evidence import Evidence, submission_evidence
from warpbook.report.views import VIEWS
from warpbook.runs import catalog, schema, tables
from warpbook.workflow import plan
from workspaces import link_project

COURSE = PROJECT / "tests" / "data" / "course"
VALUES = yaml.safe_load(settings.FILE.read_text())
RIGHT = COURSE / "one_call.cu"
TOO_SMALL = ("(TILE + K - 1) * (TILE + K - 1)", "TILE * TILE")  # what is replaced of it, so that it is wrong
ODD = os.fsdecode(b"caf\xe9 'it\"s' {x}\n$(touch made) ; " + b"a" * 50)
ODD_NAMED = "caf___it_s___x____touch_made____a"
SP25 = Term.model_validate(VALUES["studies"]["sp25"]["course"])

needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)


def hand_in(root: Path, **parts: str | bytes) -> Path:
    """A submission of these files: `final`, `unroll` and their like, and optimizations by number."""
    custom = root / "project" / "src" / "layer" / "custom"
    places = {"final": custom / "m3-forward.cu"} | {role: custom / name for role, name in submissions.BASELINES.items()}
    for name, content in parts.items():
        path = places.get(name) or root / "project" / "m3" / name / "m3-forward.cu"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def shared(**changes) -> dict:
    """What a submission's project has of this one's configuration."""
    values = VALUES | {"study": "sp25", "path": "somewhere", **changes}
    return yaml.safe_load(submissions.shared_configuration(settings.load(values, list(variants.discover()))))


def test_points_for_times_fall_linearly_between_the_two_bounds():
    for study in ("fa21", "sp24", "fa24", "sp25", "fa25"):
        line = Term.model_validate(VALUES["studies"][study]["course"]).performance
        for place, share in [(-1.0, 1), (0.0, 1), (0.25, 0.75), (1.0, 0), (9.0, 0)]:
            assert line.share(line.full_ms + place * (line.none_ms - line.full_ms)) == pytest.approx(share)


def test_what_a_term_s_texts_do_not_say_is_left_open():
    term = Term.model_validate(VALUES["studies"]["sp24"]["course"])
    assert (term.performance.points, [one.points for one in term.milestones]) == (None, [None] * 3)
    assert (term.earlier, term.bounds_ms) == (["basic"], {})
    assert Term.model_validate(VALUES["studies"]["fa24"]["course"]).earlier == ["basic", "unroll"]
    assert "op_13" in term.optimizations


def test_a_term_whose_points_do_not_add_up_is_refused():
    course = VALUES["studies"]["sp25"]["course"]
    with pytest.raises(ValueError, match=r"the last milestone has 55 points, and what is required.* add up to 56"):
        Term.model_validate(course | {"optional_points": 11})


def test_an_optimization_is_worth_less_without_the_word_that_full_points_ask():
    half = SP25.optimizations["op_5"]
    assert [half.worth(code) for code in ("__half x;", "__half2 x;", "__half x;  // not half2")] == [2, 4, 2]
    assert first_line_with("wmma", "// wmma\nint x;\nusing namespace wmma;") == 3


def test_the_files_are_found_above_and_in_the_folders_of_the_layout(tmp_path):
    root = hand_in(tmp_path / "deep", final="a", unroll="b", req_0="c", op_6="d")
    for inside in (".", "deep", "deep/project", "deep/project/m3"):
        found = submissions.find(tmp_path / inside, SP25)
        assert found.files["req_0"] == root / "project/m3/req_0/m3-forward.cu"
        assert found.refused == {}
        whole = {"final", "unroll", "req_0", "op_6"}
        assert set(found.files) == ({"req_0", "op_6"} if inside == "deep/project/m3" else whole)


def test_the_names_of_older_terms_are_found_too(tmp_path):
    for place in ("src/layer/custom", "m3/op_0", "m3/op_1"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "src/layer/custom/new-forward.cu").touch()
    (tmp_path / "m3/op_0/new-forward.cu").touch()
    (tmp_path / "m3/op_1/mine.cu").touch()
    found = submissions.find(tmp_path, SP25)
    shown = {name: found.printable_path(path) for name, path in found.files.items()}
    assert shown == {
        "final": "src/layer/custom/new-forward.cu",
        "op_0": "m3/op_0/new-forward.cu",
        "op_1": "m3/op_1/mine.cu",
    }


def test_what_cannot_be_taken_is_named_with_the_reason_and_the_rest_is_taken(tmp_path):
    hand_in(tmp_path, final="a", op_0="b", op_1=b"x" * (2 << 20))
    m3 = tmp_path / "project" / "m3"
    (m3 / "op_2").mkdir()
    (m3 / "op_3").mkdir()
    (m3 / "op_3" / "m3-forward.cu").symlink_to("/etc/passwd")
    (m3 / "op_4").symlink_to(m3 / "op_0")
    (m3 / "op_5" / "m3-forward.cu").mkdir(parents=True)
    (m3 / "op_6").mkdir()
    os.mkfifo(m3 / "op_6" / "m3-forward.cu")
    found = submissions.find(tmp_path, SP25)
    assert set(found.files) == {"final", "op_0"}
    assert found.refused == {
        "op_1": "project/m3/op_1/m3-forward.cu has 2097152 bytes, and the limit is 262144",
        "op_2": "project/m3/op_2/m3-forward.cu is not there",
        "op_3": "project/m3/op_3/m3-forward.cu is a link; put the file itself there",
        "op_5": "project/m3/op_5/m3-forward.cu is no file",
        "op_6": "project/m3/op_6/m3-forward.cu is no file",
    }


def test_a_submission_is_called_by_the_folder_above_the_layout():
    names = {
        "/a/netid": "netid",
        "/a/netid/project/m3": "netid",
        "/a/two words/project": "two_words",
        "/": "submission",
    }
    assert {folder: submissions.submission_name(Path(folder)) for folder in names} == names


def test_submissions_whose_names_differ_in_odd_characters_alone_are_told_apart(tmp_path):
    for name in ("a b", "a_b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").touch()
    assert {name: path.name for name, path in submissions.list_submissions(tmp_path).items()} == {
        "a_b": "a b",
        "a_b_2": "a_b",
        "c": "c",
    }


def graded_names(folder: Path) -> dict[str, submissions.SubmittedFolder]:
    values = VALUES | {"study": "sp25", "submissions": str(folder)}
    return submissions.submissions_by_name(settings.load(values, list(variants.discover())))


def test_what_is_no_folder_to_be_read_is_a_submission_that_says_so_and_stops_no_other(tmp_path):
    hand_in(tmp_path / "fine", final="x")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "fine")
    (tmp_path / "late.zip").touch()
    (tmp_path / "m3-forward.cu").touch()
    found = graded_names(tmp_path)
    assert {name: one.problem.partition(";")[0] for name, one in found.items()} == {
        "fine": "",
        "hidden": "its name begins with a dot",
        "late.zip": "it is an archive",
        "link": "it is a link",
        "m3-forward.cu": "it is a file",
    }


def test_a_folder_that_may_not_be_read_is_a_submission_that_says_so(tmp_path):
    for name in ("fine", "shut", "shut_inside"):
        hand_in(tmp_path / name, final="x", op_0="y")
    (tmp_path / "shut").chmod(0)
    (tmp_path / "shut_inside" / "project" / "m3").chmod(0)
    tmp_path.chmod(0o755)
    for folder in list(tmp_path.parents)[:3]:
        folder.chmod(folder.stat().st_mode | 0o111)
    child = os.fork()  # root may read everything: a process of somebody else's looks
    if not child:
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
        found = graded_names(tmp_path)
        right = found["fine"].problem == "" and "cannot be read" in found["shut"].problem
        inside = found["shut_inside"].refused == {"folder project/m3": "project/m3 cannot be read"}
        os._exit(0 if right and inside and set(found["shut_inside"].files) == {"final"} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_report_that_failed_is_forgotten_so_that_the_next_command_tries_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "reports" / "out"
    for name, file in (("sp25/failed", "a.csv"), ("sp25/made", "a.pdf"), ("sp25-grades", "grades.csv")):
        (out / name).mkdir(parents=True)
        (out / name / file).touch()
    submissions.forget_failures("sp25", ["made", "new"])
    assert submissions.table_folder("sp25").exists()
    submissions.forget_failures("sp25", ["failed", "made", "new"])
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.*")) == ["sp25/made/a.pdf"]


def test_a_home_of_nobody_is_named():
    values = VALUES | {"study": "sp25", "submissions": "~nobody_at_all/x"}
    with pytest.raises(UserError, match="submissions: ~nobody_at_all/x names a user that this machine does not have"):
        submissions.submissions_by_name(settings.load(values, list(variants.discover())))


def test_texts_that_a_spreadsheet_would_run_are_marked_in_the_file_and_read_as_they_were(tmp_path):
    texts = ["=1+1", "+1", "-1", "@x", "\t=1", "'=1", "'x", "plain", ""]
    rows = [{**class_report.failure_row(f"s{n}", "sp25", text)} for n, text in enumerate(texts)]
    GRADES.write(rows, tmp_path / "grades.csv")
    assert [row["words"] for row in GRADES.rows(tmp_path / "grades.csv")] == texts
    with open(tmp_path / "grades.csv", encoding="utf-8", newline="") as file:
        cells = [row["words"] for row in csv.DictReader(file)]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for cell in cells)
    assert cells[-2:] == ["plain", ""]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("=1+1,-2.5\n@x,\n", "'=1+1,-2.5\n'@x,\n"),
        ("1e-3,-.5\n", "1e-3,'-.5\n"),
        ('""+1\r\n', "'+1\n"),
        ('"a\r=1+1",b\n=2,\n', '"a\r=1+1",b\n\'=2,\n'),
        ('"\n=1",2\n', '"\'\n=1",2\n'),
        ('-1,-2.5e-07,a-1,"a,b"\n', '-1,-2.5e-07,a-1,"a,b"\n'),
    ],
)
def test_tables_within_a_pdf_hold_no_formula_either(given, written):
    assert schema.for_spreadsheets(f"name,value\n{given}".encode()) == f"name,value\n{written}".encode()


def test_answers_are_cut_where_they_would_fill_pages_without_end(tmp_path):
    from PIL import Image

    (tmp_path / "a").mkdir()
    Image.new("RGB", (8, 4), "red").save(tmp_path / "a" / "p.png")
    (tmp_path / "a.md").write_text("![x](p.png)\n\n" * 30 + "word " * 10_000)
    html = student_answers.read("a", 6, tmp_path).rest
    assert html.count("<img") == student_answers.PICTURES
    assert len(re.sub("<[^>]+>", "", html)) < student_answers.CHARACTERS + 200
    assert re.search(r"\[\d+ more characters are left out\.\]", html)
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 100
    wide = "|" + "a|" * 30 + "\n|" + "-|" * 30 + "\n"
    (tmp_path / "a.md").write_text(f"{table}\n\n# 2\n{table}\n\n{table}\n\n# 3\n{wide}\nwords\n")
    found = student_answers.read("a", 6, tmp_path)
    every = "".join([found.rest, *found.by_question.values()])
    assert every.count("<td") + every.count("<th") <= student_answers.CELLS
    assert "A table of 202 cells in 2 columns is left out." in found.by_question[2]
    assert "A table of 30 cells in 30 columns is left out." in found.by_question[3]
    assert "words" in found.by_question[3]


def test_a_layout_without_bound_is_ended_and_told_from_a_fault(monkeypatch):
    monkeypatch.setattr(pdf, "LAYOUT_S", 1)
    with pytest.raises(pdf.LayoutLimit, match="laying it out takes more than 1 s"):
        pdf.within_limits(lambda: all(True for _ in itertools.count()))
    monkeypatch.setattr(pdf, "LAYOUT_BYTES", 64 << 20)
    with pytest.raises(pdf.LayoutLimit, match="MemoryError"):
        pdf.within_limits(lambda: bytearray(1 << 30))

    def broken():
        raise UserError("a picture is missing")

    with pytest.raises(UserError, match="a picture is missing"):
        pdf.within_limits(broken)


def test_a_full_disk_while_pages_are_laid_out_is_one_sentence():
    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match=r"/warpbook-\w+/\.\.\. cannot be written: No space left on device"):
        pdf.within_limits(full)


def test_what_is_read_in_files_of_strangers_takes_no_longer_than_their_length():
    """Each took minutes, or hours."""
    began = time.process_time()
    for part in ("/*", "GPUInterface::a(){", '\\"', "GPUInterface::a(){}", "cudaStreamCreate "):
        final_submission_rules.final_rules(part * (250_000 // len(part)))
    for part in ("\n", " ", "real "):
        program_output.parse_runs(part * (250_000 // len(part)), layers=2)
    excerpts._stretch("x;\n" * 5000, "y;\nx;\n" * 2500, 9, set())
    for part in ("_1", "_", "1", ", 1", "a_1x "):
        excerpts._names_for_others(f"a{part * (250_000 // len(part))}x", {1})
    assert time.process_time() - began < 10


def test_names_of_which_snakemake_would_take_none_are_made_such_that_it_does(tmp_path):
    names = [
        "a" * 200,
        "ab" * 40,
        *("学" * length for length in range(1, 26)),
        *(f"{'é' * 3}{'ü' * n}" for n in range(9)),
    ]
    for name in names:
        (tmp_path / name).mkdir()
    told = submissions.list_submissions(tmp_path)
    assert sorted(path.name for path in told.values()) == sorted(names)
    periods = PeriodicityDetector()
    assert {name: periods.is_periodic(name) for name in told} == dict.fromkeys(told)


def test_names_that_cannot_be_printed_are_marked(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff") / "m3" / "op_0"
    folder.mkdir(parents=True)
    (folder / "m3-forward.cu").write_text("int x;")
    submissions.open_room(tmp_path / "room", "mine", tmp_path, shared())
    changed = yaml.safe_load((tmp_path / "room" / "config.yaml").read_text())
    assert changed["submission"]["files"] == {"op_0": "\ufffd/m3/op_0/m3-forward.cu"}


def test_a_submission_s_project_holds_its_files_as_variants_over_their_baselines(tmp_path):
    code = RIGHT.read_text()
    folder = hand_in(tmp_path / "mine", final=code, unroll=code, req_0=code, op_0=code)
    room = tmp_path / "room"
    submissions.open_room(room, "mine", folder, shared())
    made = variants.discover(room / "kernels" / "conv")
    assert {name: variant.header.builds_on for name, variant in made.items()} == {
        "final": "", "unroll": "", "req_0": "unroll", "op_0": "",
    }  # fmt: skip
    assert made["req_0"].title == "Streams"
    assert made["req_0"].code == code
    changed = yaml.safe_load((room / "config.yaml").read_text())
    assert settings.load(changed, list(made)).submission.files["req_0"] == "project/m3/req_0/m3-forward.cu"
    assert (changed["architectures"], list(changed["studies"])) == (["sm_86"], ["sp25"])


def test_what_a_file_says_of_itself_in_a_header_decides_nothing(tmp_path):
    claim = "/*\nprecision: fp16\nleast_arch: sm_900\n*/\n"
    folder = hand_in(tmp_path / "mine", final=claim + RIGHT.read_text())
    submissions.open_room(tmp_path / "room", "mine", folder, shared())
    made = variants.discover(tmp_path / "room" / "kernels" / "conv")["final"]
    assert (made.header.precision, made.header.least_arch, made.read_error) == ("fp32", "", "")
    assert made.code.splitlines()[5:] == RIGHT.read_text().splitlines()[1:]


def test_a_project_follows_its_submission_and_leaves_alone_what_did_not_change(tmp_path):
    folder, room = hand_in(tmp_path / "mine", final="a", op_0="b"), tmp_path / "room"
    submissions.open_room(room, "mine", folder, shared())
    dates = {path: path.stat().st_mtime_ns for path in (room / "kernels" / "conv" / "final.cu", room / "config.yaml")}
    submissions.open_room(room, "mine", folder, shared())
    assert {path: path.stat().st_mtime_ns for path in dates} == dates
    shutil.rmtree(folder / "project" / "m3" / "op_0")
    submissions.open_room(room, "mine", folder, shared())
    assert sorted(path.name for path in (room / "kernels" / "conv").iterdir()) == ["final.cu", "final.yaml"]


def test_answers_are_told_apart_by_the_numbers_in_their_headings(tmp_path):
    (tmp_path / "req_0.md").write_text(
        "In short.\n\n## 2. How it should help\n*Copies* hide.\n```\n# 3 no heading\n```\n"
        "# Question 4\n<b>10 %</b>\n## 9\nmore\n"
    )
    found = student_answers.read("req_0", 6, tmp_path)
    assert "In short" in found.rest
    assert list(found.by_question) == [2, 4]
    assert "<em>Copies</em> hide" in found.by_question[2] and "# 3 no heading" in found.by_question[2]
    assert "&lt;b&gt;10 %&lt;/b&gt;" in found.by_question[4] and "more" in found.by_question[4]
    assert student_answers.read("op_0", 6, tmp_path) == student_answers.Answers()


def test_of_a_stranger_s_markdown_pictures_beside_it_are_shown_and_nothing_else_is_loaded(tmp_path):
    from PIL import Image

    (tmp_path / "op_3").mkdir()
    Image.new("RGB", (8, 4), "red").save(tmp_path / "op_3" / "sweep.png")
    (tmp_path / "op_3" / "broken.png").write_bytes(b"no picture")
    (tmp_path / "op_3.md").write_text(
        "![](./sweep.png) ![b](broken.png) ![c](http://localhost/c.png) ![d](../../secret.png) "
        "[e](#nowhere) [f](/etc/passwd) [g](https://example.com)\n"
    )
    html = student_answers.read("op_3", 6, tmp_path).rest
    assert re.findall(r"<img src=\"(data:image.png);base64,[^\"]*\" alt=\"([^\"]*)\"", html) == [
        ("data:image/png", "./sweep.png")
    ]
    assert "[picture: b] [picture: c] [picture: d]" in html
    assert re.findall(r'href="([^"]*)"', html) == ["https://example.com"]


def test_characters_that_no_font_has_are_marked_in_strangers_words_and_told_in_ours(tmp_path):
    document = '<!DOCTYPE html><html lang="en"><title>t</title><p>\x1b[31m it is \ue123 here</p></html>'
    with pytest.raises(UserError, match=r"no font has U\+001B, U\+E123"):
        pdf.write_pdf(document, tmp_path / "ours.pdf")
    pdf.write_untrusted_pdf(document, tmp_path / "theirs.pdf")
    assert "it is \ufffd here" in " ".join(text_of(tmp_path / "theirs.pdf"))


def test_a_map_of_pages_says_where_a_section_begins_and_ends():
    begun = '<p style="break-before: page"'
    document = (
        '<!DOCTYPE html><html lang="en"><title>t</title><p id="one">a<span id="end-one"></span></p>'
        f'{begun} id="two">b</p>{begun}>c<span id="end-two"></span></p>'
        '<a class="pages" href="#one">?</a><a class="pages" href="#two">?</a></html>'
    )
    assert re.findall(r'href="#(\w+)">([^<]*)</a>', pdf.add_page_numbers(document)) == [
        ("one", "1"),
        ("two", "2\N{EN DASH}3"),
    ]


OUTPUT = """\
Test batch size: 100
Loading fashion-mnist data...Done
Loading model...Done
Conv-GPU==
Layer Time: 6.5 ms
Op Time: 0.5 ms
Conv-GPU==
Layer Time: 7.5 ms
Op Time: 0.25 ms

Test Accuracy: 0.86

real\t0m1.500s
user\t0m1.000s
Test batch size: 10000
Conv-GPU==
Op Time: 40.25 ms
Conv-GPU==
Op Time: 2e1 ms
Test Accuracy: 0.8714
Test batch size: 1000
Op Time: 3 ms
"""


def test_the_course_s_output_is_read_run_by_run_and_what_is_cut_off_left_out():
    first, last = program_output.parse_runs(OUTPUT, layers=2)
    assert first == program_output.ProgramOutput(100, (0.5, 0.25), (6.5, 7.5), 0.86, 1.5)
    assert last == program_output.ProgramOutput(10_000, (40.25, 20.0), (), 0.8714, None)
    assert program_output.parse_runs("no output of the course", layers=2) == []


def test_outputs_are_found_beside_what_they_are_of(tmp_path):
    folder = hand_in(tmp_path, final="a", unroll="b", req_0="c", op_1="d")
    for place in (
        *("m3.out", "m3/req_0/m3.out", "src/layer/custom/unroll-new-forward.out", "m3/op_0.out"),
        *("m3/req_0/m3_10000.out", "m3/op_1/m3_1000.out", "m3/op_1/m3_10000.out", "m3/op_1/m3_all.out"),
    ):
        (folder / "project" / place).write_text(OUTPUT)
    found = submissions.find(folder, SP25)
    assert {name: found.printable_path(path) for name, path in found.outputs.items()} == {
        "final": "project/m3.out",
        "req_0": "project/m3/req_0/m3.out",
        "unroll": "project/src/layer/custom/unroll-new-forward.out",
        "op_1": "project/m3/op_1/m3_10000.out",
    }


@pytest.fixture
def timed(tmp_path, newest_archive, monkeypatch):
    """Make the evidence of a submission whose files took times, as [op 1, op 2, layer 1, layer 2] in ms at 10000
    images, on a GPU of some name."""

    def make(gpu: str, outputs: Mapping[str, str] = {}, **times: list[float | None]) -> Evidence:
        code, room = RIGHT.read_text(), tmp_path / "room"
        folder = hand_in(tmp_path / "mine", **{name: f"{code}// {name}\n" for name in times})
        for name, text in outputs.items():
            found = submissions.find(folder, SP25).files[name]
            found.with_suffix(".out").write_text(text)
        submissions.open_room(room, "mine", folder, shared())
        monkeypatch.setattr(submission_evidence, "PROJECT", room)
        known = variants.discover(room / "kernels" / "conv")
        changed = settings.load(yaml.safe_load((room / "config.yaml").read_text()), list(known))
        record = dict(catalog.open_run(newest_archive).record)
        record["measuring"] = changed.measuring.model_dump(mode="json")
        record["machine"] = {**record["machine"], "gpu": {**record["machine"]["gpu"], "name": gpu}}
        record["variants"] = {
            name: {"source_sha256": variant.source_sha256, **variant.header.model_dump(mode="json")}
            for name, variant in known.items()
        }
        shapes = changed.network("ece408").shapes_sha256
        record["networks"] = {"ece408": {"shapes_sha256": shapes, "sizes": [10_000]}}
        run = tmp_path / "run"
        run.mkdir()
        (run / "run.json").write_text(json.dumps(record))
        rows = [
            {
                "job": name, **tables.place("conv", "ece408", layer), "variant": name, "device": "gpu",
                "size": 10_000, "state": "", "kind": kind, "sample": sample, "time_ms": ms and ms * (1 + sample / 1e4), "sm_clock_mhz": 1000.0, "energy_j": None, "throttled": False,
                "stop_reason": "samples", "status": "ok" if ms else "refused", "reason": "" if ms else "the result needs no conv_forward_gpu",
                "measured_on": "here",
            }
            for name, series in times.items()
            for (kind, layer), ms in zip(itertools.product(("op", "layer"), ("conv1", "conv2")), series, strict=True)
            for sample in range(10)
        ]  # fmt: skip
        for table in tables.RUN_TABLES:
            table.write(rows if table is tables.SAMPLES else [], run / table.name)
        ev = Evidence(plan.Plan(changed, known, "no device, for the test"), "sp25", catalog.open_run(run))
        ev.gpu_run = ev.local
        return ev

    return make


def words_of(table) -> list[list[str]]:
    """A table's rows without markup and intervals."""
    cells = [[re.sub(r' <span class="interval">.*?</span>', "", str(cell)) for cell in row] for row in table.rows]
    return [[re.sub("<[^>]+>", "", cell).replace("\u202f", " ") for cell in row] for row in cells]


def test_where_a_gpu_was_an_optimization_is_timed_against_its_baseline_by_both_of_the_course_s_times(timed):
    ev = timed(
        "NVIDIA H200",
        unroll=[30, 50, 200, 300],
        req_0=[None, None, 100, 150],
        fused=[10, 30, 90, 120],
        final=[9, 21, 80, 90],
    )
    (row,) = words_of(VIEWS["course_baseline"](ev).table)[-1:]
    assert row == ["Final file", "10 000", "9.004 ms", "21.01 ms", "30.01 ms", "–", "–"]
    (asked,) = VIEWS["course_optimizations"](ev).asked
    ((batch, before_op, op, by_op, before_layer, layer, by_layer),) = words_of(asked.times)
    assert (batch, before_op, op, by_op) == ("10 000", "80.04 ms", "–", "–")
    assert (before_layer, layer) == ("500.2 ms", "250.1 ms")
    assert by_layer.startswith("2.00")
    assert "the result needs no conv_forward_gpu" in asked.why_not_timed


def test_where_no_gpu_was_the_report_shows_built_in_kernels_as_what_they_are(timed, monkeypatch):
    ev = timed("any", final=[1.0, 1.0, 1.0, 1.0])
    ev.gpu_run = None
    assert VIEWS["course_baseline"](ev).context is None  # there is no archived run
    assert reference_times.from_newest_run("a network that nobody has", ("conv1",), 10_000) is None
    context = reference_times.from_newest_run("ece408", ("conv1", "conv2"), 10_000)
    monkeypatch.setattr(type(ev.submitted), "of", ev.submitted.of.model_copy(update={"context": context}))
    view = VIEWS["course_baseline"](ev)
    assert view.table is None
    assert view.why == (
        "there is no GPU here (no device, for the test), and files of a submission are timed only on the machine that "
        "makes its report"
    )
    assert "which is not the course's GPU" in view.context.caption
    assert context.gpu in view.context.caption
    rows = words_of(view.context)
    assert [row[0] for row in rows][:3] == ["direct", "unroll_gemm", "fused_unroll_gemm"]
    assert rows[0][4] == units.time(sum(context.kernels[0].op_ms)).replace("\u202f", " ")


def test_what_the_course_s_program_printed_is_told_as_that_and_too_short_times_give_no_ratio(timed):
    times = [30, 50, 200, 300]
    outputs = {"unroll": OUTPUT, "req_0": OUTPUT.replace("40.25", "0.5"), "final": OUTPUT.replace("2e1", "5")}
    ev = timed("NVIDIA H200", outputs, unroll=times, req_0=times, final=[None] * 4)
    table = VIEWS["course_baseline"](ev).printed
    assert words_of(table)[-1][:-1] == ["Final file", "10 000", "40.25 ms", "5.000 ms", "45.25 ms", "–", "0.8714"]
    small, large = words_of(VIEWS["course_optimizations"](ev).asked[0].printed)
    assert small == ["100", "750.0 µs", "750.0 µs", "1.00×", "14.00 ms", "14.00 ms", "1.00×", "0.8600"]
    assert large == ["10 000", "60.25 ms", "20.50 ms‡", "–", "–", "–", "–", "0.8714"]
    said = VIEWS["course_points"](ev).grade.replace("\u202f", " ")
    assert said.endswith("m3-forward.out they are 45.25 ms; were that NVIDIA A40, it would be 25.0 points.")


def test_whether_a_file_is_right_that_nothing_tested_is_left_to_a_person(timed):
    first, *_ = VIEWS["course_points"](timed("any", final=[1.0] * 4)).final.rows
    assert first[1:] == ("a person must say", "it was not tested; the log says why")


def test_on_the_pages_of_a_submission_with_times_nothing_is_cut_and_none_is_mostly_empty(timed, seen):
    roles = ("unroll", "fused", "final", "req_0", "req_1", *(f"op_{number}" for number in range(7)))
    ev = timed("NVIDIA H200", dict.fromkeys(roles, OUTPUT), **{role: [30, 50, 200, 300] for role in roles})
    document = rendering.submission_html(ev, datetime(2026, 1, 1, tzinfo=UTC), "", None)
    assert faults_of(document, seen) == ({}, {})


def test_points_follow_from_times_on_the_course_s_gpu_alone(timed, tmp_path):
    for gpu, words in [
        ("NVIDIA H200", "on NVIDIA H200, which is not NVIDIA A40: no points follow from it"),
        ("NVIDIA A40", "60.03 ms on NVIDIA A40, on the line 15.0 points"),
    ]:
        ev = timed(gpu, final=[40, 20, 80, 90])
        assert words in VIEWS["course_points"](ev).grade.replace("\u202f", " ")
        (row,) = [row for row in class_report.rows(ev, "") if row["number"] == "final"]
        assert (round(row["op_ms"]), row["device"]) == (60, gpu)
        shutil.rmtree(tmp_path / "run")


class Workspace:
    """A project whose code is a link to this one's, with results of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        link_project(folder)
        changed = VALUES | {"gpu": "none", "measuring": VALUES["measuring"] | {"timeout_s": 30}}
        (folder / "config.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))

    def snakemake(self, *arguments: str, **more: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
        environment = {**os.environ, files.PROJECT_VARIABLE: str(self.folder), **more}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600)

    def report(self, name: str, ending: str = ".pdf", study: str = "sp25") -> Path:
        return self.folder / "reports" / "out" / study / name / f"ECE408_{study.upper()}_{name}_m3_report{ending}"


def text_of(path: Path) -> list[str]:
    return [re.sub(r"\s+", " ", page.extract_text()) for page in PdfReader(path).pages]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Workspace:
    """A workspace in which three submissions were graded: of several kinds of file, one that hangs, an empty one."""
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")
    if sandbox.unavailable_reason():
        pytest.skip(sandbox.unavailable_reason())
    made = Workspace(tmp_path_factory.mktemp("workspace"))
    code, every = RIGHT.read_text(), made.folder / "all"
    first = "    float *y, *x, *k;\n"  # of conv_forward_gpu
    assert code.count(first) == 1
    mixed = hand_in(
        every / "mixed",
        final=code.replace(first, f'{first}    system("rm -rf {made.folder}/*");\n'),
        op_0=code.replace(*TOO_SMALL),
        op_1=code.replace("const int H_out = H - K + 1, W_out", "const imt H_out = H - K + 1, W_out", 1),
        op_2=b"\0" + code.encode(),
        op_6="__global__ void forward(float *y) {}",
    )
    (mixed / "project" / "m3" / "op_3").mkdir()
    (mixed / "project" / "m3" / "op_0" / "answers.md").write_text("## 2\nOne *fetch* for all threads.\n")
    waits = code.replace(first, f"{first}    for (volatile int i = 0; i < 1;) usleep(10000);\n")
    hand_in(every / "hangs", op_0=f"#include <unistd.h>\n{waits}")
    (every / ODD).mkdir()
    (every / ODD / "project").symlink_to("/")
    (every / "late.zip").write_bytes(b"PK")
    done = made.snakemake("grade", "--config", f"submissions={every}", "study=sp25")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_a_folder_in_the_course_s_layout_gives_its_own_report(workspace):
    pages = text_of(workspace.report("mixed"))
    whole = " ".join(pages)
    assert re.search(r"Final file project/src/layer/custom/m3- ?forward\.cu right 9 tests passed on", whole)
    fault = "heap-buffer-overflow in conv_forward_kernel at project/m3/op_0/m3-forward.cu:19: a write 716 bytes after"
    assert f"{fault} the 1220 bytes allocated at line 41 (in conv1, where the batch has 100 images)" in whole
    assert re.search(r"does not compile: project/m3/op_1/m3-forward\.cu:11:", whole)
    assert "project/m3/op_2/m3-forward.cu, line 1: a NUL byte; remove it" in whole
    assert "project/m3/op_3/m3-forward.cu is not there" in whole
    assert "No __constant__ in its code" in whole
    assert "defines no GPUInterface::conv_forward_gpu; it holds the kernels forward" in whole
    assert "Required, and not in the submission: req_0 Streams; req_1 Tensor cores in TF32" in whole
    assert "One fetch for all threads." in whole
    assert "Times and accuracies are not measured here: the configuration asks for no GPU times" in whole


def test_no_submission_s_failure_stops_another_and_each_is_told(workspace):
    rows = GRADES.rows(workspace.folder / "reports" / "out" / "sp25-grades" / "grades.csv")
    told = {(row["submission"], row["number"]): row for row in rows}
    assert {name for name, _ in told} == {"mixed", "hangs", "late.zip", ODD_NAMED}
    verdicts = {key: row["verdict"] for key, row in told.items() if row["verdict"] != "no file"}
    assert verdicts == {
        ("hangs", "op_0"): "does not end",
        ("late.zip", ""): "no report",
        ("mixed", "final"): "right",
        ("mixed", "op_0"): "wrong",
        ("mixed", "op_1"): "does not compile",
        ("mixed", "op_2"): "does not compile",
        ("mixed", "op_3"): "not taken",
        ("mixed", "op_6"): "does not compile",
    }
    assert told["mixed", "op_0"]["place"] == "project/m3/op_0/m3-forward.cu:19"
    assert told["mixed", "op_1"]["place"].startswith("project/m3/op_1/m3-forward.cu:")
    assert (told["mixed", "op_0"]["builds"], told["mixed", "op_1"]["builds"]) == ("yes", "no")
    sizes = r"right at (100 and at )?(20 and at )?3 images; some blocks at 10000"
    assert re.fullmatch(sizes, told["mixed", "final"]["rule"])
    assert re.fullmatch(r"\d+", told["mixed", "op_0"]["pages"])


def test_the_table_over_all_is_one_page_for_people_too(workspace):
    (only,) = text_of(workspace.folder / "reports" / "out" / "sp25-grades" / "grades.pdf")
    assert re.search(r"mixed ✓ – – wrong no build no build not taken – – no build 7 0 –", only)
    assert re.search(r"hangs – – – hangs – – – – – – 1 0 –", only)
    assert "4 submissions" in only


def test_what_people_get_can_be_read_by_everyone_and_lasts(workspace):
    folder = workspace.folder / "reports" / "out"
    for path in (workspace.report("mixed"), folder / "sp25-grades" / "grades.pdf"):
        for profile in ("ua1", "3a"):
            judged = page.validate_pdf_bytes(path.read_bytes(), profile=profile)
            assert [f"{failure.rule_id}: {failure.message}" for failure in judged.failures] == []


def faults_of(document: str, seen) -> tuple[dict, dict]:
    """What lies beyond the margins of a submission's pages, and which of them are mostly empty, but for those before
    one where an optimization or the last chapter begins: each has pages of its own."""
    pages = pdf.lay_out(document).pages
    begun = re.findall(r'id="(m3-[a-z]+_\d+|course-final-file)"', document)
    ended = {place for place, page in enumerate(pages) if set(begun) & set(page.anchors)}
    empty = seen.mostly_empty(pages)
    beyond = seen.beyond_margins(pages, seen.AFTER_COVER)
    return beyond, {place: share for place, share in empty.items() if place not in ended}


def test_on_the_pages_of_a_submission_nothing_is_cut_and_none_is_mostly_empty(workspace, seen):
    assert faults_of(workspace.report("mixed", ".html").read_text(), seen) == ({}, {})


def test_the_last_page_maps_each_optimization_to_the_page_that_it_is_on(workspace):
    pages = text_of(workspace.report("mixed"))
    rows = re.findall(
        r"(op_\d) [A-Za-z_ ]+? (\d+)(?:\N{EN DASH}\d+)?(?= op_|$| )", pages[-1].split("assign to each")[1]
    )
    assert [name for name, _ in rows] == ["op_0", "op_1", "op_2", "op_3", "op_6"]
    assert all(f"{name}: " in pages[int(page) - 1] for name, page in rows)


def test_results_of_submissions_are_apart_and_one_that_deletes_files_reaches_none(workspace):
    assert all((workspace.folder / name).exists() for name in ("config.yaml", "all/mixed/project", "results"))
    named = [path.name for path in (workspace.folder / "results").iterdir() if path.name[0] != "."]
    assert sorted(named) == ["sound", "submissions"]  # and the marks of archived runs
    assert {path.name for path in (workspace.folder / "reports" / "out").iterdir()} == {"sp25", "sp25-grades"}


def test_one_submission_alone_is_reported_and_made_anew_where_it_changed(workspace):
    folder = hand_in(workspace.folder / "mine", final=b"\0")
    arguments = ("submission", "--config", f"path={folder / 'project'}", "study=fa24")
    assert "a NUL byte" in " ".join(text_of(made(workspace, arguments, "mine", "fa24")))
    done = workspace.snakemake("--dry-run", *arguments)
    assert "Nothing to be done" in done.stdout + done.stderr
    (folder / "project" / "src" / "layer" / "custom" / "answers.md").write_text("By a tile.\n")
    done = workspace.snakemake("--dry-run", *arguments)
    assert "Nothing to be done" not in done.stdout + done.stderr


def made(workspace: Workspace, arguments: tuple[str, ...], name: str, study: str) -> Path:
    """The report that a command made."""
    done = workspace.snakemake(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace.report(name, study=study)


def test_a_report_that_cannot_be_made_is_a_row_and_leaves_the_others(tmp_path):
    row = class_report.failure_row("theirs", "sp25", "it took longer than the 600 s")
    GRADES.write([row], tmp_path / "theirs.csv")
    document = rendering.grades_html("t", SP25, 10_000, GRADES.rows(tmp_path / "theirs.csv"))
    assert "no report" in document and "it took longer than the 600 s" in document


@needs_compiler
def test_a_submission_that_the_machine_s_trouble_stopped_is_not_judged_and_graded_by_the_next_command(tmp_path):
    (tmp_path / "project").mkdir()
    made = Workspace(tmp_path / "project")
    hand_in(tmp_path / "all" / "theirs", final=RIGHT.read_text().replace(*TOO_SMALL))
    compiler = tmp_path / "compiler"
    killed = "g++: fatal error: Killed signal terminated program cc1plus"
    compiler.write_text(f"""#!/bin/sh
case "$*" in *-shared*) if [ -e {tmp_path}/trouble ]; then echo '{killed}' >&2; exit 1; fi;; esac
exec {emulation.compiler()} "$@"
""")
    compiler.chmod(0o755)
    asked = ("grade", "--config", f"submissions={tmp_path / 'all'}", "study=sp25", "sandbox=none")

    def verdicts() -> dict[str, str]:
        done = made.snakemake(*asked, CXX=str(compiler))
        assert done.returncode == 0, done.stdout + done.stderr
        rows = GRADES.rows(made.folder / "reports" / "out" / "sp25-grades" / "grades.csv")
        return {row["number"]: row["verdict"] for row in rows if row["verdict"] != "no file"}

    (tmp_path / "trouble").touch()
    assert verdicts() == {"": "not judged"}
    assert not (made.folder / "reports" / "out" / "sp25" / "theirs" / "results.json").exists()
    (tmp_path / "trouble").unlink()
    assert verdicts() == {"final": "wrong"}


def test_a_path_that_is_no_folder_is_named(workspace):
    done = workspace.snakemake("submission", "--config", "path=nowhere", "study=sp25")
    assert done.returncode != 0
    assert "path: nowhere is no folder; give the one that holds project/ or m3/" in done.stdout + done.stderr


def test_strangers_submissions_are_refused_without_a_sandbox(tmp_path, monkeypatch):
    hand_in(tmp_path / "all" / "theirs", final="x")
    (tmp_path / "workspace").mkdir()
    workspace = Workspace(tmp_path / "workspace")
    (tmp_path / "bin").mkdir()
    for program in ("bash", "which"):  # what Snakemake wants; no bwrap
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    arguments = ("--dry-run", "grade", "--config", f"submissions={tmp_path / 'all'}", "study=sp25")
    done = workspace.snakemake(*arguments)
    assert done.returncode != 0
    assert (
        "strangers' kernels run in a sandbox, and there is none here: bubblewrap is not inst"
        in done.stdout + done.stderr
    )


def test_a_stranger_s_submission_is_sandboxed_on_a_gpu_too_and_watched_by_no_profiler():
    for asked, given in [("auto", "all"), ("all", "all"), ("none", "none")]:
        found = report_submission.run_untrusted(shared(sandbox=asked))
        assert (found["sandbox"], found["profilers"]) == (given, [])


def test_a_submission_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(VALUES | {"gpu": "none"}))
    waits = ["sh", "-c", "echo $$ > pid; sleep 60 & wait"]
    monkeypatch.setattr(report_submission, "make_report", lambda targets: subprocess.run(waits))
    with pytest.raises(UserError, match=r"it took longer than the 1 s that a submission"):
        report_submission.work_with_limit(tmp_path, 1)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_the_rules_for_the_final_file_are_read_from_its_code():
    beside = "void GPUInterface::conv_forward_gpu_prolog(float *x) {\n  // <<<\n  if (x) { k<<<1, 1>>>(x); }\n}\n"
    inside = "void GPUInterface::conv_forward_gpu(float *x) { k<<<1, 1>>>(x); }\n"
    kept = {rule.asks: (rule.kept, rule.words) for rule in final_submission_rules.final_rules(inside)}
    assert [kept for kept, _ in kept.values()] == [True, True, True]
    found = final_submission_rules.final_rules(beside + inside + "cudaStreamCreate(&s); __half x;")
    assert [(rule.kept, rule.words) for rule in found] == [
        (False, "launched in conv_forward_gpu_prolog, line 3"),
        (False, "streams are made in line 6"),
        (None, "its code names fp16: whether accuracy suffers, the course's run must show"),
    ]


def test_a_folder_of_no_submissions_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no folder; each submission is one"):
        submissions.list_submissions(tmp_path)
    with pytest.raises(UserError, match="is no folder"):
        submissions.list_submissions(tmp_path / "nowhere")


def test_a_command_about_all_studies_needs_no_submission(tmp_path):
    done = Workspace(tmp_path).snakemake("--dry-run", "measure", "--config", "study=all", "cpu=none")
    assert done.returncode == 0, done.stdout + done.stderr
