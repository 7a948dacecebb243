"""Profiles that somebody else took, from their files to the report."""

import hashlib
import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from markupsafe import Markup

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.profiling import imported_tables, importing
from warpbook.report import rendering
from warpbook.report.evidence import Evidence
from warpbook.report.views import imported_profiles as view
from warpbook.runs import tables

CAPTURED = PROJECT / "tests" / "data" / "profiles"
PROGRAM = PROJECT / "scripts" / "import_profile.py"
DEVICE = "NVIDIA TITAN V"
NVPROF = """\
==310== NVPROF is profiling process 310, command: python m3.1.py
==310== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   98.00%  980.00ms         2  490.00ms  330.00ms  650.00ms  conv_forward(float const *, float*)
                    2.00%  20.000ms        10  2.0000ms  1.0000us  19.000ms  [CUDA memcpy HtoD]
      API calls:   75.00%  3.00000s         6  500.00ms  10.000us  1.00000s  cudaDeviceSynchronize
                   25.00%  1.00000s        20  50.000ms  10.000us  900.00ms  cudaStreamCreateWithFlags
"""


def run_import(out: Path, size: int, *files: Path, device: str = DEVICE, variant: str = "direct") -> None:
    place = ["--study", "fa18", "--variant", variant, "--size", str(size), "--out", out, "--force"]
    command = [sys.executable, PROGRAM, *files, *place, *(["--device", device] if device else [])]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, program_by_nsys) -> Path:
    """What a student has: nvprof's log at 100 images, Nsight Systems' export and Nsight Compute's text at 10000."""
    out = tmp_path_factory.mktemp("imported")
    (out / "student.log").write_text(NVPROF)
    run_import(out, 100, out / "student.log")
    run_import(out, 10_000, program_by_nsys, CAPTURED / "ncu_console.txt", CAPTURED / "nvprof_metrics.txt")
    return out / "fa18"


@pytest.fixture(scope="module")
def program_by_nsys(tmp_path_factory) -> Path:
    import gzip

    path = tmp_path_factory.mktemp("nsys") / "program.sqlite"
    path.write_bytes(gzip.decompress((CAPTURED / "program_by_nsys.sqlite.gz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def ev(folder, small_archive, opened, planned) -> Evidence:
    """A machine without a GPU that cites no archived run: nothing is there but what was imported."""
    run = opened(small_archive)
    return Evidence(planned(gpu="none"), "fa18", run, imported_tables.imported_for_study(folder))


@pytest.fixture(scope="module")
def document(ev) -> str:
    return rendering.Documents(ev, datetime(2026, 1, 1, tzinfo=UTC), "", None).whole


def test_an_imported_profile_is_named_as_such_and_makes_the_tables_that_our_own_make(folder, ev):
    of_100, of_10000 = view.imported_profiles_view(ev)
    assert of_100.title == "Imported: direct at 100 images"
    log = folder.parent / "student.log"
    assert of_100.source.rows == (("student.log", "nvprof console text", hashlib.sha256(log.read_bytes()).hexdigest()),)
    shown = [*of_100.tables, *of_10000.tables, *of_10000.launches, *of_10000.counters, *of_10000.timelines]
    assert all(one.caption.startswith("Imported: ") and DEVICE in one.caption for one in shown)
    assert len({one.id for one in shown}) == len(shown)

    kernels, calls = view.imported_profiles_view(ev)[0].tables
    assert [column.label for column in kernels.head] == ["Name", "Share", "Time", "Calls", "Avg", "Min", "Max"]
    times = [f"{time}\u202fms" for time in ("980.0", "490.0", "330.0", "650.0")]
    assert kernels.rows[0] == ("conv_forward", "98.00\u202f%", times[0], "2", *times[1:])
    assert kernels.caption.endswith("The first 1 of 2 take 98.0\u202f%.")
    assert [row[0] for row in calls.rows] == ["cudaDeviceSynchronize", "cudaStreamCreateWithFlags"]

    profile = view.imported_profiles_view(ev)[1]
    assert [table.id.rpartition("-")[2] for table in profile.tables] == ["gpu", "api"]
    assert "conv_forward" in [row[0] for row in profile.tables[0].rows]
    (timeline,) = profile.timelines
    assert "<svg" in timeline.svg
    assert profile.launches[0].rows[0][:5] == ("conv_forward", "1", "3.874\u202fms", "16×6×10000", "16×16×1")
    assert [table.caption.split(", as ")[1].split(" read")[0] for table in profile.counters] == [
        "Nsight Compute", "nvprof",
    ]  # fmt: skip
    assert any("Duration" in row[2] or "duration" in row[2] for row in profile.counters[0].rows)


def test_with_nothing_but_imported_profiles_the_report_has_their_sections_and_the_check_list_leads_there(document):
    ids = set(re.findall(r'\bid="([^"]+)"', document))
    assert {"imported", "imported-direct-100", "imported-direct-10000-nsys-timeline"} <= ids
    rows = re.findall(r'<th scope="row"[^>]*>(First GPU[^<]*)</th>(.*?)</tr>', document, re.S)
    states = {name: Markup(rest.rpartition("<td")[2].partition(">")[2]).striptags() for name, rest in rows}
    leads = {name: re.search(r'href="#([^"]+)"', rest)[1] for name, rest in rows}
    assert states["First GPU kernel, kernels at 100 images"] == "imported"
    assert leads["First GPU kernel, API calls at 100 images"] == "imported-direct-100"
    assert states["First GPU kernel, kernels at 10 images"].startswith("Not measured: ")


def test_a_report_without_imported_profiles_does_not_speak_of_them(ev):
    assert view.imported_profiles_view(Evidence(ev.plan, "fa18", ev.local)) == ()
    assert imported_tables.imported_for_study(Path("no/such/folder")) == ()


def test_an_import_replaces_what_was_imported_there_before(tmp_path):
    run_import(tmp_path, 10, CAPTURED / "nvprof_metrics.txt", device="")
    run_import(tmp_path, 10, CAPTURED / "nsys_stats.csv", device="")
    (one,) = imported_tables.imported_for_study(tmp_path / "fa18")
    assert [file.name for file in one.record.files] == ["nsys_stats.csv"]
    assert one.table(tables.COUNTERS).empty and not one.table(tables.SUMMARIES).empty
    assert one.record.device == ""


def test_an_export_of_nsight_systems_names_its_gpu(tmp_path, program_by_nsys):
    named = tmp_path / "named.sqlite"
    named.write_bytes(program_by_nsys.read_bytes())
    with sqlite3.connect(named) as database:
        database.execute("CREATE TABLE TARGET_INFO_GPU (vmId, id, name)")
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H200')")
    database.close()
    assert importing.read(named).device == "NVIDIA H200"
    assert importing.read(program_by_nsys).device == ""


def test_a_damaged_record_is_named(tmp_path):
    run_import(tmp_path, 10, CAPTURED / "nvprof_metrics.txt")
    (record,) = tmp_path.glob("fa18/*/imported.json")
    record.write_text(record.read_text().replace('"size":10', '"size":"ten"').replace('"size": 10', '"size": "ten"'))
    with pytest.raises(UserError, match=r"imported\.json is damaged: import the profile again"):
        imported_tables.imported_for_study(tmp_path / "fa18")
