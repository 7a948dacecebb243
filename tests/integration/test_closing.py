"""The last lines on the console when a report is made."""

import io
import json
from pathlib import Path

import pandas as pd
import pytest

from warpbook.common import units
from warpbook.report import console_summary

PDF, HTML = Path("reports/out/fa18.pdf"), Path("reports/out/fa18.html")


def test_last_lines_name_the_pdf_and_the_best_variant_with_its_interval(ev):
    first, others, headline, *_ = console_summary.summary_lines(ev, PDF, HTML)
    assert first == "Report of fa18: reports/out/fa18.pdf"
    assert "reports/out/fa18.html" in others and "fa18-supplement.pdf" in others
    best, naive = ev.ranking.best, ev.ranking.naive
    assert f"best: {best.name}, " in headline
    assert "±" in headline
    assert f"over {naive.name}" in headline
    assert headline.count("[") == 1


def test_last_lines_name_what_is_stale_and_where_to_measure_it_again(evidence_of, rewritten, archive):
    names = ("constant_weights", "shared_input")

    def change(content):
        record = json.loads(content)
        for name in names:
            record["variants"][name]["source_sha256"] = "0" * 64
        return json.dumps(record).encode()

    said = console_summary.summary_lines(evidence_of(rewritten(archive, "run.json", change)), PDF, HTML)
    stale = next(line for line in said if line.strip().startswith("stale"))
    assert all(name in stale for name in names)


def test_last_lines_say_what_failed_and_what_to_mend(evidence_of, rewritten, archive):
    def change(content):
        rows = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
        broken = rows.variant == "shared_input"
        rows.loc[broken, "ok"] = "false"
        rows.loc[broken, "log"] = "error 3: no such word\nand more"
        return rows.to_csv(index=False).encode()

    said = console_summary.summary_lines(evidence_of(rewritten(archive, "builds.csv", change)), PDF, HTML)
    failed = next(line for line in said if line.strip().startswith("failed"))
    assert "shared_input" in failed
    assert failed.endswith("error 3: no such word")
    assert said[-1] == "  next: mend kernels/conv/shared_input.*, then snakemake --cores 1 check"


SLOWED = "none of 7 samples is a figure: 7 were taken while a slowdown was active, 0 are longer than twice their call"


@pytest.fixture
def without_figures(evidence_of, rewritten, archive):
    """The last lines where layer times of shared_input are no figures: (status, reason) by the number of images."""

    def lines(outcomes):
        def change(content):
            rows = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
            times = rows.case.str.startswith("fa18/") & (rows.variant == "shared_input") & (rows.kind == "layer")
            for size, (status, reason) in outcomes.items():
                rows.loc[times & (rows["size"] == size), ["status", "reason", "n"]] = [status, reason, "0"]
            return rows.to_csv(index=False).encode()

        return console_summary.summary_lines(evidence_of(rewritten(archive, "op_times.csv", change)), PDF, HTML)

    return lines


def test_a_failure_is_told_though_a_slowdown_of_the_machine_came_before(without_figures):
    said = without_figures({"10": ("refused", SLOWED), "100": ("launch_failed", "shared_input: an illegal access")})
    assert "  failed: shared_input: shared_input: an illegal access" in said
    assert "mend kernels/conv/shared_input.*" in said[-1]


def test_a_slowdown_of_the_machine_is_no_fault_of_a_kernel_that_could_be_mended(without_figures):
    said = without_figures({"10": ("refused", SLOWED)})
    assert f"  without a figure: shared_input: {SLOWED}" in said
    assert not any(line.strip().startswith("failed") for line in said)
    assert "mend" not in said[-1]


def of_few(evidence_of, few_variants, path, *names, **changes):
    """The evidence of fa18 with some variants."""
    studies = few_variants["studies"]
    return evidence_of(path, studies={**studies, "fa18": {**studies["fa18"], "variants": list(names)}}, **changes)


def test_where_a_library_leads_the_headline_says_so_and_what_is_next_is_to_beat_it(
    evidence_of, few_variants, small_archive
):
    ev = of_few(evidence_of, few_variants, small_archive, "direct", "cudnn_fp32")
    said = console_summary.summary_lines(ev, PDF, HTML)
    assert said[2].startswith("  best of ours: direct, ")
    library = units.time(ev.times.total("cudnn_fp32", ev.largest).value)
    assert f"; the library cudnn_fp32 takes {library}" in said[2]
    assert said[-1].startswith(
        f"  next: a kernel that beats cudnn_fp32's {library}: kernels/conv/<name>.cu (docs/guides/kernels.md)"
    )
    wide = {**few_variants["studies"], "all": {**few_variants["studies"]["fa18"], "variants": []}}
    ev.config = ev.config.model_copy(update={"studies": evidence_of(small_archive, studies=wide).config.studies})
    assert console_summary.summary_lines(ev, PDF, HTML)[-1].endswith(
        "--config study=all, which compares every kernel on this network"
    )
    ours = of_few(evidence_of, few_variants, small_archive, "direct", "cudnn_fp32", "fp16x3_mma")
    assert "a kernel that beats" not in console_summary.summary_lines(ours, PDF, HTML)[-1]
    assert console_summary.summary_lines(ours, PDF, HTML)[2].startswith("  best: fp16x3_mma, ")


def test_what_is_next_is_for_the_device_whose_figures_are_lacking(evidence_of, few_variants, small_archive):
    ev = of_few(evidence_of, few_variants, small_archive, "direct", "loop_nest", cpu="none")
    assert console_summary.summary_lines(ev, PDF, HTML)[-1].endswith(
        "study=fa18 cpu=live, for figures of this machine's CPU"
    )
    ev = of_few(evidence_of, few_variants, small_archive, "direct", "loop_nest", gpu="none")
    ev.gpu_run = None
    assert console_summary.summary_lines(ev, PDF, HTML)[-1].endswith("study=fa18 gpu=auto, for figures of a GPU")
