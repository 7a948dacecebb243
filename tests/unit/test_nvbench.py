"""Files that nvbench writes by `--jsonbin`, made as its json_printer.cu does."""

import json

import numpy as np
import pytest

import compare_runs
from warpbook.common.errors import UserError
from warpbook.problems import networks
from warpbook.profiling import nvbench


def written(path, medians_us, skipped=(), with_samples=True):
    """A file with a state for each median time, by the value of its axis."""
    states, folder = [], path.with_name(f"{path.name}-bin")
    folder.mkdir()
    for number, (value, median) in enumerate(medians_us.items()):
        times = np.random.default_rng(number).normal(median, 0.01 * median, 400) / 1e6
        times.astype("<f4").tofile(folder / f"{number}.bin")
        held = [
            {"name": "filename", "type": "string", "value": f"{folder.name}/{number}.bin"},
            {"name": "size", "type": "int64", "value": str(len(times))},
        ]
        summaries = [{"tag": nvbench.SAMPLE_TIMES, "name": "Sample Times File", "data": held}] if with_samples else []
        axes = [{"name": "Elements", "type": "int64", "value": value}]
        states.append({"name": f"Device=0 Elements={value}", "device": 0, "axis_values": axes, "summaries": summaries})
        states[-1] |= {"is_skipped": value in skipped}
    benchmarks = [{"name": "copy", "states": states}]
    path.write_text(json.dumps({"devices": [{"id": 0, "name": "NVIDIA H200"}], "benchmarks": benchmarks}))
    return path


def compare(monkeypatch, capsys, base, head):
    monkeypatch.setattr("sys.argv", ["compare_runs.py", "--base", str(base), "--head", str(head)])
    status = compare_runs.main()
    return status, capsys.readouterr().out


def test_the_tolerance_is_that_of_the_folder_s_configuration(tmp_path, monkeypatch, capsys):
    base, head = written(tmp_path / "a.json", {"10": 100}), written(tmp_path / "b.json", {"10": 110})
    monkeypatch.setattr(networks, "PROJECT", tmp_path)
    for text, status in [("", 3), ("tolerance: 0.2\n", 0)]:
        (tmp_path / "config.yaml").write_text(text)
        assert compare(monkeypatch, capsys, base, head)[0] == status


def test_states_of_two_files_are_judged_by_their_samples_and_the_tolerance(tmp_path, monkeypatch, capsys):
    base = written(tmp_path / "a.json", {"10": 100, "20": 200, "30": 300, "40": 1}, skipped=["40"])
    head = written(tmp_path / "b.json", {"10": 100.5, "20": 150, "30": 300, "50": 1})
    status, words = compare(monkeypatch, capsys, base, head)
    *states, end = words.splitlines()
    assert [line.split()[0] for line in states] == ["same", "faster", "same"]
    assert "copy Elements=20 on NVIDIA H200" in states[1] and states[1].split()[1].startswith("1.33")
    assert (status, end.split(";")[0]) == (0, "no regression")
    status, words = compare(monkeypatch, capsys, head, base)
    assert (status, words.splitlines()[-1].split(";")[0]) == (3, "regression")


def test_what_cannot_be_compared_is_refused_with_the_command_that_mends_it(tmp_path):
    base = written(tmp_path / "a.json", {"10": 100})
    for head, reason in (
        (written(tmp_path / "without.json", {"10": 100}, with_samples=False), "write them by `--jsonbin without.json`"),
        (written(tmp_path / "other.json", {"20": 100}), "no state in common"),
        (tmp_path / "missing.json", "No such file"),
    ):
        with pytest.raises(UserError, match=reason):
            nvbench.compare(base, head, 0.02)
    (tmp_path / "notes.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="is no file of nvbench"):
        nvbench.read(tmp_path / "notes.json")
    (tmp_path / "a.json-bin" / "0.bin").write_bytes(b"\0" * 12)
    with pytest.raises(UserError, match=r"0\.bin holds 3 samples, where .*a.json says 400"):
        nvbench.read(base)
