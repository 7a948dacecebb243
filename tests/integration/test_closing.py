"""The last lines on the console when a report is made."""

import io
import json
from pathlib import Path

import pandas as pd
import pytest

from warpbook.common import units
from warpbook.common.files import PROJECT
from warpbook.report import console_summary
from warpbook.report.views import cell_markup

PDF, HTML = Path("reports/out/fa18.pdf"), Path("reports/out/fa18.html")


def test_last_lines_name_the_pdf_the_best_variant_its_verdicts_its_tests_and_the_run(ev):
    first, others, best, verdicts, correct, source, *_ = console_summary.summary_lines(ev, PDF, HTML)
    assert first == "Report of fa18: reports/out/fa18.pdf"
    assert "reports/out/fa18.html" in others and "fa18-supplement.pdf" in others
    total = ev.times.total(ev.ranking.best.name, ev.largest).value
    assert best.startswith(f"  best: {ev.ranking.best.name}, {units.time(total)} for ")
    for other in (ev.ranking.naive, ev.ranking.best_peer):
        speedup = ev.times.total_speedup(ev.ranking.best.name, ev.largest, over=other.name)
        assert f"; faster than {other.name}: {cell_markup.headline_ratio(speedup)}" in best
    tried = [one for one in ev.ranking.measured_variants("gpu", peers=False) if one.header.builds_on]
    counted = [ev.times.total_speedup(one.name, ev.largest).verdict for one in tried]
    assert f" {counted.count('faster')} faster, {counted.count('slower')} slower" in verdicts
    assert correct.startswith("  correct: yes; ")
    assert source == f"  GPU times: from the archived run {ev.gpu_run.run_id}" or source == "  GPU times: measured here"


def test_the_next_command_can_be_pasted(ev, evidence_of, small_archive, few_variants):
    for one in (ev, of_few(evidence_of, few_variants, small_archive, "direct", "loop_nest", cpu="none")):
        command = console_summary.summary_lines(one, PDF, HTML)[-1].removeprefix("  next: ").split("#")[0].split()
        assert command[0] in (".venv/bin/snakemake", ".venv/bin/python")
        assert command[1:3] == ["--cores", "1"] or (PROJECT / command[1]).exists()


def test_last_lines_name_what_is_stale_and_where_to_measure_it_again(evidence_of, rewritten, archive, monkeypatch):
    names = ("constant_weights", "shared_input")

    def change(content):
        record = json.loads(content)
        for name in names:
            record["variants"][name]["source_sha256"] = "0" * 64
        return json.dumps(record).encode()

    evidence = evidence_of(rewritten(archive, "run.json", change))
    said = console_summary.summary_lines(evidence, PDF, HTML)
    (stale,) = (line for line in said if "(stale: " in line)
    assert all(name in stale for name in names)
    assert stale.endswith(".venv/bin/snakemake --cores all archive --config study=all")
    monkeypatch.setattr(console_summary, "IN_CLONE", False)
    monkeypatch.setattr(console_summary, "RUN", "warpbook")
    monkeypatch.setattr(console_summary, "OF_STUDY", "--study ")
    said = console_summary.summary_lines(evidence, PDF, HTML)  # of a notebook, whose chosen study may be another
    assert [line for line in said if line.endswith("NVIDIA GPU: warpbook archive --study fa18")]


def test_last_lines_say_what_failed_and_what_to_mend(evidence_of, rewritten, archive):
    def change(content):
        rows = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
        broken = rows.variant == "shared_input"
        rows.loc[broken, "ok"] = "false"
        rows.loc[broken, "log"] = "error 3: no such word\nand more"
        return rows.to_csv(index=False).encode()

    said = console_summary.summary_lines(evidence_of(rewritten(archive, "builds.csv", change)), PDF, HTML)
    (failed,) = (line for line in said if "compile failed" in line)
    assert failed.startswith("  left out: shared_input (") and "error 3: no such word)" in failed
    assert (
        said[-1].startswith("  next: .venv/bin/snakemake --cores 1 check --config study=fa18  # ")
        and "conv/shared_input" in said[-1]
    )


SLOWED = "none of 7 samples is a figure: 7 were taken while a slowdown was active, 0 are longer than twice their call"


@pytest.fixture
def without_figures(evidence_of, rewritten, archive):
    """The last lines where layer times of shared_input are no figures: (status, reason) by the number of images."""

    def lines(outcomes, **changes):
        def change(content):
            rows = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
            times = rows.case.str.startswith("fa18/") & (rows.variant == "shared_input") & (rows.kind == "layer")
            for size, (status, reason) in outcomes.items():
                rows.loc[times & (rows["size"] == size), ["status", "reason", "n"]] = [status, reason, "0"]
            rows.loc[times & (rows.n == "0"), list(changes)] = list(changes.values())
            return rows.to_csv(index=False).encode()

        return console_summary.summary_lines(evidence_of(rewritten(archive, "op_times.csv", change)), PDF, HTML)

    return lines


def test_a_failure_is_told_though_a_slowdown_of_the_machine_came_before(without_figures):
    said = without_figures({"10": ("refused", SLOWED), "100": ("launch_failed", "shared_input: an illegal access")})
    assert any("shared_input (launch failed: it: an illegal access)" in line for line in said)
    assert "conv/shared_input" in said[-1]


def test_a_slowdown_of_the_machine_is_no_fault_of_a_kernel_that_could_be_mended(without_figures):
    said = without_figures({"10": ("refused", SLOWED)})
    assert any(line.startswith(f"  left out: some times of shared_input (refused: {SLOWED[:60]}") for line in said)
    assert "conv/shared_input" not in said[-1]


def test_times_refused_for_a_busy_machine_are_told_once_with_what_measures_them_again(without_figures):
    often = (
        "none of 2 samples is a figure: other programs kept the CPU busy (tolerated_load in config.yaml); close them"
    )
    said = without_figures({"10": ("refused", often), "100": ("refused", often.replace("2", "41"))})
    (line,) = (line for line in said if "kept the CPU busy" in line)
    assert line.startswith(
        "  left out: some times of shared_input (refused: other programs kept the CPU busy); to meas"
    )
    assert " report --forcerun measure_variant run_program --config study=fa18" in line


def test_cpu_times_that_were_refused_are_told_with_what_measures_them_again(without_figures):
    said = without_figures({"10": ("refused", "it claims 1 ms")}, variant="simd", device="cpu", kind="op")
    (line,) = (line for line in said if "it claims" in line)
    assert line == (
        "  left out: some times of simd (refused: it claims 1 ms); to measure again: .venv/bin/snakemake --cores 1 "
        "report --forcerun measure_variant run_program --config study=fa18"
    )


def of_few(evidence_of, few_variants, path, *names, **changes):
    """The evidence of fa18 with some variants."""
    studies = few_variants["studies"]
    return evidence_of(path, studies={**studies, "fa18": {**studies["fa18"], "variants": list(names)}}, **changes)


def test_where_a_library_leads_the_best_line_says_so_and_what_is_next_has_every_kernel(
    evidence_of, few_variants, small_archive
):
    ev = of_few(evidence_of, few_variants, small_archive, "direct", "cudnn_fp32")
    said = console_summary.summary_lines(ev, PDF, HTML)
    assert said[2].startswith("  best: direct, ") and "; slower than cudnn_fp32: 0." in said[2]
    wide = {**few_variants["studies"], "whole": {**few_variants["studies"]["fa18"], "variants": []}}
    ev.config = ev.config.model_copy(update={"studies": evidence_of(small_archive, studies=wide).config.studies})
    assert " report --config study=whole  # " in console_summary.summary_lines(ev, PDF, HTML)[-1]


def test_what_is_next_is_for_the_device_whose_times_are_lacking(evidence_of, few_variants, small_archive):
    ev = of_few(evidence_of, few_variants, small_archive, "direct", "loop_nest", cpu="none")
    said = console_summary.summary_lines(ev, PDF, HTML)
    assert "study=fa18 cpu=live  # " in said[-1]
    assert sum("(cpu: none)" in line for line in said) == 1
    ev = of_few(evidence_of, few_variants, small_archive, "direct", "loop_nest", gpu="none")
    ev.gpu_run = None
    assert "study=fa18 gpu=auto  # " in console_summary.summary_lines(ev, PDF, HTML)[-1]
