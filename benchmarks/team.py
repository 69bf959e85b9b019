"""Measures what a team's store costs: 120 short runs and one long one, whose history most requests need not read.

Fills a SQLite file, then takes the processor time of the API's answers, of `coevo status` and of deleting a run:

    python -m benchmarks.team FOLDER [REPEATS]     # fills FOLDER/coevo.db if it is not there
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

from fastapi.testclient import TestClient
from sqlalchemy import insert, update

from benchmarks import rest_store
from benchmarks.rest_store import Shape
from services.api.app import create_app
from storage import queries
from storage.models import Alerts, PoolJobs, Runs, Series
from storage.queries.tables import table_of
from storage.rows import ExperimentRun
from storage.session import Store, open_store

SHORT, LONG = Shape(runs=120, iterations=8, voted=40), Shape(runs=1, iterations=3, voted=20_000)
SEEDS = 8
_CALLS = {
    "metrics": "/metrics",
    "audits": "/api/v1/runs/bench-000/audits",
    "audits of the long run": "/api/v1/runs/long/audits",
    "costs": "/api/v1/runs/bench-000/costs",
    "pool": "/api/v1/pool",
    "runs": "/api/v1/runs?limit=20",
    "drifting runs": "/api/v1/runs?limit=20&sort=change",
    "alerts": "/api/v1/alerts?limit=50",
    "count of an export's rows": "/api/v1/runs/long/export/rows",
}


def fill(folder: Path) -> None:
    """Short runs `bench-000`…, a long one `long`, trainings that are done, alerts, and an experiment of five arms."""
    url = f"sqlite:///{folder / 'coevo.db'}"
    store = open_store(url, create=True)
    names = [f"bench-{number:03d}" for number in range(SHORT.runs)]
    for shape, runs in ((LONG, ["long"]), (SHORT, names)):
        for number, run in enumerate(runs):
            rest_store.add_run(store, run, shape, seed=number)
    now = datetime.now(UTC)
    with store.write() as session:
        jobs = [
            {"run": run, "iteration": t, "stage": stage, "owner": "bench", "kind": "CPU", "units": 2.0}
            | {"status": "done", "since": now - timedelta(minutes=t), "used": 60.0, "charged": None}
            for run in names
            for t in range(1, SHORT.iterations + 1)
            for stage in ("train_challenger", "train_solver")
        ]
        session.execute(insert(table_of(PoolJobs)), jobs)
        alerts = [
            {"id": f"{run}-{t}-{oracle}", "run": run, "iteration": t, "rule": "label_accuracy", "over": "kept"}
            | {"series": "label_accuracy", "oracle": oracle, "severity": "critical", "value": 0.5, "lo": 0.4, "hi": 0.6}
            | {"n": 100, "reference": 0.8, "threshold": 0.05, "text": "it fell", "raised_at": now - timedelta(hours=t)}
            | {"acknowledged_at": None, "acknowledged_by": None, "note": ""}
            for run in names[::4]
            for t in range(1, SHORT.iterations + 1)
            for oracle in ("exact", "judge")
        ]
        session.execute(insert(table_of(Alerts)), alerts)
        for position in range(5):
            for seed in range(SEEDS):
                row = ExperimentRun(names[SEEDS * position + seed], "arms", f"arm{position}", position, seed)
                queries.experiments.add_run(session, row)
        is_done = Runs.name.in_([name for number, name in enumerate(names) if number % 10])
        session.execute(update(table_of(Runs)).where(is_done).values(status="done"))
        of_labels = Series.name == "label_accuracy"
        falling = 0.9 - 0.05 * Series.iteration
        values = {"value": falling, "lo": falling - 0.03, "hi": falling + 0.03, "n": 400}
        session.execute(update(table_of(Series)).where(of_labels, Series.run.in_(names[::3])).values(values))
    store.close()


def measure(folder: Path, repeats: int = 5) -> dict[str, float | str]:
    """Seconds of this process's processor time: the median of `repeats` calls."""
    store = open_store(f"sqlite:///{folder / 'coevo.db'}")
    api = TestClient(create_app(store, folder, ask_for_keys=False), "http://localhost")
    figures: dict[str, float | str] = {}
    for name, path in _CALLS.items():
        status = api.get(path).status_code
        refused = f"HTTP {status}"
        figures[name] = _seconds(partial(api.get, path), repeats) if status == 200 else refused
    figures["status"] = _seconds(_status, 1, of_children=True)
    figures["delete a short run"] = _seconds(lambda: _delete(store), 1)
    store.close()
    return figures


def _status() -> None:
    subprocess.run([sys.executable, "-m", "orchestrator.cli", "status"], capture_output=True, check=False)


def _delete(store: Store) -> None:
    with store.write() as session:
        queries.runs.delete_run(session, "bench-001")


def _seconds(call: Callable[[], object], repeats: int, of_children: bool = False) -> float:
    def spent() -> float:
        times = os.times()
        return times.children_user + times.children_system if of_children else time.process_time()

    taken = []
    for _ in range(repeats):
        start = spent()
        call()
        taken.append(spent() - start)
    return round(median(taken), 4)


def main(folder: Path, repeats: int = 5) -> None:
    if not (folder / "coevo.db").exists():
        folder.mkdir(parents=True, exist_ok=True)
        fill(folder)
    copy = folder / "copy"  # since a run is deleted
    copy.mkdir(exist_ok=True)
    shutil.copyfile(folder / "coevo.db", copy / "coevo.db")
    os.environ["COEVO_HOME"] = str(copy)
    print(json.dumps(measure(copy, repeats), indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
