"""A judge's recheck of stored evaluations, with a fake judge over HTTP that is shown two answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.asking.judge import Judge
from core.asking.service import Service
from core.statistics.rechecks import Recheck, Recount
from core.types import JudgedAnswer
from orchestrator.cli import app
from orchestrator.evaluation.rechecking import RecheckError, recheck
from services.evaluations.figures import figures_of
from services.oracles.judge import JudgeError
from storage import queries
from storage.errors import NotThere
from storage.session import Store
from tests.fake_judge import chat_completion, comparing_reply, judge_with, pair_of, question_of
from tests.fake_service import fake_service
from tests.services.evaluation_examples import store_answers
from tests.synthetic_run import add_evaluations, create

SENTINELS = 6
# The true answers are 7, 5 and 3. Of the six different answers, 7 and 10/2 pass.
FIVE = r"\frac{10}{2}"
ANSWERS = (["7747", ["8", FIVE, "8", "8"], "99--"], ["7", FIVE, "100"])
# The judge calls what is not spelled as the truth wrong, among it 10/2, except for these: (answer, truth) -> reply
OPINIONS = {("4", "7"): "Yes", ("9", "3"): "I would rather not say.", ("100", "3"): "Yes."}


def opinionated(message: str) -> str:
    return OPINIONS.get(pair_of(message), comparing_reply(message))


def settings(service: Service, **changes: Any) -> Judge:
    """A judge with few sentinels and attempts; `changes` are of its other constants."""
    judge = Judge(url=service.url, model="gpt", name="m", prompt="equivalence")
    return judge.model_copy(update={"sentinels": SENTINELS, "attempts": 2, "batch_attempts": 2, **changes})


def ask(store: Store, key: str, judge: Judge, *, failures_only: bool = False) -> dict[str, Any]:
    return recheck(store, key, judge, lambda *_: None, failures_only=failures_only)


def stored_rechecks(store: Store, key: str) -> list[Recheck]:
    with store.read() as session:
        figures = figures_of(session, key)
    assert figures
    return figures.rechecks


def values(recount: Recount | None) -> tuple[float, float] | None:
    return recount and (recount.pass_at_1.value, recount.greedy.value)


def test_every_different_answer_is_asked_about_once_with_the_paper_s_prompt(store: Store) -> None:
    key = store_answers(store, *ANSWERS)
    with fake_service(judge_with(opinionated)) as (service, requests):
        result = ask(store, key, settings(service))
    asked = [pair_of(question_of(body)) for _, body, _ in requests]
    own = [("7", "7"), ("4", "7"), (FIVE, "5"), ("8", "5"), ("100", "3"), ("9", "3")]
    assert len(asked) == len(own) + SENTINELS
    assert all(asked.count(pair) == 1 for pair in own)  # and no reply without an answer
    assert {body["messages"][0]["content"] for _, body, _ in requests} == {"You are a math answer checker."}
    assert {(body["model"], body["temperature"]) for _, body, _ in requests} == {("gpt", 0.1)}
    assert (result["evaluation"], result["oracle"], result["asked"], result["thrown_away"]) == (key, "judge_m", 6, 0)
    assert result["sentinels"]["n"] == SENTINELS
    assert result["prompt_tokens"] == 200 * len(requests)
    [stored] = stored_rechecks(store, key)
    assert (stored.judge, stored.answers, stored.judged, stored.unclear) == ("judge_m", 6, 6, 1)
    # Worked out in tests/core/test_rechecks.py, where the answers are the same under other names.
    assert values(stored.failures_rechecked) == (pytest.approx(5 / 12), 1)
    assert values(stored.judge_alone) == (pytest.approx(1 / 3), 2 / 3)
    assert stored.disagreements
    assert (stored.disagreements.value, stored.disagreements.n) == (3 / 5, 5)
    with store.read() as session:
        judged = queries.evaluations.judged_of(session, key, ["a"])
    verdicts = {-1: "right", 0: "right", 1: "right", 2: "right", 3: "right"}  # the same answer has the same verdict
    assert judged == [JudgedAnswer("a", index, "judge_m", verdict) for index, verdict in verdicts.items()]


def test_failures_can_be_asked_about_first_and_the_passes_later(store: Store) -> None:
    key = store_answers(store, *ANSWERS)
    with fake_service(judge_with(opinionated)) as (service, requests):
        assert ask(store, key, settings(service), failures_only=True)["asked"] == 4
        assert not {("7", "7"), (FIVE, "5")} & {pair_of(question_of(body)) for _, body, _ in requests}
        [failures] = stored_rechecks(store, key)
        assert ask(store, key, settings(service))["asked"] == 2
        assert ask(store, key, settings(service))["asked"] == 0
        assert ask(store, key, settings(service, name=None))["asked"] == 6  # another judge
    assert (values(failures.failures_rechecked), failures.judge_alone) == ((pytest.approx(5 / 12), 1), None)
    judge, judge_m = stored_rechecks(store, key)
    assert (judge.judge, judge_m.judge) == ("judge", "judge_m")
    assert judge.judge_alone == judge_m.judge_alone
    assert judge_m.failures_rechecked == failures.failures_rechecked


def test_an_interrupted_recheck_goes_on_after_its_last_batch(store: Store) -> None:
    key, first_batch = store_answers(store, *ANSWERS), 2 + SENTINELS

    def right_at_first(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        return chat_completion(opinionated(question_of(body)) if before < first_batch else "Yes")

    with fake_service(right_at_first) as (service, requests):
        with pytest.raises(JudgeError, match=r"expected at least 0\.8 .* got 3 of 6, 3 of 6 right"):
            ask(store, key, settings(service, batch=2))
        assert len(requests) == 3 * first_batch  # the second batch was asked twice
    [interrupted] = stored_rechecks(store, key)
    assert (interrupted.judged, interrupted.failures_rechecked, interrupted.judge_alone) == (2, None, None)
    with fake_service(judge_with(opinionated)) as (service, requests):
        assert ask(store, key, settings(service, batch=2))["asked"] == 4
        assert len(requests) == 4 + 2 * SENTINELS
    assert values(stored_rechecks(store, key)[0].judge_alone) == (pytest.approx(1 / 3), 2 / 3)


def test_evaluations_that_cannot_be_rechecked_are_refused(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "r")
        unknown = add_evaluations(session, checkpoint="r/base/0", benchmark="questions/1/exact", items=[])
    empty = store_answers(sqlite, *ANSWERS, model="another")
    with fake_service(judge_with(opinionated)) as (service, requests):
        with pytest.raises(RecheckError, match=f"evaluation {unknown}, questions/1/exact"):
            ask(sqlite, unknown, settings(service))
        with pytest.raises(NotThere, match="evaluation nosuch"):
            ask(sqlite, "nosuch", settings(service))
        with pytest.raises(RecheckError, match=r"prompt: .*annotate"):
            ask(sqlite, empty, settings(service, prompt="annotate"))
    assert requests == []


@pytest.mark.usefixtures("sqlite", "home")
def test_an_evaluation_is_made_and_rechecked_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "sums.jsonl"
    file.write_text("\n".join(json.dumps({"id": i, "problem": f"What is {i} + 1?", "answer": i + 1}) for i in range(6)))

    def model(_: int, body: dict[str, Any]) -> tuple[int, Any]:
        """Right about the first three questions; it answers the others with 900, and what is asked first with 2."""
        question = body["messages"][-1]["content"]
        number = int(question.split()[2]) if question.startswith("What is") else 1
        return chat_completion(rf"\boxed{{{number + 1 if number < 3 else 900}}}")

    def judge(message: str) -> str:
        return "Yes" if pair_of(message) == ("900", "4") else comparing_reply(message)

    with fake_service(model) as (service, questions), fake_service(judge_with(judge)) as (judging, requests):
        evaluate = ["evaluate", service.url, str(file), "--model", "m", "--samples", "2"]
        evaluated = CliRunner().invoke(app, evaluate)
        assert evaluated.exit_code == 0, evaluated.output
        [line] = [line for line in evaluated.stdout.splitlines() if line.startswith("evaluations: ")]
        ids = line.split()[1:]
        asked = len(questions)
        recheck = ["audit", "recheck", *ids, "--url", judging.url, "--model", "GPT-4o"]
        some = json.loads(CliRunner().invoke(app, [*recheck, "--failures", "--json"]).stdout)
        assert len(requests) == 3 + 8
        every = CliRunner().invoke(app, recheck)
        assert every.exit_code == 0, every.output
        assert len(requests) == 6 + 2 * 8
        again = CliRunner().invoke(app, evaluate)
        assert len(questions) == asked  # the model was not asked again
        refused = CliRunner().invoke(app, [*recheck, "--set", "samples=0"])
        unknown = CliRunner().invoke(app, ["audit", "recheck", "nosuch", *recheck[3:]])
        keyless = CliRunner().invoke(app, [*recheck, "--key-variable", "UNSET"])
    [result] = some
    [of_failures] = result["figures"]["rechecks"]
    assert (result["evaluation"], result["asked"], result["sentinels"]["n"]) == (ids[0], 3, 8)
    assert (of_failures["judge"], of_failures["judge_alone"]) == ("judge_gpt_4o_equivalence", None)
    assert of_failures["failures_rechecked"]["pass_at_1"]["value"] == pytest.approx(4 / 6)
    for text in (every.stdout, again.stdout):
        assert max(len(line) for line in text.splitlines() if not line.startswith(ids[0])) <= 80
        _, recounts = text.split("rechecked by a judge")
        rows = [line.split() for line in recounts.splitlines() if "sums.jsonl" in line]
        assert [row[-2:] for row in rows[:3]] == [["50.0", "50.0"], ["66.7", "66.7"], ["66.7", "66.7"]]
        assert "judge_gpt_4o_equivalence: 6 of 6 different answers judged, 0 unclear" in text
        assert "the judge calls 0.0% (0.0 to 86.1) of the grader's 3 passes wrong" in text
        assert "the judge calls 33.3% (1.7 to 93.7) of the grader's 3 failures right" in text
        assert "they disagree on 16.7% (0.9 to 66.3) of 6 answers" in text
    assert f"{ids[0]}: it judged 100.0% of 8 questions of known answer correctly" in every.stdout
    for failed, named in ((refused, "samples"), (unknown, "evaluation nosuch"), (keyless, "UNSET")):
        assert (failed.exit_code, named in failed.stderr) == (1, True)
