"""The SQL views: that each can be read on both databases, and what their rows are."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from core.types import Rollout
from orchestrator.installation.home import ROOT
from storage import queries, views
from storage.rows import ExperimentRun, SeriesPoint
from storage.schema import migrate
from storage.session import Store, open_store
from tests.synthetic_run import fill_run


@pytest.fixture
def filled(store: Store) -> Store:
    fill_run(store, "x-full-1")
    with store.write() as session:
        queries.experiments.add_run(session, ExperimentRun("x-full-1", "x", "full", 0, 7))
        queries.forks.add(session, "x-full-1", {0: "x-full-1"})
        queries.series.put_series(session, "x-full-1", [SeriesPoint(1, "p_hat", "kept", "", 0.5, 0.4, 0.6, 9)])
        first = queries.questions.questions_of(session, "x-full-1", 1)[0].id
        rollouts = [Rollout(first, i, "", "7", 9, "stop", 0.5, 0.0, "x-full-1/base/0", i) for i in range(2)]
        queries.questions.add_rollouts(session, rollouts)
    return store


@pytest.mark.parametrize("name", views.VIEWS)
def test_a_view_has_its_columns_and_one_row_for_each_row_of_its_table(filled: Store, name: str) -> None:
    kind = name.rpartition("_")[2]
    tables = {"labels": "pseudo_labels", "audits": "oracle_labels", "votes": "rollouts"}
    table = {**tables, "inherited": "inherited_iterations"}.get(kind, kind)
    with filled.read() as session:
        rows = session.execute(text(f"SELECT * FROM {name}")).mappings().all()
        counted = session.scalar(text(f"SELECT count(*) FROM {table}"))
    assert len(rows) == counted > 0
    assert [*rows[0]] == [*views.VIEWS[name][1]]
    assert {(row["run"], row["experiment"], row["arm"], row["seed"]) for row in rows} == {("x-full-1", "x", "full", 7)}


def test_the_documentation_has_every_column() -> None:
    page = (ROOT / "docs" / "storage.md").read_text()
    for name, (_, columns, _) in views.VIEWS.items():
        [line] = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert [column for column in [*columns][4:] if f"`{column}`" not in line] == []


def test_a_store_without_the_views_gets_them(database_url: str, store: Store) -> None:
    with store.write() as session:
        views.drop(session.connection())
    open_store(database_url, create=True).close()
    with store.write() as session:
        assert views.complete(session.connection())
        migrate(session.connection())  # changes nothing
