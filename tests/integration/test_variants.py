"""Shipped variants, and what the newest archived run recorded of them."""

from small_run import shipped
from warpbook.common.files import PROJECT
from warpbook.runs import catalog, tables

FOUND = shipped()


def test_recorded_figures_of_shipped_variants_are_of_their_sources():
    run = [one for one in catalog.gpu_runs(PROJECT / catalog.ARCHIVES) if "fa18" in one.record["networks"]][-1]
    timed = FOUND.keys() & run.table(tables.OP_TIMES).variant
    recorded = run.record["variants"]
    assert len(timed) > 25
    assert not {name for name in timed if FOUND[name].source_sha256 != recorded[name]["source_sha256"]}
