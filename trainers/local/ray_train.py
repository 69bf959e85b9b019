"""Workers on a cluster: Ray Train places them, assigns their GPUs, and restarts all of them when one is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import ray
from ray.train import get_context
from ray.train.torch import TorchConfig, get_device
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from core.processes.imports import collection_paused
from trainers.local.order import Order, WorkersFailed
from trainers.local.ranks import Ranks

_FOLDER = "ray"  # the folder inside the job's `work_dir` for Ray Train's own files


def train_on_cluster(order: Order, restarts: int, resources: Mapping[str, float]) -> None:
    """Run a job's workers to their end, each with `resources` ("CPU", "GPU") of its own. Raises `WorkersFailed`."""
    use_gpu = "GPU" in resources
    trainer: Any = TorchTrainer(
        _worker,
        # The keys go through Ray's object store, because anyone who looks at Ray's state can see this configuration.
        train_loop_config={"order": replace(order, keys={}), "keys": ray.put(order.keys)},
        torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=order.job.training.workers, use_gpu=use_gpu, resources_per_worker=dict(resources)
        ),
        run_config=RunConfig(
            name=uuid4().hex,  # a new name keeps Ray Train from resuming by itself; checkpoints.py does that here
            storage_path=str(order.job.work_dir / _FOLDER),
            failure_config=FailureConfig(max_failures=restarts),
            logging_config=LoggingConfig(log_level="WARNING"),
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        failures = [*error.worker_failures.values()] if isinstance(error, WorkerGroupError) else [error]
        # Only the last line of each worker's traceback, without repetitions; `error` holds the complete ones.
        causes = {str(failure).strip().splitlines()[-1] for failure in failures}
        raise WorkersFailed("; ".join(sorted(causes))) from error


def _worker(config: dict[str, Any]) -> None:
    """The function that Ray Train runs in each worker."""
    with collection_paused():
        from trainers.local.worker import run_worker  # here, because the caller need not wait for this slow import
    order, context = replace(config["order"], keys=ray.get(config["keys"])), get_context()
    run_worker(order, Ranks(context.get_world_rank(), context.get_world_size()), get_device())
