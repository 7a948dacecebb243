"""The medians that the report shows are those of the run's own summary."""

from warpbook.runs import catalog, summaries, tables


def test_the_report_shows_every_median_that_the_run_s_own_summary_holds(archive, evidence_of):
    run = catalog.open_run(archive)
    evidence = evidence_of(archive, measuring=run.record["measuring"])
    rows = tables.with_places(summaries.summarize_series(run.table(tables.SAMPLES), run.record["machine"]))
    rows = rows[(rows.network == "fa18") & rows["size"].isin(evidence.sizes)]
    rows = rows[rows.variant.isin(evidence.selection.usable("gpu")) & (rows.status == "ok")]
    assert len(rows) > 100
    shown = [evidence.times.op(row.variant, row.layer, row.size, row.kind, row.state) for row in rows.itertuples()]
    assert [estimate.value for estimate in shown] == rows.median_ms.tolist()
    assert [estimate.n for estimate in shown] == rows.n.tolist()
    taken = evidence.times.samples
    assert summaries.refused_count(taken[taken.job == taken.variant]) == rows.refused_count.sum()
    assert evidence.times.refused_samples >= rows.refused_count.sum()  # those of baselines and copies too
