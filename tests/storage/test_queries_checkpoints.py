from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError
from store_examples import checkpoint, fresh_run

from storage import queries
from storage.errors import StoreError
from storage.session import Store


def test_lineage_goes_up_to_the_base(store: Store) -> None:
    run = fresh_run(store)
    parent = f"{run}/base/0"
    chain = [checkpoint(run)]
    with store.write() as session:
        # The challenger is a sibling of the first solver, so it is in no solver's lineage.
        queries.checkpoints.add_checkpoint(session, checkpoint(run, "challenger", 1, parent), {})
        for iteration in (1, 2, 3):
            chain.append(checkpoint(run, "solver", iteration, chain[-1].id))
            queries.checkpoints.add_checkpoint(session, chain[-1], {})
    with store.read() as session:
        assert queries.checkpoints.lineage(session, f"{run}/solver/3") == chain[::-1]
        assert queries.checkpoints.lineage(session, parent) == chain[:1]
        solvers = queries.checkpoints.checkpoints_of(session, run, role="solver")
        assert solvers == chain[1:]
        everything = [row.id.removeprefix(f"{run}/") for row in queries.checkpoints.checkpoints_of(session, run)]
        assert everything == ["base/0", "challenger/1", "solver/1", "solver/2", "solver/3"]


def test_descendants_of_a_checkpoint_are_listed_nearest_first(store: Store) -> None:
    run = fresh_run(store)
    base, near, far, last = f"{run}/base/0", f"{run}/solver/1", f"{run}/solver/2", f"{run}/solver/3"
    with store.write() as session:
        for iteration, parent in ((1, base), (2, near), (3, far)):
            queries.checkpoints.add_checkpoint(session, checkpoint(run, "solver", iteration, parent), {})
        queries.checkpoints.add_checkpoint(session, checkpoint(run, "challenger", 1, base), {})
        # This challenger is of a late iteration, but still a direct child of the base.
        queries.checkpoints.add_checkpoint(session, checkpoint(run, "challenger", 4, base), {})
    with store.read() as session:
        below = [row.id for row in queries.checkpoints.descendants_of(session, base)]
        assert below == [f"{run}/challenger/1", near, f"{run}/challenger/4", far, last]
        assert below[:3] == [row.id for row in queries.checkpoints.children_of(session, base)]
        assert [row.id for row in queries.checkpoints.descendants_of(session, near)] == [far, last]
        assert queries.checkpoints.descendants_of(session, last) == []


def test_the_same_checkpoint_can_be_added_twice_but_not_with_other_bytes(store: Store) -> None:
    run = fresh_run(store)
    solver = checkpoint(run, "solver", 1, f"{run}/base/0")
    files = {"model.safetensors": "ab", "config.json": "cd"}
    with store.write() as session:
        queries.checkpoints.add_checkpoint(session, solver, files)
        queries.checkpoints.add_checkpoint(session, solver, files)
    with store.write() as session, pytest.raises(StoreError, match=f"checkpoint {solver.id}: exists with sha256"):
        queries.checkpoints.add_checkpoint(session, replace(solver, sha256="other"), files)
    with store.read() as session:
        assert queries.checkpoints.get_checkpoint(session, solver.id) == solver
        assert queries.checkpoints.manifest_of(session, solver.id) == files


def test_the_parent_of_a_checkpoint_must_exist(store: Store) -> None:
    run = fresh_run(store)
    with pytest.raises(IntegrityError), store.write() as session:
        queries.checkpoints.add_checkpoint(session, checkpoint(run, "solver", 1, "nobody/base/0"), {})


def test_the_error_names_an_unknown_checkpoint(store: Store) -> None:
    for query in (queries.checkpoints.get_checkpoint, queries.checkpoints.lineage, queries.checkpoints.manifest_of):
        with store.read() as session, pytest.raises(StoreError, match="checkpoint demo/solver/9: no such checkpoint"):
            query(session, "demo/solver/9")
