"""A synthetic run in a real store: three iterations that look like the demo's, drawn from a seed without any model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from core.questions.filtering import band_verdict, filter_questions, statistics
from core.settings.config import CoEvolution, RunConfig
from core.settings.parsing import parse_config
from core.types import (
    Checkpoint,
    CheckpointRole,
    Evaluated,
    LabelledQuestion,
    PseudoLabel,
    Question,
    Role,
    Stage,
    Verdict,
    checkpoint_id,
    question_id,
)
from orchestrator.installation.home import Home, Services
from orchestrator.ledger import LEASE_S, LastWrite, owner
from orchestrator.run import Run
from orchestrator.stages.context import Context
from services.oracles import exact
from services.run_report.figures import figures
from storage import queries
from storage.models import Stages
from storage.session import Store
from trainers.micro.world import make_problem

CONFIG = parse_config(
    {
        "seed": 7,
        "iterations": 3,
        "dataset": {"candidates": 320, "delta": 0.2},
        "challenger": {"training": {"steps": 6, "prompts_per_step": 32}},
        "solver": {"training": {"steps": 20, "prompts_per_step": 48, "rollouts_per_prompt": 8}},
    },
    source="the synthetic run",
)
# iteration -> the probability that a sampled answer is right, and that a greedy one is
SKILL = {0: (0.27, 0.26), 1: (0.55, 0.74), 2: (0.66, 0.78), 3: (0.63, 0.75)}
STAGES: tuple[tuple[Stage, float], ...] = (
    ("train_challenger", 38.0),
    ("generate_questions", 4.0),
    ("label_questions", 21.0),
    ("train_solver", 74.0),
    ("evaluate", 49.0),
    ("audit_labels", 0.4),
    ("check_health", 0.1),
)
NO_SERVICES = Services("", "", "", "", "", {})
START = datetime(2025, 3, 1, 9, 0, tzinfo=UTC)


def create(session: Session, run: str, config: RunConfig = CONFIG) -> None:
    """Create a run that has its base model and no finished stage."""
    queries.runs.create_run(session, name=run, config=config, preset="demo")
    _checkpoint(session, run, "base", 0, None)


def fill_run(store: Store, run: str, per_level: int = 40, seed: int = 1) -> None:
    """Create a run with three finished iterations; its benchmark has `per_level` questions for each of six levels."""
    rng = random.Random(seed)
    with store.write() as session:
        create(session, run)
        evaluate(session, run, 0, _held_out(rng, 0, per_level), took=49.0)
        for t in range(1, 4):
            add_iteration(session, run, t, rng, per_level)
        queries.runs.set_run_status(session, run, "done")


def fork_run(store: Store, of: str, last: int, name: str, *, own: bool = True, config: RunConfig = CONFIG) -> None:
    """Create a run that begins after an iteration of another one, and that has made the one after it if it is its
    `own`."""
    with store.write() as session:
        queries.runs.create_run(session, name=name, config=config, preset="demo")
        queries.forks.add(session, name, queries.forks.makers(session, of, last))
        if own:
            add_iteration(session, name, last + 1, random.Random(2), per_level=40)


def add_iteration(session: Session, run: str, t: int, rng: random.Random, per_level: int) -> None:
    for role in ("challenger", "solver"):
        parent = queries.checkpoints.id_of(session, run, role if t > 1 else "base", t - 1)
        _checkpoint(session, run, role, t, parent)
        _training(session, run, t, role, rng)
    label(session, run, t, _votes(rng, run, t), config=CONFIG)
    evaluate(session, run, t, _held_out(rng, t, per_level), took=0)
    for stage, took in STAGES:
        result = {"checkpoint": f"{run}/solver/{t}"} if stage == "evaluate" else {}
        finish(session, run, t, stage, result, took * rng.uniform(0.9, 1.1))


def finish(session: Session, run: str, t: int, stage: Stage, result: dict[str, Any], took: float) -> None:
    """Mark a stage done in the ledger, as if it had taken so many seconds."""
    queries.ledger.claim_stage(session, run=run, iteration=t, stage=stage, owner="me", lease_seconds=60)
    if any(
        s.stage == stage and s.iteration == t and s.status == "running" for s in queries.ledger.stages_of(session, run)
    ):
        queries.ledger.finish_stage(session, run=run, iteration=t, stage=stage, owner="me", result=result)
    key = (Stages.run == run, Stages.iteration == t, Stages.stage == stage)
    times = {"started_at": START, "finished_at": START + timedelta(seconds=took)}
    session.execute(update(Stages).where(*key).values(**times))


def held_out(correct: list[int], greedy: list[int], majority: list[int]) -> list[Evaluated]:
    """Items with 8 samples each; the first half of the items are of level 1, the rest of level 2."""
    levels = ["1" if 2 * i < len(correct) else "2" for i in range(len(correct))]
    rows = zip(correct, greedy, majority, levels, strict=True)
    return [Evaluated(f"i{i}", level, 8, right, bool(g), bool(m)) for i, (right, g, m, level) in enumerate(rows)]


def add_evaluations(session: Session, *, checkpoint: str, benchmark: str, items: Iterable[Evaluated]) -> str:
    """Store results of a run's checkpoint on a benchmark, as the stages of its run do; returns the evaluation's key."""
    run, names = checkpoint.partition("/")[0], {"model": checkpoint, "checkpoint": checkpoint, "benchmark": benchmark}
    key = queries.evaluations.begin_evaluation(session, run=run, manifest={}, **names).id
    queries.evaluations.add_results(session, key, items)
    queries.evaluations.finish_evaluation(session, key)
    return key


def evaluate(session: Session, run: str, t: int, items: Iterable[Evaluated], took: float) -> None:
    """Store a finished evaluation of iteration t's Solver."""
    checkpoint = checkpoint_id(run, "solver" if t else "base", t)
    add_evaluations(session, checkpoint=checkpoint, benchmark="micro", items=items)
    finish(session, run, t, "evaluate", {"checkpoint": checkpoint}, took)


def label(
    session: Session, run: str, t: int, questions: Sequence[tuple[str | None, PseudoLabel | None]], config: RunConfig
) -> None:
    """Store questions with their votes, verdicts, statistics and the exact oracle's audit, as the stages do."""
    wrote = queries.checkpoints.id_of(session, run, "base", 0)
    stored_questions = [
        Question(question_id(run, t, i), run, t, i, text, text or "<question>", wrote, i)
        for i, (text, _) in enumerate(questions)
    ]
    queries.questions.add_questions(session, stored_questions)
    refused = filter_questions(stored_questions, ())
    rows = [_labelled(q, vote, refused, config) for q, (_, vote) in zip(stored_questions, questions, strict=True)]
    queries.questions.add_labels(session, rows)
    queries.figures.add_filter_stats(session, run=run, iteration=t, stats=statistics(rows))
    audited = [exact.audit(row.question_id, row.text or "", row.label.answer) for row in rows if row.label]
    queries.questions.add_oracle_labels(session, audited)
    finish(session, run, t, "audit_labels", {"oracle": "exact", "audited": len(audited)}, 0.4)


def vote_of(*classes: tuple[str, int], m: int = 10) -> PseudoLabel:
    """A pseudo-label from its classes, most votes first; the rest of the m rollouts gave no answer."""
    votes = classes[0][1] if classes else 0
    answer = classes[0][0] if classes else None
    return PseudoLabel(answer, votes, m, sum(n for _, n in classes), 0, votes / m, "all", tuple(classes))


def _labelled(
    question: Question, vote: PseudoLabel | None, refused: dict[str, Verdict], config: RunConfig
) -> LabelledQuestion:
    if vote is None or question.id in refused:
        return LabelledQuestion(question.id, question.text, None, refused[question.id])
    verdict = band_verdict(vote, config.dataset.limits)
    return LabelledQuestion(question.id, question.text, vote, verdict)


def _votes(rng: random.Random, run: str, t: int) -> list[tuple[str | None, PseudoLabel | None]]:
    assert isinstance(CONFIG, CoEvolution)
    return [_question(rng, t) for _ in range(CONFIG.dataset.candidates)]


def _question(rng: random.Random, t: int) -> tuple[str | None, PseudoLabel | None]:
    if rng.random() < 0.04:
        return None, None
    problem = make_problem(rng, rng.choices(range(1, 7), [8 / t, 3, 2 * t, t, t / 2, t / 4])[0])
    text = problem.text[:-6] if rng.random() < (0.01, 0.03, 0.12)[t - 1] else problem.text
    ease = SKILL[t - 1][1] ** (problem.operations / 2)
    right = sum(rng.random() < ease for _ in range(10))
    if rng.random() < 0.12 * t:  # most rollouts make the same mistake
        right //= 3
    wrong = min(10 - right, rng.choice((1, 2, 5, 8)))
    classes = [(str(problem.answer), right), (str(problem.answer + rng.choice((-10, -1, 1, 10))), wrong)]
    ranked = sorted(((answer, n) for answer, n in classes if n), key=lambda answer_and_votes: -answer_and_votes[1])
    return text, vote_of(*ranked)


def _held_out(rng: random.Random, t: int, per_level: int) -> list[Evaluated]:
    sampled, greedy = SKILL[t]
    items = []
    for level in range(1, 7):
        for i in range(per_level):
            chance = min(0.98, max(0.01, rng.gauss(sampled ** (0.1 + level * 0.25), 0.15)))
            correct = sum(rng.random() < chance for _ in range(8))
            best = greedy ** (0.1 + level * 0.25)
            items.append(Evaluated(f"{level}-{i:04d}", str(level), 8, correct, rng.random() < best, correct >= 4))
    return items


def _training(session: Session, run: str, t: int, role: Role, rng: random.Random) -> None:
    steps = getattr(CONFIG, role).training.steps
    for step in range(1, steps + 1):
        done = step / steps
        metrics = {
            "reward_mean": (0.15 + 0.25 * done if role == "challenger" else 0.5 + 0.3 * done) + rng.gauss(0, 0.02),
            "kl": 0.08 * done * t + abs(rng.gauss(0, 0.004)),
            "entropy": 0.6 - 0.1 * done * t + rng.gauss(0, 0.01),
            "response_length": 24 + 8 * done + rng.gauss(0, 1),
        }
        queries.figures.add_train_metrics(session, run=run, iteration=t, role=role, step=step, metrics=metrics)


def stored(context: Context, stage: Callable[[Any], LastWrite]) -> dict[str, Any]:
    """Run a stage to its end, as the ledger does; returns its result."""
    last_write = stage(context)
    with context.store.write() as session:
        return dict(last_write(session))


def add_solver(session: Session, run: str, t: int, parent: str = "base/0") -> None:
    """Store the Solver of iteration t without files; `parent` is given without the run's name."""
    _checkpoint(session, run, "solver", t, f"{run}/{parent}")


def _checkpoint(session: Session, run: str, role: CheckpointRole, t: int, parent: str | None) -> None:
    key = checkpoint_id(run, role, t)
    queries.checkpoints.add_checkpoint(session, Checkpoint(key, run, role, t, 0, f"/models/{key}", key, parent), {})


def run_of(store: Store, run: str, *, home: Path = Path(), services: Services = NO_SERVICES) -> Run:
    """A stored run as the process has it that works on it."""
    with store.read() as session:
        return Run(run, Home(home), store, services, queries.runs.config_of_run(session, run))


def context_of(
    store: Store,
    run: str,
    iteration: int,
    *,
    config: RunConfig | None = None,
    home: Path = Path(),
    services: Services = NO_SERVICES,
) -> Context:
    """The context of a stage of a stored run, which this process has; its configuration is the stored one unless
    `config` is given."""
    stage: Stage = "train_solver"
    with store.write() as session:
        config = config or parse_config(queries.runs.get_run(session, run).config, run)
        key = (Stages.run == run, Stages.iteration == iteration, Stages.stage == stage)
        session.execute(delete(Stages).where(*key))
        queries.ledger.claim_stage(
            session, run=run, iteration=iteration, stage=stage, owner=owner(), lease_seconds=LEASE_S
        )
    return Context(Run(run, Home(home), store, services, config), iteration, stage, lambda *_: None)


def iterations(store: Store, run: str) -> list[dict[str, Any]]:
    """The figures of each iteration, as the report's JSON has them."""
    rows = figures(store, run)["iterations"]
    assert isinstance(rows, list)
    return rows
