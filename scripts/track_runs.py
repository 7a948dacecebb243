"""Log archived runs to MLflow, each once: what it ran on, and every variant's op time at the largest size.

    python scripts/track_runs.py --archived reports/runs/*.zip
    mlflow ui --backend-store-uri sqlite:///results/mlflow.db       # needs the package mlflow, not mlflow-skinny

They go to MLFLOW_TRACKING_URI; by default to a database in `results/`.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import IN_CLONE
from warpbook.report.run_history import History
from warpbook.runs import catalog
from warpbook.runs.catalog import Run

EXPERIMENT = "warpbook"
ID = "warpbook.run_id"
STORE = Path("results/mlflow.db")
MAX_VALUE_CHARACTERS = 200
METRICS_PER_BATCH = 500  # metrics of one request: MLflow takes a thousand


def client(uri: str) -> Any:
    """MLflow's client of a store; UserError where MLflow is not installed."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing of a run goes to anybody else
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        packages = "'mlflow-skinny==3.*' sqlalchemy alembic"
        command = f".venv/bin/pip install {packages}" if IN_CLONE else "pip install 'warpbook[track]'"
        raise UserError(f"{error.name or 'mlflow'} is not installed: {command}") from error
    return MlflowClient(uri)


def track(run: Run, tolerance: float, store: Any) -> bool:
    """Log a run unless it is there; whether it was logged."""
    found = store.get_experiment_by_name(EXPERIMENT)
    experiment = found.experiment_id if found else store.create_experiment(EXPERIMENT)
    if store.search_runs([experiment], f"tags.`{ID}` = '{run.run_id}'", max_results=1):
        return False
    from mlflow.entities import Metric, Param

    at = int(datetime.fromisoformat(run.record["ended"]).timestamp() * 1000)
    began = int(datetime.fromisoformat(run.record["started"]).timestamp() * 1000)
    logged = store.create_run(experiment, start_time=began, run_name=run.run_id).info.run_id
    store.log_batch(logged, params=[Param(key, value[:MAX_VALUE_CHARACTERS]) for key, value in facts(run)])
    metrics = [Metric(name, value, at, 0) for name, value in figures(run, tolerance)]
    for first in range(0, len(metrics), METRICS_PER_BATCH):
        store.log_batch(logged, metrics=metrics[first : first + METRICS_PER_BATCH])
    store.set_tag(logged, ID, run.run_id)  # last: what was broken off is logged again
    store.set_terminated(logged, end_time=at)
    return True


def facts(run: Run) -> Iterator[tuple[str, str]]:
    """What a run's figures are of."""
    record = run.record
    yield "commit", (record["commit"] or "unknown") + ("+" if record["dirty"] else "")
    yield "gpu", run.device_name("gpu")
    yield "cpu", run.device_name("cpu")
    yield "driver", str((run.gpu or {}).get("driver", "none"))
    yield "protocol", str(record["protocol"])
    yield "studies", ", ".join(record["studies"])


def figures(run: Run, tolerance: float) -> Iterator[tuple[str, float]]:
    """Each network's headline and op times, with the ends of their 95 % intervals, in ms."""
    history = History([run], tolerance)
    for line in history.headlines:
        place = f"{line.network}/{line.model.device}"
        yield from _with_interval(f"{place}/best_ms", line.time)
        if line.over:
            yield from _with_interval(f"{place}/best_speedup", line.over[1].ratio)
        for row in history.variants(line):
            yield from _with_interval(f"{place}/{row.name}_ms", row.time)


def _with_interval(name: str, estimate: Any) -> Iterator[tuple[str, float]]:
    plain = re.sub(r"[^\w/. -]", "_", name)[:MAX_VALUE_CHARACTERS]  # MLflow takes no other characters
    ends = {"": estimate.value, "_low": estimate.low, "_high": estimate.high}
    yield from ((plain + end, value) for end, value in ends.items() if value == value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archived", type=Path, nargs="*", default=[], help="archived runs")
    parser.add_argument("--tolerance", type=float, default=0.02, help="smallest change that is reported")
    arguments = parser.parse_args()
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{STORE}"
    store = client(uri)
    STORE.parent.mkdir(exist_ok=True)
    logged, there = 0, 0
    for path in arguments.archived:
        try:
            run = catalog.open_run(path).check_all()
        except UserError as error:
            print(f"passed over: {error}")
            continue
        new = track(run, arguments.tolerance, store)
        logged, there = logged + new, there + (not new)
    print(f"{logged} runs logged to {uri}, {there} were there")
    print(f"  next: mlflow ui --backend-store-uri {uri}, where the whole of MLflow is installed")


if __name__ == "__main__":
    sys.exit(exit_status(main))
