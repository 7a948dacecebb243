"""What a user gets wrong, or a machine lacks, is answered in one sentence, without a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from warpbook.common.files import PROJECT, PROJECT_VARIABLE
from warpbook.config import settings
from workspaces import link_project


def snakemake(folder: Path, *arguments: str, **environment: str) -> str:
    """What Snakemake says in a project of this one's code; it fails."""
    folder.mkdir(exist_ok=True)
    link_project(folder)
    if not (folder / "config.yaml").exists():
        (folder / "config.yaml").write_bytes(settings.FILE.read_bytes())
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, PROJECT_VARIABLE: str(folder), **environment},
        capture_output=True, text=True, encoding="utf-8", timeout=300,
    )  # fmt: skip
    assert done.returncode
    return done.stdout + done.stderr


def assert_one_sentence(said: str, words: str) -> None:
    assert "Traceback" not in said and "rror in file" not in said and 'File "' not in said, said
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert words in line


def test_a_path_that_snakemake_or_the_shell_reads_otherwise(tmp_path):
    said = snakemake(tmp_path / "a:b{x}", "--dry-run", "report")
    assert_one_sentence(said, "the project's path holds : { }, which Snakemake or the PATH takes for its own; move")


@pytest.mark.parametrize(
    ("content", "words"), [("words\n", ""), ("", ""), ("study: [fa18\nstudies:\n", "line 2: expected ',' or ']'")]
)
def test_a_configuration_that_is_no_mapping(tmp_path, content, words):
    (tmp_path / "config.yaml").write_text(content)
    assert_one_sentence(snakemake(tmp_path, "--dry-run", "report"), f"config.yaml cannot be read: {words}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["submission"], "of which submission? --config path="),
        (["grade"], "of which submission? --config path="),
        (
            ["grade", "--config", "study=sp25", "submissions=~nobody_at_all"],
            "~nobody_at_all names a user that this machine does not have",
        ),
    ],
)
def test_grading_nothing(tmp_path, arguments, words):
    assert_one_sentence(snakemake(tmp_path, "--dry-run", *arguments), words)


def test_make_names_the_folder_that_grading_lacks():
    done = subprocess.run(
        ["make", "--old-file", ".venv/installed", "grade"], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.returncode
    assert "error: make grade needs submissions=<a folder" in done.stderr


def test_results_that_cannot_be_written(tmp_path):
    (tmp_path / "results").symlink_to("/proc")  # where not even root makes a file
    values = yaml.safe_load(settings.FILE.read_text(encoding="utf-8")) | {"gpu": "none", "cpu": "none"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    assert_one_sentence(snakemake(tmp_path, "results/parts/machine.json"), "results/ cannot be written: ")


def in_locale(folder: Path, name: str) -> dict[str, str]:
    """The environment of a locale, which is made in a folder."""
    language, _, encoding = name.partition(".")
    if encoding:
        command = ["localedef", "-i", language, "-f", encoding, folder / name]
        made = subprocess.run(command, capture_output=True, text=True)
        if not (folder / name).is_dir():
            pytest.skip(f"no locale can be made here: {made.stderr.strip()}")
    return {"LOCPATH": str(folder), "LC_ALL": name, "PYTHONUTF8": "0"}


@pytest.fixture
def latin_1(tmp_path) -> dict[str, str]:
    """The environment of a locale whose encoding is Latin-1."""
    return in_locale(tmp_path, "en_US.ISO-8859-1")


def test_texts_are_utf_8_in_any_locale(tmp_path, latin_1):
    program = (
        "from pathlib import Path; from warpbook.common.errors import exit_status\n"
        f"exit(exit_status(lambda: print('30 µs → 畳み込み', file=Path({str(tmp_path / 'text')!r}).open('w'))))"
    )
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    environment = {**os.environ, **latin_1, "PYTHONPATH": str(PROJECT / "scripts")}
    done = subprocess.run([sys.executable, tmp_path / "program.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "text").read_text(encoding="utf-8") == "30 µs → 畳み込み\n"


def test_a_notebook_s_python_reads_a_configuration_in_utf_8_in_any_locale(tmp_path, latin_1):
    (tmp_path / "config.yaml").write_text("studies: {fa18: {title: 畳み込み}}\n", encoding="utf-8")
    program = "from warpbook.problems import networks; print(ascii(networks.configuration()[0]))"
    environment = {**os.environ, **latin_1, "PYTHONPATH": str(PROJECT / "scripts"), PROJECT_VARIABLE: str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert ascii("畳み込み").strip("'") in done.stdout, done.stderr


def test_snakemake_reads_a_configuration_in_utf_8_in_any_locale(tmp_path, latin_1):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "config.yaml").write_text(
        settings.FILE.read_text(encoding="utf-8").replace("study: fa18", "study: 畳み込み", 1), encoding="utf-8"
    )
    said = snakemake(folder, "--dry-run", "report", **latin_1)
    assert "no study is called '畳み込み'" in said


PLACES = (
    ("tr_TR.ISO-8859-9", "l'été & größe"), ("ja_JP.EUC-JP", "-a b"), ("C", "畳み込み"), ("POSIX", 'a"b'),
    ("de_DE.ISO-8859-15", "[x]*?"), ("ru_RU.KOI8-R", "$HOME"), ("zh_CN.GBK", "a;b"), ("hi_IN.UTF-8", "a\\b"),
)  # fmt: skip
"""Locales, and names of the folder in which the project is."""
TRIED_PLACES = int(os.environ.get("CHAOS_PLACES", "2"))


def test_two_runs_are_compared_alike_in_any_locale_and_folder(tmp_path, tried):
    runs = [PROJECT / "tests/data/runs" / f"20261121-nvidia-h200-{name}.zip" for name in ("f71084", "42e94f")]
    made = set()
    for locale, name in PLACES[:TRIED_PLACES]:
        folder = tmp_path / name
        folder.mkdir()
        link_project(folder)
        environment = {**os.environ, **in_locale(tmp_path, locale), PROJECT_VARIABLE: str(folder)}
        sides = [f"--base={runs[0]}", f"--head={runs[1]}", "--markdown=out/x.md", "--pdf=out/x.pdf"]
        command = [sys.executable, "scripts/compare_runs.py", *sides]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8")
        assert done.returncode in (0, 4) and not done.stderr, (locale, name, done.stderr)
        assert (folder / "out" / "x.pdf").read_bytes().startswith(b"%PDF")
        made.add((folder / "out" / "x.md").read_text(encoding="utf-8"))
    assert len(made) == 1
    tried("two runs compared in another locale and folder", TRIED_PLACES, "the same text, and a PDF")
