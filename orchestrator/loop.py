"""The stages of a run, one function each, in the order of an iteration; `plan.py` has the order, `flows.py` calls them.

A stage does its work in batches and returns its last write, which the ledger commits together with the mark "done". It
reads its inputs from the store and derives every seed from its key. When it runs again after a crash, it makes the
missing rows, and they are the same as without the crash. The parts of the stages are in `stages/`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from core.questions.filtering import statistics
from core.settings.config import CoEvolution, SelfTraining
from core.types import Checkpoint, LabelledQuestion, Question, Role, Stage, checkpoint_id, question_id
from orchestrator.ledger import LastWrite
from orchestrator.question_sets.benchmarks import evaluated_in
from orchestrator.question_sets.prompts import read_prompts as read_prompt_set
from orchestrator.stages.auditing import audited_labels, judged_labels
from orchestrator.stages.context import BATCH, Context
from orchestrator.stages.curriculum import given_questions
from orchestrator.stages.evaluation import evaluate_on
from orchestrator.stages.health import examine
from orchestrator.stages.questions import (
    challenger_prompts,
    clusters_of,
    labelled,
    question_of,
    refused_questions,
    rollouts_of,
    rollouts_with_text,
    vote_prompt,
)
from orchestrator.stages.rounds import remove_unneeded, rounds_from
from orchestrator.stages.training import (
    chained_job,
    challenger_job,
    kept_questions,
    solver_job,
    steps_before,
    train,
    train_branch,
)
from services.drift.alerts import record, untested_in
from services.inference.client import spent
from services.inference.encoding import control_tokens
from storage import queries
from storage.texts import TextWriter, texts_path

log = logging.getLogger(__name__)


def train_challenger(context: Context[CoEvolution]) -> LastWrite:
    """Train C(t): the Challenger learns to ask questions that S(t-1) is least sure of (R-Zero 2.2)."""
    start = context.checkpoint("challenger")
    if not context.config.challenger.trained:
        return lambda _session: {"checkpoint": start.id, "trained": False}
    solver = context.checkpoint("solver")
    with context.serving({"solver": solver}, for_later={"challenger": start}):
        return train(context, challenger_job(context, start, solver))


def generate_questions(context: Context[CoEvolution]) -> LastWrite:
    """Have C(t) write N candidates and store them, malformed ones too (R-Zero 2.3)."""
    t, total = context.iteration, context.config.dataset.candidates
    challenger = context.checkpoint("challenger")
    solver_tokens = control_tokens(Path(context.checkpoint("solver").path))
    with context.store.read() as session:
        done = queries.questions.count_questions(session, context.run, t)
    starts = range(done - done % BATCH, total, BATCH) if done < total else range(0)
    batches = ([*challenger_prompts(context, start, min(start + BATCH, total))] for start in starts)
    with (
        context.serving({"challenger": challenger}),
        context.replies_in_order("challenger", challenger, batches) as replies_of_batches,
    ):
        context.progress(done, total, "questions")
        for start, groups in zip(starts, replies_of_batches, strict=True):
            replies = [reply for group in groups for reply in group]
            questions = [question_of(context, start + i, reply, solver_tokens) for i, reply in enumerate(replies)]
            with context.write() as session:
                queries.questions.add_questions(session, questions)
                queries.usage.add_usage(session, context.key, "questions", spent(groups))
            context.batch_done(start + len(replies), total, "questions")
    with context.store.read() as session:
        clusters = clusters_of(context, queries.questions.questions_of(session, context.run, t))

    def last_write(session: Session) -> dict[str, Any]:
        queries.traces.add_clusters(session, clusters)
        return {"candidates": total, "challenger": challenger.id}

    return last_write


def label_questions(context: Context) -> LastWrite:
    """Ask S(t-1) m times about each question, and store the votes, the pseudo-label and the verdict (R-Zero 2.3).

    If the roles share a model, C(t) is asked. Given prompts are asked of the base model, and all that have a majority
    are kept.
    """
    t, solver = context.iteration, context.checkpoint("solver")
    with context.store.read() as session:
        questions = queries.questions.questions_of(session, context.run, t)
        labelled_ids = {row.question_id for row in queries.questions.labels_of(session, context.run, t)}
    refused = refused_questions(context, questions)
    asked = [question for question in questions if question.id not in refused]
    writer = TextWriter(texts_path(context.home.texts, context.run, t, "label_questions"), context.refuse_lost)
    batches = [(number, asked[start : start + BATCH]) for number, start in enumerate(range(0, len(asked), BATCH))]
    remaining = [
        (number, batch) for number, batch in batches if not all(question.id in labelled_ids for question in batch)
    ]
    prompts = ([vote_prompt(context, question) for question in batch] for _, batch in remaining)
    with (
        context.serving({"solver": solver}),
        context.replies_in_order("solver", solver, prompts) as replies_of_batches,
    ):
        context.progress(len(asked) - sum(len(batch) for _, batch in remaining), len(asked), "questions labelled")
        for (number, batch), replies in zip(remaining, replies_of_batches, strict=True):
            groups = [rollouts_of(question.id, group) for question, group in zip(batch, replies, strict=True)]
            answers = [[rollout.answer for rollout in group] for group in groups]
            labels = labelled(batch, answers, context.config.dataset)
            writer.add(number, rollouts_with_text(context, groups, labels))
            with context.write() as session:
                queries.questions.add_rollouts(session, [rollout for group in groups for rollout in group])
                queries.questions.add_labels(session, labels)
                queries.usage.add_usage(session, context.key, "votes", spent(replies))
            context.batch_done(min((number + 1) * BATCH, len(asked)), len(asked), "questions labelled")
    writer.finish()
    with context.store.write() as session:
        queries.questions.gather_statistics(session)
    texts = {question.id: question.text for question in questions}

    def last_write(session: Session) -> dict[str, Any]:
        unasked = [LabelledQuestion(key, texts[key], None, verdict) for key, verdict in refused.items()]
        queries.questions.add_labels(session, unasked)
        stats = statistics(queries.questions.labels_of(session, context.run, t))
        queries.figures.add_filter_stats(session, run=context.run, iteration=t, stats=stats)
        return asdict(stats)

    return last_write


def train_solver(context: Context) -> LastWrite:
    """Train S(t) on the kept questions and their pseudo-labels (R-Zero 2.4), or on given prompts.

    The rounds on given prompts are one training: each continues with the prompts where the round before stopped, and
    the KL is measured against the base model. Whether the optimiser goes on, too, is a setting.
    """
    config, next_job = context.config, None
    if isinstance(config, SelfTraining):
        job = solver_job(context, "train_solver", given_questions(context, config.prompts))
        job = replace(
            job,
            reference=context.checkpoint("solver", 0),
            steps_before=steps_before(context),
            rounds=rounds_from(context, config, job.start),
        )
        remove_unneeded(context, job.start)
    else:
        job = solver_job(context, f"{context.iteration}/train_solver", kept_questions(context))
        if config.labelled is not None and config.labelled.chained:
            next_job = partial(chained_job, context, config.labelled, job)
    # A training that stops or queries applications needs exclusive use of them. Otherwise another run could start its
    # own and take the GPUs.
    served = config.solver.signals.served(config.solver.reward)
    needs_applications = config.serving.release or served
    with context.serving({}, tuple(served)) if needs_applications else nullcontext():
        return train(context, job, next_job)


def train_labelled(context: Context[CoEvolution]) -> LastWrite:
    """Train S(t) on labelled data into a checkpoint of its own, from which no iteration goes on (R-Zero B.3).

    It is trained also if the guard ended the training of S(t) early, since a person may decide to go on with S(t).
    """
    labelled = context.config.labelled
    assert labelled is not None  # `orchestrator.plan` has this stage only then
    with context.serving({}) if context.config.serving.release else nullcontext():
        return train_branch(context, labelled)


def evaluate(context: Context) -> LastWrite:
    """Evaluate S(t) on the run's benchmarks (R-Zero D.2), and on that of early stopping.

    Each question gets `samples` answers at the sampling temperature and one greedy answer.
    """
    return _evaluate(context, context.checkpoint("solver"))


def evaluate_labelled(context: Context[CoEvolution]) -> LastWrite:
    """Evaluate the checkpoint of `train_labelled` in the same way as S(t)."""
    with context.store.read() as session:
        key = checkpoint_id(context.run, "labelled", context.iteration)
        branch = queries.checkpoints.get_checkpoint(session, key)
    return _evaluate(context, branch)


def _evaluate(context: Context, solver: Checkpoint) -> LastWrite:
    protocols = evaluated_in(context.config)
    asks_challenger_next = isinstance(context.config, CoEvolution) and context.iteration < context.config.iterations
    for_later: dict[Role, Checkpoint] = {"challenger": context.checkpoint("challenger")} if asks_challenger_next else {}
    with context.serving({"solver": solver}, for_later=for_later):
        counts = [evaluate_on(context, solver, name, protocol) for name, protocol in protocols.items()]
    return lambda _session: {"checkpoint": solver.id, "items": sum(counts)}


def audit_labels(context: Context) -> LastWrite:
    """Store the verdicts of the run's oracle: a program grades all labels at once, a judge a sample in batches."""
    audit = context.config.audit
    if audit.oracle is None:
        return lambda _session: {"oracle": None}
    if audit.judge is not None:
        result = judged_labels(context, audit.judge)
        return lambda _session: result
    labels = audited_labels(context.store, context.run, context.iteration, audit)

    def last_write(session: Session) -> dict[str, Any]:
        queries.questions.add_oracle_labels(session, labels)
        return {"oracle": audit.oracle, "audited": len(labels)}

    return last_write


def check_health(context: Context) -> LastWrite:
    """Find the alarms of iteration t and of the steps of its Solver's training, and decide how the run continues.

    The last write stores the iteration's alerts: the alarms, and the changes that `core.statistics.changes` finds in
    the series, which the stages before have stored.
    """
    alarms, result = examine(context)
    for warning in result["warnings"]:
        log.warning("run %s, iteration %d: %s", context.run, context.iteration, warning)

    def last_write(session: Session) -> dict[str, Any]:
        for alert in record(session, context.run, context.iteration, alarms):
            if alert.rule not in {alarm.signal for alarm in alarms}:
                log.warning("run %s, iteration %d: %s", context.run, context.iteration, alert.text)
        return {**result, "untested": untested_in(session, context.run, context.iteration)}

    return last_write


def read_prompts(context: Context[SelfTraining]) -> LastWrite:
    """Store the given prompts as questions of iteration 0. If they are voted on, `label_questions` labels them."""
    config, run = context.config, context.run
    prompts = read_prompt_set(config, config.prompts)
    questions = [
        Question(question_id(run, 0, i), run, 0, i, prompt.text, prompt.text, None, 0, prompt.answer)
        for i, prompt in enumerate(prompts)
    ]
    refused = refused_questions(context, questions)

    def last_write(session: Session) -> dict[str, Any]:
        queries.questions.add_questions(session, questions)
        if not config.prompts.voted:
            labels = [
                LabelledQuestion(question.id, question.text, None, refused.get(question.id, "kept"))
                for question in questions
            ]
            queries.questions.add_labels(session, labels)
            queries.figures.add_filter_stats(session, run=run, iteration=0, stats=statistics(labels))
            queries.questions.gather_statistics(session)
        return {"prompts": len(questions), "refused": len(refused)}

    return last_write


STAGE_FUNCTIONS: dict[Stage, Callable[[Context[Any]], LastWrite]] = {
    "train_challenger": train_challenger,
    "generate_questions": generate_questions,
    "label_questions": label_questions,
    "train_solver": train_solver,
    "train_labelled": train_labelled,
    "evaluate": evaluate,
    "evaluate_labelled": evaluate_labelled,
    "audit_labels": audit_labels,
    "check_health": check_health,
    "read_prompts": read_prompts,
}
