"""Trains S(t) on labelled data into a checkpoint of its own, from which no iteration goes on (R-Zero B.3).

It is trained also if the guard ended the training of S(t) early, since a person may decide to go on with S(t). The
seeds, the count of steps and the names of the metrics are those of a chained training, so that both give the same
checkpoint from the same Solver.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from core.settings.config import CoEvolution
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context
from orchestrator.stages.training import running
from orchestrator.stages.training.jobs import labelled_job
from orchestrator.stages.training.metrics import labelled_metrics, replace_metrics
from orchestrator.stages.training.rollouts import StoredTraining, store_rollouts
from orchestrator.stages.training.sampling import samples
from storage import queries
from storage.files.checkpoints import publish, published_manifest, verify


def train_labelled(context: Context[CoEvolution]) -> LastWrite:
    labelled = context.config.labelled
    assert labelled is not None  # `orchestrator.plan` has this stage only then
    start = context.checkpoint("solver")
    sampling = samples(context.config, "solver", start)
    with context.serving(sampling) if sampling or context.config.serving.release else nullcontext():
        key = f"{context.iteration}/train_labelled"
        job = labelled_job(context.config, labelled, key, start, context.work_dir)
        verify(Path(start.path), start.sha256)  # the file may have been damaged since it was loaded
        result = running.run_training(context, job, steps_before=start.step)
        context.refuse_lost()
        checkpoint = publish(
            result.folder,
            context.run.home.checkpoints,
            run=context.run.name,
            role="labelled",
            iteration=context.iteration,
            step=start.step + result.step,
            parent=start.id,
        )
        trained = StoredTraining(context.work_dir, result.step, start.step)
        add_rollouts = store_rollouts(context, job.role, [trained])

    def last_write(session: Session) -> dict[str, Any]:
        queries.checkpoints.add_checkpoint(session, checkpoint, published_manifest(Path(checkpoint.path)))
        add_rollouts(session)
        steps = labelled_metrics(result.metrics, start.step)
        replace_metrics(session, context.key, job.role, steps, after=start.step)
        queries.usage.add_usage(session, context.key, "training", running.sampling_spent(job, result.metrics))
        return {"checkpoint": checkpoint.id, "sha256": checkpoint.sha256, "steps": result.step}

    return last_write
