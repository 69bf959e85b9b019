"""The list of runs: filters, orders and pages."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from store_examples import fresh_run, reads, writes

from core.settings.parsing import parse_config
from storage import queries
from storage.models import Runs
from storage.queries.run_list import RunFilter, RunSort
from storage.queries.tables import table_of
from storage.rows import SeriesPoint
from storage.session import Store


def names(store: Store, filters: RunFilter | None = None, sort: RunSort = "-created", limit: int = 100) -> list[str]:
    """The runs on all pages of `limit` runs."""
    listed: list[str] = []
    after = None
    while page := reads(store).run_list.page_of_runs(filters or RunFilter(), sort=sort, after=after, limit=limit):
        listed += [run.name for run, _ in page]
        after = (page[-1][1], page[-1][0].name)
    return listed


@pytest.fixture
def three(store: Store) -> Store:
    """The runs `a_b`, `aXb` and `c`, in the order of their creation."""
    for name, preset, method in (("a_b", "demo", "rzero"), ("aXb", "micro", "srt"), ("c", "micro", "evol_rl")):
        settings = {"prompts": {"file": "micro", "limit": 9}} if method == "srt" else {}
        config = parse_config({**settings, "solver": {"reward": {"type": method}}}, "a test")
        writes(store).runs.create_run(name=name, config=config, preset=preset)
    writes(store).run_notes.annotate("a_b", add=["base", "paper:srt"], note="The FILTER was 100% off.\nToo bad.")
    writes(store).run_notes.annotate("aXb", add=["baseline"], note="fine")
    points = [("a_b", 1, 0.9, False), ("a_b", 2, 0.4, False), ("a_b", 3, 0.8, True), ("aXb", 1, 0.5, False)]
    for run, t, value, estimated in points:
        point = SeriesPoint(t, "label_accuracy", "kept", "exact", value, None, None, 9, estimated)
        writes(store).series.put_series(run, [point])
    writes(store).series.put_series("c", [SeriesPoint(0, "held_out", "", "", 0.25, None, None, 9)])
    return store


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (RunFilter(), ["c", "aXb", "a_b"]),
        (RunFilter(name="A_"), ["a_b"]),  # _ is no wildcard
        (RunFilter(preset="micro"), ["c", "aXb"]),
        (RunFilter(method="srt"), ["aXb"]),
        (RunFilter(names=("c", "unknown")), ["c"]),
        (RunFilter(names=()), []),
        (RunFilter(tags=("base",)), ["a_b"]),  # not `baseline`
        (RunFilter(tags=("base", "paper:srt")), ["a_b"]),
        (RunFilter(tags=("base", "baseline")), []),
        (RunFilter(note="filter was 100%"), ["a_b"]),
        (RunFilter(name="a", preset="micro"), ["aXb"]),
    ],
)
def test_runs_are_filtered(three: Store, filters: RunFilter, expected: list[str]) -> None:
    assert names(three, filters) == expected


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("created", ["a_b", "aXb", "c"]),
        ("label_accuracy", ["a_b", "aXb"]),  # that of the last measured iteration: 0.4, not 0.9 or the estimate
        ("-label_accuracy", ["aXb", "a_b"]),
        ("-held_out", ["c"]),
    ],
)
def test_runs_are_sorted_over_all_pages(three: Store, sort: RunSort, expected: list[str]) -> None:
    assert names(three, sort=sort) == expected
    assert names(three, sort=sort, limit=1) == expected


def test_runs_are_sorted_by_name_in_both_directions(three: Store) -> None:
    up = names(three, sort="name", limit=2)
    assert sorted(up) == ["aXb", "a_b", "c"]
    assert names(three, sort="-name", limit=2) == up[::-1]


def test_runs_of_the_same_time_are_on_one_page_each_in_order_of_their_names(store: Store) -> None:
    created = [fresh_run(store) for _ in range(3)]
    with store.write() as session:
        last = queries.runs.get_run(session, created[2]).created_at
        session.execute(update(table_of(Runs)).where(Runs.name == created[1]).values(created_at=last))
    assert names(store, limit=1) == [*sorted(created[1:]), created[0]]


@pytest.fixture
def audited(three: Store) -> Store:
    """`c` fell clearly by the judge, not by the program; `a_b` fell, but its intervals overlap; `aXb` rose."""
    points = {
        "c": [
            *((1, "exact", 0.9, 0.8, 1.0), (3, "exact", 0.85, 0.75, 0.95)),
            *((1, "judge", 0.9, 0.85, 0.95), (2, "judge", 0.7, 0.6, 0.8), (3, "judge", 0.75, 0.7, 0.8)),
        ],
        "a_b": [(1, "exact", 0.9, 0.6, 1.0), (2, "exact", 0.4, 0.2, 0.65)],
        "aXb": [(1, "exact", 0.5, 0.4, 0.6), (2, "exact", 0.6, 0.5, 0.7)],
    }
    for run, of_run in points.items():
        rows = [SeriesPoint(t, "label_accuracy", "kept", oracle, *values, 99) for t, oracle, *values in of_run]
        writes(three).series.put_series(run, rows)
        # Neither an estimate nor all questions count.
        others = [SeriesPoint(9, "label_accuracy", "kept", "human", 0.1, 0.0, 0.2, 9, True)]
        writes(three).series.put_series(run, [*others, SeriesPoint(9, "label_accuracy", "all", "exact", 0, 0, 0, 9)])
    return three


def test_the_runs_that_drift_are_found_by_their_worst_oracle(audited: Store) -> None:
    changes = reads(audited).drift.label_changes()
    assert reads(audited).drift.label_changes(["c"]) == {"c": changes["c"]}
    assert [*changes] == ["a_b", "c", "aXb"]  # the worst first
    shown = {run: (change.oracle, change.last_iteration, round(change.change, 9)) for run, change in changes.items()}
    assert shown == {"a_b": ("exact", 2, -0.5), "c": ("judge", 3, -0.15), "aXb": ("exact", 2, 0.1)}
    assert {run for run, change in changes.items() if change.drifts} == {"c"}
    assert names(audited, RunFilter(drifting=True)) == names(audited, RunFilter(drifting=True), "change") == ["c"]
    assert names(audited, sort="change", limit=1) == ["a_b", "c", "aXb"]
    assert names(audited, sort="-change", limit=2) == ["aXb", "c", "a_b"]
    assert names(audited, RunFilter(open_alerts=True)) == []


@pytest.mark.parametrize("part", ["évaluer", "ÉVALUER", "Évaluer"])
def test_a_note_is_found_whatever_its_letters_case(part: str, three: Store) -> None:
    writes(three).run_notes.annotate("aXb", note="À réévaluer")
    assert names(three, RunFilter(note=part)) == ["aXb"]
