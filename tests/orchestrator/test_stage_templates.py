"""The templates of a run's settings in all that its two roles are asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.settings.config import CoEvolution
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Labelled
from orchestrator.evaluation.models import find_model
from orchestrator.installation.home import MICRO_MODEL, Home
from orchestrator.question_sets.held_out import held_out_texts
from orchestrator.runs import prepare
from orchestrator.stages.evaluate import evaluate
from orchestrator.stages.generate_questions import generate_questions
from orchestrator.stages.label_questions import label_questions
from orchestrator.stages.train_solver import chained_job, solver_job
from orchestrator.stages.training.jobs import challenger_job
from storage import queries
from storage.session import Store
from tests.fake_applications import fake_applications
from tests.synthetic_run import context_of, stored
from trainers.base import TrainQuestion, TrainResult

SHOWN = "<question>What is 1 + 2?</question>\n\\boxed{3}"
TEMPLATES: dict[str, Any] = {
    "challenger.template.system": "",
    "challenger.template.user": "Pose one!",
    "challenger.template.examples": [SHOWN],
    "solver.template.system": "Be brief.",
    "solver.template.user": "Q: {question}",
    "solver.template.examples": [{"question": "What is 2 + 2?", "answer": "\\boxed{4}"}],
}
ASKED = ["What is 3 + 4?", "What is 1 + 2?", "What is 2 + 2?"]  # the last two are those of the worked examples


def challenger_chat() -> list[dict[str, str]]:
    request = {"role": "user", "content": "Pose one!"}
    return [request, {"role": "assistant", "content": SHOWN}, request]


def solver_chat(question: str) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Q: What is 2 + 2?"},
        {"role": "assistant", "content": "\\boxed{4}"},
        {"role": "user", "content": f"Q: {question}"},
    ]


def test_both_roles_are_asked_with_the_run_s_templates(sqlite: Store, tmp_path: Path) -> None:
    """A worked example's question is a duplicate, since the Solver has seen its answer or the Challenger copied it."""
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {"dataset.candidates": 3, "dataset.votes": 1, **TEMPLATES})
    posed = [f"<question>{question}</question> \\boxed{{0}}" for question in ASKED]
    with fake_applications({"Pose one!": posed, "3 + 4": ["\\boxed{7}"]}) as (services, requests):
        context = context_of(sqlite, "a", 1, home=tmp_path, services=services)
        for stage in (generate_questions, label_questions):
            stored(context, stage)
        assert [request["messages"] for request in requests] == [challenger_chat(), solver_chat("What is 3 + 4?")]
        with sqlite.read() as session:
            labels = queries.questions.labels_of(session, "a", 1)
        assert [row.verdict for row in labels] == ["too_easy", "duplicate", "duplicate"]
        start = context.checkpoint("solver")
        assert isinstance(context.config, CoEvolution)
        of_challenger = challenger_job(context.config, "k", start, start, "http://solver/v1", tmp_path)
        jobs = of_challenger, solver_job(context, "k", (TrainQuestion("q", "Why?", None),))
        assert jobs[0].template.messages() == challenger_chat()
        assert jobs[0].solver.template.messages("Why?") == jobs[1].template.messages("Why?") == solver_chat("Why?")
        labelled = chained_job(context, Labelled(file="micro", limit=4), jobs[1], TrainResult(MICRO_MODEL, 1, ()))
        assert labelled.template == jobs[1].template


def test_a_benchmark_without_a_prompt_of_its_own_is_asked_with_the_solver_s_template(
    sqlite: Store, tmp_path: Path
) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps({"problem": "Why?", "answer": "7"}))
    (tmp_path / "own.toml").write_text("title = 'o'\nsource = 's'\nsystem = ''\n")
    (tmp_path / "own.jsonl").write_text(json.dumps({"problem": "Who?", "answer": "7"}))
    evaluation = {"benchmark": str(tmp_path / "b.jsonl"), "also": [str(tmp_path / "own.toml")], "samples": 0}
    settings = {f"evaluation.{name}": value for name, value in evaluation.items()}
    config = prepare(Home(tmp_path), sqlite, "a", "demo", 0, {**settings, **TEMPLATES})
    with fake_applications({}) as (services, requests):
        last_write = evaluate(context_of(sqlite, "a", 0, home=tmp_path, services=services))
    assert last_write is not None
    assert [request["messages"] for request in requests] == [
        solver_chat("Why?"),
        [{"role": "user", "content": "Who?"}],
    ]
    assert isinstance(config, CoEvolution)
    assert held_out_texts(config) == {"Why?", "Who?", *ASKED[1:]}


def test_a_later_evaluation_of_a_run_s_model_asks_as_the_run_does(sqlite: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    prepare(home, sqlite, "a", "demo", 0, TEMPLATES)
    assert find_model(home, sqlite, "a:base", None, None).template.messages("Why?") == solver_chat("Why?")
    assert find_model(home, sqlite, str(MICRO_MODEL), None, None).template == RZERO_SOLVER
