"""Shipped variants, and what the newest archived run recorded of them."""

from small_run import shipped
from warpbook.common.files import PROJECT
from warpbook.problems import case_sets
from warpbook.runs import catalog, tables

FOUND = shipped()


def test_recorded_figures_of_shipped_variants_are_of_their_sources():
    for cases, least in {"fa18": 25, "gemm": 20, "softmax": 10, "reduce": 7}.items():
        run = [one for one in catalog.gpu_runs(PROJECT / catalog.ARCHIVES) if cases in one.record["networks"]][-1]
        times, shapes = run.table(tables.OP_TIMES), case_sets.find(cases).shapes_sha256
        timed = FOUND.keys() & set(times[times.network == cases].variant)
        assert len(timed) > least
        assert not {name for name in timed if run.another_source(name, FOUND[name].source_sha256, cases, shapes)}
