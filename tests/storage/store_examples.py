"""Rows for the tests of the store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from types import ModuleType
from typing import Any
from uuid import uuid4

from sqlalchemy.orm import Session

from core.challenger.gates import Evidence
from core.settings.config import CoEvolution
from core.types import (
    Checkpoint,
    CheckpointRole,
    Evaluated,
    EvaluatedAnswer,
    JudgedAnswer,
    LabelledQuestion,
    OracleLabel,
    PseudoLabel,
    Question,
    Rollout,
    Spent,
    StageKey,
    TrainingRollout,
    checkpoint_id,
    question_id,
)
from storage import queries
from storage.models import Alerts, Annotations, AuditSamples, Deliveries, Series
from storage.queries.tables import insert_new
from storage.queries.training_rollouts import Training
from storage.rows import (
    AlertRow,
    AnnotationRow,
    ClusterRow,
    DeliveryRow,
    ExperimentRun,
    SampleRow,
    SeriesPoint,
    TrainedOnRow,
)
from storage.session import Store
from tests.synthetic_run import add_evaluations


class _InTransactions:
    """The functions of a module of queries, without their session: each call is a transaction of its own."""

    def __init__(self, transaction: Any, module: ModuleType) -> None:
        self._transaction, self._module = transaction, module

    def __getattr__(self, name: str) -> Any:
        of_module = getattr(self._module, name)
        if isinstance(of_module, ModuleType):
            return _InTransactions(self._transaction, of_module)

        def call(*arguments: Any, **named: Any) -> Any:
            with self._transaction() as session:
                return of_module(session, *arguments, **named)

        return call


def reads(store: Store) -> Any:
    return _InTransactions(store.read, queries)


def writes(store: Store) -> Any:
    return _InTransactions(store.write, queries)


def end_stage(store: Store, run: str, iteration: int = 1, stage: str = "label_questions") -> None:
    """Claim a stage and finish it."""
    key = {"run": run, "iteration": iteration, "stage": stage, "owner": "me"}
    writes(store).ledger.claim_stage(**key, lease_seconds=60)
    writes(store).ledger.finish_stage(**key, result={})


def in_four_threads(work: Callable[[], object]) -> None:
    """Call `work` in four threads at once; raises what it raises."""
    with ThreadPoolExecutor(4) as threads:
        for started in [threads.submit(work) for _ in range(4)]:
            started.result()


def checkpoint(run: str, role: CheckpointRole = "base", iteration: int = 0, parent: str | None = None) -> Checkpoint:
    key = checkpoint_id(run, role, iteration)
    return Checkpoint(key, run, role, iteration, 0, f"/models/{key}", f"sha of {key}", parent)


def question(run: str, index: int, text: str | None = "What is 1 + 2?") -> Question:
    raw = f"<question>{text}</question>"
    return Question(question_id(run, 1, index), run, 1, index, text, raw, f"{run}/base/0", 2**63 - 1 - index)


def rollout(run: str, index: int, sample: int, answer: str | None = "3", text: str = "so \\boxed{3}") -> Rollout:
    key = question_id(run, 1, index)
    return Rollout(key, sample, text, answer, 7, "stop", 0.1 + sample / 3, 0.0, f"{run}/base/0", index * 100 + sample)


def label(run: str, index: int) -> LabelledQuestion:
    vote = PseudoLabel("3", 6, 10, 9, 1, 0.6, "all", (("3", 6), ("4", 2)))
    return LabelledQuestion(question_id(run, 1, index), "What is 1 + 2?", vote, "kept")


def training_rollout(step: int = 1, prompt: int = 0, rollout: int = 0, **changes: Any) -> TrainingRollout:
    values: dict[str, Any] = {
        "question_id": None,
        "question": "What is 1 + 2?",
        "answer": "3",
        "label": "3",
        "agrees": True,
        "reward": 1.0,
        "parts": {"bonus": 0.25},
        "advantage": 0.5,
        "tokens": 7,
        "finish_reason": "stop",
        "mean_entropy": 0.25,
    }
    return TrainingRollout(step=step, prompt=prompt, rollout=rollout, **{**values, **changes})


def fresh_run(store: Store) -> str:
    """Create a run with its base model; returns the run's name."""
    name = f"run-{uuid4().hex}"
    with store.write() as session:
        queries.runs.create_run(session, name=name, config=CoEvolution())
        queries.checkpoints.add_checkpoint(session, checkpoint(name), {"model.safetensors": "00"})
    return name


def fill(session: Session, run: str) -> None:
    """Add at least one row to every table."""
    queries.run_leases.claim_run(session, run=run, owner="me", lease_seconds=60)
    queries.ledger.claim_stage(session, run=run, iteration=1, stage="evaluate", owner="me", lease_seconds=60)
    training = {"stage": "train_solver", "owner": "me", "kind": "GPU", "units": 2.0}
    queries.pool.join_pool(session, run=run, iteration=1, **training)
    queries.experiments.add_run(session, ExperimentRun(run, "tested", "full", 0, 1))
    queries.usage.add_usage(session, StageKey(run, 1, "evaluate"), "evaluation", Spent(4, 80, 400))
    queries.checkpoints.add_checkpoint(session, checkpoint(run, "solver", 1, f"{run}/base/0"), {})
    queries.questions.add_questions(session, [question(run, index) for index in range(3)])
    queries.questions.add_rollouts(session, [rollout(run, index, sample) for index in range(3) for sample in range(2)])
    queries.questions.add_labels(session, [label(run, index) for index in range(3)])
    queries.questions.add_evidence(
        session, [Evidence(question_id(run, 1, 0), "solvers", f"{run}/base/0", None, ("3",))]
    )
    queries.questions.add_oracle_labels(session, [OracleLabel(question_id(run, 1, 0), "exact", "right", "3")])
    queries.traces.add_clusters(session, [ClusterRow(question_id(run, 1, 0), run, 1, 0, 1)])
    queries.traces.add_trained_on(session, [TrainedOnRow(question_id(run, 1, 0), f"{run}/solver/1", [1])])
    queries.figures.add_train_metrics(session, run=run, iteration=1, role="solver", step=0, metrics={"reward": 0.5})
    queries.training_rollouts.add(session, Training(run, 1, "solver"), [training_rollout()])
    items = [Evaluated("item", None, 8, 3, True, False)]
    key = add_evaluations(session, checkpoint=f"{run}/solver/1", benchmark="micro", items=items)
    answer = EvaluatedAnswer("item", 0, "7", 0, "equal", 3, "stop")
    queries.evaluations.add_results(session, key, [], [answer])
    queries.evaluations.add_judged(session, key, [JudgedAnswer("item", 0, "judge", "right")])
    _watch(session, run)


def _watch(session: Session, run: str) -> None:
    """Add an audit, a figure, and an alert that has not been delivered yet."""
    key, now = question_id(run, 1, 0), datetime.now(UTC)
    insert_new(session, AuditSamples, [asdict(SampleRow(key, "human", run, 1, "kept", 0))])
    insert_new(session, Annotations, [asdict(AnnotationRow(key, "ann", "right", "", now))])
    insert_new(
        session,
        Series,
        [{"run": run, **asdict(SeriesPoint(1, "kept_share", "all", "", 0.5, 0.1, 0.9, 3, interval="count"))}],
    )
    alert = AlertRow(
        f"{run}/1/x", run, 1, "x", "kept_share", "all", "", "warning", 0.5, None, None, 3, None, None, "", now
    )
    insert_new(session, Alerts, [asdict(alert)])
    insert_new(session, Deliveries, [asdict(DeliveryRow(alert.id, "webhook", 0, now, None, None))])
