"""The report and the run's own summary hold the same medians."""

from warpbook.runs import summaries, tables


def test_the_report_shows_every_median_that_the_run_s_own_summary_holds(ev, few_variants):
    compared = set(few_variants["studies"]["fa18"]["variants"]) & {*ev.selection.usable("gpu")}
    samples = ev.gpu_run.table(tables.SAMPLES)
    samples = samples[(samples.network == "fa18") & samples.job.isin(compared) & samples["size"].isin(ev.sizes)]
    rows = summaries.summarize_series(samples, ev.gpu_run.record["machine"])
    rows = rows[rows.variant.isin(compared) & (rows.status == "ok")]
    assert len(rows) > 100
    shown = [ev.times.op(row.variant, row.layer, row.size, row.kind, row.state) for row in rows.itertuples()]
    assert [estimate.value for estimate in shown] == rows.median_ms.tolist()
    assert [estimate.n for estimate in shown] == rows.n.tolist()
    taken = ev.times.samples
    taken = taken[(taken.job == taken.variant) & taken.job.isin(compared)]
    assert summaries.refused_count(taken) == rows.refused_count.sum()
    assert ev.times.refused_samples >= rows.refused_count.sum()  # those of baselines and copies too
