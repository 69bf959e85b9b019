"""The page of a report: what it shows, and that nothing in it is fetched or interpreted."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sqlalchemy import update

from core.settings.parsing import parse_config
from core.types import Evaluated
from orchestrator.report import figures, write_report
from orchestrator.report.canvas import COLOURS
from orchestrator.report.headline import headline
from orchestrator.report.measures import measure
from storage import queries
from storage.models import Stages
from storage.session import Store, open_store
from tests.orchestrator.judged_run import JUDGE, fill_judged_run
from tests.orchestrator.small_run import small_run
from tests.synthetic_run import (
    CONFIG,
    add_iteration,
    create,
    evaluate,
    fill_run,
    held_out,
    iterations,
    label,
    vote_of,
)

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def full_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run with three finished iterations."""
    folder = tmp_path_factory.mktemp("report")
    store = open_store(f"sqlite:///{folder}/coevo.db", create=True)
    fill_run(store, "demo")
    path = write_report(store, "demo", folder / "reports")
    store.close()
    assert [path] == list((folder / "reports").iterdir())
    return path.read_text(encoding="utf-8")


def test_the_page_loads_nothing_from_outside(full_page: str) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<img|<iframe", full_page)
    assert all(target.startswith("#") for target in re.findall(r'(?:href|src)="([^"]*)', full_page))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", full_page))


def test_the_page_shows_the_figures_with_n(full_page: str) -> None:
    assert "The Solver learned" in full_page
    for heading in ("held-out", "labels", "p-hat", "questions", "training", "time", "figures", "samples", "settings"):
        assert f'<h2 id="{heading}">' in full_page
    assert full_page.count("<svg ") == full_page.count("</svg>") == 3 + 3 + 3 + 3 + 8 + 1
    assert full_page.count("n = 240") > 10
    assert "yet" not in full_page


def test_pictures_use_the_page_s_colours_and_have_different_ids(full_page: str) -> None:
    pictures = "".join(re.findall(r"<svg .*?</svg>", full_page, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}\b", pictures)
    used = set(re.findall(r"var\(--([a-z0-9]+)\)", pictures))
    assert used <= COLOURS.keys()
    ids = re.findall(r' id="([^"]+)"', full_page)
    assert len(ids) == len(set(ids))
    assert {target.removeprefix("#") for target in re.findall(r'href="(#[^"]+)', pictures)} <= set(ids)


def test_the_page_is_balanced_html(full_page: str) -> None:
    open_tags: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in {"meta", "br"}:
                open_tags.append(tag)

        def handle_startendtag(self, tag: str, attrs: object) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Balance().feed(full_page)
    assert open_tags == []


def test_a_model_s_texts_are_shown_and_never_interpreted_as_markup(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        create(session, "run")
        items = [Evaluated(f"i{i}", f"$<b>{i}", 8, 4, True, True) for i in range(4)]
        evaluate(session, "run", 0, items, took=1)
        hostile = f"\"'>{SCRIPT} {{{{ 7 * 7 }}}} \ud800 \x00 \u202e " + "x" * 1000
        label(session, "run", 1, [(hostile, vote_of((SCRIPT, 5), ("\\frac$", 4)))], CONFIG)
        queries.ledger.claim_stage(session, run="run", iteration=1, stage="train_solver", owner="me", lease_seconds=60)
        fail = {"run": "run", "iteration": 1, "stage": "train_solver", "owner": "me"}
        queries.ledger.fail_stage(session, **fail, error=f"StageError: {SCRIPT}")
    page = write_report(sqlite, "run", tmp_path / "reports").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<b>0" not in page
    assert page.count("&lt;script&gt;alert(1)") == 4  # question, label, vote, error
    assert "{{ 7 * 7 }}" in page
    assert "x" * 400 not in page
    assert "Train solver of iteration 1 is failed" in page


def test_a_run_in_progress_has_a_page(sqlite: Store, tmp_path: Path) -> None:
    rng = random.Random(3)
    with sqlite.write() as session:
        create(session, "run")
        queries.ledger.claim_stage(session, run="run", iteration=0, stage="evaluate", owner="me", lease_seconds=60)
    page = write_report(sqlite, "run", tmp_path).read_text(encoding="utf-8")
    assert "no model of this run has been evaluated" in page
    assert "No model of this run has been evaluated yet" in page
    assert "Evaluate of iteration 0 is running" in page
    with sqlite.write() as session:
        evaluate(session, "run", 0, held_out([2, 4, 0, 8], [1, 0, 0, 1], [0, 0, 0, 1]), took=1)
    assert "only the base model has been evaluated, with 43.8%" in headline(measure(sqlite, "run"))
    with sqlite.write() as session:
        add_iteration(session, "run", 1, rng, per_level=4)
        queries.ledger.claim_stage(
            session, run="run", iteration=2, stage="train_challenger", owner="me", lease_seconds=60
        )
    page = write_report(sqlite, "run", tmp_path).read_text(encoding="utf-8")
    assert "1 of 3 iterations evaluated" in page
    assert "Train challenger of iteration 2 is running" in page


def test_a_run_without_oracle_or_filter_has_a_page(sqlite: Store, tmp_path: Path) -> None:
    tree = {**CONFIG.model_dump(), "audit": {"oracle": None}}
    tree["dataset"] = {**tree["dataset"], "filtered": False}
    small_run(sqlite, parse_config(tree, source="test"))
    first = iterations(sqlite, "small")[1]
    own = {name: first["pseudo_label_accuracy"][name] for name in ("kept", "all", "oracle")}
    assert own == {"kept": None, "all": None, "oracle": None}
    assert (first["ill_posed_share"], first["difficulty"]["kept"]) == (None, {"mean": None, "counts": {}})
    page = write_report(sqlite, "small", tmp_path).read_text(encoding="utf-8")
    assert "This run has no oracle" in page
    assert "This run has no band" in page


def test_the_page_says_when_the_roles_share_a_model(sqlite: Store, tmp_path: Path) -> None:
    small_run(sqlite, CONFIG.model_copy(update={"shared": True}))
    page = write_report(sqlite, "small", tmp_path).read_text(encoding="utf-8")
    assert "one model in both roles" in page.split("<main>")[0]


def test_every_oracle_with_labels_has_a_picture_and_a_row(sqlite: Store, tmp_path: Path) -> None:
    fill_judged_run(sqlite, "run")  # the oracle of the run's configuration has no labels
    page = write_report(sqlite, "run", tmp_path).read_text()
    titles = re.findall(r"Right pseudo-labels, by (\w+)\. The figures are in the table below", page)
    assert titles == ["human", JUDGE]
    assert "Right pseudo-labels by iteration" not in page
    for oracle in titles:
        assert f"right, of kept, by {oracle}" in page


def test_tags_and_note_of_a_run_are_in_its_page_and_its_figures(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        create(session, "noted")
        queries.run_notes.annotate(session, "noted", add=["b", "a"], note=f"line 1\n{SCRIPT}")
    page = write_report(sqlite, "noted", tmp_path).read_text(encoding="utf-8")
    assert "tags a, b" in page
    assert "<bdi>line 1\n&lt;script&gt;" in page
    assert SCRIPT not in page
    reported = figures(sqlite, "noted")
    assert (reported["tags"], reported["note"]) == (["a", "b"], f"line 1\n{SCRIPT}")


def test_the_page_says_what_the_drift_rules_did_not_test(sqlite: Store, tmp_path: Path) -> None:
    untested = "not tested for drift, because alerts.min_n asks for 100 items: held out (n = 12)"
    fill_run(sqlite, "few", per_level=2)
    with sqlite.write() as session:
        key = (Stages.run == "few", Stages.iteration == 3, Stages.stage == "check_health")
        session.execute(update(Stages).where(*key).values(result={"action": "warn", "untested": untested}))
    page = write_report(sqlite, "few", tmp_path).read_text(encoding="utf-8")
    assert f"Health check of iteration 3: {untested}." in page
    assert page.count("not tested for drift") == 1
    assert [iteration["untested"] for iteration in iterations(sqlite, "few")] == [None, None, None, untested]
