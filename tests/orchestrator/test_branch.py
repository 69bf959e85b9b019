"""Solvers that are trained on labelled data apart from the loop: nothing takes them for Solvers of the loop."""

from __future__ import annotations

import pytest

from core.settings.parsing import parse_config
from core.types import Checkpoint, Evaluated
from orchestrator import runs
from orchestrator.plan import plan, stages_of
from orchestrator.stages.context import Context
from services.drift.series import accuracies
from services.evaluations.figures import RUN_MODEL, named_checkpoint
from services.run_report.figures import figures
from services.run_report.measures import measure
from storage import queries
from storage.errors import NotThere
from storage.session import Store
from tests.synthetic_run import add_evaluations, context_of, fill_run, finish, iterations

LABELLED = {"file": "micro", "limit": 9}
RIGHT = [Evaluated(f"q{i}", "1", 4, 3, True, True) for i in range(20)]  # 75% in single answers


@pytest.fixture
def run(store: Store) -> str:
    """A run of three iterations, the second and third with a branch that is far better than its Solver."""
    fill_run(store, "r", per_level=1)
    with store.write() as session:
        for t in (2, 3):
            key = f"r/labelled/{t}"
            checkpoint = Checkpoint(key, "r", "labelled", t, 0, f"/models/{key}", key, f"r/solver/{t}")
            queries.checkpoints.add_checkpoint(session, checkpoint, {})
            add_evaluations(session, checkpoint=key, benchmark="micro", items=RIGHT)
            finish(session, "r", t, "evaluate_labelled", {"checkpoint": key}, 1.0)
    return "r"


def test_the_stages_of_a_branch_come_after_those_of_the_solver() -> None:
    plain, branch = parse_config({}, "test"), parse_config({"labelled": LABELLED}, "test")
    chained = parse_config({"labelled": {**LABELLED, "chained": True}}, "test")
    assert stages_of(plain, 1) == stages_of(chained, 1)
    assert stages_of(branch, 0) == stages_of(plain, 0)
    names = stages_of(branch, 1)
    assert names[3:7] == ("train_solver", "train_labelled", "evaluate", "evaluate_labelled")
    assert tuple(name for name in names if not name.endswith("_labelled")) == stages_of(plain, 1)
    assert len([*plan(branch)]) == 1 + 3 * 9


@pytest.mark.parametrize("shared", [False, True])
def test_the_next_iteration_goes_on_from_the_solver_without_labelled_data(store: Store, run: str, shared: bool) -> None:
    config = parse_config({"shared": shared, "labelled": LABELLED}, "test")
    fourth: Context = context_of(store, run, 4, config=config)
    assert fourth.checkpoint("solver").id == "r/solver/3"
    assert fourth.checkpoint("challenger").id == ("r/solver/3" if shared else "r/challenger/3")
    assert runs.result_of(store, run) == "r/solver/3"
    with store.read() as session:
        assert [c.id for c in queries.checkpoints.solvers_of(session, run)] == [
            "r/base/0",
            *(f"r/solver/{t}" for t in (1, 2, 3)),
        ]


def test_a_branch_is_a_leaf_of_the_lineage_and_listed_after_its_solver(store: Store, run: str) -> None:
    with store.read() as session:
        ids = [checkpoint.id for checkpoint in queries.checkpoints.checkpoints_of(session, run)]
        ancestors = [checkpoint.id for checkpoint in queries.checkpoints.lineage(session, "r/labelled/2")]
        assert queries.checkpoints.descendants_of(session, "r/labelled/2") == []
    assert ids[-3:] == ["r/challenger/3", "r/solver/3", "r/labelled/3"]
    assert ancestors == ["r/labelled/2", "r/solver/2", "r/solver/1", "r/base/0"]


def test_a_branch_is_evaluated_by_its_own_name_and_never_as_the_best_solver(store: Store, run: str) -> None:
    def named(text: str) -> str:
        match = RUN_MODEL.fullmatch(text)
        assert match is not None
        with store.read() as session:
            return named_checkpoint(session, match[1], match[2])[0].id

    assert named("r:labelled/2") == "r/labelled/2"
    assert named("r:2") == "r/solver/2"
    assert named("r:base") == "r/base/0"
    assert named("r:best").startswith("r/solver/")
    with pytest.raises(NotThere, match="r/labelled/1"):
        named("r:labelled/1")


def test_the_series_and_the_report_keep_the_branch_apart_from_the_loop(store: Store, run: str) -> None:
    with store.read() as session:
        in_series = accuracies(session, run, "micro")
    measures, in_json = measure(store, run), figures(store, run)["iterations"]
    assert isinstance(in_json, list)
    for t in (0, 1, 2, 3):
        of_loop = measures.iterations[t].accuracy
        assert of_loop is not None
        assert in_series[t].pass_at_1.value == pytest.approx(of_loop.pass_at_1.value)
        assert of_loop.pass_at_1.n == 6  # questions, and not the branch's 20
    branches = [iteration.branch and iteration.branch.pass_at_1.value for iteration in measures.iterations]
    assert branches == [None, None, 0.75, 0.75]
    assert [iteration["after_labelled"] is None for iteration in in_json] == [True, True, False, False]
    assert in_json[2]["after_labelled"]["greedy"]["value"] == 1
    fill_run(store, "plain", per_level=1)
    assert [row["after_labelled"] for row in iterations(store, "plain")] == [None] * 4
