"""Selects the questions of the loop that the Solver trains on, and their labels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from core.challenger.gates import Candidate
from core.grading.grader import process_grader
from core.questions.true_labels import worth_most
from core.questions.voting import vote_many
from core.settings.config import CoEvolution, Replay
from core.types import LabelledQuestion
from core.worlds import solve
from orchestrator.stages.context import Context, StageError
from orchestrator.stages.evidence import ask_again
from orchestrator.stages.training import jobs
from services.oracles import exact
from storage import queries
from trainers.base import TrainQuestion

T = TypeVar("T")


def drawn(questions: Sequence[T], share: float, others: int, seed: int) -> list[T]:
    """Questions of which, in their order, so many are drawn that they are `share` of all with `others`; all if few."""
    count = min(len(questions), round(share / (1 - share) * others))
    return [questions[i] for i in sorted(random.Random(seed).sample(range(len(questions)), count))]


def questions_of(context: Context[CoEvolution]) -> tuple[TrainQuestion, ...]:
    """What the Solver of a co-evolution run trains on: the kept questions with their pseudo-labels or, as
    `dataset.labels` and `dataset.bought` say, true ones; with `dataset.replay` kept questions of earlier iterations;
    and with `labelled.share` labelled ones.

    Raises:
        StageError: no question was kept.
    """
    run, t, config = context.run.name, context.iteration, context.config
    dataset, labelled = config.dataset, config.labelled
    with context.store.read() as session:
        rows = queries.questions.labels_of(session, run, t, "kept")
        refused = queries.questions.count_verdicts(session, run, t).get("refused", 0)
    most = worth_most([row.label for row in rows if row.label is not None], dataset.bought)
    bought = {rows[i].question_id for i in most}
    if rows and dataset.replay is not None:
        rows = [*rows, *_replayed(context, dataset.replay, len(rows))]
    # Labels that the method makes during training are audited by the trainer, which so gets the truth; no reward sees
    # it. An ill-posed question gets a text that equals no label, so that no label is right.
    audited = config.solver.reward.labels == "online" and config.audit.oracle == "exact"
    questions = list[TrainQuestion]()
    for row in rows:
        if row.text is not None and row.label is not None and row.label.answer is not None:
            is_exact = dataset.labels == "exact" or row.question_id in bought
            solved = solve(row.text) if audited or is_exact else None
            known = None if solved is None else str(solved)
            truth = (known or exact.ILL_POSED) if audited else None
            answer = known if is_exact else row.label.answer
            if answer is not None:
                questions.append(TrainQuestion(row.question_id, row.text, answer, truth))
    if not questions:
        limits = dataset.limits
        expected = "some with a majority" if limits is None else f"some with {limits[0]:g} <= p_hat <= {limits[1]:g}"
        expected += f", of which the gates refused all {refused:,}" if refused else ""
        raise StageError(
            f"run {context.run}, iteration {context.iteration}: no question was kept, so the Solver has nothing to "
            f"learn from: expected {expected}. See the histogram of p_hat in `coevo report {context.run}`"
        )
    if labelled is not None and labelled.share is not None:
        anchors = jobs.labelled_questions(config, labelled)
        questions += drawn(anchors, labelled.share, len(questions), context.seed("anchors"))
    return tuple(questions)


def _replayed(context: Context[CoEvolution], replay: Replay, others: int) -> list[LabelledQuestion]:
    """Kept questions of earlier iterations, drawn; with the newest labels, those that have a majority again."""
    t = context.iteration
    first = max(1, t - replay.iterations) if replay.iterations else 1
    with context.store.read() as session:
        makers = queries.forks.makers(session, context.run.name, t - 1)
        earlier = [row for i in range(first, t) for row in queries.questions.labels_of(session, makers[i], i, "kept")]
    rows = drawn(earlier, replay.share, others, context.seed("replay"))
    if replay.label == "first":
        return rows
    candidates = [
        Candidate(row.question_id, row.text, row.label)
        for row in rows
        if row.text is not None and row.label is not None
    ]
    answers = ask_again(context, candidates)
    labels = vote_many([answers[row.question_id] for row in rows], process_grader(), context.config.dataset.denominator)
    return [replace(row, label=label) for row, label in zip(rows, labels, strict=True) if label.answer is not None]
