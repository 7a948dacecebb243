"""Real Snakemake on a tiny study in a copy of the project: made, made again, changed, broken, interrupted."""

import json
import os
import re
import resource
import shutil
import subprocess
from types import SimpleNamespace

import pandas as pd
import pytest

from warpbook.common import version
from warpbook.runs import catalog, summaries, tables


def test_a_fresh_copy_makes_a_report_with_figures_measured_here(made):
    text = made.pdf_text()
    assert "A tiny study" in text
    assert "Somebody" in text
    assert re.search(r"loop_nest conv1 [\d.]+ [mµ]?s", text)
    assert "no GPU times (gpu: none)" in text
    assert (made.folder / "reports" / "out" / "tiny.html").stat().st_size > 100_000
    assert made.leftovers() == []


def test_nothing_changed_means_nothing_done_in_a_few_seconds(made):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = made.snakemake("report", cores=1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    _, _, left = done.stderr.partition("Nothing to be done")
    _, first, others, headline, *_ = left.splitlines()
    assert first == "Report of tiny: reports/out/tiny.pdf"
    assert "reports/out/tiny.html" in others and "tiny-supplement.pdf" in others
    assert headline.startswith("  best: ")
    assert (made.folder / "results" / "said" / "tiny.txt").read_text() in left
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 20  # of the processor: others may work


def test_a_change_of_code_makes_again_what_depends_on_it(workspace):
    """A column's meaning is told and decides nothing; a column is its table's; a lock decides what is measured, a problem
    what is right."""
    package = workspace.folder / "scripts" / "warpbook"
    planned = []
    for name, old, new in [
        ("runs/tables.py", '"images in the dataset"', '"images of the dataset"'),
        ("runs/tables.py", '"status": _STATUS,', '"status": _STATUS, "weather": text("outside"),'),
        ("machine/locks.py", "\n", "\n\n"),
        ("../../kernels/conv/problem.py", "\n", "\n\n"),
    ]:
        path = package / name
        text, times = path.read_text(), path.stat()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        planned.append(workspace.planned("report"))
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    reworded, column, lock, problem = planned
    assert reworded == {"render_report", "report"}
    assert {"check_variant", "measure_variant", "assemble_run"} <= column
    assert "build_variant" not in column
    assert {"measure_variant", "run_program"} <= lock
    assert "check_variant" in problem and "build_variant" not in problem


def test_a_run_holds_what_others_rely_on(made):
    run = catalog.open_run(made.folder / "results" / "run")
    assert run.problem == ""
    assert run.record["version"] == version.VERSION
    assert run.record["networks"]["fa18"]["sizes"] == [3]
    assert run.gpu is None
    samples = run.table(tables.SAMPLES)
    assert set(samples.variant) == {"loop_nest", "im2col_blas"}
    assert (samples.status == "ok").all()
    builds = run.table(tables.BUILDS)
    assert {"direct", "shared_input"} <= set(builds.variant)
    assert builds.ok.all()
    programs = run.table(tables.PROGRAMS)
    assert programs.accuracy.tolist() == [1.0] * len(programs)


def test_a_run_records_which_gpus_were_put_aside_since_it_began(workspace):
    aside = workspace.folder / "results" / "parts" / "aside"
    aside.mkdir()
    for name, at in [("before", "2001-01-01T00:00:00+00:00"), ("since", "2999-01-01T00:00:00+00:00")]:
        said = {"measured_on": f"host/{name}", "reason": "it fails", "part": "samples/gpu/fa18/direct", "at": at}
        (aside / f"{name}.json").write_text(json.dumps({**said, "by": "0"}))
    shutil.rmtree(workspace.folder / "results" / "run")
    workspace.snakemake("measure")
    run = catalog.open_run(workspace.folder / "results" / "run")
    sentence = "host/since, found by samples/gpu/fa18/direct at 2999-01-01T00:00:00+00:00: it fails"
    assert run.record["machine"]["put_aside"] == [sentence]


def test_a_kernel_file_added_is_found_built_and_in_the_report_and_the_rest_is_left_alone(workspace):
    source = (workspace.folder / "kernels" / "conv" / "direct.cu").read_text()
    mine = source.replace("title:     One thread for each output", "title:     My own kernel\nbuilds_on: direct")
    (workspace.folder / "kernels" / "conv" / "my_kernel.cu").write_text(mine)
    workspace.compare_too("my_kernel")
    done = workspace.snakemake("report")
    assert workspace.jobs(done) == {"build_variant", "check_variant", "assemble_run", "render_report", "report"}
    assert "Building my_kernel" in workspace.finished(done)
    assert len([words for words in workspace.finished(done) if words.startswith("Building")]) == 1
    text = workspace.pdf_text()
    assert "My own kernel" in text
    assert re.search(r"my_kernel conv_forward \d+", text)
    assert re.search(r"my_kernel emulated fp32 \d+ of \d+", text)


BROKEN = {
    "wrong_numbers": ("y[image] += 1", "wrong result", "must be exact on small integers"),
    "an_exception": ("raise RuntimeError('out of tiles')", "launch failed", "RuntimeError: out of tiles"),
    "a_crash": ("import ctypes; ctypes.string_at(0)", "launch failed", "its process died: SIGSEGV"),
    "a_hang": ("import time; time.sleep(600)", "timed out", "still running after 20 s"),
}


@pytest.fixture(scope="module")
def broken(made, tmp_path_factory) -> SimpleNamespace:
    """The study with its baseline broken, and variants beside it broken in every other way: the workspace, the
    report's jobs and text, and what `check` said."""
    workspace = made.copy(tmp_path_factory.mktemp("broken") / "project")
    kernels = workspace.folder / "kernels" / "conv"
    direct = (kernels / "direct.cu").read_text()
    for name, old, new in [
        ("skips_taps", "for (int p = 0; p < K; ++p)", "for (int p = 1; p < K; ++p)"),
        ("mistaken", "idea:", "ideas:"),
        ("my kernel", "", ""),
        ("._direct", "", ""),
        ("direct", "float sum = 0.0f;", "flaot sum = 0.0f;"),
    ]:
        assert old in direct
        (kernels / f"{name}.cu").write_text(direct.replace(old, new, 1))
    product = (kernels / "im2col_blas.py").read_text()
    place = next(line for line in product.splitlines(keepends=True) if "np.matmul(" in line)
    for name, (code, *_) in BROKEN.items():
        (kernels / f"{name}.py").write_text(product.replace(place, f"{place}            {code}\n"))
    (kernels / "lacking.py").write_text(product.replace("device:", "requires:  a_library\ndevice:"))
    os.mkfifo(kernels / "pipe.cu")
    workspace.compare_too("skips_taps", "mistaken", "my kernel", *BROKEN, "lacking")
    done = workspace.snakemake("report")
    checked = workspace.snakemake("check", check=False)
    assert checked.returncode != 0
    (kernels / "pipe.cu").unlink()  # nobody could copy it
    return SimpleNamespace(
        workspace=workspace,
        jobs=workspace.finished(done),
        console=done.stdout + done.stderr,
        text=workspace.pdf_text(),
        check=checked.stdout + checked.stderr,
    )


def test_what_is_broken_leaves_the_rest_intact_and_no_temporary_file(broken):
    assert re.search(r"loop_nest conv1 [\d.]+ [mµ]?s", broken.text)
    assert re.search("checked loop_nest ", broken.check)
    assert broken.workspace.leftovers() == []


def test_a_kernel_file_that_does_not_compile_is_wrong_or_is_no_variant_s_is_shown_as_failed(broken):
    assert {"Building direct", "Building my kernel"} <= set(broken.jobs)
    assert "compile failed" in broken.text
    assert 'identifier "flaot" is undefined' in broken.text
    assert re.search(r"FAILED  direct +sm_90 .*flaot", broken.check)
    assert "on the CPU emulator: skips_taps is wrong on" in broken.text  # though there is no GPU
    assert re.search("FAILED  skips_taps +fa18 +wrong_result", broken.check)
    words = "my kernel.cu: a variant's file name has letters, digits and underscores alone"
    assert words in broken.text
    assert re.search(f"FAILED  my kernel .*{words}", broken.check)
    assert "mistaken.cu: unknown key 'ideas': did you mean 'idea'?" in broken.text


def test_a_cpu_variant_that_is_wrong_or_raises_crashes_or_hangs_is_shown_as_failed(broken):
    for name, (_, status, words) in BROKEN.items():
        assert re.search(f"{name} cpu .{{,20}}{status} .{{,80}}{words}", broken.text), name
        assert re.search(f"FAILED  {name} +fa18 +{status.replace(' ', '_')}: .*{words}", broken.check), name


def test_a_library_that_is_not_installed_is_shown_so_until_it_is(broken, tmp_path):
    words = "lacking needs the Python package a_library, which is not installed here"
    assert f"lacking cpu unsupported {words}" in broken.text
    assert "Not measured: lacking needs the Python package" in broken.text  # a line ends within the package's name
    workspace = broken.workspace.copy(tmp_path / "project")
    (row,) = tables.PROGRAMS.rows(workspace.folder / "results/parts/programs/cpu/fa18/lacking.csv")
    assert (row["status"], row["reason"]) == ("unsupported", f"{words}: pip install a_library")
    assert f"not run {'lacking':24} fa18     {words}" in broken.check
    assert broken.console.count(f"unsupported: {words}") == 1

    (workspace.folder / "scripts" / "a_library.py").touch()
    part = "results/parts/programs/cpu/fa18/lacking.csv"
    workspace.snakemake(part)
    assert [row["status"] for row in tables.PROGRAMS.rows(workspace.folder / part)] == ["ok"]


def test_check_says_what_every_variant_passed_and_times_nothing(workspace):
    shutil.rmtree(workspace.folder / "results" / "parts" / "samples")
    done = workspace.snakemake("check")
    words = done.stdout + done.stderr
    assert re.search(
        r"checked loop_nest +fa18 +\d+ tests, error at most [\d.]+ of its tolerance, 0 labels differ", words
    )
    assert re.search(r"built   direct +sm_90 +conv_forward: \d+ registers", words)
    assert "measure_variant" not in workspace.jobs(done)


def test_snakemake_looks_at_jobs_that_wait_when_one_ends_and_leaves_the_processor_to_them_meanwhile(workspace):
    done = workspace.snakemake(
        "--verbose", "--forcerun", "build_variant", "--until", "build_variant", "report", cores=1
    )
    ended = done.log.count("Finished jobid")
    assert ended > 1
    assert done.log.count("Ready jobs: ") <= ended


def test_archive_packs_the_run_where_it_is_told_to(workspace):
    workspace.snakemake("archive", "--config", "archive=kept")
    (path,) = (workspace.folder / "kept").glob("*.zip")
    run = catalog.open_run(path)
    assert run.problem == ""
    assert run.run_id == path.stem


def test_a_mistake_in_the_configuration_ends_with_a_clear_error_before_any_job(made):
    mistakes = {
        "stuby=tiny": "stuby: unknown key: did you mean 'study'?",
        "gpu=20990101-none": "gpu: no archived run is called '20990101-none'",
    }
    for argument, words in mistakes.items():
        done = made.snakemake("report", "--config", argument, check=False)
        assert done.returncode != 0
        shown = done.stdout + done.stderr
        assert words in shown
        assert "Traceback" not in shown
        assert len(shown.strip().splitlines()) < 12


def test_a_second_snakemake_in_a_folder_is_refused_while_the_first_works_and_the_first_is_left_alone(workspace):
    workspace.compare_too(timeout_s=100)
    path, ends = workspace.folder / "kernels" / "conv" / "loop_nest.py", workspace.folder / "kernels" / "conv" / ".ends"
    waits = f"import os, time\n\nwhile not os.path.exists({str(ends)!r}):\n    time.sleep(0.05)\n"
    path.write_text(path.read_text().replace('"""\n\n', f'"""\n\n{waits}', 1))
    checked = "results/parts/correctness/cpu/fa18/loop_nest.csv"
    (workspace.folder / checked).unlink()
    first = workspace.start(checked, cores=1)
    assert any("Checking loop_nest" in line for line in first.stdout)
    second = workspace.snakemake(checked, check=False)
    ended = first.poll() is not None
    ends.touch()
    words = second.stdout + second.stderr
    assert second.returncode != 0
    assert not ended, "the first ended before the second did: nothing was tested"
    assert "error: another snakemake works in this folder (results/.lock); wait for it to end" in words
    assert "Traceback" not in words
    assert workspace.jobs(second) == set()
    first.communicate(timeout=200)
    assert first.returncode == 0


def write_samples(rows, run):
    """Write a run's samples, and the op times that they give."""
    tables.SAMPLES.write(rows, run / tables.SAMPLES.name)
    machine = json.loads((run / "run.json").read_text())["machine"]
    op_times = summaries.summarize_series(tables.with_places(pd.DataFrame(rows)), machine)
    tables.OP_TIMES.write(op_times.to_dict("records"), run / tables.OP_TIMES.name)


def test_two_runs_are_compared_by_one_command_whose_exit_status_tells(workspace):
    base = workspace.folder / "results" / "run"
    samples = catalog.open_run(base).table(tables.SAMPLES)[[*tables.SAMPLES.columns]].to_dict("records")
    calm = [{**row, "time_ms": 1 + row["sample"] / 1e4} for row in samples]  # whatever else the machine did
    write_samples(calm, base)
    head = shutil.copytree(base, workspace.folder / "head")
    same = workspace.snakemake("compare", "--config", f"base={base}", f"head={head}", check=False)
    assert same.returncode == 0, same.stdout + same.stderr
    assert "Runs compared: no regression" in workspace.pdf_text("compare")
    assert "no regression" in (workspace.folder / "reports" / "out" / "compare.md").read_text().splitlines()[0]

    record = json.loads((head / "run.json").read_text())
    record["variants"]["loop_nest"]["source_sha256"] = "0" * 64
    (head / "run.json").write_text(json.dumps(record))
    slow = [{**row, "time_ms": 99 * row["time_ms"]} if row["variant"] == "loop_nest" else row for row in calm]
    write_samples(slow, head)
    slower = workspace.snakemake("compare", "--config", f"base={base}", f"head={head}", check=False)
    assert slower.returncode == 3, slower.stdout + slower.stderr
    assert re.search(r"loop_nest fa18 \d+ .* slower", workspace.pdf_text("compare"))

    record["machine"]["cpu"]["model"] = "another CPU"
    (head / "run.json").write_text(json.dumps(record))
    program = [workspace.python, "scripts/compare_runs.py", "--base", base, "--head", head]
    foreign = subprocess.run(program, cwd=workspace.folder, capture_output=True, text=True)
    assert foreign.returncode == 5, foreign.stderr
    assert workspace.leftovers() == []


def test_a_comparison_without_two_sound_runs_is_its_own_failure_and_says_what_is_wrong(made):
    for head, words in [
        ([], "head is missing"),
        (["head=20261121-nowhere"], "head: no archived run is called '20261121-nowhere'"),
    ]:
        done = made.snakemake("compare", "--config", "base=results/run", *head, check=False)
        assert done.returncode == 1
        assert words in done.stdout + done.stderr
        assert not (made.folder / "reports" / "out" / "compare.md").exists()
