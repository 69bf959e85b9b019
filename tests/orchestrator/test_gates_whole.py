"""A whole run with gates: what verification computes again, and which damaged rows it names."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from core.settings.parsing import parse_method
from orchestrator.analysis.replay import replay, table
from orchestrator.installation.home import Home
from orchestrator.plan import stages_of
from orchestrator.runs import stored_config
from services.api.app import create_app
from storage import queries
from storage.session import open_store
from tests.api_server import api_of, served
from tests.commands import coevo
from tests.orchestrator.stored_runs import RUN, copy_of, store_loop, violations

GATES = [
    {"type": "lead", "lead": 0.3},  # two of four votes for x + 1 and one for 3 are too few
    {"type": "ratchet", "groups": 1},
    {"type": "solvers", "votes": 4},
    {"type": "reordered", "votes": 4},
    {"type": "accuracy", "least": 0},
    {"type": "valid"},
]


@pytest.fixture(scope="module")
def gated_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("gated"))
    store = open_store(f"sqlite:///{home.path / 'coevo.db'}", create=True)
    store_loop(store, home, dataset__gates=GATES)
    store.close()
    return home


def test_a_run_with_gates_has_no_violations(gated_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(gated_home, tmp_path)
    assert violations(home, store) == {}
    config = stored_config(store, RUN)
    assert stages_of(config, 1)[2:5] == ("label_questions", "admit_questions", "train_solver")
    with store.read() as session:
        verdicts = queries.questions.count_verdicts(session, RUN, 2)
        results = [row.result or {} for row in queries.ledger.stages_of(session, RUN) if row.stage == "admit_questions"]
        points = queries.series.series_of(session, RUN, "kept_share")
    assert verdicts == {"kept": 1, "too_easy": 1, "no_majority": 1, "refused": 2, "malformed": 1, "duplicate": 2}
    assert [{name: gate["refused"] for name, gate in result["gates"].items()} for result in results] == [
        {"lead": 2, "ratchet": 0, "solvers": 0, "reordered": 0, "accuracy": 0, "valid": 0}
    ] * 2
    assert [point.value for point in points] == [1 / 8, 1 / 8]
    assert results[1]["gates"]["accuracy"]["state"] == [[1, 0.5, 2, 1], [1, 0.75, 1, 1], [1, 1.0, 1, 1]]


def test_rest_and_the_command_show_which_gate_refused_a_question(gated_home: Home, tmp_path: Path) -> None:
    _, store = copy_of(gated_home, tmp_path)
    api = api_of(store, tmp_path / "exports")
    of_iteration = f"/api/v1/runs/{RUN}/iterations/2"
    statistics = api.get(f"{of_iteration}/statistics").json()
    assert statistics["gates"]["lead"] == {"candidates": 3, "refused": 2, "metrics": {}}
    assert statistics["gates"]["ratchet"]["metrics"] == {"level": 1}
    listed = api.get(f"{of_iteration}/questions", params={"verdict": "refused"}).json()["items"]
    assert [(row["text"], row["gate"]) for row in listed] == [("What is 1 + 2?", "lead"), ("What is x + 1?", "lead")]
    one = api.get(f"{of_iteration}/questions/0").json()
    assert (one["verdict"], one["gate"]) == ("refused", "lead")
    rows = api.get(f"/api/v1/runs/{RUN}/export", params={"iterations": "2", "verdict": "refused"}).text.splitlines()
    assert [json.loads(row)["gate"] for row in rows] == ["lead", "lead"]
    with served(create_app(store, tmp_path / "exports", ask_for_keys=False)) as url:
        shown = coevo("show", "questions", RUN, 2, "--url", url, COLUMNS="200").stdout
        assert shown.count("refused by lead") == 2
        assert "refused by lead" in coevo("show", "questions", RUN, 2, "--index", 0, "--url", url).stdout
    summary = coevo("report", RUN, "--summary", COEVO_HOME=str(tmp_path), COLUMNS="200").stdout
    assert "refused" in summary


def test_gates_are_replayed_on_stored_votes_each_by_itself(gated_home: Home, tmp_path: Path) -> None:
    """Of the three questions in the band 1 + 2 and 5 + 7 have right labels; x + 1 is no question of a tiny world."""
    _, store = copy_of(gated_home, tmp_path)
    result = replay(store, tmp_path / "texts", RUN, 2, [parse_method("ttrl")])
    assert {
        name: [row and (row["value"], row["n"]) for row in (gate["admitted"], gate["label_accuracy"])]
        for name, gate in result["gates"].items()
    } == {
        "lead": [(1 / 3, 3), (1, 1)],
        "ratchet": [(1, 3), (2 / 3, 3)],
        "valid": [(2 / 3, 3), (1, 2)],
        # Models were only asked about what the gates before had admitted.
        "solvers": [(1, 1), (1, 1)],
        "reordered": [(1, 1), (1, 1)],
        "accuracy": [(1, 3), (2 / 3, 3)],
    }
    shown = io.StringIO()
    Console(width=150, file=shown).print(table(result))
    assert "gates, each by itself" in shown.getvalue()


@pytest.mark.parametrize(
    ("check", "row", "statement"),
    [
        ("admissions", "whole/2/000001: gate", "UPDATE gate_evidence SET answers = '[\"9\"]' WHERE gate = 'solvers'"),
        (
            "admissions",
            "whole/1/000000: gate",
            "UPDATE pseudo_labels SET gate = 'valid' WHERE question_id = 'whole/1/000000'",
        ),
        (
            "admissions",
            "result of admit_questions 2: gates: ratchet: state: level",
            "UPDATE stages SET result = json_set(result, '$.gates.ratchet.state.level', 7) "
            "WHERE stage = 'admit_questions' AND iteration = 2",
        ),
        ("labels", "filter_stats of iteration 2: refused", "UPDATE filter_stats SET refused = 1 WHERE iteration = 2"),
    ],
)
def test_a_damaged_row_of_a_gate_is_named(
    gated_home: Home, tmp_path: Path, check: str, row: str, statement: str
) -> None:
    home, store = copy_of(gated_home, tmp_path)
    with store.write() as session:
        assert session.connection().exec_driver_sql(statement).rowcount > 0
    assert row in [of.row for of in violations(home, store).get(check, [])], violations(home, store)
