"""The last lines on the console when a report is made."""

import io
import json
from pathlib import Path

import pandas as pd

from warpbook.report import closing

PDF, HTML = Path("reports/out/fa18.pdf"), Path("reports/out/fa18.html")


def test_last_lines_name_the_pdf_and_the_best_variant_with_its_interval(ev):
    first, others, headline, *_ = closing.lines(ev, PDF, HTML)
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

    said = closing.lines(evidence_of(rewritten(archive, "run.json", change)), PDF, HTML)
    stale = next(line for line in said if line.strip().startswith("stale"))
    assert all(name in stale for name in names)


def test_last_lines_say_what_failed_and_what_to_mend(evidence_of, rewritten, archive):
    def change(content):
        rows = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
        broken = rows.variant == "shared_input"
        rows.loc[broken, "ok"] = "false"
        rows.loc[broken, "log"] = "error 3: no such word\nand more"
        return rows.to_csv(index=False).encode()

    said = closing.lines(evidence_of(rewritten(archive, "builds.csv", change)), PDF, HTML)
    failed = next(line for line in said if line.strip().startswith("failed"))
    assert "shared_input" in failed
    assert failed.endswith("error 3: no such word")
    assert said[-1] == "  next: mend kernels/shared_input.*, then snakemake --cores 1 check"
