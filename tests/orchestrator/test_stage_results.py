"""The line and the table that a stage's result becomes, on a run whose figures can be worked out by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from core.types import STAGES, Stage, StageKey
from orchestrator.ledger import Result
from orchestrator.reporting.results import Figure, StageResult, stage_result
from services.drift.series import refresh_labels
from services.oracles import exact
from storage import queries
from storage.rows import AlertRow, Severity
from storage.session import Store
from tests.orchestrator.small_run import small_run
from tests.services import api_examples

RUN = "small"
VERDICTS = {"kept": 3, "too_easy": 1, "too_hard": 0, "no_majority": 2, "malformed": 1, "duplicate": 1}
HEALTHY: Result = {"warnings": [], "action": "ignore", "back_to": None}
WARNING = "pass@1 is 3.1 points below its best"
WARNED: Result = {"warnings": [WARNING], "action": "warn", "back_to": None}
RESULTS: dict[Stage, Result] = {
    "train_challenger": {"steps": 3},
    "train_solver": {"steps": 20},
    "train_labelled": {"steps": 4},
    "generate_questions": {"candidates": 1280, "challenger": "small/challenger/1"},
    "label_questions": {"candidates": 8, **VERDICTS},
    "admit_questions": {
        "candidates": 3,
        "kept": 1,
        "gates": {
            "lead": {"candidates": 3, "refused": 2, "metrics": {}, "state": None},
            "ratchet": {"candidates": 1, "refused": 0, "metrics": {"level": 3.0}, "state": {"level": 3}},
        },
    },
    "evaluate": {"checkpoint": "small/solver/1", "items": 4},
    "evaluate_labelled": {"checkpoint": "small/labelled/1", "items": 4},
    "audit_labels": {"oracle": None},
    "check_health": HEALTHY,
    "read_prompts": {"prompts": 256, "refused": 3},
    "ask_a_person": {"action": "warn", "note": "looks fine", "back_to": None},
}


@pytest.fixture
def run(store: Store) -> Store:
    small_run(store)
    return store


def result_of(store: Store, stage: Stage, result: Result | None = None) -> StageResult:
    with store.read() as session:
        return stage_result(session, StageKey(RUN, 1, stage), RESULTS[stage] if result is None else result)


def test_an_evaluation_says_its_accuracies_with_intervals_and_n(run: Store) -> None:
    # Of eight samples each 4, 6, 2 and 8 are right; all four greedy answers are, and three of the majorities.
    assert result_of(run, "evaluate").line == (
        "micro pass@1 62.5% [21.4, 91.1], greedy 100.0% [28.3, 100.0], majority 75.0% [16.3, 98.7] (n = 4)"
    )
    assert result_of(run, "evaluate").table.splitlines()[:3] == [
        "| figure | value | 95% interval | n |",
        "|---|---:|---:|---:|",
        "| micro pass@1 | 62.5% | [21.4, 91.1] | 4 |",
    ]


def test_an_audit_says_label_accuracy_and_ill_posed_questions(run: Store) -> None:
    with run.write() as session:
        labels = queries.questions.labels_of(session, RUN, 1)
        graded = [exact.audit(row.question_id, row.text, row.label.answer) for row in labels if row.text and row.label]
        queries.questions.add_oracle_labels(session, graded)
        refresh_labels(session, RUN, 1)
    line = result_of(run, "audit_labels", {"oracle": "exact", "audited": len(graded)}).line
    assert line.startswith("audited 6, label accuracy of kept labels 33.3% [1.7, 93.7] (n = 3), ")
    assert line.endswith("; the oracle is exact")


UNREACHABLE = {"oracle": "judge_m", "unreachable": "InferenceError: http://127.0.0.1:9/v1: refused"}
BACK = {"warnings": [WARNING, "b"], "action": "roll_back", "back_to": {"solver": "small/solver/1"}}
LINES: list[tuple[Stage, Result, str]] = [
    ("check_health", HEALTHY, "no alerts; the run goes on"),
    ("check_health", WARNED, f"no alerts; {WARNING}; the run goes on"),
    ("check_health", BACK, f"no alerts; {WARNING}; b; the run goes back to small/solver/1"),
    ("ask_a_person", RESULTS["ask_a_person"], "a person decided: the run goes on; looks fine"),
    ("generate_questions", RESULTS["generate_questions"], "candidates 1,280"),
    ("read_prompts", RESULTS["read_prompts"], "prompts 256, refused 3"),
    # Of eight candidates three were kept.
    (
        "label_questions",
        RESULTS["label_questions"],
        "kept 37.5% [11.1, 74.1] (n = 8), too easy 1, no majority 2, malformed 1, duplicate 1",
    ),
    (
        "admit_questions",
        RESULTS["admit_questions"],
        "kept 33.3% [1.7, 93.7] (n = 3), refused by lead 2, refused by ratchet 0, ratchet: level 3",
    ),
    # The reward of the second step is infinite and every KL is NaN; the store has neither as a number.
    ("train_challenger", RESULTS["train_challenger"], "steps 3, reward 0.1 → 0.3"),
    (
        "train_challenger",
        {"checkpoint": "small/base/0", "trained": False},
        "nothing is trained; the model stays small/base/0",
    ),
    ("audit_labels", RESULTS["audit_labels"], "the run has no oracle, so nothing was audited"),
    ("audit_labels", UNREACHABLE, "the oracle judge_m did not answer, so nothing was audited"),
    (
        "audit_labels",
        {**UNREACHABLE, "audited": 1_024},
        "the oracle judge_m did not answer, so only 1,024 labels were audited",
    ),
]


@pytest.mark.parametrize(("stage", "result", "line"), LINES)
def test_a_stage_says_its_result_in_words(run: Store, stage: Stage, result: Result, line: str) -> None:
    assert result_of(run, stage, result).line == line


def test_every_stage_has_a_line_and_a_table(run: Store) -> None:
    assert RESULTS.keys() == set(STAGES)
    for stage in STAGES:
        shown = result_of(run, stage)
        # The branch on labelled data was not evaluated in this run.
        assert bool(shown.line) == bool(shown.table) == (stage != "evaluate_labelled"), stage
        assert "\n" not in shown.line
        assert "{" not in shown.table


def test_the_health_check_counts_the_alerts_of_its_iteration_only(run: Store) -> None:
    def alert(iteration: int, rule: str, severity: Severity, text: str) -> AlertRow:
        row = api_examples.alert(f"{iteration}{rule}")
        return replace(row, run=RUN, iteration=iteration, rule=rule, severity=severity, text=text)

    rows = [alert(1, "a", "warning", f"{WARNING}; overflowed"), alert(1, "b", "critical", "label accuracy fell")]
    with run.write() as session:
        queries.alerts.add_alerts(
            session, [*rows, alert(1, "c", "warning", "KL rose"), alert(2, "a", "critical", "no")]
        )
    line = result_of(run, "check_health", WARNED).line
    assert line.startswith("1 critical alert, 2 warnings; label accuracy fell; ")
    assert sorted(line.split("; ")[2:]) == ["KL rose", "overflowed", WARNING, "the run goes on"]


HOSTILE = [
    "[click](https://example.org/)",
    "![](https://example.org/pixel.png)",
    "[a]: https://example.org/",
    "[click][a]",
    "\\[click\\](https://example.org)",
    "see https://example.org/ or www.example.org or HTTP://example.org, mail me@example.org",
    "<https://example.org>",
    "<img src=https://example.org/x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<!-- a",
    "a | b",
    "\n# Heading\n\n| a | b |\n|---|---|\n\r```x```\x1b[31m",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_adds_no_link_picture_html_or_cell_to_the_markdown(text: str) -> None:
    assert elements(text) == elements("a")
    table = StageResult((Figure(text, "1"),), (text,)).table
    assert not re.search(r"\w://|www\.|\w@\w", table)  # Prefect's page makes links of addresses without marks, too


def elements(text: str) -> list[str]:
    """The elements of the Markdown of a result with this text as a figure's name and as a sentence."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    blocks = markdown.parse(StageResult((Figure(text, "1"),), (text,)).table)
    return [token.type for block in blocks for token in (block, *(block.children or [])) if token.type != "text"]
