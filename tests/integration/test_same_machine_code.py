"""Sources that were moved and compile to the machine code that archived runs measured."""

import csv
import hashlib
import struct

import pytest

from warpbook.common.files import LIBRARY
from warpbook.harness import building
from warpbook.kernels import variants
from warpbook.runs import catalog, tables

ROWS = list(csv.DictReader((LIBRARY / "kernels" / "same_machine_code.csv").read_text("utf-8").splitlines()))


def machine_code_sha256(cubin: bytes) -> str:
    """SHA-256 of the machine code of all kernels: the sections .text.* of an ELF file of 64 bits, by name."""
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<3H", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + number * size) for number in range(count)]

    def name(place: int) -> bytes:
        begin = sections[names][4] + place
        return cubin[begin : cubin.index(b"\0", begin)]

    code = {name(one[0]): cubin[one[4] : one[4] + one[5]] for one in sections}
    return hashlib.sha256(b"".join(key + code[key] for key in sorted(code) if key.startswith(b".text."))).hexdigest()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['variant']} {row['arch']}")
def test_a_moved_source_compiles_to_the_machine_code_that_was_measured(row, built):
    variant = variants.read(row["variant"])
    assert variant.source_sha256 == row["source_sha256"], "the source changed again: drop the row"
    if building.compiler() != row["compiler"]:
        pytest.skip(f"the code is that of {row['compiler']}, and here is {building.compiler()}")
    assert machine_code_sha256(built(variant.name, row["arch"]).cubin) == row["machine_code_sha256"]


def test_a_moved_source_is_compiled_with_the_options_that_archived_runs_recorded():
    """With others, what they measured is stale all the same."""
    for row in ROWS:
        variant = variants.read(row["variant"])
        measured = [
            run
            for path in catalog.archived_paths()
            if (run := catalog.open_run(path)).record["variants"].get(variant.name, {}).get("source_sha256")
            == row["older_sha256"]
        ]
        builds = [build for run in measured for build in run.table(tables.BUILDS).itertuples()]
        recorded = [(one.arch, one.options) for one in builds if one.variant == variant.name]
        assert recorded == [(arch, building.recorded_options(variant, arch)) for arch, _ in recorded], row["variant"]
        assert recorded, f"no archived run holds {row['variant']} of that source: drop the row"


def test_what_was_measured_of_an_older_source_holds_for_its_own_architecture_and_no_other_source():
    row = ROWS[0]
    older, source = row["older_sha256"], row["source_sha256"]

    def stale(arch, now):
        record = {
            "variants": {row["variant"]: {"source_sha256": older}}, "networks": {"fa18": {"shapes_sha256": "shapes"}},
            "machine": {"gpu": {"arch": arch}},
        }  # fmt: skip
        return catalog.Run(LIBRARY, record).another_source(row["variant"], now, "fa18", "shapes")

    assert not stale(row["arch"], older) and not stale(row["arch"], source)
    assert stale("sm_100", source) == stale(row["arch"], "0" * 64) == "its sources changed after it was measured"
