"""SQL views for people who read the store with SQL: their names and columns stay, while the tables may change.

Each has the run's experiment, arm and seed, so that an arm is compared with another without a join. A view that must
change its columns gets a new number, `coevo_v2_…`.
"""

from __future__ import annotations

from typing import get_args

from sqlalchemy import Connection, inspect, text

from core.types import Verdict

Columns = dict[str, tuple[str, str]]  # name -> (SQL, what it is)

_RUN: Columns = {
    "run": ("runs.name", "the run"),
    "experiment": ("experiment_runs.experiment", "its experiment; NULL: none"),
    "arm": ("experiment_runs.arm", "its arm in the experiment"),
    "seed": ("runs.seed", "its seed"),
}
_OF_RUN = "JOIN runs ON runs.name = {table}.run LEFT JOIN experiment_runs ON experiment_runs.run = runs.name"
_QUESTION: Columns = {
    "iteration": ("questions.iteration", "from 1 on"),
    "question_index": ('questions."index"', "its number in the iteration, from 0 on"),
    "question_id": ("questions.id", "RUN/ITERATION/INDEX"),
}
_OF_QUESTION = "JOIN questions ON questions.id = {table}.question_id " + _OF_RUN.format(table="questions")

# Name -> (what a row is, columns, FROM)
VIEWS: dict[str, tuple[str, Columns, str]] = {
    "coevo_v1_runs": (
        "a run",
        {**_RUN, "preset": ("runs.preset", "its preset"), "created_at": ("runs.created_at", "UTC")},
        "runs LEFT JOIN experiment_runs ON experiment_runs.run = runs.name",
    ),
    "coevo_v1_inherited": (
        "an iteration that a fork has from another run; its rows in the other views are of that run",
        {
            **_RUN,
            "iteration": ("inherited_iterations.iteration", "0 is the base model"),
            "made_by": ("inherited_iterations.made_by", "the run that made it"),
        },
        "inherited_iterations " + _OF_RUN.format(table="inherited_iterations"),
    ),
    "coevo_v1_questions": (
        "a question, also one that was never asked",
        {
            **_RUN,
            **_QUESTION,
            "question": ("questions.text", "NULL: malformed"),
            "raw": ("questions.raw", "all that the Challenger wrote"),
            "asked_by": ("questions.checkpoint", "the Challenger's checkpoint; NULL: a given prompt"),
            "true_answer": ("questions.answer", "of a given prompt, if it has one"),
        },
        "questions " + _OF_RUN.format(table="questions"),
    ),
    "coevo_v1_votes": (
        "a vote",
        {
            **_RUN,
            **_QUESTION,
            "sample_index": ("rollouts.sample_index", "its number among the question's votes"),
            "answer": ("rollouts.answer", "NULL: none was found"),
            "tokens": ("rollouts.tokens", "of the reply"),
            "finish_reason": ("rollouts.finish_reason", "stop or length"),
            "entropy_nats": ("rollouts.mean_entropy", "mean over the reply's tokens"),
            "voted_by": ("rollouts.checkpoint", "the Solver's checkpoint"),
        },
        "rollouts " + _OF_QUESTION.format(table="rollouts"),
    ),
    "coevo_v1_labels": (
        "a question's pseudo-label and verdict",
        {
            **_RUN,
            **_QUESTION,
            "verdict": ("pseudo_labels.verdict", ", ".join(get_args(Verdict))),
            "label": ("pseudo_labels.answer", "the answer with the most votes"),
            "label_votes": ("pseudo_labels.votes", "votes for it"),
            "votes": ("pseudo_labels.m", "rollouts of the question"),
            "parsed": ("pseudo_labels.parsed", "rollouts with an answer"),
            "p_hat": ("pseudo_labels.p_hat", "empirical accuracy, 0 to 1"),
            "gate": ("pseudo_labels.gate", "the gate that refused it"),
        },
        "pseudo_labels " + _OF_QUESTION.format(table="pseudo_labels"),
    ),
    "coevo_v1_audits": (
        "what an oracle says of a pseudo-label",
        {
            **_RUN,
            **_QUESTION,
            "oracle": ("oracle_labels.oracle", "exact, human or a judge"),
            "oracle_verdict": ("oracle_labels.verdict", "right, wrong, ill_posed or unknown"),
            "truth": ("oracle_labels.truth", "the oracle's own answer, if it has one"),
            "sampled": ("CASE WHEN audit_samples.position IS NULL THEN 0 ELSE 1 END", "1: drawn for a sample"),
            "stratum": ("audit_samples.stratum", "of the sample, whose figures are weighted by it"),
            "verdict": ("pseudo_labels.verdict", "as in coevo_v1_labels"),
            "p_hat": ("pseudo_labels.p_hat", "as in coevo_v1_labels"),
        },
        f"oracle_labels {_OF_QUESTION.format(table='oracle_labels')} "
        "JOIN pseudo_labels ON pseudo_labels.question_id = oracle_labels.question_id "
        "LEFT JOIN audit_samples ON audit_samples.question_id = oracle_labels.question_id "
        "AND audit_samples.oracle = oracle_labels.oracle",
    ),
    "coevo_v1_series": (
        "a figure of an iteration",
        {
            **_RUN,
            "iteration": ("series.iteration", "0 is the base model"),
            "figure": ("series.name", "as `coevo show series` names it"),
            "over": ('series."over"', "kept, all or empty: which questions"),
            "oracle": ("series.oracle", "empty: it is by no oracle"),
            "value": ("series.value", "in the figure's own unit"),
            "lower": ("series.lo", "end of the 95% interval; NULL: none"),
            "upper": ("series.hi", "likewise"),
            "n": ("series.n", "the number of items it rests on"),
            "estimated": ("CASE WHEN series.estimated THEN 1 ELSE 0 END", "1: estimated from p_hat, not measured"),
        },
        "series " + _OF_RUN.format(table="series"),
    ),
}


def complete(connection: Connection) -> bool:
    """Whether all views are there."""
    return VIEWS.keys() <= {*inspect(connection).get_view_names()}


def drop(connection: Connection) -> None:
    """Drop the views. A migration may rebuild the tables that they read."""
    for name in VIEWS:
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))


def create(connection: Connection) -> None:
    """Create the views, none of which is there."""
    for name, (_, columns, source) in VIEWS.items():
        selected = ", ".join(f'{sql} AS "{column}"' for column, (sql, _) in columns.items())
        connection.execute(text(f"CREATE VIEW {name} AS SELECT {selected} FROM {source}"))  # noqa: S608 (the names above)
