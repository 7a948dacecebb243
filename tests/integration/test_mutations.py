"""Damaged and hostile inputs, drawn at random, to every reader of files that may be a stranger's.

Each ends in a result or in a UserError: no other exception, none after 5 s or with 1 GiB. `make chaos` draws more.
"""

import csv
import gzip
import io
import json
import os
import sqlite3
import struct
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.kernels import sources
from warpbook.kernels.variants import read as read_variant
from warpbook.machine import host
from warpbook.problems import weights
from warpbook.profiling import importing
from warpbook.runs import catalog, tables

EXAMPLES = int(os.environ.get("CHAOS_EXAMPLES", "300"))  # over all readers
MEMORY_KIB = 1 << 20

WORDS = (
    b"", b"\0", b"\xff", b'"', b",", b"\n", b"\r", b"-1", b"-0.0", b"NaN", b"Infinity", b"1e999", b"9" * 30,
    b"9" * 5000, b"2147483648", b"18446744073709551616", b"[" * 20_000, b'{"a":' * 20_000, b"null", b"true", b"<x>",
    b"\xef\xbb\xbf", b"../../x", b"%s%n", b"\xed\xa0\x80", b"PK\x01\x02", b"\x7f\xff\xff\xff", b"a" * 100_000,
    b"*/", b'"""', b"&a [*a]",
)  # fmt: skip

EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 40), st.sampled_from(WORDS) | st.binary(max_size=4)),
    min_size=1,
    max_size=6,
)


def mutated(content: bytes, edits) -> bytes:
    """Content with words in the place of some of its bytes, at shares of its length."""
    for share, length, word in edits:
        place = int(share * len(content))
        content = content[:place] + word + content[place + length :]
    return content


# Each reader's share of the examples, and the time for one.
chaos = settings(
    max_examples=max(10, EXAMPLES // 6),
    deadline=timedelta(seconds=120),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    database=None,
)


@pytest.fixture(autouse=True)
def within_a_gibibyte():
    before = host.peak_memory_kib()
    yield
    assert host.peak_memory_kib() - before < MEMORY_KIB


@pytest.fixture(scope="module")
def members():
    """The files of a run with few rows in each table."""
    path = catalog.archived_paths(PROJECT / "tests/data/runs")[0]
    with zipfile.ZipFile(path) as packed:
        found = {name: packed.read(name) for name in packed.namelist()}
    samples, summaries = (tables.SAMPLES.name, tables.OP_TIMES.name)
    for name, content in found.items():
        if name.endswith(".gz") and name != samples:
            found[name] = gzip.compress(b"".join(gzip.decompress(content).splitlines(keepends=True)[:30]), 1)
        elif name.endswith(".csv") and name != summaries:
            found[name] = b"".join(content.splitlines(keepends=True)[:30])
    first = next(csv.DictReader(io.StringIO(found[summaries].decode())))
    place = [first[name] for name in ("problem", "case", "variant", "device", "size")]
    for name in (samples, summaries):  # those of one call, whole, so that they agree
        text = gzip.decompress(found[name]) if name == samples else found[name]
        head, *rows = csv.reader(io.StringIO(text.decode()))
        wanted = ",".join(place)
        kept = [row for row in rows if wanted in ",".join(row) and row[0] in (place[0], place[2])]
        held = io.StringIO()
        csv.writer(held, lineterminator="\n").writerows([head, *kept])
        found[name] = gzip.compress(held.getvalue().encode(), 1) if name == samples else held.getvalue().encode()
    for table in tables.RUN_TABLES:
        if table.name not in found:  # it came after this run
            content = table.text([], table.name).encode()
            found[table.name] = gzip.compress(content, 1) if table.name.endswith(".gz") else content
    return found


def packed(members) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


def opened(path):
    try:
        return catalog.open_run(path).problem
    except UserError as error:
        return str(error)


def test_the_run_that_is_mutated_is_sound_and_how_many_are_drawn_is_told(members, tmp_path, tried):
    (tmp_path / "run.zip").write_bytes(packed(members))
    assert opened(tmp_path / "run.zip") == ""

    outcome = "each ends in a result or in a sentence: no traceback, none over 5 s, none with 1 GiB"
    tried("a damaged or hostile input to one of six readers", 6 * chaos.max_examples, outcome)


@chaos
@given(
    edits=EDITS,
    name=st.sampled_from(["run.json", *(table.name for table in tables.RUN_TABLES)]),
    unpacked=st.booleans(),
)
def test_a_mutated_file_of_a_run(edits, name, unpacked, members, tmp_path):
    content = members[name]
    if name.endswith(".gz") and unpacked:
        content = gzip.compress(mutated(gzip.decompress(content), edits), 1)
    else:
        content = mutated(content, edits)
    (tmp_path / "run.zip").write_bytes(packed({**members, name: content}))
    opened(tmp_path / "run.zip")


@chaos
@given(edits=EDITS)
def test_a_mutated_zip(edits, members, tmp_path):
    (tmp_path / "run.zip").write_bytes(mutated(packed(members), edits))
    opened(tmp_path / "run.zip")


PROFILES = sorted((PROJECT / "tests/data/profiles").glob("*.[ct]*"))


@chaos
@given(edits=EDITS, path=st.sampled_from(PROFILES))
def test_a_mutated_text_of_a_profiler(edits, path, tmp_path):
    (tmp_path / "profile").write_bytes(mutated(path.read_bytes(), edits))
    try:
        importing.read(tmp_path / "profile")
    except UserError as error:
        assert "profile" in str(error)


@chaos
@given(edits=EDITS, tool=st.sampled_from(["nsys", "nvprof"]))
def test_a_mutated_database(edits, tool, databases, tmp_path):
    content = databases[tool].read_bytes()
    (tmp_path / "profile").write_bytes(mutated(content, edits))
    try:
        importing.read(tmp_path / "profile")
    except UserError as error:
        assert "profile" in str(error)


def parameters() -> bytes:
    """An MXNet file of two arrays."""
    content = struct.pack("<QQQ", 0x112, 0, 2)
    for shape in ((2, 3), (4,)):
        content += struct.pack("<IiI", 0xF993FAC9, 0, len(shape)) + struct.pack(f"<{len(shape)}q", *shape)
        content += struct.pack("<iii", 1, 0, 0) + np.zeros(shape, np.float32).tobytes()
    content += struct.pack("<Q", 2)
    for name in (b"arg:a", b"arg:b"):
        content += struct.pack("<Q", len(name)) + name
    return content


@chaos
@given(edits=EDITS)
def test_a_mutated_file_of_weights(edits, tmp_path):
    (tmp_path / "x.params").write_bytes(parameters())
    assert set(weights.read_mxnet(tmp_path / "x.params")) == {"a", "b"}
    (tmp_path / "x.params").write_bytes(mutated(parameters(), edits))
    try:
        weights.read_mxnet(tmp_path / "x.params")
    except UserError as error:
        assert "x.params" in str(error)


def test_an_array_of_weights_without_a_value_but_with_huge_extents_is_refused(tmp_path):
    content = parameters()
    held = struct.pack("<qq", 2, 3)
    assert held in content
    (tmp_path / "x.params").write_bytes(content.replace(held, struct.pack("<qq", 0, 1 << 62)))
    with pytest.raises(UserError, match=r"shape \[0, 4611686018427387904\]; the file is damaged"):
        weights.read_mxnet(tmp_path / "x.params")


@chaos
@given(edits=EDITS, name=st.sampled_from(["direct.cu", "fft.py", "loop_nest.py"]))
def test_a_mutated_kernel_or_launcher_is_a_variant_with_or_without_a_problem(edits, name, tmp_path):
    path = PROJECT / "kernels" / "conv" / name
    (tmp_path / name).write_bytes(mutated(path.read_bytes(), edits))
    assert isinstance(read_variant(path.stem, tmp_path).read_error, str)
    assert isinstance((sources.read_python if path.suffix == ".py" else sources.read_cuda)(tmp_path / name).code, str)


def test_what_would_unpack_to_more_than_is_read_is_refused(members, tmp_path):
    for name in ["builds.csv", "run.json"]:
        (tmp_path / "run.zip").write_bytes(packed({**members, name: bytes(200 << 20)}))
        assert f"{name} holds 209715200 bytes, more than the" in opened(tmp_path / "run.zip")

    (tmp_path / "run.zip").write_bytes(packed({**members, "samples.csv.gz": gzip.compress(bytes(200 << 20), 1)}))
    assert "unpacks to more than the 134217728 bytes" in opened(tmp_path / "run.zip") or "field larger" in opened(
        tmp_path / "run.zip"
    )


def test_an_encrypted_member_or_another_method_of_compression_is_told(members, tmp_path):
    content = bytearray(packed(members))
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + place] |= 1
    (tmp_path / "run.zip").write_bytes(content)
    assert "is encrypted; pack the run again without a password" in opened(tmp_path / "run.zip")

    for method in [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", method) as archive:
            for name, member in members.items():
                archive.writestr(name, member)
        (tmp_path / "run.zip").write_bytes(content.getvalue())
        assert f"is compressed by method {method}; pack the run with deflate" in opened(tmp_path / "run.zip")


def test_a_record_of_strange_values_is_refused_by_place(members, tmp_path):
    for old, new, words in [
        (b'"protocol": ', b'"protocol": 99999999999999999999', "is beyond 64 bits"),
        (b'"protocol": ', b'"protocol": ' + b"9" * 5000, "is beyond 64 bits"),
        (b'"copy_gb_per_s": ', b'"copy_gb_per_s": 1e999, "was": ', "is not finite"),
        (b'"copy_gb_per_s": ', b'"copy_gb_per_s": -1.0, "was": ', "machine.gpu.copy_gb_per_s: .* greater than 0"),
        (b'"cores": ', b'"cores": "many", "was": ', "machine.cpu.cores: "),
        (b'"run_id": "', b'"run_id": "../../', "run_id: "),
        (b'"ended": "', b'"ended": "later', "ended: "),
        (b'"networks": ', b'"networks": [], "were": ', "networks: "),
        (b'"studies": ', b'"more": ' + b"[" * 100_000 + b', "studies": ', "it nests too deep"),
    ]:
        record = members["run.json"]
        assert old in record
        (tmp_path / "run.zip").write_bytes(packed({**members, "run.json": record.replace(old, new, 1)}))
        with pytest.raises(UserError, match=words):
            catalog.open_run(tmp_path / "run.zip")


def forged_records(record: dict) -> Iterator[tuple[dict, str]]:
    """(what a record says of another run than it is of, why it is refused)."""
    later, long_ago = (datetime.now(UTC) + timedelta(days=3)).isoformat(), "1970-01-01T00:00:00+00:00"
    for run_id in ("..", ".", "../x", "a/b", "", "-x", "x" * 101):
        yield {"run_id": run_id}, "run_id: "
    for key in ("started", "ended"):
        for text, why in ((later, "in the future"), ("2026-13-01", "month"), ("", "isoformat"), (0, "string")):
            yield {key: text}, f"{key}: .*{why}"
    yield {"ended": long_ago}, "ended, 1970-01-01.*, is before started"
    for key, value in (("format", 99), ("protocol", "2"), ("networks", {"fa18": {"shapes_sha256": "", "sizes": [0]}}),
                       ("networks", {"fa18": {"shapes_sha256": "", "sizes": [-5]}}), ("studies", "fa18"),
                       ("measuring", {}), ("variants", {"direct": {}}), ("machine", {**record["machine"], "cpu": {"model": "x", "cores": 0}})):  # fmt: skip
        yield {key: value}, key


FORGED_CELLS = (
    ("samples.csv.gz", "time_ms", ("0", "-1", "1e-9", "1e300", "1e11", "inf", "nan")),
    ("samples.csv.gz", "sample", ("-1", "1.5", "9" * 20)),
    ("samples.csv.gz", "size", ("0", "-3")),
    ("op_times.csv", "n", ("1000000000", "0", "-1", "1")),
    ("op_times.csv", "median_ms", ("1e-9", "1e300", "nan")),
    ("op_times.csv", "ci_low_ms", ("1e-9",)),
    ("correctness.csv", "worst_ratio", ("-1", "inf", "2")),
    ("correctness.csv", "size", ("0", "9" * 19)),
    ("correctness.csv", "ok", ("yes", "", "false")),
    ("correctness.csv", "reason", ("word " * 401,)),
    ("op_times.csv", "variant", ("x" * 301,)),
)


def test_a_forged_archive_is_refused_with_its_row_and_column(members, tmp_path, tried):
    record = json.loads(members["run.json"])
    count = 0
    for forged, why in forged_records(record):
        content = json.dumps({**record, **forged}).encode()
        (tmp_path / "run.zip").write_bytes(packed({**members, "run.json": content}))
        with pytest.raises(UserError, match=why):
            catalog.open_run(tmp_path / "run.zip")
        count += 1
    for name, column, texts in FORGED_CELLS:
        for text in texts:
            held = gzip.decompress(members[name]) if name.endswith(".gz") else members[name]
            head, *rows = csv.reader(io.StringIO(held.decode()))
            place = next(
                n
                for n, row in enumerate(rows)
                if (row[head.index(column)] or column == "reason") and row[head.index("status")] == "ok"
            )
            rows[place][head.index(column)] = text
            forged_table = io.StringIO()
            csv.writer(forged_table, lineterminator="\n").writerows([head, *rows])
            content = forged_table.getvalue().encode()
            content = gzip.compress(content, 1) if name.endswith(".gz") else content
            (tmp_path / "run.zip").write_bytes(packed({**members, name: content}))
            words = opened(tmp_path / "run.zip")
            assert f"{name}, row {place + 2}, column {column}: " in words, (name, column, text, words)
            count += 1
    tried("an archive whose record, times or counts are forged", count, "refused with row and column")


def test_times_that_are_not_those_of_the_samples_are_refused(members, tmp_path):
    head, *rows = csv.reader(io.StringIO(members["op_times.csv"].decode()))
    assert len(rows) > 1
    for row in rows:  # all of them, in proportion, as a faster kernel would have them
        for name in ("median_ms", "ci_low_ms", "ci_high_ms"):
            row[head.index(name)] = repr(float(row[head.index(name)] or 1) / 2)
    forged = io.StringIO()
    csv.writer(forged, lineterminator="\n").writerows([head, *rows])
    (tmp_path / "run.zip").write_bytes(packed({**members, "op_times.csv": forged.getvalue().encode()}))
    assert "op_times.csv, row 2, column median_ms: " in opened(tmp_path / "run.zip")
    assert "but the median of its samples is" in opened(tmp_path / "run.zip")


def test_a_run_s_file_that_is_a_pipe_is_refused(members, tmp_path):
    for name, content in members.items():
        (tmp_path / name).write_bytes(content)
    assert opened(tmp_path) == ""
    (tmp_path / "builds.csv").unlink()
    os.mkfifo(tmp_path / "builds.csv")
    assert "builds.csv is no regular file" in opened(tmp_path)


@pytest.mark.parametrize("count", [1, 100])
def test_a_database_of_huge_names_is_refused(nsys_database, count):
    with sqlite3.connect(nsys_database) as database:
        size = (200 << 20) // 200 if count > 1 else 64 << 20
        database.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", ((10_000 + n, "x" * (size - 100)) for n in range(count))
        )
    with pytest.raises(UserError, match=r"string or blob too big|bytes of names, more than the"):
        importing.read(nsys_database)
