"""Networks as archived runs recorded them."""

from warpbook.problems import networks
from warpbook.runs import catalog


def test_recorded_runs_know_the_networks_of_2017_to_2019_as_they_are_described(committed_archive):
    recorded = catalog.open_run(committed_archive).record["networks"]
    assert {"fa17", "fa18", "fa19", "sp19"} <= recorded.keys()
    for name in ("fa17", "fa18", "fa19", "sp19"):
        assert networks.find(name).shapes_sha256 == recorded[name]["shapes_sha256"]
