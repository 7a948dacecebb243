"""Shipped variants, and what the newest archived run recorded of them."""

from small_run import shipped
from warpbook.common.files import PROJECT
from warpbook.problems import networks
from warpbook.runs import catalog, tables

FOUND = shipped()


def test_recorded_figures_of_shipped_variants_are_of_their_sources():
    run = [one for one in catalog.gpu_runs(PROJECT / catalog.ARCHIVES) if "fa18" in one.record["networks"]][-1]
    timed, shapes = FOUND.keys() & run.table(tables.OP_TIMES).variant, networks.find("fa18").shapes_sha256
    assert len(timed) > 25
    assert not {name for name in timed if run.another_source(name, FOUND[name].source_sha256, "fa18", shapes)}
