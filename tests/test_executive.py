"""The executive page: what changed since the run before."""

from types import SimpleNamespace

from warpbook import runs
from warpbook.estimates import Estimate
from warpbook.report.views import executive


def test_what_changed_since_the_run_before_is_told_of_the_study_s_own_kernels(ev, monkeypatch, opened, newest_archive):
    def row(variant: str) -> SimpleNamespace:
        place = SimpleNamespace(network="fa18", device="gpu", size=ev.largest, variant=variant)
        return SimpleNamespace(place=place, speedup=Estimate(2.0, 1.9, 2.1, 9), verdict="faster")

    moved = [row("direct"), row("of_another_study")]
    monkeypatch.setattr(runs, "archived_before", lambda *_: opened(newest_archive))
    monkeypatch.setattr(executive, "Comparison", lambda *_: SimpleNamespace(obstacles={}, moved=moved))
    assert executive.view(ev).since == f"against run {newest_archive.stem}, direct 2.00× faster"
    moved.pop(0)
    assert executive.view(ev).since == ""
