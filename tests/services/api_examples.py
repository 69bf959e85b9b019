"""A run of two iterations, small enough to compute its figures by hand."""

from __future__ import annotations

from datetime import UTC, datetime

from core.questions.filtering import statistics
from core.settings.config import CoEvolution
from core.types import (
    Checkpoint,
    Evaluated,
    LabelledQuestion,
    OracleLabel,
    OracleVerdict,
    PseudoLabel,
    Question,
    Rollout,
    Spent,
    StageKey,
    TrainingRollout,
    Verdict,
    question_id,
)
from storage import queries
from storage.queries.training_rollouts import Training
from storage.rows import AlertRow, ClusterRow
from storage.session import Store
from tests.synthetic_run import add_evaluations

RUN = "demo"
ODD = "\ud83d\0"  # a lone surrogate, which UTF-8 cannot encode, and NUL, which PostgreSQL cannot store
SHOWN = "\ufffd\0"  # ODD as the API shows it
# For each question: text, verdict, votes of 4 for the label, verdict of the exact oracle.
QUESTIONS: tuple[tuple[str | None, Verdict, int | None, OracleVerdict | None], ...] = (
    ("What is 1 + 2?", "kept", 2, "right"),
    ("What is 3 + 4?", "kept", 3, "wrong"),
    ("What is 5 * 6?", "too_easy", 4, "right"),
    (None, "malformed", None, None),
    (f"What is <b>7</b> of 8?{ODD}", "too_hard", 1, "ill_posed"),
)


def fill(store: Store) -> None:
    """Store the run: iteration 1 with the questions of QUESTIONS, and iteration 2, which is not labelled yet."""
    with store.write() as session:
        queries.runs.create_run(session, name=RUN, config=CoEvolution(iterations=2), preset="demo")
        base = Checkpoint(f"{RUN}/base/0", RUN, "base", 0, 0, "/m/base", "aa", None)
        queries.checkpoints.add_checkpoint(session, base, {"model.safetensors": "00"})
        trained = Checkpoint(f"{RUN}/solver/1", RUN, "solver", 1, 20, "/m/solver", "bb", base.id)
        queries.checkpoints.add_checkpoint(session, trained, {"model.safetensors": "11"})
        questions, labels = zip(*map(_question_and_label, range(len(QUESTIONS))), strict=True)
        queries.questions.add_questions(session, questions)
        queries.questions.add_labels(session, labels)
        votes = [
            _vote(i, sample, n) for i, (_, _, n, _) in enumerate(QUESTIONS) if n is not None for sample in range(4)
        ]
        queries.questions.add_rollouts(session, votes)
        verdicts = [(i, verdict) for i, (*_, verdict) in enumerate(QUESTIONS) if verdict]
        truths = [OracleLabel(question_id(RUN, 1, i), "exact", verdict, _answer(i, "3")) for i, verdict in verdicts]
        queries.questions.add_oracle_labels(session, truths)
        queries.traces.add_clusters(session, [ClusterRow(question_id(RUN, 1, 4), RUN, 1, 0, 1)])
        queries.figures.add_filter_stats(session, run=RUN, iteration=1, stats=statistics(labels))
        queries.usage.add_usage(session, StageKey(RUN, 1, "evaluate"), "evaluation", Spent(4, 80, 400))
        for stage in ("label_questions", "evaluate"):
            queries.ledger.claim_stage(session, run=RUN, iteration=1, stage=stage, owner="me", lease_seconds=60)
            queries.ledger.finish_stage(session, run=RUN, iteration=1, stage=stage, owner="me", result={})
        queries.figures.add_train_metrics(
            session,
            run=RUN,
            iteration=1,
            role="solver",
            step=1,
            metrics={"reward_mean": 0.5, "majority_share": 0.75, "kl": float("nan")},
        )
        queries.training_rollouts.add(session, Training(RUN, 1, "solver"), training_rollouts())
        items = [Evaluated(f"i{i}", None, 8, 2 * i, i > 1, i > 0) for i in range(4)]
        add_evaluations(session, checkpoint=trained.id, benchmark="micro", items=items)
        queries.questions.add_questions(
            session, [Question(question_id(RUN, 2, 0), RUN, 2, 0, "later", "later", base.id, 1)]
        )


def training_rollouts() -> list[TrainingRollout]:
    """Two steps of two prompts with two rollouts each; the second prompt is dropped, so it is not trained on."""
    keys = [(step, prompt, rollout) for step in (1, 2) for prompt in (0, 1) for rollout in (0, 1)]
    return [_training_rollout(*key) for key in keys]


def _training_rollout(step: int, prompt: int, rollout: int) -> TrainingRollout:
    text = QUESTIONS[prompt][0]
    return TrainingRollout(
        step=step,
        prompt=prompt,
        rollout=rollout,
        question_id=question_id(RUN, 1, prompt),
        question=text,
        answer=("3", None)[rollout],
        label="3",
        agrees=rollout == 0,
        reward=(1.0, 0.0)[rollout],
        parts={"bonus": step / 4},
        advantage=None if prompt else (0.5, -0.5)[rollout],
        tokens=10 * step + 2 * prompt + rollout,
        finish_reason=("stop", "length")[rollout],
        mean_entropy=None if step == 2 else 0.25,
    )


def _question_and_label(index: int) -> tuple[Question, LabelledQuestion]:
    text, verdict, votes, _ = QUESTIONS[index]
    key = question_id(RUN, 1, index)
    answer = _answer(index, "3")
    classes = tuple(class_ for class_ in ((answer, votes or 0), (_answer(index, "4"), 4 - (votes or 0))) if class_[1])
    label = None if votes is None else PseudoLabel(answer, votes, 4, 4, 0, votes / 4, "all", classes)
    question = Question(key, RUN, 1, index, text, f"<question>{text}</question>", f"{RUN}/base/0", index)
    return question, LabelledQuestion(key, text, label, verdict)


def _answer(index: int, answer: str) -> str:
    return answer + (ODD if ODD in (QUESTIONS[index][0] or "") else "")


def _vote(index: int, sample: int, votes: int) -> Rollout:
    key, answer = question_id(RUN, 1, index), _answer(index, "3" if sample < votes else "4")
    return Rollout(key, sample, "", answer, 7, "stop", 0.25, 0.0, f"{RUN}/base/0", sample)


def alert(key: str) -> AlertRow:
    """An alert that a rule raised in iteration 1."""
    return AlertRow(
        id=key,
        run=RUN,
        iteration=1,
        rule="sudden",
        series="label_accuracy",
        over="kept",
        oracle="exact",
        severity="critical",
        value=0.5,
        lo=0.1,
        hi=0.9,
        n=2,
        reference=0.9,
        threshold=0.8,
        text="label accuracy fell",
        raised_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def audited_run(store: Store, right: list[int | None], n: int = 300) -> str:
    """Create a run whose iterations have n kept questions; `right` has the number of right labels of each iteration, or
    None where there is no audit."""
    label = PseudoLabel("3", 6, 10, 10, 0, 0.6, "all", (("3", 6), ("4", 4)))
    with store.write() as session:
        queries.runs.create_run(session, name=RUN, config=CoEvolution(iterations=10))
        queries.checkpoints.add_checkpoint(
            session, Checkpoint(f"{RUN}/base/0", RUN, "base", 0, 0, "/m", "aa", None), {}
        )
        for t, count in enumerate(right, 1):
            keys = [question_id(RUN, t, i) for i in range(n)]
            queries.questions.add_questions(
                session, [Question(k, RUN, t, i, "q", "q", None, i) for i, k in enumerate(keys)]
            )
            queries.questions.add_labels(session, [LabelledQuestion(key, "q", label, "kept") for key in keys])
            if count is not None:
                labels = [OracleLabel(k, "exact", "right" if i < count else "wrong", None) for i, k in enumerate(keys)]
                queries.questions.add_oracle_labels(session, labels)
        queries.questions.gather_statistics(session)
    return RUN
