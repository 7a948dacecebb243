"""Archived runs in MLflow: each once, with its figures and what they are of."""

import subprocess
import sys

import pytest

import track_runs
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.report.run_history import History
from warpbook.runs import catalog

RUN = PROJECT / "tests" / "data" / "runs" / "20261121-nvidia-h200-42e94f.zip"


def test_without_mlflow_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UserError, match=r"mlflow is not installed: \.venv/bin/pip install 'mlflow-skinny==3"):
        track_runs.client("sqlite:///nowhere.db")


def test_figures_are_each_network_s_best_and_every_variant_with_the_ends_of_their_intervals():
    run = catalog.open_run(RUN)
    figures = dict(track_runs.figures(run, 0.02))
    headline = History([run], 0.02).for_network("fa18")[0]
    assert figures["fa18/gpu/best_ms"] == figures[f"fa18/gpu/{headline.best}_ms"] == headline.time.value
    assert figures["fa18/gpu/best_ms_low"] < figures["fa18/gpu/best_ms"] < figures["fa18/gpu/best_ms_high"]
    assert figures["fa18/gpu/best_speedup"] == headline.over[1].ratio.value
    assert {name.split("/")[0] for name in figures} == set(run.record["networks"])


def test_a_run_is_logged_once_with_its_figures_and_facts(tmp_path):
    mlflow = pytest.importorskip(
        "mlflow", reason="mlflow is not installed: pip install mlflow-skinny sqlalchemy alembic"
    )
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed, which MLflow needs for a database")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    store = track_runs.client(uri)
    run = catalog.open_run(RUN)
    assert track_runs.track(run, 0.02, store)
    assert not track_runs.track(run, 0.02, store)
    (experiment,) = [one for one in mlflow.MlflowClient(uri).search_experiments() if one.name == track_runs.EXPERIMENT]
    (logged,) = store.search_runs([experiment.experiment_id])
    assert logged.info.run_name == run.run_id
    assert logged.data.params["gpu"] == "NVIDIA H200"
    assert logged.data.metrics == pytest.approx(dict(track_runs.figures(run, 0.02)))


def test_the_program_says_what_it_lacks_without_a_traceback(tmp_path):
    (tmp_path / "mlflow.py").write_text("raise ImportError('none', name='mlflow')")
    command = [sys.executable, PROJECT / "scripts" / "track_runs.py", "--archived", RUN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr.startswith("error: mlflow is not installed")
    assert "Traceback" not in done.stderr
