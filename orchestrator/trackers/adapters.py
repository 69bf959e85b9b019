"""What each tracker is told, and how. An adapter is entered once in the tracker's own process, and gives the function
that takes metrics and labels that the tracker has not yet; a label is the sha256 of a checkpoint, for example.

TensorBoard, W&B and Trackio get the run anew when an adapter is entered, so that they have each point once, whatever
became of the process before. MLflow's server keeps what it has, and is asked for it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from core.figures import FIGURES
from core.settings.trackers import TrackerName, Trackers
from services.views.metrics import Metric

Send = Callable[[Sequence[Metric], Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """The run of an adapter. `folder` is for the tracker's files, and may be missing."""

    run: str
    created: str  # another run may have had its name
    settings: Trackers
    folder: Path


@contextmanager
def _tensorboard(subject: Subject) -> Iterator[Send]:
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    shutil.rmtree(subject.folder, ignore_errors=True)
    writer = EventFileWriter(str(subject.folder))
    # A TensorBoard that has read the removed file forgets its points.
    writer.add_event(Event(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.START)))

    def send(metrics: Sequence[Metric], labels: Mapping[str, str]) -> None:
        now = time.time()
        for metric in metrics:
            figure = FIGURES.get(metric.name.partition("/")[0])
            about = figure and f"{figure.title}{figure.shown_unit and f', in {figure.shown_unit}'}: {figure.text}"
            for name, value in _values(metric).items():
                writer.add_event(Event(wall_time=now, step=metric.x, summary=scalar_pb(name, value, about)))
        for label, text in labels.items():
            writer.add_event(Event(wall_time=now, step=0, summary=text_pb(f"run/{label}", text)))
        writer.flush()

    yield send
    writer.close()


@contextmanager
def _wandb(subject: Subject) -> Iterator[Send]:
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    import wandb

    url, known = subject.settings.wandb_url, set[str]()
    key = f"{subject.run}-{re.sub('[^0-9]', '', subject.created)}"  # W&B may have a run of this name from elsewhere
    shutil.rmtree(subject.folder, ignore_errors=True)
    subject.folder.mkdir(parents=True)
    address = {} if url is None else {"base_url": url, "api_key": os.environ["WANDB_API_KEY"]}
    nothing_else = dict.fromkeys(("x_save_requirements", "save_code"), False) | dict.fromkeys(
        ("disable_git", "disable_job_creation", "x_disable_meta", "x_disable_stats", "x_disable_machine_info"), True
    )
    run = wandb.init(
        project=subject.settings.project,
        id=key,  # without `resume`, which would add to what W&B has of the run
        name=subject.run,
        dir=subject.folder,
        mode="offline" if url is None else "online",
        settings=wandb.Settings(**address, **nothing_else, console="off", silent=True),
    )

    def send(metrics: Sequence[Metric], labels: Mapping[str, str]) -> None:
        run.config.update(dict(labels), allow_val_change=True)
        for (axis, x), values in _rows(metrics):
            for name in sorted(values.keys() - known):
                known.add(name)
                run.define_metric(name, step_metric=axis)
            run.log({axis: x, **values})

    yield send
    run.finish()


@contextmanager
def _mlflow(subject: Subject) -> Iterator[Send]:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow import MlflowClient
    from mlflow.entities import Metric as Point
    from mlflow.entities import RunTag

    client, project = MlflowClient(subject.settings.mlflow_url), subject.settings.project
    experiment = client.get_experiment_by_name(project)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(project)
    tags = {"coevo.run": subject.run, "coevo.created": subject.created}
    same = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    earlier = client.search_runs([experiment_id], same)
    key = (earlier[0] if earlier else client.create_run(experiment_id, tags=tags, run_name=subject.run)).info.run_id
    client.update_run(key, status="RUNNING")
    names = client.get_run(key).data.metrics
    has = {(name, point.step, point.value) for name in names for point in client.get_metric_history(key, name)}
    status = ""

    def send(metrics: Sequence[Metric], labels: Mapping[str, str]) -> None:
        nonlocal status
        status, now = labels.get("status", status), int(1000 * time.time())
        values = [(name, metric.x, value) for metric in metrics for name, value in _values(metric).items()]
        points = [Point(name, value, now, x) for name, x, value in values if (name, x, value) not in has]
        new_tags = [RunTag(f"coevo.{name}", value) for name, value in labels.items()]
        for start in range(0, max(len(points), 1), _MLFLOW_BATCH):
            client.log_batch(key, points[start : start + _MLFLOW_BATCH], tags=new_tags)

    yield send
    client.set_terminated(key, {"failed": "FAILED", "cancelled": "KILLED"}.get(status, "FINISHED"))


@contextmanager
def _trackio(subject: Subject) -> Iterator[Send]:
    os.environ |= {"TRACKIO_DIR": str(subject.folder), "HF_HUB_OFFLINE": "1"}  # which are read when it is imported
    from trackio.sqlite_storage import SQLiteStorage  # `trackio.init` asks Hugging Face whose token this is

    shutil.rmtree(subject.folder, ignore_errors=True)
    config = dict[str, str]()

    def send(metrics: Sequence[Metric], labels: Mapping[str, str]) -> None:
        config.update({name: value for name, value in labels.items() if name != "status"})  # stored with rows only
        rows = [(x, values) for (_, x), values in _rows(metrics)]
        steps, values = [x for x, _ in rows], [values for _, values in rows]
        SQLiteStorage.bulk_log(subject.settings.project, subject.run, values, steps, config=config)

    yield send


_MLFLOW_BATCH = 1_000  # metrics that its server takes at once
ADAPTERS: dict[TrackerName, Callable[[Subject], AbstractContextManager[Send]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
}


def _values(metric: Metric) -> dict[str, float]:
    """The value of a metric by its name, and below it `lower`, `upper` and `n`, if it has them."""
    parts = {"": metric.value, "/lower": metric.lower, "/upper": metric.upper, "/n": metric.n}
    return {f"{metric.name}{part}": float(value) for part, value in parts.items() if value is not None}


def _rows(metrics: Sequence[Metric]) -> Iterator[tuple[tuple[str, int], dict[str, float]]]:
    """The values by axis and x, for trackers that take rows."""

    def place(metric: Metric) -> tuple[str, int]:
        return ("iteration" if metric.step is None else f"training/{metric.role}/step", metric.x)

    for key, group in groupby(sorted(metrics, key=place), place):
        yield key, {name: value for metric in group for name, value in _values(metric).items()}
