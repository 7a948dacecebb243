"""What a verdict says of every file of the folder of cases, each checked by the program as a user's command would; about
ten minutes on two cores. `make test-cases` runs them."""

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from warpbook.common.files import PROJECT

CASES = PROJECT.parent / "shared" / "cases"
VERDICTS = Path(__file__).with_name("verdicts.csv")
LIMIT_S = 100

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the folder of cases is not here: {CASES}")


def expected() -> list[tuple[str, str, str]]:
    with VERDICTS.open(newline="") as file:
        return [(row["case"], row["verdict"], row["says"]) for row in csv.DictReader(file)]


def test_every_case_has_its_verdict():
    folders = [CASES / name for name in ("kernels", "wrong", "right", "course")]
    found = {f"{folder.name}/{path.stem}" for folder in folders for path in folder.glob("*.[cp][uy]")}
    assert found == {case for case, _, _ in expected()}


@pytest.mark.parametrize(("case", "verdict", "says"), expected(), ids=[case for case, _, _ in expected()])
def test_a_case_gets_its_verdict(tmp_path, case, verdict, says):
    """A failure's status and words where there is one, for whatever reason it is not judged at some size else."""
    folder, name = case.split("/")
    for path in (CASES / folder).iterdir():
        if path.stem == name or path.suffix in (".cuh", ".h"):
            shutil.copy(path, tmp_path)
    cases, sizes = ("ece408", ["100"]) if folder == "course" else ("fa18", ["10", "10000"])
    command = [
        sys.executable, PROJECT / "scripts" / "check_variant.py", "--device", "emulator", "--cases", cases, "--kernels",
        tmp_path, "--variant", name, "--sizes", *sizes, "--timeout", str(LIMIT_S), "--sandbox", "none", "--out",
        tmp_path / "rows.csv",
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), cwd=PROJECT, capture_output=True, text=True)
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    failed = [row for row in rows if row["ok"] != "true"]
    of_code = [row for row in failed if row["status"] != "unsupported"] or failed
    assert {row["status"] for row in of_code} == ({verdict} if verdict != "ok" else set()), of_code
    assert not says or re.search(says, " ".join(row["reason"] for row in of_code)), of_code
