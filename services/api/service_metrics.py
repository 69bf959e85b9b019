"""Whether the services answer and how full the home's disk is, for Prometheus. The API's own state is `up`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric

from services.prefect.client import Prefect


def service_metrics(
    prefect: Prefect, prefect_answers: bool, folder: Path, ray_answers: Callable[[], bool] | None
) -> Iterator[Metric]:
    """Metrics of Ray and of Prefect, if the API knows them, of the flow runner, and of the disk of `folder`.

    Prefect knows whether the runner is at work, so nothing is said of the runner while Prefect does not answer.
    """
    up = GaugeMetricFamily("coevo_service_up", "1 if the service answers, 0 if it does not.", labels=("service",))
    if prefect.server is not None:
        up.add_metric(("prefect",), prefect_answers)
        if prefect_answers:
            up.add_metric(("runner",), prefect.has_runner())
    if ray_answers is not None:
        up.add_metric(("ray",), ray_answers())
    yield up
    disk = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists()))
    yield GaugeMetricFamily("coevo_home_free_bytes", "Free space on the disk of the home.", disk.free)
    yield GaugeMetricFamily("coevo_home_size_bytes", "Size of the disk of the home.", disk.total)
