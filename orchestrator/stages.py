"""The stages of one iteration (DESIGN section 4), one function each.

A stage does its work in batches and returns its last write, which the ledger commits together with the mark "done".
What a stage needs it reads from the store; what it draws it draws with seeds from its key: run again after a crash, it
makes the rows that are missing, and they are the rows it would have made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from core.answers import extract_boxed
from core.config import RunConfig, Sampling
from core.filtering import filter_questions, judge, statistics
from core.grading import Grader
from core.prompts import challenger_messages, parse_question, solver_messages
from core.seeds import seed_for
from core.types import (
    BenchmarkItem,
    Checkpoint,
    Evaluated,
    LabelledQuestion,
    Question,
    Role,
    Rollout,
    Verdict,
    checkpoint_id,
    question_id,
)
from core.voting import vote, vote_many
from orchestrator.held_out import load_benchmark
from orchestrator.home import Home, Services
from orchestrator.ledger import LastWrite, Stage
from orchestrator.serving import serve_checkpoints
from services.inference.client import InferenceClient, Reply
from services.inference.engine import Prompt
from services.oracles import exact
from storage import queries
from storage.checkpoints import publish, published_manifest
from storage.session import Store
from storage.texts import TextWriter
from trainers.base import SolverService, TrainJob, TrainQuestion
from trainers.local.trainer import LocalTrainer

BATCH = 128  # questions a transaction; part of what makes a run reproducible, so not a setting
_CHALLENGER_N = 64  # questions asked for in one request


class StageError(RuntimeError):
    """A stage cannot go on with what the stages before it left; the message says what is wrong."""


Progress = Callable[[int, int, str], None]  # done, of how many, a word on it


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a stage needs to know."""

    home: Home
    store: Store
    services: Services
    run: str
    config: RunConfig
    iteration: int
    progress: Progress

    def seed(self, *key: str | int) -> int:
        return seed_for(self.config.seed, self.run_key, *key)

    @property
    def run_key(self) -> str:
        """What seeds derive from: not the run's name, so that a run under another name repeats this one."""
        return f"iteration {self.iteration}"

    def checkpoint(self, role: Role, iteration: int) -> Checkpoint:
        """The newest checkpoint of `role` up to `iteration`; the base model where there is none."""
        with self.store.read() as session:
            own = [c for c in queries.checkpoints_of(session, self.run, role) if c.iteration <= iteration]
            return own[-1] if own else queries.get_checkpoint(session, checkpoint_id(self.run, "base", 0))

    def ask(self, role: Role, checkpoint: Checkpoint, prompts: Sequence[Prompt]) -> list[list[Reply]]:
        return InferenceClient(self.services.endpoint(role)).generate(prompts, checkpoint.id)


def train_challenger(context: Context) -> LastWrite:
    """C(t): the Challenger learns to ask what S(t-1) is least sure of (R-Zero 2.2)."""
    t, challenger = context.iteration, context.config.challenger
    before = context.checkpoint("challenger", t - 1)
    if not challenger.trained:
        return lambda _session: {"checkpoint": before.id, "trained": False}
    solver = context.checkpoint("solver", t - 1)
    serve_checkpoints(context.services, {"solver": solver})
    dataset = context.config.dataset
    job = TrainJob(
        key=f"{t}/train_challenger",
        role="challenger",
        run_seed=context.config.seed,
        start=before,
        training=challenger.training,
        reward=challenger.reward,
        questions=(),
        solver=SolverService(
            context.services.endpoint("solver"),
            solver.id,
            dataset.sampling,
            dataset.denominator,
            dataset.max_question_chars,
        ),
        work_dir=context.home.work / context.run / str(t) / "train_challenger",
    )
    return _train(context, job)


def generate_questions(context: Context) -> LastWrite:
    """N candidates from C(t); malformed ones are stored too (R-Zero 2.3)."""
    t, wanted = context.iteration, context.config.dataset.candidates
    challenger = context.checkpoint("challenger", t)
    serve_checkpoints(context.services, {"challenger": challenger})
    with context.store.read() as session:
        done = queries.count_questions(session, context.run, t)
    first = context.seed("generate")
    for start in range(done - done % BATCH, wanted, BATCH):
        context.progress(start, wanted, "questions")
        end = min(start + BATCH, wanted)
        sampling = context.config.challenger.training.sampling
        prompts = [
            Prompt(tuple(challenger_messages()), first + i, min(_CHALLENGER_N, end - i), sampling)
            for i in range(start, end, _CHALLENGER_N)
        ]
        replies = [reply for group in context.ask("challenger", challenger, prompts) for reply in group]
        questions = [_question(context, start + i, reply) for i, reply in enumerate(replies)]
        with context.store.write() as session:
            queries.add_questions(session, questions)
    context.progress(wanted, wanted, "questions")
    return lambda _session: {"candidates": wanted, "challenger": challenger.id}


def _question(context: Context, index: int, reply: Reply) -> Question:
    text = parse_question(reply.text, context.config.dataset.max_question_chars)
    identity = question_id(context.run, context.iteration, index)
    return Question(identity, context.run, context.iteration, index, text, reply.text, reply.checkpoint, reply.seed)


def label_questions(context: Context) -> LastWrite:
    """m answers each from S(t-1), the vote, the verdict (R-Zero 2.3)."""
    t, dataset = context.iteration, context.config.dataset
    solver = context.checkpoint("solver", t - 1)
    serve_checkpoints(context.services, {"solver": solver})
    with context.store.read() as session:
        questions = queries.questions_of(session, context.run, t)
        labelled = {row.question_id for row in queries.labels_of(session, context.run, t)}
    held_out = {item.problem for item in load_benchmark(context.config.evaluation.benchmark)}
    refused = filter_questions(questions, held_out)
    asked = [question for question in questions if question.id not in refused]
    writer = TextWriter(context.home.texts, context.run, t, "label_questions")
    with Grader() as grader:
        for batch, start in enumerate(range(0, len(asked), BATCH)):
            context.progress(start, len(asked), "questions labelled")
            part = asked[start : start + BATCH]
            if all(question.id in labelled for question in part):
                continue
            sampled = context.ask("solver", solver, [_vote_prompt(context, question) for question in part])
            groups = [_rollouts(question.id, replies) for question, replies in zip(part, sampled, strict=True)]
            votes = vote_many([[r.answer for r in group] for group in groups], grader, dataset.denominator)
            labels = [
                LabelledQuestion(question.id, question.text, label, judge(label, dataset.limits, dataset.filtered))
                for question, label in zip(part, votes, strict=True)
            ]
            writer.add(batch, _with_text(context, groups, labels))
            with context.store.write() as session:
                queries.add_rollouts(session, [rollout for group in groups for rollout in group])
                queries.add_labels(session, labels)
    context.progress(len(asked), len(asked), "questions labelled")
    writer.finish()
    return lambda session: _finish_labels(session, context, questions, refused)


def _finish_labels(
    session: Session, context: Context, questions: Sequence[Question], refused: Mapping[str, Verdict]
) -> dict[str, Any]:
    never_asked = [
        LabelledQuestion(question.id, question.text, None, refused[question.id])
        for question in questions
        if question.id in refused
    ]
    queries.add_labels(session, never_asked)
    stats = statistics(queries.labels_of(session, context.run, context.iteration))
    queries.add_filter_stats(session, run=context.run, iteration=context.iteration, stats=stats)
    return asdict(stats)


def _vote_prompt(context: Context, question: Question) -> Prompt:
    dataset = context.config.dataset
    seed = context.seed("label", question.index)
    return Prompt(tuple(solver_messages(question.text or "")), seed, dataset.votes, dataset.sampling)


def _rollouts(identity: str, replies: Sequence[Reply]) -> list[Rollout]:
    return [
        Rollout(
            question_id=identity,
            sample_index=i,
            text=reply.text,
            answer=extract_boxed(reply.text),
            tokens=reply.tokens,
            finish_reason=reply.finish_reason,
            mean_entropy=reply.mean_entropy,
            checkpoint=reply.checkpoint,
            seed=reply.seed,
        )
        for i, reply in enumerate(replies)
    ]


def _with_text(
    context: Context, groups: Sequence[Sequence[Rollout]], labels: Sequence[LabelledQuestion]
) -> list[Rollout]:
    """The rollouts whose texts are to be stored, as the run's `rollout_text` says."""
    keep = context.config.rollout_text
    return [
        rollout
        for group, label in zip(groups, labels, strict=True)
        if keep == "all" or (keep == "kept" and label.verdict == "kept")
        for rollout in group
    ]


def train_solver(context: Context) -> LastWrite:
    """S(t): the Solver learns from the kept questions and their pseudo-labels (R-Zero 2.4)."""
    t, solver = context.iteration, context.config.solver
    with context.store.read() as session:
        kept = queries.labels_of(session, context.run, t, "kept")
    questions = tuple(
        TrainQuestion(row.question_id, row.text, row.label.answer)
        for row in kept
        if row.text is not None and row.label is not None and row.label.answer is not None
    )
    if not questions:
        low, high = context.config.dataset.limits
        raise StageError(
            f"run {context.run}, iteration {t}: no question was kept, so the Solver has nothing to learn from: "
            f"expected some with {low:g} <= p_hat <= {high:g}. `coevo report {context.run}` has the histogram of p_hat"
        )
    job = TrainJob(
        key=f"{t}/train_solver",
        role="solver",
        run_seed=context.config.seed,
        start=context.checkpoint("solver", t - 1),
        training=solver.training,
        reward=solver.reward,
        questions=questions,
        solver=None,
        work_dir=context.home.work / context.run / str(t) / "train_solver",
    )
    return _train(context, job)


def _train(context: Context, job: TrainJob) -> LastWrite:
    steps = job.training.steps

    def progress(step: int, metrics: Mapping[str, float]) -> None:
        context.progress(step, steps, f"steps, reward {metrics.get('reward_mean', float('nan')):.3f}")

    result = LocalTrainer().train(job, progress)
    checkpoint = publish(
        result.folder,
        context.home.checkpoints,
        run=context.run,
        role=job.role,
        iteration=context.iteration,
        step=result.step,
        parent=job.start.id,
    )

    def last_write(session: Session) -> dict[str, Any]:
        queries.add_checkpoint(session, checkpoint, published_manifest(Path(checkpoint.path)))
        add = partial(queries.add_train_metrics, session, run=context.run, iteration=context.iteration, role=job.role)
        for step, metrics in enumerate(result.metrics, 1):
            add(step=step, metrics=metrics)
        return {"checkpoint": checkpoint.id, "sha256": checkpoint.sha256, "steps": result.step}

    return last_write


def evaluate(context: Context) -> LastWrite:
    """S(t) on the held-out benchmark: `samples` at the sampling temperature, and one greedy (R-Zero D.2)."""
    settings = context.config.evaluation
    solver = context.checkpoint("solver", context.iteration)
    serve_checkpoints(context.services, {"solver": solver})
    items = load_benchmark(settings.benchmark)
    with context.store.read() as session:
        done = {row.item_id for row in queries.evaluations_of(session, solver.id, settings.benchmark)}
    with Grader() as grader:
        for start in range(0, len(items), BATCH):
            context.progress(start, len(items), "benchmark questions")
            part = items[start : start + BATCH]
            if all(item.id in done for item in part):
                continue
            answered = [*_graded(context, solver, part, grader)]
            with context.store.write() as session:
                queries.add_evaluations(session, checkpoint=solver.id, benchmark=settings.benchmark, items=answered)
    context.progress(len(items), len(items), "benchmark questions")
    return lambda _session: {"checkpoint": solver.id, "items": len(items)}


def _graded(
    context: Context, solver: Checkpoint, items: Sequence[BenchmarkItem], grader: Grader
) -> Iterator[Evaluated]:
    settings = context.config.evaluation
    greedy = Sampling(temperature=0, max_tokens=settings.sampling.max_tokens)
    prompts = [
        Prompt(
            tuple(solver_messages(item.problem)),
            # the same draws for every checkpoint, so that differences between them are paired
            seed_for(context.config.seed, "evaluate", settings.benchmark, item.id),
            1 if sampling is greedy else settings.samples,
            sampling,
        )
        for sampling in (settings.sampling, greedy)
        for item in items
    ]
    replies = context.ask("solver", solver, prompts)
    for item, sampled, single in zip(items, replies[: len(items)], replies[len(items) :], strict=True):
        answers = [extract_boxed(reply.text) for reply in sampled]

        def right(answer: str | None, truth: str = item.answer) -> bool:
            return answer is not None and grader.compare(answer, truth).verdict == "equal"

        yield Evaluated(
            item_id=item.id,
            level=item.level,
            samples=len(answers),
            correct=sum(map(right, answers)),
            greedy_correct=right(extract_boxed(single[0].text)),
            majority_correct=right(vote(answers, grader).answer),
        )


def audit_labels(context: Context) -> LastWrite:
    """The oracle's word on every pseudo-label, kept or not. The loop itself never sees it."""
    if context.config.audit.oracle is None:
        return lambda _session: {"oracle": None}
    with context.store.read() as session:
        rows = queries.labels_of(session, context.run, context.iteration)
    audited = [
        exact.audit(row.question_id, row.text, row.label.answer)
        for row in rows
        if row.text is not None and row.label is not None
    ]

    def last_write(session: Session) -> dict[str, Any]:
        queries.add_oracle_labels(session, audited)
        return {"oracle": "exact", "audited": len(audited)}

    return last_write


# Those that need the inference services to hold a certain checkpoint while they run.
ASKING_STAGES: frozenset[Stage] = frozenset({"train_challenger", "generate_questions", "label_questions", "evaluate"})

STAGE_FUNCTIONS: dict[Stage, Callable[[Context], LastWrite]] = {
    "train_challenger": train_challenger,
    "generate_questions": generate_questions,
    "label_questions": label_questions,
    "train_solver": train_solver,
    "evaluate": evaluate,
    "audit_labels": audit_labels,
}
