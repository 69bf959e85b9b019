"""Forks: whose iterations a run has, and what is read of them."""

from __future__ import annotations

import pytest
from store_examples import checkpoint, end_stage, fill, fresh_run, reads, writes

from core.settings.config import CoEvolution
from storage import queries
from storage.errors import StoreError
from storage.rows import SeriesPoint
from storage.session import Store


def _fork(store: Store, of: str, last: int) -> str:
    """A run that begins after iteration `last` of another one."""
    name = f"{of[:40]}-{last}"
    with store.write() as session:
        queries.runs.create_run(session, name=name, config=CoEvolution())
        queries.forks.add(session, name, queries.forks.makers(session, of, last))
    return name


def _point(iteration: int, value: float) -> SeriesPoint:
    return SeriesPoint(iteration, "label_accuracy", "kept", "exact", value, value - 0.01, value + 0.01, 100)


@pytest.fixture
def chain(store: Store, run: str) -> tuple[str, str, str]:
    """A run with solvers and points of iterations 0 to 3, its fork after 2 with its own of iterations 3 and 4, and a
    fork of the fork after 3."""

    def begin(name: str, iterations: range) -> None:
        for t in iterations:
            writes(store).series.put_series(name, [_point(t, 0.5 + t / 8)])
            if t:
                writes(store).checkpoints.add_checkpoint(checkpoint(name, "solver", t), {})
                end_stage(store, name, t, "check_health")

    begin(run, range(4))
    fork = _fork(store, run, 2)
    begin(fork, range(3, 5))
    return run, fork, _fork(store, fork, 3)


def test_a_fork_of_a_fork_has_the_iterations_of_those_that_made_them(store: Store, chain: tuple[str, str, str]) -> None:
    run, fork, fork_of_fork = chain
    forks = reads(store).forks
    assert [forks.inherited(name) for name in chain] == [
        {},
        {0: run, 1: run, 2: run},
        {0: run, 1: run, 2: run, 3: fork},
    ]
    assert [forks.begins_at(name) for name in chain] == [0, 3, 4]
    assert [forks.made_by(fork_of_fork, t) for t in range(6)] == [run, run, run, fork, fork_of_fork, fork_of_fork]
    assert forks.forks_of(run) == {t: sorted([fork, fork_of_fork]) for t in range(3)}
    assert forks.forks_of(fork) == {3: [fork_of_fork]}


def test_all_iterations_of_a_fork_are_read_and_none_that_came_later(store: Store, chain: tuple[str, str, str]) -> None:
    run, fork, fork_of_fork = chain
    by = reads(store)
    solvers = {name: [solver.id for solver in by.checkpoints.solvers_of(name)] for name in chain}
    first = [f"{run}/base/0", f"{run}/solver/1", f"{run}/solver/2"]
    assert solvers == {
        run: [*first, f"{run}/solver/3"],
        fork: [*first, f"{fork}/solver/3", f"{fork}/solver/4"],
        fork_of_fork: [*first, f"{fork}/solver/3"],
    }
    assert [(row.run, row.iteration) for row in by.ledger.stages_of(fork_of_fork)] == [(run, 1), (run, 2), (fork, 3)]
    expected = {run: 4, fork: 5, fork_of_fork: 4}
    assert {name: len(by.series.series_of(name)) for name in chain} == expected
    of_runs = by.series.series_of_runs(chain, ["label_accuracy"])
    assert of_runs == {name: by.series.series_of(name) for name in chain}
    changes = by.drift.label_changes(chain)
    assert {name: (change.first_iteration, change.last_iteration) for name, change in changes.items()} == {
        run: (0, 3),
        fork: (0, 4),
        fork_of_fork: (0, 3),
    }
    assert by.metrics.finished_iterations(chain) == {run: 3, fork: 4, fork_of_fork: 3}


def test_a_fork_stores_no_points_of_iterations_that_it_has_inherited(store: Store, chain: tuple[str, str, str]) -> None:
    run, fork, _ = chain
    writes(store).series.put_series(fork, [_point(2, 0.1), _point(4, 0.1)])
    assert reads(store).series.series_of(fork)[2:] == [_point(2, 0.75), _point(3, 0.875), _point(4, 0.1)]
    assert reads(store).series.series_of(run)[2] == _point(2, 0.75)


def test_a_run_with_forks_cannot_be_deleted(store: Store, chain: tuple[str, str, str]) -> None:
    run, fork, fork_of_fork = chain
    assert reads(store).run_rows.referring_runs(run) == sorted([fork, fork_of_fork])
    for name in (run, fork):
        with pytest.raises(StoreError, match=f"run {name}: "), store.write() as session:
            queries.runs.delete_run(session, name)
    for name in (fork_of_fork, fork, run):
        writes(store).runs.delete_run(name)
    assert reads(store).forks.forks_of(run) == {}


def test_every_row_of_an_inherited_iteration_is_read(store: Store) -> None:
    run = fresh_run(store)
    with store.write() as session:
        fill(session, run)
    fork, by = _fork(store, run, 1), reads(store)
    assert by.figures.train_metrics_of(fork) == by.figures.train_metrics_of(run) != []
    assert by.figures.last_steps(fork) == by.figures.last_steps(run) != {}
    assert by.figures.metric_names(fork, role="solver") == {"reward"}
    assert by.series.voted_iterations(fork) == {1}
    assert by.audits.oracles_of(fork) == {"exact": [1]}
    assert by.audits.audited_cells(fork, "exact") == by.audits.audited_cells(run, "exact") != []
    assert by.audits.p_hats_of(fork) == by.audits.p_hats_of(run) != {}
    assert by.audits.version(fork)[2:] == by.audits.version(run)[2:]
    assert by.evaluations.evaluation_sums(fork) == by.evaluations.evaluation_sums(run) != []
    assert by.evaluations.evaluated(fork) == [(f"{run}/solver/1", "micro")]
    assert by.usage.usage_of(fork) == []  # it has cost nothing
