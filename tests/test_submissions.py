"""Submissions of the course: found in their layout, worked on apart, judged file by file, reported for the upload."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pypdf import PdfReader

from warpbook import config, files, submissions, variants
from warpbook.errors import UserError
from warpbook.harness import emulator
from warpbook.report import answers, pdf
from warpbook.terms import Term, line_of

COURSE = Path(__file__).parent / "data" / "course"
VALUES = yaml.safe_load(config.FILE.read_text())
RIGHT = COURSE / "one_call.cu"
SP25 = Term.model_validate(VALUES["studies"]["sp25"]["course"])

needs_compiler = pytest.mark.skipif(emulator.compiler() is None, reason="there is no C++ compiler here to emulate with")


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
    return yaml.safe_load(submissions.shared_configuration(config.load(values, list(variants.discover()))))


@pytest.mark.parametrize("study", ["fa24", "sp25", "fa25"])
@pytest.mark.parametrize(("place", "share"), [(-1.0, 1), (0.0, 1), (0.25, 0.75), (1.0, 0), (9.0, 0)])
def test_points_for_times_fall_linearly_between_the_two_bounds(study, place, share):
    line = Term.model_validate(VALUES["studies"][study]["course"]).performance
    assert line.earned(line.full_ms + place * (line.none_ms - line.full_ms)) == pytest.approx(share * line.points)


def test_a_term_whose_points_do_not_add_up_is_refused():
    course = VALUES["studies"]["sp25"]["course"]
    with pytest.raises(ValueError, match=r"the last milestone has 55 points, and what is required.* add up to 56"):
        Term.model_validate(course | {"optional_points": 11})


def test_an_optimization_is_worth_less_without_the_word_that_full_points_ask():
    half = SP25.optimizations["op_5"]
    assert [half.worth(code) for code in ("__half x;", "__half2 x;", "__half x;  // not half2")] == [2, 4, 2]
    assert line_of("wmma", "// wmma\nint x;\nusing namespace wmma;") == 3


@pytest.mark.parametrize("inside", ["", "project", "project/m3", "deep/project"])
def test_the_files_are_found_above_and_in_the_folders_of_the_layout(tmp_path, inside):
    root = hand_in(
        tmp_path / "deep" if inside.startswith("deep") else tmp_path, final="a", unroll="b", req_0="c", op_6="d"
    )
    found = submissions.find(tmp_path / inside.removeprefix("deep/project"), SP25)
    assert found.files["req_0"] == root / "project/m3/req_0/m3-forward.cu"
    assert found.refused == {}
    assert set(found.files) == ({"req_0", "op_6"} if inside == "project/m3" else {"final", "unroll", "req_0", "op_6"})


def test_the_names_of_older_terms_are_found_too(tmp_path):
    for place in ("src/layer/custom", "m3/op_0", "m3/op_1"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "src/layer/custom/new-forward.cu").touch()
    (tmp_path / "m3/op_0/new-forward.cu").touch()
    (tmp_path / "m3/op_1/mine.cu").touch()
    found = submissions.find(tmp_path, SP25)
    shown = {name: found.shown(path) for name, path in found.files.items()}
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
    found = submissions.find(tmp_path, SP25)
    assert set(found.files) == {"final", "op_0"}
    assert found.refused == {
        "op_1": "project/m3/op_1/m3-forward.cu has 2097152 bytes, and the limit is 1048576",
        "op_2": "project/m3/op_2/m3-forward.cu is not there",
        "op_3": "project/m3/op_3/m3-forward.cu is a link; put the file itself there",
        "op_5": "project/m3/op_5/m3-forward.cu is no file",
    }


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/a/netid", "netid"),
        ("/a/netid/project/m3", "netid"),
        ("/a/two words/project", "two_words"),
        ("/", "submission"),
    ],
)
def test_a_submission_is_called_by_the_folder_above_the_layout(folder, name):
    assert submissions.name_of(Path(folder)) == name


def test_submissions_whose_names_differ_in_odd_characters_alone_are_told_apart(tmp_path):
    for name in ("a b", "a_b", "c", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "c")
    (tmp_path / "notes.txt").touch()
    assert {name: path.name for name, path in submissions.each(tmp_path).items()} == {
        "a_b": "a b",
        "a_b_": "a_b",
        "c": "c",
    }


def test_a_submission_s_project_holds_its_files_as_variants_over_their_baselines(tmp_path):
    code = RIGHT.read_text()
    folder = hand_in(tmp_path / "mine", final=code, unroll=code, req_0=code, op_0=code)
    room = tmp_path / "room"
    submissions.open_room(room, "mine", folder, shared())
    made = variants.discover(room / "kernels")
    assert {name: variant.header.builds_on for name, variant in made.items()} == {
        "final": "", "unroll": "", "req_0": "unroll", "op_0": "",
    }  # fmt: skip
    assert made["req_0"].title == "Streams"
    assert made["req_0"].code == code
    settings = yaml.safe_load((room / "config.yaml").read_text())
    assert config.load(settings, list(made)).submission.files["req_0"] == "project/m3/req_0/m3-forward.cu"
    assert (settings["architectures"], list(settings["studies"])) == (["sm_86"], ["sp25"])


def test_what_a_file_says_of_itself_in_a_header_decides_nothing(tmp_path):
    claim = "/*\nprecision: fp16\nbeyond_emulator: everything\n*/\n"
    folder = hand_in(tmp_path / "mine", final=claim + RIGHT.read_text())
    submissions.open_room(tmp_path / "room", "mine", folder, shared())
    made = variants.discover(tmp_path / "room" / "kernels")["final"]
    assert (made.header.precision, made.header.beyond_emulator, made.problem) == ("fp32", "", "")
    assert made.code.splitlines()[5:] == RIGHT.read_text().splitlines()[1:]


def test_a_project_follows_its_submission_and_leaves_alone_what_did_not_change(tmp_path):
    folder, room = hand_in(tmp_path / "mine", final="a", op_0="b"), tmp_path / "room"
    submissions.open_room(room, "mine", folder, shared())
    dates = {path: path.stat().st_mtime_ns for path in (room / "kernels" / "final.cu", room / "config.yaml")}
    submissions.open_room(room, "mine", folder, shared())
    assert {path: path.stat().st_mtime_ns for path in dates} == dates
    shutil.rmtree(folder / "project" / "m3" / "op_0")
    submissions.open_room(room, "mine", folder, shared())
    assert sorted(path.name for path in (room / "kernels").iterdir()) == ["final.cu", "final.yaml"]


def test_answers_are_told_apart_by_the_numbers_in_their_headings(tmp_path):
    (tmp_path / "req_0.md").write_text(
        "In short.\n\n## 2. How it should help\n*Copies* hide.\n```\n# 3 no heading\n```\n"
        "# Question 4\n<b>10 %</b>\n## 9\nmore\n"
    )
    found = answers.read("req_0", 6, tmp_path)
    assert "In short" in found.rest
    assert list(found.by_question) == [2, 4]
    assert "<em>Copies</em> hide" in found.by_question[2] and "# 3 no heading" in found.by_question[2]
    assert "&lt;b&gt;10 %&lt;/b&gt;" in found.by_question[4] and "more" in found.by_question[4]
    assert answers.read("op_0", 6, tmp_path) == answers.Answers()


def test_a_map_of_pages_says_where_a_section_begins_and_ends():
    page = '<p style="break-before: page"'
    document = (
        '<!DOCTYPE html><html lang="en"><title>t</title><p id="one">a<span id="end-one"></span></p>'
        f'{page} id="two">b</p>{page}>c<span id="end-two"></span></p>'
        '<a class="pages" href="#one">?</a><a class="pages" href="#two">?</a></html>'
    )
    assert re.findall(r'href="#(\w+)">([^<]*)</a>', pdf.paged(document)) == [("one", "1"), ("two", "2\N{EN DASH}3")]


class Workspace:
    """A project whose code is a link to this one's, with results of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in (
            "Snakefile",
            "rules",
            "scripts",
            "profiles",
            "requirements",
            "weights",
            "pyproject.toml",
            "kernels",
        ):
            (folder / name).symlink_to(files.PROJECT / name)
        (folder / "reports").mkdir()
        for path in (files.PROJECT / "reports").iterdir():
            if path.name not in ("out", "runs"):
                (folder / "reports" / path.name).symlink_to(path)
        settings = VALUES | {"gpu": "none", "measuring": VALUES["measuring"] | {"timeout_s": 20}}
        (folder / "config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
        environment = {**os.environ, files.GIVEN: str(self.folder)}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600)

    def report(self, name: str, ending: str = ".pdf", study: str = "sp25") -> Path:
        return self.folder / "reports" / "out" / study / name / f"ECE408_{study.upper()}_{name}_m3_report{ending}"


def text_of(path: Path) -> list[str]:
    return [re.sub(r"\s+", " ", page.extract_text()) for page in PdfReader(path).pages]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Workspace:
    """A workspace with the report of a submission some of whose files are right."""
    if emulator.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")
    made = Workspace(tmp_path_factory.mktemp("workspace"))
    code = RIGHT.read_text()
    folder = hand_in(
        made.folder / "mixed",
        final=code,
        unroll=code,
        op_0=code.replace("(TILE + K - 1) * (TILE + K - 1)", "TILE * TILE"),
        op_1=code.replace("const int H_out = H - K + 1, W_out", "const imt H_out = H - K + 1, W_out", 1),
        op_2=b"\xff" + code.encode(),
        op_4=code + "// cublas\n",
        op_6="__global__ void forward(float *y) {}",
    )
    (folder / "project" / "m3" / "op_3").mkdir()
    (folder / "project" / "m3" / "op_0" / "answers.md").write_text("## 2\nOne *fetch* for all threads.\n")
    done = made.snakemake("submission", "--config", f"path={folder}", "study=sp25")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_a_folder_in_the_course_s_layout_gives_its_own_report(workspace):
    pages = text_of(workspace.report("mixed"))
    whole = " ".join(pages)
    assert re.search(
        r"Final file project/src/layer/custom/m3- ?forward\.cu right 6 tests passed on the CPU, emulated", whole
    )
    assert "heap-buffer-overflow in conv_forward_kernel at project/m3/op_0/m3-forward.cu:19" in whole
    assert re.search(r"op_1.*does not compile.*m3-forward\.cu.11", whole)
    assert "project/m3/op_2/m3-forward.cu, line 1: byte 0xff is not UTF-8" in whole
    assert "project/m3/op_3/m3-forward.cu is not there" in whole
    assert "No cublas in its code" in whole and "Its code is that of its baseline" in whole
    assert "defines no GPUInterface::conv_forward_gpu; it holds the kernels forward" in whole
    assert "Required, and not in the submission: req_0 Streams; req_1 Tensor cores in TF32" in whole
    assert "One fetch for all threads." in whole
    assert "Times and accuracies are not measured: the configuration asks for no GPU figures" in whole


def test_the_last_page_maps_each_optimization_to_the_page_that_it_is_on(workspace):
    pages = text_of(workspace.report("mixed"))
    rows = re.findall(
        r"(op_\d) [A-Za-z_ ]+? (\d+)(?:\N{EN DASH}\d+)?(?= op_|$| )", pages[-1].split("assign to each")[1]
    )
    assert [name for name, _ in rows] == ["op_0", "op_1", "op_2", "op_3", "op_4", "op_6"]
    assert all(f"{name}: " in pages[int(page) - 1] for name, page in rows)


def test_results_of_a_submission_are_apart_from_the_project_s_own(workspace):
    assert sorted(path.name for path in (workspace.folder / "results").iterdir() if path.name[0] != ".") == [
        "submissions"
    ]
    assert sorted(path.name for path in (workspace.folder / "reports" / "out").iterdir()) == ["sp25"]


def test_a_submission_that_did_not_change_is_left_alone_and_one_that_did_is_made_anew(workspace):
    arguments = ("submission", "--config", f"path={workspace.folder / 'mixed'}", "study=sp25")
    done = workspace.snakemake("--dry-run", *arguments)
    assert "Nothing to be done" in done.stdout + done.stderr
    (workspace.folder / "mixed" / "project" / "m3" / "op_0" / "answers.md").write_text("## 3\nBy a tile.\n")
    done = workspace.snakemake(*arguments)
    jobs = set(re.findall(r"Finished jobid: \d+ \(Rule: (\w+)\)", done.stdout + done.stderr))
    assert jobs == {"report_submission", "submission", "render_submission"}
    assert "By a tile." in " ".join(text_of(workspace.report("mixed")))


def test_without_a_submission_the_command_asks_for_one(workspace):
    done = workspace.snakemake("submission")
    assert done.returncode != 0
    assert "which submission?" in done.stdout + done.stderr
    done = workspace.snakemake("submission", "--config", "path=nowhere", "study=sp25")
    assert "path: nowhere is no folder; give the one that holds project/ or m3/" in done.stdout + done.stderr


def test_a_folder_of_no_submissions_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no folder; each submission is one"):
        submissions.each(tmp_path)
    with pytest.raises(UserError, match="is no folder"):
        submissions.each(tmp_path / "nowhere")


def test_a_command_about_all_studies_needs_no_submission(tmp_path):
    done = Workspace(tmp_path).snakemake("--dry-run", "measure", "--config", "study=all", "cpu=none")
    assert done.returncode == 0, done.stdout + done.stderr
