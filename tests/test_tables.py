import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpbook import tables
from warpbook.errors import UserError
from warpbook.tables import Column, Table

SMALL = Table(
    "small.csv",
    "one thing",
    ("name", "number"),
    {
        "name": Column("string", "what it is called"),
        "number": Column("int64", "which it is"),
        "time_ms": Column("float64", "how long"),
        "registers": Column("Int64", "how many"),
        "ok": Column("bool", "whether"),
    },
)
ROW = {"name": "a", "number": 1, "time_ms": 0.25, "registers": 32, "ok": True}


@pytest.mark.parametrize("name", ["small.csv", "small.csv.gz"])
def test_rows_come_back_as_they_were_written(tmp_path, name):
    rows = [ROW, {**ROW, "number": 2, "time_ms": None, "registers": None, "ok": False, "name": 'a, "b"\nc'}]
    SMALL.write(rows, tmp_path / name)
    frame = SMALL.read(tmp_path / name)
    assert frame.name.tolist() == ["a", 'a, "b"\nc']
    assert frame.time_ms.isna().tolist() == [False, True]
    assert frame.registers.isna().tolist() == [False, True]
    assert frame.ok.tolist() == [True, False]
    assert frame.dtypes.astype(str).to_dict() | {"name": ""} == {
        "name": "", "number": "int64", "time_ms": "float64", "registers": "Int64", "ok": "bool"
    }  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(blacklist_characters="\r\0", blacklist_categories=["Cs"])),
            st.floats(allow_nan=False, width=64),
            st.one_of(st.none(), st.integers(-(2**53), 2**53)),
        ),
        max_size=5,
    )
)
def test_any_text_float_and_integer_survives_writing_and_reading(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("table") / "small.csv"
    rows = [
        {"name": text, "number": number, "time_ms": value, "registers": registers, "ok": True}
        for number, (text, value, registers) in enumerate(values)
    ]
    SMALL.write(rows, path)
    frame = SMALL.read(path)
    assert frame.name.tolist() == [row["name"] for row in rows]
    assert frame.time_ms.tolist() == [row["time_ms"] for row in rows]
    assert [None if value is None or str(value) == "<NA>" else int(value) for value in frame.registers] == [
        row["registers"] for row in rows
    ]


def test_a_frame_written_again_gives_the_same_bytes(tmp_path):
    SMALL.write([ROW, {**ROW, "number": 2, "registers": None, "time_ms": None}], tmp_path / "once.csv.gz")
    SMALL.write(SMALL.read(tmp_path / "once.csv.gz").to_dict("records"), tmp_path / "twice.csv.gz")
    assert (tmp_path / "once.csv.gz").read_bytes() == (tmp_path / "twice.csv.gz").read_bytes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,number,time_ms,ok\na,1,2,true\n", r"small\.csv lacks the column 'registers'"),
        ("name,number,time,registers,ok\n", r"lacks the column 'time_ms'"),
        ("name,number,time_ms,registers,ok,extra\n", "has a column 'extra'"),
        ("name,number,time_ms,registers,ok\na,1,2,3,true\nb,1,x,3,true\n", "row 3, column time_ms: 'x' is not float64"),
        ("name,number,time_ms,registers,ok\na,1.5,2,3,true\n", r"row 2, column number: '1\.5' is not int64"),
        ("name,number,time_ms,registers,ok\na,,2,3,true\n", r"row 2, column number: '' is not int64"),
        ("name,number,time_ms,registers,ok\na,1,2,3,yes\n", r"row 2, column ok: 'yes' is not bool"),
        ("name,number,time_ms,registers,ok\na,1,2,3,true\na,1,2,3,true\n", r"row 3: a second row for name a, number 1"),
        ("", r"small\.csv cannot be read as small\.csv"),
        ("name,number,time_ms,registers,ok\na,1,2,3,true,7,8\n", r"small\.csv"),
    ],
)
def test_a_file_that_breaks_the_contract_is_refused_with_row_and_column(tmp_path, text, words):
    path = tmp_path / "small.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        SMALL.read(path)


def test_a_truncated_gzip_is_refused_by_name(tmp_path):
    path = tmp_path / "small.csv.gz"
    path.write_bytes(gzip.compress(b"name,number,time_ms,registers,ok\na,1,2,3,true\n" * 50)[:40])
    with pytest.raises(UserError, match=r"small\.csv\.gz cannot be read"):
        SMALL.read(path)


def test_a_row_that_lacks_a_column_is_a_mistake_of_ours(tmp_path):
    with pytest.raises(ValueError, match="lacks or adds ok"):
        SMALL.write([{name: value for name, value in ROW.items() if name != "ok"}], tmp_path / "small.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("table", tables.RUN_TABLES, ids=lambda table: table.name)
def test_every_table_of_a_run_says_what_its_columns_mean(table):
    assert set(table.key) <= table.columns.keys()
    assert all(column.meaning and column.dtype in tables.DTYPES for column in table.columns.values())
    assert table.empty().columns.tolist() == list(table.columns)


CONTRACT = {
    "builds.csv": "variant arch source_sha256 options ok registers shared_bytes local_bytes spill_bytes log",
    "correctness.csv": "variant network layer size reference max_abs_err rel_l2_err tolerance mismatched_labels ok"
    " reason",
    "samples.csv.gz": "variant network layer device size state kind sample time_ms sm_clock_mhz throttled",
    "op_times.csv": "variant network layer device size state kind n median_ms ci_low_ms ci_high_ms stop_reason",
    "programs.csv": "user_s system_s elapsed_s max_rss_kib accuracy",
    "activities.csv.gz": "tool variant size kind name start_ns end_ns stream correlation grid block registers"
    " shared_bytes bytes",
    "counters.csv": "tool variant layer metric unit value",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_tables_hold_the_columns_that_others_rely_on(name):
    table = next(table for table in tables.RUN_TABLES if table.name == name)
    assert set(CONTRACT[name].split()) <= table.columns.keys()


def test_rows_read_without_pandas_are_those_that_pandas_reads(tmp_path):
    rows = [ROW, {**ROW, "number": 2, "time_ms": None, "registers": None, "ok": False, "name": 'a, "b"\nc'}]
    SMALL.write(rows, tmp_path / "small.csv")
    assert SMALL.rows(tmp_path / "small.csv") == rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,number,time_ms,registers\n", "lacks or adds the columns ok of small.csv"),
        ("name,number,time_ms,registers,ok\na,1,fast,,true\n", "row 2, column time_ms: 'fast' is not float64"),
        ("name,number,time_ms,registers,ok\na,,1,,true\n", "row 2, column number: '' is not int64"),
        ("name,number,time_ms,registers,ok\na,1,1,,yes\n", "row 2, column ok: 'yes' is not bool"),
        ("name,number,time_ms,registers,ok\na,1\n", "row 2, column time_ms: None is not float64"),
    ],
)
def test_a_small_file_that_breaks_the_contract_is_refused_with_row_and_column(tmp_path, text, words):
    (tmp_path / "small.csv").write_text(text)
    with pytest.raises(UserError, match=words):
        SMALL.rows(tmp_path / "small.csv")
