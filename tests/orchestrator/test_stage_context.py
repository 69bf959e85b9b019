"""The checkpoint that a stage starts from, also in a run whose roles share a model: which application it uses, and what
a roll back goes back to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from core.settings.parsing import parse_config
from core.settings.templates import CHALLENGER_USER
from core.types import Checkpoint, Evaluated, Role, checkpoint_id
from orchestrator.installation.home import Home
from orchestrator.runs import prepare, result_of
from orchestrator.stages.check_health import check_health
from orchestrator.stages.generate_questions import generate_questions
from orchestrator.stages.label_questions import label_questions
from orchestrator.stages.train_solver import solver_job
from storage import queries
from storage.session import Store
from tests.fake_applications import fake_applications
from tests.synthetic_run import context_of, create, evaluate, finish, stored

TRAININGS: list[tuple[Role, int]] = [("challenger", 1), ("solver", 1), ("challenger", 2), ("solver", 2)]


def add(store: Store, role: Role, t: int) -> str:
    key = checkpoint_id("s", role, t)
    with store.write() as session:
        checkpoint = Checkpoint(key, "s", role, t, 1, "/m", key, "s/base/0")
        queries.checkpoints.add_checkpoint(session, checkpoint, {})
    return key


@pytest.mark.parametrize("shared", [False, True])
def test_a_training_starts_from_the_last_training_of_its_model(sqlite: Store, shared: bool) -> None:
    with sqlite.write() as session:
        create(session, "s", parse_config({"shared": shared}, "a test"))
    newest = {"challenger": "s/base/0", "solver": "s/base/0"}
    for role, t in TRAININGS:
        context = context_of(sqlite, "s", t)
        assert {role: context.checkpoint(role).id for role in context.config.roles} == newest
        trained = add(sqlite, role, t)
        newest |= dict.fromkeys(newest, trained) if shared else {role: trained}
    assert newest == {"challenger": "s/solver/2" if shared else "s/challenger/2", "solver": "s/solver/2"}


def test_the_model_that_wrote_the_questions_answers_them_in_the_same_application(sqlite: Store, tmp_path: Path) -> None:
    prepare(Home(tmp_path), sqlite, "s", "single", 0, {"dataset.candidates": 1, "dataset.votes": 2})
    with sqlite.write() as session:
        base = queries.checkpoints.get_checkpoint(session, "s/base/0")
        challenger = replace(base, id="s/challenger/1", role="challenger", iteration=1, parent=base.id)
        queries.checkpoints.add_checkpoint(session, challenger, {})
    replies = {CHALLENGER_USER: ["<question>1 + 1?</question> \\boxed{2}"], "1 + 1?": ["\\boxed{2}", "\\boxed{3}"]}
    with fake_applications(replies) as (services, requests):
        context = context_of(sqlite, "s", 1, home=tmp_path, services=services)
        for stage in (generate_questions, label_questions):
            stored(context, stage)
        serve = httpx.get(f"{services.dashboard_url}/api/serve/applications/").json()
    assert [(body["model"], body["policy_version"]) for body in requests] == [("solver", "s/challenger/1")] * 2
    assert serve["applications"].keys() == {"solver"}
    with sqlite.read() as session:
        [label] = queries.questions.labels_of(session, "s", 1)
    assert (label.verdict, label.label.p_hat if label.label else None) == ("kept", 0.5)
    job = solver_job(context, "1/train_solver", ())
    # Without a reference the KL is to the model that the job starts from.
    assert (job.start.id, job.reference) == ("s/challenger/1", None)


def test_a_roll_back_takes_the_model_as_the_earlier_iteration_left_it(sqlite: Store) -> None:
    """Iteration 2 gives one answer to all questions; both roles go on with the Solver of iteration 1."""
    guard = {"actions": {"one_answer": "roll_back"}, "window": 1}
    with sqlite.write() as session:
        create(session, "s", parse_config({"shared": True, "guard": guard, "audit": {"oracle": "none"}}, "a test"))
    for role, t in TRAININGS:
        add(sqlite, role, t)
    with sqlite.write() as session:
        for t in range(3):
            evaluate(session, "s", t, [Evaluated(f"i{i}", None, 8, 8 * (i < 5 + t), False, False) for i in range(9)], 1)
        metrics = {"same_label_share": 0.9, "step": 1.0}
        queries.figures.add_train_metrics(session, run="s", iteration=2, role="solver", step=1, metrics=metrics)
    result = stored(context_of(sqlite, "s", 2), check_health)
    assert (result["action"], result["back_to"]) == ("roll_back", {"challenger": "s/solver/1", "solver": "s/solver/1"})
    with sqlite.write() as session:
        finish(session, "s", 2, "check_health", result, 1)
    context = context_of(sqlite, "s", 3)
    assert {context.checkpoint(role).id for role in context.config.roles} == {"s/solver/1"}
    assert result_of(sqlite, "s") == "s/solver/1"
    trained = add(sqlite, "challenger", 3)
    assert {context.checkpoint(role).id for role in context.config.roles} == {trained}


def test_the_iteration_after_a_roll_back_starts_from_the_earlier_checkpoint(sqlite: Store) -> None:
    """Iteration 2 was rolled back to 1. The stages of iteration 2 itself still use its own Solver."""
    with sqlite.write() as session:
        create(session, "s")
    for t in (1, 2, 3):
        add(sqlite, "solver", t)
    with sqlite.write() as session:
        finish(session, "s", 2, "check_health", {"action": "roll_back", "back_to": {"solver": "s/solver/1"}}, 1)

    # (the stage's iteration, up to which the Solver is asked for) -> that Solver
    expected = {(1, 0): "base/0", (2, 1): "solver/1", (2, 2): "solver/2", (3, 2): "solver/1", (3, 3): "solver/3"}
    for (at, up_to), name in {**expected, (4, 1): "solver/1"}.items():
        assert context_of(sqlite, "s", at).checkpoint("solver", up_to).id == f"s/{name}"
