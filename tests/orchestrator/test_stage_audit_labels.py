"""The stage `audit_labels` and `coevo audit judge`, on a synthetic run and with a fake judge over HTTP."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.asking.judge import Judge, judge_name
from core.asking.service import Service
from core.settings.audit import Audit, Program
from core.types import LabelledQuestion, OracleLabel, PseudoLabel, Question, question_id
from orchestrator.cli import app
from orchestrator.installation.home import ROOT
from orchestrator.stages.audit_labels import ask_judge
from orchestrator.stages.by_name import STAGE_FUNCTIONS
from services.drift.series import ill_posed_in
from services.inference.breaker import COOL_DOWN_S, FAILURES_IN_A_ROW
from services.inference.client import InferenceError
from services.oracles.accuracy import estimated, measured, measured_in
from services.oracles.judge import JudgeError
from storage import queries
from storage.rows import SampleRow
from storage.session import Store
from tests.fake_clock import fake_clock
from tests.fake_judge import chat_completion, comparing_reply, correct_reply, judge_with, question_of
from tests.fake_service import fake_service
from tests.synthetic_run import CONFIG, context_of, create, fill_run, finish, stored, vote_of

BATCH, SENTINELS = 16, 6


@pytest.fixture
def run(store: Store) -> Store:
    fill_run(store, "demo", per_level=1)
    return store


def run_audit(store: Store, audit: Audit, run: str = "demo", t: int = 3) -> dict[str, Any]:
    """Run the stage; returns its result, as the ledger would store it."""
    config = CONFIG.model_copy(update={"audit": audit})
    return stored(context_of(store, run, t, config=config), STAGE_FUNCTIONS["audit_labels"])


def judge_audit(service: Service, sample: int | None = 40, **settings: Any) -> Audit:
    """An audit by a judge with few sentinels and attempts; `settings` are of the judge, its constants too."""
    small = {"batch": BATCH, "sentinels": SENTINELS, "attempts": 2, "batch_attempts": 2, "concurrency": 16}
    constants = small | {name: settings.pop(name) for name in small.keys() & settings.keys()}
    judge = Judge(url=service.url, model="m", **{"name": "m", **settings})
    return Audit(oracle="judge", sample=sample, judge=judge.model_copy(update=constants))


def stored_audit(store: Store, oracle: str = "judge_m") -> tuple[list[SampleRow], dict[str, OracleLabel]]:
    with store.read() as session:
        labels = queries.questions.oracle_labels_of(session, "demo", 3, oracle)
        return queries.audits.samples_of(session, "demo", 3, oracle), {label.question_id: label for label in labels}


def test_a_judge_is_asked_about_a_sample_batch_by_batch(run: Store) -> None:
    with fake_service(judge_with(correct_reply)) as (service, requests):
        result = run_audit(run, judge_audit(service))
    samples, labels = stored_audit(run)
    assert [row.position for row in samples] == list(range(40))
    assert labels.keys() == {row.question_id for row in samples}
    _, exact = stored_audit(run, "exact")
    # The fake judge's answers are the program's, so its verdicts are too.
    assert {i: label.verdict for i, label in labels.items()} == {i: exact[i].verdict for i in labels}
    assert len({label.verdict for label in labels.values()}) == 3
    assert len(requests) == 40 + 3 * SENTINELS
    assert (result["oracle"], result["audited"], result["asked"], result["batches"]) == ("judge_m", 40, 40, 3)
    assert result["thrown_away"] == 0
    assert result["sentinels"]["n"] == 3 * SENTINELS
    assert result["sentinels"]["ci95"][0] < result["sentinels"]["value"] <= 1
    assert sum(result["verdicts"].values()) == 40 < result["population"] <= 320
    assert (result["prompt_tokens"], result["reply_tokens"]) == (200 * len(requests), 10 * len(requests))


def test_a_program_of_one_s_own_grades_every_pseudo_label(run: Store, tmp_path: Path) -> None:
    program = tmp_path / "grade.py"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from services.oracles import exact\n"
        "for line in map(json.loads, sys.stdin):\n"
        "    label = exact.audit('', line['question'], line['label'])\n"
        "    print(json.dumps({'verdict': label.verdict, 'truth': label.truth}))\n"
    )
    program.chmod(0o755)
    key = question_id("demo", 3, 9_000)
    unanswered = LabelledQuestion(key, "Why?", PseudoLabel(None, 0, 10, 0, 0, 0.0, "all"), "no_majority")
    with run.write() as session:
        queries.questions.add_questions(session, [Question(key, "demo", 3, 9_000, "Why?", "Why?", None, 0)])
        queries.questions.add_labels(session, [unanswered])
    result = run_audit(run, Audit(oracle="program", program=Program(file=str(program))))
    _, exact = stored_audit(run, "exact")
    _, labels = stored_audit(run, "program")
    assert result == {"oracle": "program", "audited": len(labels)}
    assert len(labels) > 100
    assert key not in labels  # it has no pseudo-label to be graded
    assert {i: (label.verdict, label.truth) for i, label in labels.items()} == {
        i: (exact[i].verdict, exact[i].truth) for i in labels
    }
    with run.read() as session:
        figures = {row.over: row for row in measured_in(session, "demo", 3, "program")}
        assert figures["kept"].figure == measured_in(session, "demo", 3, "exact")[0].figure
    assert figures["all"].frame == "all"


def test_a_discarded_batch_is_not_stored_and_a_restart_asks_only_the_rest(run: Store) -> None:
    first_batch = BATCH + SENTINELS

    def right_at_first(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        return chat_completion(correct_reply(question_of(body)) if before < first_batch else r"\boxed{-98765}")

    with fake_service(right_at_first) as (service, requests):
        with pytest.raises(JudgeError, match=r"sentinel accuracy: .* got \d of 6, \d of 6"):
            run_audit(run, judge_audit(service))
        assert len(requests) == 3 * first_batch  # the second batch is asked twice
    samples, before = stored_audit(run)
    assert before.keys() == {row.question_id for row in samples if row.position < BATCH}
    assert not any(label.truth == "-98765" for label in before.values())
    with fake_service(judge_with(correct_reply)) as (service, requests):
        result = run_audit(run, judge_audit(service))
        assert len(requests) == 24 + 2 * SENTINELS
        assert run_audit(run, judge_audit(service))["asked"] == 0
        assert len(requests) == 24 + 2 * SENTINELS
    again, after = stored_audit(run)
    assert again == samples
    assert len(after) == 40
    assert {i: after[i] for i in before} == before
    assert (result["audited"], result["asked"]) == (40, 24)


def test_a_judge_grades_kept_questions_only_until_a_sample_of_all_is_added(run: Store) -> None:
    with run.read() as session:
        rows = queries.audits.auditable(session, "demo", 3)
    kept = {question for question, _, verdict in rows if verdict == "kept"}

    def slices() -> dict[str, int]:
        with run.read() as session:
            return {accuracy.over: accuracy.population for accuracy in measured_in(session, "demo", 3, "judge_m")}

    with fake_service(judge_with(correct_reply)) as (service, _):
        judge = judge_audit(service).judge
        assert judge is not None
        result = ask_judge(run, "demo", 3, judge, 30, lambda *_: None, kept_only=True)
        assert (result["population"], result["audited"]) == (len(kept), 30)
        _, labels = stored_audit(run)
        assert labels.keys() < kept
        assert slices() == {"kept": len(kept)}
        with run.read() as session:
            measurements = measured(session, "demo")
            assert estimated(session, "demo", "judge_m", "all", measurements) == ([], None)
            assert ill_posed_in(session, "demo", 3, "judge_m").keys() == {"kept"}
        ask_judge(run, "demo", 3, judge, 40, lambda *_: None)
    _, more = stored_audit(run)
    assert labels.keys() < more.keys()
    assert slices() == {"kept": len(kept), "all": len(rows)}


def test_a_larger_sample_asks_about_the_added_questions_only_and_another_judge_about_its_own(run: Store) -> None:
    with fake_service(judge_with(correct_reply)) as (service, requests):
        run_audit(run, judge_audit(service, sample=20))
        small, _ = stored_audit(run)
        before = len(requests)
        assert run_audit(run, judge_audit(service, sample=40))["asked"] == 20
        assert len(requests) - before == 20 + 2 * SENTINELS
        other = run_audit(run, judge_audit(service, None, name=None, batch=128))  # without a sample all are asked
    larger, labels = stored_audit(run)
    assert (larger[:20], len(labels)) == (small, 40)
    assert other["oracle"] == "judge"
    assert len(stored_audit(run, "judge")[1]) == other["audited"] == other["population"] > 250


def test_questions_that_came_with_answers_can_be_judged_by_the_paper_s_prompt(store: Store) -> None:
    ids = [question_id("given", 0, i) for i in (0, 1)]
    with store.write() as session:
        create(session, "given")
        questions = [Question(key, "given", 0, i, f"q{i}", "", None, i, answer=str(i)) for i, key in enumerate(ids)]
        queries.questions.add_questions(session, questions)
        vote = vote_of(("0", 6))  # right for the first question, wrong for the second
        queries.questions.add_labels(session, [LabelledQuestion(q.id, q.text, vote, "kept") for q in questions])
        finish(session, "given", 0, "label_questions", {}, took=1)
    with fake_service(judge_with(comparing_reply)) as (service, _):
        result = run_audit(store, judge_audit(service, None, prompt="equivalence"), "given", 0)
    assert result["verdicts"] == {"right": 1, "wrong": 1}
    assert run_audit(store, Audit(oracle="given"), "given", 0) == {"oracle": "given", "audited": 2}
    with store.read() as session:
        verdicts = [
            [(label.verdict, label.truth) for label in queries.questions.oracle_labels_of(session, "given", 0, oracle)]
            for oracle in ("given", "judge_m")
        ]
    assert verdicts == [[("right", "0"), ("wrong", "1")]] * 2


def test_an_iteration_without_answers_is_audited_without_an_error(store: Store) -> None:
    with store.write() as session:
        create(session, "empty")
        finish(session, "empty", 1, "label_questions", {}, took=1)
    with fake_service(judge_with(correct_reply)) as (service, requests):
        result = run_audit(store, judge_audit(service), "empty", 1)
    assert (result["audited"], result["population"], result["sentinels"], requests) == (0, 0, None, [])
    assert run_audit(store, Audit(oracle=None), "empty", 1) == {"oracle": None}


@pytest.mark.usefixtures("home")
def test_a_finished_run_can_be_judged_from_the_command_line(sqlite: Store) -> None:
    fill_run(sqlite, "demo", per_level=1)
    with fake_service(judge_with(correct_reply)) as (service, requests):
        command = ["audit", "judge", "demo", "3", "--url", service.url, "--model", "GPT-4o.mini", "--size", "12"]
        first = CliRunner().invoke(app, [*command, "--json"])
        assert first.exit_code == 0, first.output
        before = len(requests)
        second = CliRunner().invoke(app, command)
        assert len(requests) == before == 12 + 8
        bad = CliRunner().invoke(app, [*command, "--set", "samples=0"])
        nowhere = CliRunner().invoke(app, [*command[:2], "nowhere", *command[3:]])
        unlabelled = CliRunner().invoke(app, [*command[:3], "9", *command[4:]])
    assert json.loads(first.stdout)["oracle"] == "judge_gpt_4o_mini"
    assert second.stdout.startswith("judge_gpt_4o_mini: 12 of ")
    assert len(stored_audit(sqlite, "judge_gpt_4o_mini")[1]) == 12
    for refused, named in ((bad, "audit.judge.samples"), (nowhere, "nowhere"), (unlabelled, "pseudo-label")):
        assert (refused.exit_code, named in refused.stderr) == (1, True)


def test_a_judge_s_name_has_its_model_and_its_prompt() -> None:
    assert judge_name("openai/gpt-4o", "annotate") == "openai_gpt_4o"
    assert judge_name("GPT 4o", "equivalence") == "gpt_4o_equivalence"
    assert judge_name("…", "annotate") == "model"
    assert len(judge_name("x" * 99, "equivalence")) == 34


def test_a_run_goes_on_without_a_judge_that_does_not_answer_unless_it_shall_stop(
    run: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_service(lambda _before, _body: (401, {"error": "no such key"})) as (service, _):
        audit = judge_audit(service)
        result = run_audit(run, audit)
        with pytest.raises(InferenceError, match="HTTP 401"):
            run_audit(run, audit.model_copy(update={"if_unreachable": "stop"}))
    assert result["oracle"] == "judge_m"
    assert "HTTP 401" in result["unreachable"]
    assert result["audited"] == 0
    assert "`coevo audit judge demo 3`" in caplog.text
    assert stored_audit(run)[1] == {}
    with fake_service(judge_with(correct_reply)) as (service, _):
        assert run_audit(run, judge_audit(service))["audited"] == 40


def test_iterations_do_not_wait_for_a_judge_that_is_down_and_ask_it_again_after_a_while(
    run: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, works = fake_clock(monkeypatch), False
    judge = judge_with(correct_reply)

    def answer(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        return judge(before, body) if works else (503, {})

    with fake_service(answer) as (service, requests):
        audit = judge_audit(service, attempts=FAILURES_IN_A_ROW, concurrency=1, batch_attempts=1)
        assert "HTTP 503" in run_audit(run, audit)["unreachable"]
        assert len(requests) == FAILURES_IN_A_ROW
        for t in (1, 2):
            assert "not asked" in run_audit(run, audit, t=t)["unreachable"]
            assert f"run demo, iteration {t}: the judge does not answer" in caplog.text
        assert len(requests) == FAILURES_IN_A_ROW
        clock.seconds += COOL_DOWN_S
        works = True
        assert run_audit(run, audit)["audited"] == 40
