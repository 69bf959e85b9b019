from __future__ import annotations

import pytest
from sqlalchemy import func, select
from store_examples import checkpoint, fill, fresh_run, reads, writes

from core.questions.filtering import statistics
from core.settings.config import CoEvolution, Dataset
from core.settings.costs import Budget, Rates
from core.settings.parsing import parse_config
from storage import queries
from storage.errors import StoreError
from storage.models import Base
from storage.queries.tables import table_of
from storage.session import Store


def test_a_stored_run_is_read_back_unchanged(store: Store) -> None:
    config = CoEvolution(seed=2**62, dataset=Dataset(band=(0.3, 0.8)))
    created = writes(store).runs.create_run(name="demo", config=config, preset="micro")
    run = reads(store).runs.get_run("demo")
    assert run == created
    assert (run.preset, run.seed, run.status) == ("micro", 2**62, "created")
    assert parse_config(run.config, source="store") == config
    assert run.created_at.utcoffset() is not None


def test_creating_a_run_again_returns_the_first_one(store: Store) -> None:
    first = writes(store).runs.create_run(name="demo", config=CoEvolution(), preset="micro")
    assert writes(store).runs.create_run(name="demo", config=CoEvolution(), preset="other") == first


def test_a_different_configuration_under_the_same_name_is_refused_with_its_fields(store: Store) -> None:
    other = CoEvolution(seed=1, dataset=Dataset(candidates=320, band=(0.3, 0.8)))
    writes(store).runs.create_run(name="demo", config=CoEvolution())
    named = r"run demo: .*dataset\.band .*\[0\.3, 0\.8\].*dataset\.candidates .*8000.*320.*seed .*0.*1"
    with pytest.raises(StoreError, match=named):
        writes(store).runs.create_run(name="demo", config=other)


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a b", "x" * 65, "nul\0"])
def test_a_name_that_cannot_be_a_path_is_refused(store: Store, name: str) -> None:
    with store.write() as session, pytest.raises(StoreError, match="run name: "):
        queries.runs.create_run(session, name=name, config=CoEvolution())


def test_the_error_for_an_unknown_run_lists_the_existing_runs(store: Store, run: str) -> None:
    with store.read() as session, pytest.raises(StoreError, match=rf"run demp: .*{run}"):
        queries.runs.get_run(session, "demp")
    with store.write() as session, pytest.raises(StoreError, match="run demp: "):
        queries.runs.set_run_status(session, "demp", "done")


def test_runs_are_listed_newest_first_with_their_status(store: Store) -> None:
    names = [fresh_run(store) for _ in range(3)]
    writes(store).runs.set_run_status(names[0], "failed")
    runs = reads(store).runs.list_runs()
    assert [run.name for run in runs] == names[::-1]
    assert [run.status for run in runs] == ["created", "created", "failed"]
    assert runs[-1].updated_at > runs[-1].created_at


def test_the_iterations_of_a_run_can_only_be_increased(store: Store, run: str) -> None:
    with store.write() as session:
        longer = CoEvolution(iterations=5, budget=Budget(tokens=1e6))
        queries.runs.set_limits(session, run, longer)
        assert queries.runs.get_run(session, run).config == longer.model_dump(mode="json")
        with pytest.raises(StoreError, match=r"iterations: .*5"):
            queries.runs.set_limits(session, run, CoEvolution(iterations=4))


def test_only_the_limits_of_a_run_may_change(store: Store, run: str) -> None:
    stored = reads(store).runs.get_run(run)
    limited = CoEvolution(iterations=9, budget=Budget(hours=2), rates=Rates(gpu_hour=3))
    queries.runs.refuse_other_settings(stored, limited)
    with pytest.raises(StoreError, match="seed"):
        queries.runs.refuse_other_settings(stored, limited.model_copy(update={"seed": 1}))


def test_deleting_a_run_deletes_all_its_rows_and_no_others(store: Store) -> None:
    kept, gone = fresh_run(store), fresh_run(store)
    before = _counts(store)
    for run in (kept, gone):
        with store.write() as session:
            fill(session, run)
            queries.figures.add_filter_stats(session, run=run, iteration=1, stats=statistics([]))
    counts_of_two_runs = _counts(store)
    writes(store).runs.delete_run(gone)
    assert all(count > 0 for count in counts_of_two_runs.values())
    assert _counts(store) == {name: count // 2 for name, count in counts_of_two_runs.items()}
    writes(store).runs.delete_run(kept)
    assert before["checkpoints"] == 2
    assert set(_counts(store).values()) == {0}


def test_a_run_that_another_run_builds_on_cannot_be_deleted(store: Store) -> None:
    old, new = fresh_run(store), fresh_run(store)
    writes(store).checkpoints.add_checkpoint(checkpoint(new, "solver", 1, parent=f"{old}/base/0"), {})
    with pytest.raises(StoreError, match=f"run {old}: "), store.write() as session:
        queries.runs.delete_run(session, old)
    assert len(reads(store).checkpoints.lineage(f"{new}/solver/1")) == 2


def _counts(store: Store) -> dict[str, int]:
    with store.read() as session:
        tables = {mapper.class_.__tablename__: table_of(mapper.class_) for mapper in Base.registry.mappers}
        del tables["api_keys"], tables["benchmark_items"]  # which belong to no run
        del tables["inherited_iterations"]  # which belong to two: `tests/orchestrator/test_forks.py`
        return {name: session.scalar(select(func.count()).select_from(table)) or 0 for name, table in tables.items()}
