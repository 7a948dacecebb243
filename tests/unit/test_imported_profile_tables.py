"""Tables of imported profiles: which kernels come first, over how many launches, and under which names."""

from pathlib import Path

import pytest

from warpbook.profiling import imported_tables, importing
from warpbook.report.views import imported_profiles, profile_tables

LAUNCH = """\
  {name} ({grid}, 1, 1)x(16, 16, 1), Context 1, Stream 7, Device 0, CC 8.6
    Section: GPU Speed Of Light Throughput
    ---------------- ----------- ------------
    Metric Name      Metric Unit Metric Value
    ---------------- ----------- ------------
    Duration         {unit:>11} {time:>12}
    Elapsed Cycles         cycle      {cycles}
    ---------------- ----------- ------------

"""


@pytest.fixture
def counters(tmp_path):
    """The table of counters that a report shows of a profile with these launches."""

    def table(*launches: tuple[str, int, str, str, str], foreign: tuple[str, ...] = ()):
        path = tmp_path / "profile.txt"
        keys = ("name", "grid", "unit", "time", "cycles")
        path.write_text("".join(LAUNCH.format(**dict(zip(keys, launch, strict=True))) for launch in launches))
        profile = importing.read(path)
        record = imported_tables.ImportRecord(
            variant="direct", network="fa18", size=100, device=profile.device, foreign_kernels=list(foreign),
            files=[imported_tables.describe_file(path, profile)],
        )  # fmt: skip
        rows = importing.combine({"profile": profile}, "direct", "fa18", 100)
        imported_tables.write(tmp_path / "direct-100", record, rows)
        (one,) = imported_tables.imported_for_study(Path(tmp_path))
        return imported_profiles.imported_profile(one)

    return table


def test_the_longest_kernel_comes_first_with_one_row_for_each_counter_over_its_launches(counters):
    marker = ("marker()", 1, "us", "2.27", "1,500")
    profile = counters(
        *[marker] * 30, ("conv(float *)", 9, "ms", "1.00", "1,000"), ("conv(float *)", 9, "us", "3,000.00", "5,000"),
        foreign=("marker",),
    )  # fmt: skip
    (table,) = profile.counters
    assert table.rows == (
        ("conv", "2", "GPU Speed Of Light Throughput/Duration", "1.000", "2.000", "3.000", "ms"),
        ("conv", "2", "GPU Speed Of Light Throughput/Elapsed Cycles", "1000", "3000", "5000", "cycle"),
        ("marker", "30", "GPU Speed Of Light Throughput/Duration", "2.270", "2.270", "2.270", "us"),
        ("marker", "30", "GPU Speed Of Light Throughput/Elapsed Cycles", "1500", "1500", "1500", "cycle"),
    )
    assert "a GPU of compute capability 8.6" in table.caption
    assert profile.source.caption.endswith("Not kernels of direct: marker.")


def test_kernels_whose_names_would_be_equal_keep_what_tells_them_apart(counters):
    (table,) = counters(("conv(int)", 9, "ms", "1.00", "1,000"), ("conv(int)", 4, "ms", "2.00", "2,000")).counters
    assert [row[0] for row in table.rows[::2]] == ["conv (4, 1, 1)x(16, 16, 1)", "conv (9, 1, 1)x(16, 16, 1)"]
    names = {
        "void ns::conv<(int)3>(float *)": "ns::conv<(int)3>", "void ns::conv<(int)5>(float *)": "ns::conv<(int)5>",
        "pool(float *)": "pool(float *)", "pool(half *)": "pool(half *)", "void relu<float>(float *)": "relu<…>",
    }  # fmt: skip
    assert profile_tables.short_names(names) == names
