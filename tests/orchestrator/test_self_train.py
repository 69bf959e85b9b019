"""Real runs of kind self_train: rounds on given prompts, labels voted before, the curriculum, and the guard's
actions."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from storage import queries
from tests.browsing import open_prefect
from tests.live import Live, terminated, wait_until

SMALL = (
    "prompts.limit=24",
    "early_stopping.patience=9",
    "solver.training.steps=2",
    "solver.training.prompts_per_step=4",
    "solver.training.rollouts_per_prompt=4",
    "solver.training.checkpoint_every=1",
    "solver.training.workers=1",
    "dataset.votes=4",
    "evaluation.samples=1",
)


def run(live: Live, name: str, *settings: str) -> tuple[int, str]:
    benchmark = live.home.path / "few.jsonl"
    lines = (live.home.path / "benchmark.jsonl").read_text().splitlines()[::10]
    benchmark.write_text("\n".join(lines))
    all_settings = (*SMALL, f"evaluation.benchmark={benchmark}", f"early_stopping.benchmark={benchmark}", *settings)
    done = live.coevo("run", "micro", "--name", name, *(part for s in all_settings for part in ("--set", s)))
    return done.returncode, done.stdout + done.stderr


def results(live: Live, name: str) -> dict[tuple[int, str], dict[str, Any]]:
    with live.store().read() as session:
        return {(s.iteration, s.stage): dict(s.result or {}) for s in queries.ledger.stages_of(session, name)}


def status(live: Live, name: str) -> str | None:
    with live.store().read() as session:
        return next((row.status for row in queries.runs.list_runs(session) if row.name == name), None)


@pytest.mark.slow
def test_the_guard_rolls_back_once_and_then_stops_the_run(live: Live) -> None:
    """The first step crosses a threshold of 0: round 1 ends there and is rolled back, round 2 ends the run."""
    guarded = ("guard.actions.one_answer=roll_back", "guard.one_answer_share=0", "guard.window=1")
    code, output = run(live, "guarded", "iterations=4", *guarded)
    assert code == 0, output
    done = results(live, "guarded")
    assert status(live, "guarded") == "stopped"
    first, second = done[1, "check_health"], done[2, "check_health"]
    assert (1, "train_solver") in done
    assert done[1, "train_solver"]["steps"] == 1  # of two steps
    assert (first["alarms"][0]["signal"], first["alarms"][0]["step"]) == ("one_answer", 1)
    assert (first["action"], second["action"]) == ("roll_back", "stop")
    assert any("gone back 1 times" in warning for warning in second["warnings"])
    assert (3, "train_solver") not in done
    with live.store().read() as session:
        parents = {c.id: c.parent for c in queries.checkpoints.checkpoints_of(session, "guarded", "solver")}
    assert parents["guarded/solver/2"] == first["back_to"]["solver"]
    assert f"its Solver is {second['back_to']['solver']}" in output
    assert "run guarded has open alerts: " in output
    again, output = run(live, "guarded", "iterations=4", *guarded)
    assert again == 0  # the run stays stopped
    more, output = run(live, "guarded", "iterations=5", *guarded)
    assert more == 1
    assert "iterations: expected at most 4, got 5" in " ".join(output.split())
    assert (3, "train_solver") not in results(live, "guarded")


@pytest.mark.slow
def test_early_stopping_goes_back_to_the_best_solver(live: Live) -> None:
    """The learning rate ruins the model: the base is the best, and after two rounds without a better one the run
    ends. One of the run's own prompts says so, on which it is not trained."""
    ruin = ("solver.training.learning_rate=0.5", "early_stopping.patience=2", "guard.actions.decline=ignore")
    ruin = (*ruin, "early_stopping.benchmark=prompts")
    code, output = run(live, "ruined", "iterations=5", *ruin)
    assert code == 0, output
    done = results(live, "ruined")
    last = done[2, "check_health"]
    assert (last["action"], last["best"], last["back_to"]) == ("stop", 0, {"solver": "ruined/base/0"})
    assert any("no better Solver for 2 iterations" in warning for warning in last["warnings"])
    assert (3, "train_solver") not in done
    assert "run ruined: stopped; its Solver is ruined/base/0" in output
    with live.store().read() as session:
        held_out = queries.evaluations.evaluations_of(session, "ruined/base/0", "prompts")
        questions = queries.questions.questions_of(session, "ruined", 0)
        trained_on = {question.index for question in questions if queries.traces.trained_on_of(session, question.id)}
    indices = {int(result.item_id.removeprefix("prompts/")) for result in held_out}
    assert (len(indices), len(trained_on) > 0, trained_on & indices) == (1, True, set())


def test_a_person_can_answer_the_guard_in_the_ui(live: Live, page: Page) -> None:
    """The run trains on the easiest half with labels made before, as in SRT (5.2, 5.3). Prefect's form names the
    reason; the person's answers, first to roll back and then to stop, are stored and carried out."""
    benchmark = live.home.path / "few.jsonl"
    benchmark.write_text("\n".join((live.home.path / "benchmark.jsonl").read_text().splitlines()[::10]))
    settings = (*SMALL, "iterations=3", f"evaluation.benchmark={benchmark}", f"early_stopping.benchmark={benchmark}")
    offline = ("solver.reward.type=srt", "solver.reward.labels=offline", "prompts.labels=offline")
    paused = (*settings, *offline, "guard.actions.one_answer=pause", "guard.one_answer_share=0", "guard.window=1")
    arguments = (part for setting in (*paused, "prompts.easiest=0.5") for part in ("--set", setting))
    with terminated(live.start("run", "micro", "--name", "asked", *arguments)) as process:
        for t, decision in ((1, "roll back"), (2, "stop")):
            wait_until(partial(_is_paused_or_over, live, t, process), "the run to pause")
            assert process.poll() is None
            _answer(live, page, decision)
        assert process.wait(300) == 0
    assert status(live, "asked") == "stopped"
    _check_that_the_decisions_were_carried_out(live)
    _check_that_the_easiest_were_trained_on(live)


def _check_that_the_decisions_were_carried_out(live: Live) -> None:
    done = results(live, "asked")
    assert [*done] == [
        (0, "read_prompts"),
        (0, "label_questions"),
        (0, "evaluate"),
        (0, "audit_labels"),
        *((t, stage) for t in (1, 2) for stage in ("train_solver", "evaluate", "check_health", "ask_a_person")),
    ]
    assert [done[t, "check_health"]["action"] for t in (1, 2)] == ["pause", "pause"]
    first, second = done[1, "ask_a_person"], done[2, "ask_a_person"]
    assert (first["action"], first["back_to"]) == ("roll_back", {"solver": "asked/base/0"})  # before the alarm
    best = second["best"]
    solver = f"asked/solver/{best}" if best else "asked/base/0"
    assert (second["action"], second["back_to"]) == ("stop", {"solver": solver})  # the best Solver
    with live.store().read() as session:
        parents = [c.parent for c in queries.checkpoints.checkpoints_of(session, "asked", "solver")]
    assert parents == ["asked/base/0", "asked/base/0"]


def _check_that_the_easiest_were_trained_on(live: Live) -> None:
    """The easiest twelve of the 24 questions, all of which the oracle can answer, are those whose votes agree most; of
    equal ones the first are taken."""
    done = results(live, "asked")
    assert done[0, "read_prompts"] == {"prompts": 24, "refused": 0}
    assert done[0, "audit_labels"]["audited"] == 24
    with live.store().read() as session:
        questions = queries.questions.questions_of(session, "asked", 0)
        p_hats = {
            row.question_id: row.label.p_hat for row in queries.questions.labels_of(session, "asked", 0) if row.label
        }
        trained_on = {question.id for question in questions if queries.traces.trained_on_of(session, question.id)}
        metrics = queries.figures.train_metrics_of(session, "asked")
    assert {question.checkpoint for question in questions} == {None}
    assert all(question.answer is not None for question in questions)
    easiest = sorted(questions, key=lambda question: (-p_hats[question.id], question.index))[:12]
    assert min(p_hats.values()) < p_hats[easiest[-1].id]
    assert len(trained_on) >= 4  # the prompts of one step
    assert trained_on <= {question.id for question in easiest}
    assert {metric.name for metric in metrics} >= {"majority_share", "same_label_share", "label_accuracy"}


def _is_paused_or_over(live: Live, t: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether the run is paused after round t, or its process has ended."""
    paused = status(live, "asked") == "paused" and (t, "check_health") in results(live, "asked")
    return paused or process.poll() is not None


def _answer(live: Live, page: Page, choice: str) -> None:
    """Answer as a person would, who tries again when Prefect refuses a change of state because its SQLite is locked."""
    answers = []
    while "ACCEPT" not in answers:
        assert len(answers) < 3, answers
        answers.append(_submit(live, page, choice))


def _submit(live: Live, page: Page, choice: str) -> str:
    """Fill in and send the form once; returns whether Prefect takes the answer: a locked database is an error without
    a status."""
    open_prefect(page, live, "/runs?tab=flow-runs")
    page.get_by_role("link", name="asked", exact=True).first.click()
    page.get_by_role("button", name="Resume").first.click()
    expect(page.locator(".p-modal").get_by_text("of the prompts have the same majority answer")).to_be_visible()
    decision = page.locator(".p-modal .p-select-button__control").last
    decision.focus()  # the form has no default, so that a person has to decide
    page.keyboard.press("ArrowDown")
    page.locator(".p-select-option", has_text=choice).click()
    expect(page.locator(".p-select-option")).to_have_count(0)  # the list has closed and covers nothing
    with page.expect_response("**/resume") as response:
        page.get_by_role("button", name="Submit").click()
    return str(response.value.json().get("status", response.value.status))
