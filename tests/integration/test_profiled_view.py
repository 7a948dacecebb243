"""Optimizations under the profiler, as the report shows them: what a run holds of them, and what it lacks."""

import shutil

import pytest

from warpbook.common import units
from warpbook.config.settings import TimelineSpec
from warpbook.profiling import profile_schema
from warpbook.report.views import profile_tables
from warpbook.report.views.profile_tables import profile_places, program_profile
from warpbook.runs import tables


@pytest.fixture(scope="module")
def view(ev):
    return profile_tables.profiled_programs_view(ev)


def test_each_program_that_a_study_names_has_its_output_kernels_and_api_calls(ev, view):
    assert [program.name for program in view.programs] == ev.study.show_profile_of
    (program, *_) = view.programs
    assert program.outputs[0].splitlines()[0].endswith(f"--variant {program.name} --device gpu 10000")
    (watched,) = program.watched
    assert watched.problem == "" and watched.activities.id == watched.places[0] == f"profiled-{program.name}-gpu"
    assert "conv_forward" in [row[0] for row in watched.activities.rows]
    assert "cudaDeviceSynchronize" in [row[0] for row in watched.calls.rows]


def test_a_weight_set_is_shown_apart_and_what_was_not_watched_is_said(view, ev, evidence_of, small_archive):
    (watched,) = view.programs[1].watched
    assert "more than the 25000 that a run keeps" in watched.problem
    assert "1000 images" in watched.activities.caption

    watched = program_profile(ev, ev.plan.variants["direct"], ev.largest, profile_places("m3", "trained"), "trained")
    assert watched.problem == "it was not profiled with the weights trained in the cited run"
    assert watched.activities is watched.calls is None
    assert watched.places == ("m3-gpu-trained", "m3-api-trained")

    ev = evidence_of(small_archive)
    events = ev.profiles.events("direct", ev.largest)
    longer = events.assign(end_ns=events.end_ns + 7, weights="low")
    ev.profiles.by_weights["low"] = {(ev.profiles.tracer, "direct", ev.largest): longer}
    (first,) = (row for row in ev.profiles.rows("direct", ev.largest, ("kernel",)) if row.name == "conv_forward")
    (low,) = (row for row in ev.profiles.rows("direct", ev.largest, ("kernel",), "low") if row.name == "conv_forward")
    assert low.total_ns == first.total_ns + 7 * first.calls
    low = program_profile(ev, ev.plan.variants["direct"], ev.largest, profile_places("m3", "low"), "low")
    assert low.problem == ""


def test_of_a_program_with_too_many_events_the_sums_are_shown_at_the_size_named(
    view, evidence_of, archive, rewritten, tmp_path
):
    few, at_fewer = evidence_of(archive), view.programs[1].watched[0]
    streams = view.programs[1].name
    sums = profile_schema.sums(few.profiles.tracer, few.profiles.events(streams, 1000).to_dict("records"))
    place = {"variant": streams, "network": few.network.name, "size": few.largest, "weights": ""}
    tables.SUMMARIES.write(({**row, **place} for row in sums), tmp_path / "sums.csv")
    with_sums = shutil.copy(archive, tmp_path / "with-sums.zip")
    ev = evidence_of(rewritten(with_sums, tables.SUMMARIES.name, lambda _: (tmp_path / "sums.csv").read_bytes()))
    (watched,) = profile_tables.profiled_programs_view(ev).programs[1].watched
    assert not watched.problem and "10\u202f000 images" in watched.activities.caption
    assert watched.activities.rows == at_fewer.activities.rows and watched.calls.rows == at_fewer.calls.rows
    assert "more than the 25000 that a run keeps" in ev.profiles.events_problem(streams, ev.largest)


def test_a_layer_that_was_not_watched_at_the_size_named_is_drawn_at_one_that_was_and_that_is_said(ev, monkeypatch):
    within = ev.profiles.within_layer

    def lacking(variant, layer, size):
        found = within(variant, layer, size)
        return found[:0] if (variant, size) == ("constant_weights", 100) else found

    monkeypatch.setattr(ev.profiles, "within_layer", lacking)
    layer = profile_tables.profiled_programs_view(ev).layer
    assert layer.title == "conv1 at 100 images: direct against constant_weights"
    assert layer.problem.startswith("constant_weights was not profiled at 100 images")
    assert "at 10\u202f000 images" in layer.figure.caption


def test_beside_its_timeline_stand_a_layer_s_whole_call_and_the_call_that_one_variant_makes_alone(ev, view):
    longest = {}
    for name in ("direct", "constant_weights"):
        events = ev.profiles.within_layer(name, "conv1", 100)
        longest[name] = units.time(int(events.end_ns.max() - events.start_ns.min()) / 1e6)
    said = (
        "The layer's whole call takes {direct} with direct, {constant_weights} with constant_weights, which also calls"
    )
    assert said.format(**longest) + " cudaMemcpyAsync: " in view.layer.figure.caption
    assert ">cudaMemcpyAsync<" in view.layer.figure.svg and ">cudaGetDevice<" not in view.layer.figure.svg


def test_a_layer_s_timeline_holds_its_calls_copies_and_kernels_of_both_variants(ev):
    study = ev.study.model_copy(
        update={"timeline": TimelineSpec(variant="constant_weights", layer="conv1", size=10_000)}
    )
    ev.study, kept = study, ev.study
    layer = profile_tables.profiled_programs_view(ev).layer
    ev.study = kept
    assert layer.problem == "" and layer.figure.svg.startswith("<svg ")
    within = ev.profiles.within_layer("constant_weights", "conv1", 10_000)
    assert set(within.kind) == {"range", "kernel", "memcpy_dtod", "api_runtime", "api_driver"}
    assert (within.kind == "kernel").sum() == 1
