"""Where rows come from: what they refer to exists, and was made by the checkpoint that the run's chain says."""

from __future__ import annotations

from sqlalchemy.orm import Session

from core.settings.config import CoEvolution
from core.types import Checkpoint, Role, Stage, checkpoint_id, question_id
from orchestrator.stages.chain import Chain
from orchestrator.verification.checks import Check, fields_of
from orchestrator.verification.subject import Subject
from orchestrator.verification.trainings import TRAININGS
from storage import queries
from storage.errors import NotThere

# Stage -> the roles that the iteration has trained when the stage begins.
_TRAINED_BEFORE: dict[Stage, tuple[Role, ...]] = {
    "train_challenger": (),
    "generate_questions": ("challenger",),
    "label_questions": ("challenger",),
    "train_solver": ("challenger",),
    "train_labelled": ("challenger", "solver"),
    "evaluate": ("challenger", "solver"),
}


def references(check: Check, subject: Subject) -> None:
    """Every question, vote, label, training and evaluation refers to questions and checkpoints that exist, and so does
    every checkpoint to its parent, up to the base model."""
    with subject.store.read() as session:
        check.checked, missing = queries.run_rows.references(session, subject.name)
        base = checkpoint_id(subject.name, "base", 0)
        checkpoints = queries.checkpoints.checkpoints_of(session, subject.name)
    for reference in missing:
        check.violate(f"{reference.row}: {reference.column}", f"{reference.value} in {reference.table}", "nothing")
    check.expect("checkpoints without a parent", [base], [row.id for row in checkpoints if row.parent is None])


def questions(check: Check, subject: Subject) -> None:
    """An iteration has all its candidates, with the indices 0 to N - 1 and the keys that these give."""
    for t, result in subject.done("generate_questions", "read_prompts"):
        count = subject.config.dataset.candidates if isinstance(subject.config, CoEvolution) else result["prompts"]
        with subject.store.read() as session:
            stored = {row.index: row for row in queries.questions.questions_of(session, subject.name, t)}
        for index in sorted({*range(count), *stored}):
            key = question_id(subject.name, t, index)
            check.expect(key, key if index < count else None, stored[index].id if index in stored else None)


def writers(check: Check, subject: Subject) -> None:
    """The questions of an iteration were written by its Challenger, and the votes cast by the Solver before its
    training; with a shared model, both by that model after the Challenger's training."""
    for t in sorted({t for t, _ in subject.done("generate_questions", "label_questions", "read_prompts")}):
        with subject.store.read() as session:
            wrote, voted = queries.questions.source_checkpoints(session, subject.name, t)
            if (t, "generate_questions") in subject.results:
                expected = playing(session, subject, "challenger", t, "generate_questions")
                check.expect(f"questions of iteration {t}: checkpoint", [expected], wrote)
            if (t, "read_prompts") in subject.results:
                check.expect(f"given prompts of iteration {t}: checkpoint", [], wrote)
            if t in subject.voted and voted:
                expected = playing(session, subject, "solver", t, "label_questions")
                check.expect(f"votes of iteration {t}: checkpoint", [expected], voted)


def trainings(check: Check, subject: Subject) -> None:
    """Each training that is done has a checkpoint with the sha256 of the stage's result, which was trained from the one
    that the chain says; and no other checkpoint is stored."""
    for stage, (made, role) in TRAININGS.items():
        for t, result in subject.done(stage):
            with subject.store.read() as session:
                rows = {row.id: row for row in queries.checkpoints.checkpoints_of(session, subject.name, made)}
                begins_with = playing(session, subject, role, t, stage)
            if result.get("trained") is False:  # a Challenger that is never trained
                check.expect(f"result of {stage} {t}: checkpoint", begins_with, result["checkpoint"])
                continue
            key = checkpoint_id(subject.name, made, t)
            check.expect_fields(f"result of {stage} {t}", {"checkpoint": key}, result)
            expected = {"sha256": result["sha256"], "parent": begins_with}
            check.expect_fields(key, expected, fields_of(rows[key]) if key in rows else {})
    with subject.store.read() as session:  # a process may have finished a training since the verification began
        done = {(row.iteration, row.stage) for row in queries.ledger.stages_of(session, subject.name) if row.result}
        stored = queries.checkpoints.checkpoints_of(session, subject.name)
    made_by = {made: stage for stage, (made, _) in TRAININGS.items()}
    for row in stored:
        if row.role != "base" and (row.iteration, made_by[row.role]) not in done:
            check.violate(row.id, f"{made_by[row.role]} of iteration {row.iteration} done", "a checkpoint without it")


def trained_on(check: Check, subject: Subject) -> None:
    """A Solver was trained on kept questions of its iteration, or on given prompts, at every one of its steps."""
    is_loop = isinstance(subject.config, CoEvolution)
    for t, result in subject.done("train_solver"):
        steps = min(result.get("steps", 0), subject.config.solver.training.steps)
        with subject.store.read() as session:
            rows = queries.traces.trained_on_by(session, checkpoint_id(subject.name, "solver", t))
            usable = {
                row.question_id
                for row in queries.questions.labels_of(session, subject.name, t if is_loop else 0)
                if (row.verdict == "kept" if is_loop else row.verdict != "duplicate")
            }
        for row in rows:
            check.checked += 1
            if row.question_id not in usable:
                check.violate(f"{row.checkpoint} trained on {row.question_id}", "a question that was kept", "another")
        stored = sorted({step for row in rows for step in row.steps})
        check.expect(f"{subject.name}/solver/{t}: steps with questions", [*range(1, steps + 1)], stored)


def playing(session: Session, subject: Subject, role: Role, iteration: int, stage: Stage) -> str:
    """The id of the checkpoint that played a role when a stage began; what is missing, if one of the chain is."""
    chain = Chain(session, subject.name, subject.config, iteration)
    try:
        return _playing(chain, role, stage).id
    except NotThere as error:
        return str(error)


def _playing(chain: Chain, role: Role, stage: Stage) -> Checkpoint:
    trained = [
        checkpoint
        for checkpoint in chain.trained(role)
        if checkpoint.iteration == chain.iteration and checkpoint.role in _TRAINED_BEFORE[stage]
    ]
    return trained[-1] if trained else chain.checkpoint(role, chain.iteration - 1)
