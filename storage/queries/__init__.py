"""Every statement that the store knows: plain functions, the session first.

They take and give frozen dataclasses, never ORM rows, and run in the caller's transaction, so that what belongs
together is committed together. A thing asked for by its name (`get_…`) and not there is a `StoreError`.
"""

from __future__ import annotations

from storage.queries.browse import (
    QuestionFilter,
    Sort,
    audit_counts,
    browse,
    get_question,
    place_of,
    vote_counts,
)
from storage.queries.checkpoints import (
    add_checkpoint,
    checkpoints_of,
    children_of,
    get_checkpoint,
    lineage,
    manifest_of,
)
from storage.queries.figures import (
    add_evaluations,
    add_filter_stats,
    add_train_metrics,
    evaluated,
    evaluations_of,
    filter_stats_of,
    train_metrics_of,
)
from storage.queries.keys import add_key, list_keys, revoke_key, scopes_of
from storage.queries.ledger import (
    claim_stage,
    fail_stage,
    find_stage,
    finish_stage,
    release_leases,
    renew_lease,
    rolled_back,
    stages_of,
)
from storage.queries.pool import drop_abandoned, join_pool, leave_pool, lock_pool, pool_jobs, preempt_job, start_job
from storage.queries.questions import (
    add_labels,
    add_oracle_labels,
    add_questions,
    add_rollouts,
    count_questions,
    count_rollouts,
    count_verdicts,
    labels_of,
    makers,
    oracle_labels_of,
    questions_of,
    rollouts_of,
    rollouts_of_question,
)
from storage.queries.runs import create_run, delete_run, get_run, list_runs, set_iterations, set_run_status

__all__ = [
    "QuestionFilter",
    "Sort",
    "add_checkpoint",
    "add_evaluations",
    "add_filter_stats",
    "add_key",
    "add_labels",
    "add_oracle_labels",
    "add_questions",
    "add_rollouts",
    "add_train_metrics",
    "audit_counts",
    "browse",
    "checkpoints_of",
    "children_of",
    "claim_stage",
    "count_questions",
    "count_rollouts",
    "count_verdicts",
    "create_run",
    "delete_run",
    "drop_abandoned",
    "evaluated",
    "evaluations_of",
    "fail_stage",
    "filter_stats_of",
    "find_stage",
    "finish_stage",
    "get_checkpoint",
    "get_question",
    "get_run",
    "join_pool",
    "labels_of",
    "leave_pool",
    "lineage",
    "list_keys",
    "list_runs",
    "lock_pool",
    "makers",
    "manifest_of",
    "oracle_labels_of",
    "place_of",
    "pool_jobs",
    "preempt_job",
    "questions_of",
    "release_leases",
    "renew_lease",
    "revoke_key",
    "rolled_back",
    "rollouts_of",
    "rollouts_of_question",
    "scopes_of",
    "set_iterations",
    "set_run_status",
    "stages_of",
    "start_job",
    "train_metrics_of",
    "vote_counts",
]
