import gzip
import math
import re
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpbook.common.errors import UserError
from warpbook.runs import tables
from warpbook.runs.schema import DTYPES, Column, Range, Table

SMALL = Table(
    "small.csv",
    "one thing",
    ("name", "number"),
    {
        "name": Column("string", "what it is called"),
        "number": Column("int64", "which it is"),
        "time_ms": Column("float64", "how long", Range(0, open=True), needed=True),
        "registers": Column("Int64", "how many", Range(0)),
        "share": Column("float64", "how much of the whole", Range(0, 1)),
        "status": Column("string", "ok, or why not"),
        "ok": Column("bool", "whether"),
    },
    ascending=("number", "registers"),
)
ROW = {"name": "a", "number": 1, "time_ms": 0.25, "registers": 32, "share": 0.5, "status": "ok", "ok": True}
FAILED = {**ROW, "number": 2, "time_ms": None, "registers": None, "share": None, "status": "timed_out", "ok": False}


def test_rows_come_back_as_they_were_written(tmp_path):
    for name in ["small.csv", "small.csv.gz"]:
        rows = [ROW, {**FAILED, "name": 'a, "b"\nc'}]
        SMALL.write(rows, tmp_path / name)
        frame = SMALL.read(tmp_path / name)
        assert frame.name.tolist() == ["a", 'a, "b"\nc']
        assert frame.time_ms.isna().tolist() == [False, True]
        assert frame.registers.isna().tolist() == [False, True]
        assert frame.ok.tolist() == [True, False]
        assert frame.dtypes.astype(str).to_dict() == {
            "name": "object", "number": "int64", "time_ms": "float64", "registers": "Int64", "share": "float64",
            "status": "object", "ok": "bool",
        }  # fmt: skip


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(blacklist_characters="\r\0", blacklist_categories=["Cs"])),
            st.floats(0, exclude_min=True, allow_infinity=False),
            st.one_of(st.none(), st.integers(5, 2**63 - 1)),
        ),
        max_size=5,
    )
)
def test_any_text_float_and_integer_survives_writing_and_reading(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("table") / "small.csv"
    rows = [
        {**ROW, "name": text, "number": number, "time_ms": value, "registers": registers}
        for number, (text, value, registers) in enumerate(values)
    ]
    SMALL.write(rows, path)
    frame = SMALL.read(path)
    assert frame.name.tolist() == [row["name"] for row in rows]
    assert frame.time_ms.tolist() == [row["time_ms"] for row in rows]
    assert [None if value is None or str(value) == "<NA>" else int(value) for value in frame.registers] == [
        row["registers"] for row in rows
    ]
    pd.testing.assert_frame_equal(SMALL.read_checked(path.read_bytes()), frame, check_exact=True)


def test_a_file_known_to_be_in_order_gives_the_same_frame_unchecked(tmp_path):
    for name in ["small.csv", "small.csv.gz"]:
        later = {"launches": Column("Int64", "how many", later=True), "note": Column("string", "what", later=True)}
        newer = replace(SMALL, name=name, columns={**SMALL.columns, **later})
        for rows in ([], [ROW, {**FAILED, "name": 'nan, "b"\n'}, {**ROW, "name": "", "number": 3, "time_ms": 5e-324}]):
            SMALL.write(rows, tmp_path / name)
            checked, content = newer.read(tmp_path / name), (tmp_path / name).read_bytes()
            pd.testing.assert_frame_equal(newer.read_checked(content), checked, check_exact=True)


DECEPTIVE = ["1\n", "\n1", " 1", "+1", "1_0", "\u0661", "\ud800", "0" * 19 + "1", "9" * 19, ".5", "1.", "1e5", "1e999",
             "nan", "inf", "-0", "--1", "1-", "-", "True", "1\n2"]  # fmt: skip


@pytest.mark.parametrize("name", ["number", "registers", "time_ms", "share", "ok"])
def test_of_deceptive_cells_a_column_reads_its_own_numbers_alone(name):
    def is_read(text):
        try:
            SMALL.columns[name].value(text)
        except ValueError:
            return False
        return True

    one = "0" * 19 + "1"
    whole, real = ["-0"], [one, "9" * 19, "1.", "1e5", "-0"]
    sound = {"number": whole, "registers": whole, "time_ms": real, "share": real, "ok": []}
    in_range = [
        text for text in sound[name] if name not in ("time_ms", "share") or float(text) in SMALL.columns[name].range
    ]
    assert [text for text in DECEPTIVE if is_read(text)] == in_range


def test_a_frame_written_again_gives_the_same_bytes(tmp_path):
    SMALL.write([ROW, FAILED], tmp_path / "once.csv.gz")
    SMALL.write(SMALL.read(tmp_path / "once.csv.gz").to_dict("records"), tmp_path / "twice.csv.gz")
    assert (tmp_path / "once.csv.gz").read_bytes() == (tmp_path / "twice.csv.gz").read_bytes()


HEADER = "name,number,time_ms,registers,share,status,ok\n"
SOUND = "a,1,2.5,3,0.5,ok,true\n"
BROKEN = {
    "an empty file": ("", "lacks the column 'name' of small.csv; it is empty"),
    "a missing column": ("name,number,time_ms,registers,share,status\n", "lacks the column 'ok'.*; it holds name"),
    "a misnamed column": (HEADER.replace("_ms", ""), "lacks the column 'time_ms'"),
    "a column too many": (HEADER.replace("ok", "ok,extra"), "has a column 'extra' that small.csv does not know"),
    "a column twice": (HEADER.replace("ok", "ok,ok"), "has the column 'ok' twice"),
    "a row too long": (HEADER + "a,1,2,3,0.5,ok,true,7\n", "row 2: 8 cells, but small.csv has 7 columns"),
    "a row too short": (HEADER + SOUND + "b,1\n", "row 3: 2 cells, but small.csv has 7 columns"),
    "an empty line": (HEADER + SOUND + "\n", "row 3: 0 cells"),
    "a word for a real": (HEADER + SOUND + "b,1,fast,3,0.5,ok,true\n", "row 3, column time_ms: 'fast' is not float64"),
    "a real NaN": (HEADER + "a,1,nan,3,0.5,ok,true\n", "row 2, column time_ms: 'nan' is not float64"),
    "an infinite real": (HEADER + "a,1,inf,3,0.5,ok,true\n", "row 2, column time_ms: 'inf' is not float64"),
    "a real beyond 64 bits": (HEADER + "a,1,1e999,3,0.5,ok,true\n", "row 2, column time_ms: '1e999' is beyond float64"),
    "a real with spaces": (HEADER + "a,1, 2,3,0.5,ok,true\n", "row 2, column time_ms: ' 2' is not float64"),
    "a time of zero": (HEADER + "a,1,0.0,3,0.5,ok,true\n", "row 2, column time_ms: '0.0' is not above 0"),
    "a negative time": (HEADER + "a,1,-1,3,0.5,ok,true\n", "row 2, column time_ms: '-1' is not above 0"),
    "no time though ok": (HEADER + "a,1,,3,0.5,ok,true\n", "row 2, column time_ms: empty, though the status is ok"),
    "a share above 1": (HEADER + "a,1,2,3,1.5,ok,true\n", "row 2, column share: '1.5' is not 0 to 1"),
    "a fraction for an integer": (HEADER + "a,1.5,2,3,,ok,true\n", r"row 2, column number: '1\.5' is not int64"),
    "digits of another script": (HEADER + "a,١,2,3,,ok,true\n", "row 2, column number: '١' is not int64"),
    "digits in groups": (HEADER + "a,1_0,2,3,,ok,true\n", "row 2, column number: '1_0' is not int64"),
    "no integer": (HEADER + "a,,2,3,,ok,true\n", "row 2, column number: '' is not int64"),
    "an integer of 65 bits": (HEADER + f"a,{2**63},2,3,,ok,true\n", f"row 2, column number: '{2**63}' is beyond int64"),
    "an integer of many digits": (HEADER + f"a,{'9' * 5000},2,3,,ok,true\n", "number: '9{80}' is not int64"),
    "a negative count": (HEADER + "a,1,2,-3,,ok,true\n", "row 2, column registers: '-3' is not 0 or more"),
    "a word for a truth": (HEADER + "a,1,2,3,,ok,yes\n", "row 2, column ok: 'yes' is not bool"),
    "a row twice": (HEADER + SOUND * 2, "row 3: a second row for name a, number 1"),
    "a fall in ascending columns": (HEADER + "a,9,2,3,,ok,true\n", "row 2, column registers: 3 is less than number, 9"),
    "bytes that are no text": (HEADER.encode() + b"\xff,1,2,3,,ok,true\n", r"small\.csv cannot be read as small\.csv"),
}  # fmt: skip


def test_a_file_that_breaks_the_contract_is_refused_with_row_and_column(tmp_path):
    for reader in [Table.read, Table.rows]:
        path = tmp_path / "small.csv"
        for fault, (content, words) in BROKEN.items():
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            assert re.search(words, refusal_of(reader, path)), fault


def refusal_of(reader, path):
    """What a table of a file is refused with; nothing where it is read."""
    try:
        reader(SMALL, path)
    except UserError as error:
        assert str(path) in str(error)
        return str(error)
    return ""


def test_a_fault_deep_in_a_long_file_is_told_with_its_row(tmp_path):
    rows = [f"a,{number},2.5,{number},0.5,ok,true\n" for number in range(10_000)]
    rows[9_000] = "a,9000,2.5,-1,0.5,ok,true\n"
    (tmp_path / "small.csv").write_text(HEADER + "".join(rows))
    for reader in (Table.read, Table.rows):
        assert "row 9002, column registers: '-1' is not 0 or more" in refusal_of(reader, tmp_path / "small.csv")


def test_a_truncated_gzip_is_refused_by_name(tmp_path):
    path = tmp_path / "small.csv.gz"
    path.write_bytes(gzip.compress((HEADER + SOUND * 50).encode())[:40])
    for reader in (Table.read, Table.rows):
        assert "small.csv.gz cannot be read" in refusal_of(reader, path)


def test_a_file_from_before_a_later_column_reads_as_though_its_cells_were_empty(tmp_path):
    newer = replace(SMALL, columns={**SMALL.columns, "launches": Column("Int64", "how many", later=True)})
    SMALL.write([ROW], tmp_path / "small.csv")
    assert newer.read(tmp_path / "small.csv").launches.isna().tolist() == [True]
    assert [row["launches"] for row in newer.rows(tmp_path / "small.csv")] == [None]


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    wrong = [("time_ms", math.inf), ("time_ms", -1.0), ("number", 2**63), ("registers", -1), ("time_ms", None)]
    for column, value in wrong:
        with pytest.raises(UserError, match=rf"small\.csv, row 2, column {column}"):
            SMALL.write([{**ROW, column: value}], tmp_path / "small.csv")
        assert list(tmp_path.iterdir()) == []


def test_a_carriage_return_in_a_text_does_not_end_its_row(tmp_path):
    SMALL.write([{**ROW, "name": "10 %\r100 %\r\nready"}], tmp_path / "small.csv")
    assert SMALL.read(tmp_path / "small.csv").name.tolist() == ["10 %\n100 %\nready"]


def test_a_row_that_lacks_a_column_is_a_mistake_of_ours(tmp_path):
    with pytest.raises(ValueError, match="lacks or adds ok"):
        SMALL.write([{name: value for name, value in ROW.items() if name != "ok"}], tmp_path / "small.csv")
    assert list(tmp_path.iterdir()) == []


def test_every_table_of_a_run_says_what_its_columns_mean():
    for table in tables.RUN_TABLES:
        assert set(table.key) <= table.columns.keys(), table.name
        mute = [name for name, column in table.columns.items() if not column.meaning or column.dtype not in DTYPES]
        assert not mute, table.name
        assert table.empty().columns.tolist() == list(table.columns)


CONTRACT = {
    "builds.csv": "variant arch source_sha256 options ok registers shared_bytes local_bytes spill_bytes log",
    "correctness.csv": "problem case variant size reference max_abs_err rel_l2_err tolerance mismatched_labels ok"
    " reason",
    "samples.csv.gz": "problem case variant device size state kind sample time_ms sm_clock_mhz energy_j throttled",
    "op_times.csv": "problem case variant device size state kind n median_ms ci_low_ms ci_high_ms stop_reason",
    "programs.csv": "user_s system_s elapsed_s max_rss_kib accuracy",
    "activities.csv.gz": "tool variant size kind name start_ns end_ns stream correlation grid block registers"
    " shared_bytes bytes",
    "counters.csv": "tool problem case variant metric unit value",
}


def test_tables_hold_the_columns_that_others_rely_on():
    known = {table.name: table.columns for table in tables.RUN_TABLES}
    assert not {
        (name, column) for name, held in CONTRACT.items() for column in held.split() if column not in known[name]
    }


def test_a_row_added_to_a_table_without_rows_is_in_no_other():
    changed = tables.ACTIVITIES.empty()
    changed.loc[0] = None
    assert len(changed) == 1 and tables.ACTIVITIES.empty().empty


def test_rows_read_without_pandas_are_those_that_pandas_reads(tmp_path):
    rows = [ROW, {**FAILED, "name": 'a, "b"\nc'}]
    SMALL.write(rows, tmp_path / "small.csv")
    assert SMALL.rows(tmp_path / "small.csv") == rows


def test_a_reason_is_cut_when_written_where_it_would_fill_pages():
    row = dict.fromkeys(tables.SANITIZER.columns, "") | {"errors": None, "reason": "word " * 1000}
    text = tables.SANITIZER.text([row], "x")
    assert text.endswith("word\N{HORIZONTAL ELLIPSIS}\n") and len(text) < tables.REASON + 200
