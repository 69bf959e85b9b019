"""The metrics of a training's steps are in the store while it runs, and are those of the result when it has ended."""

from __future__ import annotations

from sqlalchemy import text

from core.types import StageKey
from orchestrator.stages.training.metrics import labelled_metrics, replace_metrics, store_step
from storage import queries
from storage.session import Store
from tests.synthetic_run import context_of, create

RUN = "trained"


def rewards(store: Store) -> dict[tuple[int, str], float | None]:
    with store.read() as session:
        rows = queries.figures.train_metrics_of(session, RUN, iteration=1, role="solver")
    return {(row.step, row.name): row.value for row in rows if row.name != "step"}


def steps(*values: float) -> list[dict[str, float]]:
    return [{"step": float(step), "reward_mean": value} for step, value in enumerate(values, 1)]


def test_each_step_is_stored_as_it_ends_and_the_result_replaces_what_was_cut_off(store: Store) -> None:
    with store.write() as session:
        create(session, RUN)
        replace_metrics(session, StageKey(RUN, 1, "train_challenger"), "challenger", steps(9.0))
    context = context_of(store, RUN, 1)
    seen = []
    for metrics in steps(0.1, 0.2, 0.3):  # an attempt that is killed after three steps
        store_step(context, "solver", metrics)
        seen.append(len(rewards(store)))
    assert seen == [1, 2, 3]
    store_step(context, "solver", steps(0.1, 0.25)[1])  # it goes on after its step 1, on a GPU
    assert rewards(store) == {(1, "reward_mean"): 0.1, (2, "reward_mean"): 0.25}
    with store.write() as session:
        replace_metrics(session, StageKey(RUN, 1, "train_solver"), "solver", steps(0.1, 0.2))
    assert rewards(store) == {(1, "reward_mean"): 0.1, (2, "reward_mean"): 0.2}
    with store.read() as session:
        assert len(queries.figures.train_metrics_of(session, RUN, role="challenger", name="reward_mean")) == 1


def test_the_steps_of_a_branch_follow_those_of_the_solver_and_leave_them(store: Store) -> None:
    with store.write() as session:
        create(session, RUN)
        replace_metrics(session, StageKey(RUN, 1, "train_solver"), "solver", steps(0.1, 0.2))
        branch = labelled_metrics(steps(0.7), steps_before=2)
        replace_metrics(session, StageKey(RUN, 1, "train_labelled"), "solver", branch, after=2)
    assert rewards(store) == {
        (1, "reward_mean"): 0.1,
        (2, "reward_mean"): 0.2,
        (3, "labelled_reward_mean"): 0.7,
    }


def test_a_training_goes_on_if_a_step_cannot_be_stored(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, RUN)
    context = context_of(sqlite, RUN, 1)
    with sqlite.write() as session:
        session.execute(text("ALTER TABLE train_metrics RENAME TO renamed"))
    store_step(context, "solver", steps(0.1)[0])
