from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError
from store_examples import checkpoint, reads, writes

from storage import queries
from storage.errors import StoreError
from storage.session import Store


def test_lineage_goes_up_to_the_base(store: Store, run: str) -> None:
    parent = f"{run}/base/0"
    chain = [checkpoint(run)]
    # The challenger is a sibling of the first solver, so it is in no solver's lineage.
    writes(store).checkpoints.add_checkpoint(checkpoint(run, "challenger", 1, parent), {})
    for iteration in (1, 2, 3):
        chain.append(checkpoint(run, "solver", iteration, chain[-1].id))
        writes(store).checkpoints.add_checkpoint(chain[-1], {})
    assert reads(store).checkpoints.lineage(f"{run}/solver/3") == chain[::-1]
    assert reads(store).checkpoints.lineage(parent) == chain[:1]
    solvers = reads(store).checkpoints.checkpoints_of(run, role="solver")
    assert solvers == chain[1:]
    everything = [row.id.removeprefix(f"{run}/") for row in reads(store).checkpoints.checkpoints_of(run)]
    assert everything == ["base/0", "challenger/1", "solver/1", "solver/2", "solver/3"]


def test_descendants_of_a_checkpoint_are_listed_nearest_first(store: Store, run: str) -> None:
    base, near, far, last = f"{run}/base/0", f"{run}/solver/1", f"{run}/solver/2", f"{run}/solver/3"
    for iteration, parent in ((1, base), (2, near), (3, far)):
        writes(store).checkpoints.add_checkpoint(checkpoint(run, "solver", iteration, parent), {})
    writes(store).checkpoints.add_checkpoint(checkpoint(run, "challenger", 1, base), {})
    # This challenger is of a late iteration, but still a direct child of the base.
    writes(store).checkpoints.add_checkpoint(checkpoint(run, "challenger", 4, base), {})
    below = [row.id for row in reads(store).checkpoints.descendants_of(base)]
    assert below == [f"{run}/challenger/1", near, f"{run}/challenger/4", far, last]
    assert below[:3] == [row.id for row in reads(store).checkpoints.children_of(base)]
    assert [row.id for row in reads(store).checkpoints.descendants_of(near)] == [far, last]
    assert reads(store).checkpoints.descendants_of(last) == []


def test_the_same_checkpoint_can_be_added_twice_but_not_with_other_bytes(store: Store, run: str) -> None:
    solver = checkpoint(run, "solver", 1, f"{run}/base/0")
    files = {"model.safetensors": "ab", "config.json": "cd"}
    writes(store).checkpoints.add_checkpoint(solver, files)
    writes(store).checkpoints.add_checkpoint(solver, files)
    with store.write() as session, pytest.raises(StoreError, match=f"checkpoint {solver.id}: "):
        queries.checkpoints.add_checkpoint(session, replace(solver, sha256="other"), files)
    assert reads(store).checkpoints.get_checkpoint(solver.id) == solver
    assert reads(store).checkpoints.manifest_of(solver.id) == files


def test_the_parent_of_a_checkpoint_must_exist(store: Store, run: str) -> None:
    with pytest.raises(IntegrityError), store.write() as session:
        queries.checkpoints.add_checkpoint(session, checkpoint(run, "solver", 1, "nobody/base/0"), {})


def test_the_error_names_an_unknown_checkpoint(store: Store) -> None:
    for query in (queries.checkpoints.get_checkpoint, queries.checkpoints.lineage, queries.checkpoints.manifest_of):
        with store.read() as session, pytest.raises(StoreError, match="checkpoint demo/solver/9: "):
            query(session, "demo/solver/9")
