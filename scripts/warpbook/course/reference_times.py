"""How long the built-in kernels take that compute as a submission's baselines do: context, from an archived run."""

import functools
from typing import TYPE_CHECKING

from warpbook.config.settings import BuiltInTimes, Config, Context
from warpbook.runs import catalog, tables
from warpbook.runs.catalog import Run

if TYPE_CHECKING:
    import pandas as pd  # which takes a third of a second, and every command reads this module

BUILT_IN_COUNTERPARTS = {"basic": "direct", "unroll": "unroll_gemm", "fused": "fused_unroll_gemm"}
"""The built-in kernel that computes as a baseline does."""


def for_configuration(config: Config) -> Context | None:
    """Those of the chosen study's network at its largest size."""
    study = config.studies[config.study]
    layers = tuple(layer.name for layer in config.network(study.network).convs)
    return from_newest_run(study.network, layers, study.sizes[-1])


@functools.cache
def from_newest_run(network: str, layers: tuple[str, ...], images: int) -> Context | None:
    """`BUILT_IN_COUNTERPARTS`, and the fastest kernel and library, of the newest archived run of a network that timed all
    of the former."""
    run, _ = catalog.find_newest(network)
    while run is not None:
        if found := _from_run(run, network, layers, images):
            return found
        run = catalog.run_before(run, network)
    return None


def _from_run(run: Run, network: str, layers: tuple[str, ...], images: int) -> Context | None:
    times = run.table(tables.OP_TIMES)
    sound = (times.network == network) & (times["size"] == images) & (times.device == "gpu")
    sound &= (times.status == "ok") & times.kind.isin(["op", "layer"]) & (times.state == "cold") & (times.layer != "")
    medians = times[sound].pivot_table("median_ms", "variant", ["kind", "layer"], observed=True)
    if any((kind, layer) not in medians for kind in ("op", "layer") for layer in layers):
        return None
    known = run.record["variants"]
    rows = medians.dropna().iterrows()
    kernels = {str(name): _built_in(str(name), known[str(name)]["title"], row, layers) for name, row in rows}
    if not kernels.keys() >= {*BUILT_IN_COUNTERPARTS.values()}:
        return None
    fastest = sorted(kernels, key=lambda name: sum(kernels[name].op_ms))
    libraries = [name for name in fastest if known[name]["peer"]]
    wanted = dict.fromkeys([*BUILT_IN_COUNTERPARTS.values(), *fastest[:1], *libraries[:1]])
    return Context(
        run_id=run.run_id, gpu=run.device_name("gpu"), images=images, kernels=[kernels[name] for name in wanted]
    )


def _built_in(name: str, title: str, medians: "pd.Series", layers: tuple[str, ...]) -> BuiltInTimes:
    ops, whole = ([float(medians[kind, layer]) for layer in layers] for kind in ("op", "layer"))
    return BuiltInTimes(name=name, title=title, op_ms=ops, layer_ms=sum(whole))
