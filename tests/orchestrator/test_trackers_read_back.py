"""What each tracker has after a run, read back from its files, and from the database of MLflow's real server.

The trackers' packages are extras of pyproject.toml, and a test is skipped where one is missing. MLflow's server needs
another environment than coevo; `COEVO_MLFLOW` is the path of the program `mlflow` there.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from core.settings.trackers import TRACKERS, TrackerName, Trackers
from orchestrator.installation.home import Home
from orchestrator.installation.ports import free_port
from orchestrator.trackers import tracked
from services.views.metrics import metrics_of
from storage.session import Store
from tests.live import wait_until
from tests.tracked_run import NAME, add, repeat_steps, tracked_run

pytestmark = pytest.mark.heavy
Points = list[tuple[str, int, float]]


def of_tensorboard(folder: Path) -> tuple[Points, dict[str, str]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    accumulator = EventAccumulator(str(folder), {"tensors": 0})
    accumulator.Reload()
    values = [
        (tag, event.step, make_ndarray(event.tensor_proto))
        for tag in accumulator.Tags()["tensors"]
        for event in accumulator.Tensors(tag)
    ]
    labels = {tag.removeprefix("run/"): value.item().decode() for tag, _, value in values if value.dtype == object}
    return [(tag, step, value.item()) for tag, step, value in values if value.dtype != object], labels


def of_wandb(folder: Path) -> tuple[Points, dict[str, str]]:
    points, labels, axes = Points(), dict[str, str](), dict[str, str]()
    [file] = folder.glob("wandb/offline-run-*/run-*.wandb")
    for record in wandb_records(file.read_bytes()):
        config = [*record.run.config.update, *record.config.update]
        labels |= {item.key or item.nested_key[0]: json.loads(item.value_json) for item in config}
        axes |= {record.metric.name: record.metric.step_metric} if record.metric.name else {}
        row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        points += [(name, row[axes[name]], value) for name, value in row.items() if axes.get(name)]
    return points, labels


def wandb_records(content: bytes) -> Iterator[Any]:
    """The records of W&B's file: pieces in blocks of 32 KiB, in the format of LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record

    at, whole = 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(whole)
            whole = b""


def of_trackio(folder: Path) -> tuple[Points, dict[str, str]]:
    with closing(sqlite3.connect(folder / "coevo.db")) as database:
        rows = database.execute("SELECT step, metrics FROM metrics WHERE run_name = ?", (NAME,)).fetchall()
        [(config,)] = database.execute("SELECT config FROM configs WHERE run_name = ?", (NAME,)).fetchall()
    return [(name, step, value) for step, row in rows for name, value in json.loads(row).items()], json.loads(config)


def of_mlflow(folder: Path) -> tuple[Points, dict[str, str]]:
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        points = database.execute("SELECT key, step, value FROM metrics").fetchall()
        tags = database.execute("SELECT key, value FROM tags").fetchall()
        assert len(database.execute("SELECT * FROM runs").fetchall()) == 1  # though it was opened often
    return points, {key.removeprefix("coevo."): value for key, value in tags}


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    if (program := os.environ.get("COEVO_MLFLOW")) is None:
        pytest.skip("COEVO_MLFLOW does not name the program mlflow of an environment with its server")
    port = free_port()
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    store = [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--default-artifact-root",
        str(folder / "artifacts"),
    ]
    quiet = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONPATH": ""}
    with (folder / "server.log").open("wb") as log:
        command = [program, "server", *where, *store]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=quiet, start_new_session=True)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, (folder / "server.log").read_text()
        try:
            return httpx.get(f"{url}/health").is_success
        except httpx.HTTPError:
            return False

    try:
        wait_until(answers, "MLflow's server")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # its workers too
        server.wait()


READERS: dict[TrackerName, Callable[[Path], tuple[Points, dict[str, str]]]] = {
    "tensorboard": of_tensorboard,
    "wandb": of_wandb,
    "mlflow": of_mlflow,
    "trackio": of_trackio,
}


@pytest.fixture(params=TRACKERS)
def trackers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trackers]:
    """One tracker; MLflow's server runs meanwhile."""
    pytest.importorskip(request.param, reason=f"{request.param} is not installed: pip install -e '.[{request.param}]'")
    if request.param == "mlflow":
        with mlflow_server(tmp_path) as url:
            yield Trackers(to=("mlflow",), mlflow_url=url)
    else:
        yield Trackers(to=(request.param,))


def test_a_tracker_has_each_point_once_though_the_run_was_killed_and_continued(
    trackers: Trackers, sqlite: Store, home: Home, tmp_path: Path
) -> None:
    [name] = trackers.to
    run = tracked_run(sqlite, home, trackers)
    add(sqlite, [1])
    killed = tracked._started(run, name)
    assert killed.process.stdin is not None
    killed.process.stdin.close()  # as when the run's process is killed
    assert killed.process.wait() in (0, -signal.SIGALRM)  # it is cut off where the machine is too busy
    for iterations in ([2], [3]):
        with tracked.tracked(run):
            add(sqlite, iterations)
            if name == "mlflow":  # a server on a busy machine may take longer than a run waits at its end
                wait_until(lambda: len(of_mlflow(tmp_path)[0]) == len(expected(sqlite, single=False)), "all points")
    if name != "mlflow":  # which can only be added to
        with tracked.tracked(run):
            repeat_steps(sqlite, 3, {15: 0.5, 16: 0.25})
    points, labels = READERS[name](tmp_path if name == "mlflow" else home.trackers / NAME / name)
    assert sorted(points) == sorted(expected(sqlite, single=name == "tensorboard"))
    assert {key: labels[key] for key in ("run", "seed", "checkpoint/solver/3")} == {
        "run": NAME,
        "seed": "7",
        "checkpoint/solver/3": f"{NAME}/solver/3",
    }


def expected(store: Store, *, single: bool) -> Points:
    points = Points()
    for metric in metrics_of(store, NAME):
        values: Mapping[str, float | None] = {
            metric.name: metric.value,
            f"{metric.name}/lower": metric.lower,
            f"{metric.name}/upper": metric.upper,
            f"{metric.name}/n": metric.n,
        }
        points += [
            (name, metric.x, float(np.float32(value)) if single else float(value))
            for name, value in values.items()
            if value is not None
        ]
    return points
