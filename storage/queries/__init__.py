"""Every statement that the store knows: plain functions, the session first.

They take and give frozen dataclasses, never ORM rows, and run in the caller's transaction, so that what belongs
together is committed together. A thing asked for by its name (`get_…`) and not there is a `StoreError`.
"""

from __future__ import annotations

from storage.queries.alerts import (
    acknowledge,
    add_alerts,
    claim_delivery,
    deliveries_of,
    delivery_due,
    get_alert,
    list_alerts,
    mark_delivered,
    mark_failed,
)
from storage.queries.audits import (
    AlreadySaid,
    add_annotation,
    add_samples,
    agreement,
    annotations_in,
    annotations_of,
    annotator_agreement,
    auditable,
    audited_cells,
    count_said,
    drawn_by_stratum,
    has_label,
    lock_sample,
    named_strata_of,
    next_to_label,
    oracles_of,
    p_hats_of,
    sample_is_over,
    sample_progress,
    samples_of,
    strata_of,
)
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
    descendants_of,
    get_checkpoint,
    lineage,
    manifest_of,
)
from storage.queries.figures import (
    add_evaluations,
    add_filter_stats,
    add_train_metrics,
    evaluated,
    evaluation_sums,
    evaluations_of,
    filter_stats_of,
    train_metrics_of,
)
from storage.queries.keys import add_key, key_of, list_keys, revoke_key
from storage.queries.labelled import all_labelled
from storage.queries.ledger import (
    claim_stage,
    fail_stage,
    find_stage,
    finish_stage,
    note_progress,
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
    gather_statistics,
    labels_of,
    makers,
    oracle_labels_of,
    questions_of,
    rollouts_of,
    rollouts_of_question,
)
from storage.queries.run_leases import claim_run, process_of, release_run, renew_run, run_holder
from storage.queries.runs import (
    create_run,
    delete_run,
    get_run,
    list_runs,
    page_of_runs,
    refuse_name,
    refuse_other_settings,
    runs_changed,
    set_iterations,
    set_run_status,
)
from storage.queries.series import (
    cluster_sizes,
    ill_posed_by_stratum,
    label_sums,
    oracles_at,
    put_series,
    series_of,
    vote_classes,
    vote_sums,
    voted_iterations,
)
from storage.queries.tables import database_time
from storage.queries.traces import (
    add_clusters,
    add_trained_on,
    cluster_of,
    count_learned_from,
    largest_clusters,
    trained_on_of,
)
