"""A run that is killed again and again and resumed ends as if it had not been interrupted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from itertools import chain

import psutil
import pytest
from sqlalchemy import func, select

from orchestrator.plan import LOOP, WITH_BRANCH
from orchestrator.verification.run import verify_run
from storage import queries
from storage.models import EvaluatedItems, Evaluations, TrainMetrics
from tests.live import COEVO, Live, wait_until
from tests.orchestrator import whole_runs
from tests.orchestrator.whole_runs import WholeRun
from tests.served import replicas

RUN = "killed"


def test_a_run_killed_in_each_training_and_evaluation_ends_with_the_same_rows_and_hashes(
    live: Live, whole_run: WholeRun
) -> None:
    """The run is started over REST and resumed once over REST, so that the flow runner works on it; else by commands.
    The kills in the other stages, and at every fault point, are those of tests/chaos."""
    work = live.home.work / RUN / "1"
    overrides = (("--set", f"{name}={json.dumps(value)}") for name, value in whole_runs.OVERRIDES.items())
    _begin_over_rest(live, "start", "demo", "--name", RUN, *chain.from_iterable(overrides))
    _worker(live).kill()
    wait_until(lambda: whole_runs.status(live, RUN) == "failed", "the runner to mark the run as failed")
    assert _count(live, "evaluated_items") < whole_runs.BENCHMARK_ITEMS

    _begin_over_rest(live, "resume", RUN)
    process = _worker(live)
    process.suspend()  # the training must not be over before it is waited for
    _check_that_a_second_resume_is_refused(live)
    process.resume()
    _wait_for(live, None, "Challenger training", (work / "train_challenger" / "step_1").exists)
    _worker(live).kill()
    wait_until(lambda: whole_runs.status(live, RUN) == "failed", "the runner to mark the run as failed")
    for what, reached in (
        ("Solver training", lambda: (work / "train_solver" / "step_1").exists() and _count(live, "train_metrics") > 0),
        ("training on labelled data", (work / "train_labelled" / "step_1").exists),
    ):
        command = live.start("resume", RUN)
        _wait_for(live, command, what, reached)
        _worker(live).kill()
        command.wait()

    command = live.start_killed_at("batch stored", "1/evaluate_labelled/", "resume", RUN)
    wait_until(lambda: _count(live, "evaluated_items") > whole_runs.BENCHMARK_ITEMS, "evaluation")
    next(iter(replicas(live).values())).kill()
    _kill_prefect_and_bring_it_back(live)
    assert command.wait() == -signal.SIGKILL, "the run did not go on"
    assert 0 < _count(live, "evaluated_items") - 2 * whole_runs.BENCHMARK_ITEMS < whole_runs.BENCHMARK_ITEMS
    assert live.coevo("resume", RUN).returncode == 0
    assert whole_runs.status(live, RUN) == "done"
    verification = verify_run(live.home, live.store(), RUN)
    assert [violation for check in verification.checks for violation in check.violations] == []
    assert whole_runs.rows(live, RUN) == whole_run.rows
    assert whole_runs.texts(live, RUN) == whole_run.texts
    with live.store().read() as session:
        stages = {stage.stage: stage for stage in queries.ledger.stages_of(session, RUN) if stage.iteration == 1}
    assert {name: stage.status for name, stage in stages.items()} == dict.fromkeys(WITH_BRANCH, "done")
    assert stages["train_challenger"].attempt == stages["train_labelled"].attempt == 2


@pytest.mark.slow
def test_a_chained_training_on_labelled_data_gives_the_branch_s_checkpoint(live: Live, whole_run: WholeRun) -> None:
    """In the first iteration both start from the same Solver. Only the chained one is the run's Solver afterwards."""
    settings = {**whole_runs.OVERRIDES, "labelled.chained": True}
    overrides = (part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(value)}"))
    result = live.coevo("run", "demo", "--name", "chained", *overrides)
    assert result.returncode == 0, result.stderr
    with live.store().read() as session:
        base, _, chained = queries.checkpoints.checkpoints_of(session, "chained")
        branch = queries.checkpoints.get_checkpoint(session, f"{whole_run.name}/labelled/1")
        stages = {row.stage for row in queries.ledger.stages_of(session, "chained") if row.iteration == 1}
    assert (chained.id, chained.parent, chained.step) == ("chained/solver/1", base.id, branch.step)
    assert chained.sha256 == branch.sha256
    assert stages == set(LOOP)


def _wait_for(live: Live, command: subprocess.Popen[bytes] | None, what: str, reached: Callable[[], bool]) -> None:
    """Wait until the run, on which `command` or the flow runner works, is in the middle of a stage."""

    def over() -> bool:  # asking a command's process is fast, and a training of three steps is soon over
        return whole_runs.status(live, RUN) in {"failed", "done"} if command is None else command.poll() is not None

    wait_until(lambda: reached() or over(), what)
    assert not over(), f"over before {what}"


def _begin_over_rest(live: Live, *arguments: str) -> None:
    """Have the flow runner work on the run, by `coevo runs` with these arguments."""
    command = [COEVO, "runs", *arguments]
    printed = subprocess.run(command, env=live.environment, capture_output=True, text=True, check=True).stdout
    assert re.match(
        rf"run {RUN}: (waiting|preparing|running): .*; {re.escape(live.services.prefect_url)}/runs/", printed
    )
    wait_until(lambda: whole_runs.status(live, RUN) == "running", "the flow to begin")


def _check_that_a_second_resume_is_refused(live: Live) -> None:
    refused = live.coevo("resume", RUN)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert re.search(rf"error: run {RUN}: process \d+ on .* works on it; nothing was changed", refused.stderr)


def _kill_prefect_and_bring_it_back(live: Live) -> None:
    prefect = psutil.Process(live.pid("prefect"))
    prefect.kill()
    prefect.wait()
    assert live.coevo("up").returncode == 0


def _worker(live: Live) -> psutil.Process:
    """The process that works on the run."""
    with live.store().read() as session:
        holder = queries.run_leases.run_holder(session, RUN)
    assert holder is not None
    return psutil.Process(int(holder.owner.split(":")[1]))


def _count(live: Live, table: str) -> int:
    """The number of the run's rows in a table; of `train_metrics`, those of the Solver."""
    of_run = {
        "evaluated_items": EvaluatedItems.evaluation_id.in_(select(Evaluations.id).where(Evaluations.run == RUN)),
        "train_metrics": (TrainMetrics.run == RUN) & (TrainMetrics.role == "solver"),
    }
    with live.store().read() as session:
        return session.scalar(select(func.count()).where(of_run[table])) or 0


def test_what_a_run_has_cost_adds_up(live: Live, whole_run: WholeRun) -> None:
    costs = json.loads(live.coevo("show", "cost", whole_run.name, "--json").stdout)
    amounts = {(row["iteration"], row["stage"], row["purpose"]): row["amounts"] for row in costs["rows"]}
    with live.store().read() as session:
        votes = queries.questions.rollouts_of(session, whole_run.name, 1)
        questions = queries.questions.questions_of(session, whole_run.name, 1)
        answers = [
            answer
            for row in queries.evaluations.of_run(session, whole_run.name)
            for answer in queries.evaluations.answers_of(session, row.id)
        ]
        stages = queries.ledger.stages_of(session, whole_run.name)
    of_votes = amounts[1, "label_questions", "votes"]
    assert of_votes["reply_tokens"] == sum(vote.tokens for vote in votes)
    assert of_votes["requests"] == len({vote.question_id for vote in votes})
    assert of_votes["prompt_tokens"] > 10 * of_votes["requests"]
    of_questions = amounts[1, "generate_questions", "questions"]
    assert 0 < of_questions["requests"] <= len(questions) < of_questions["reply_tokens"]
    evaluations = ((0, "evaluate"), (1, "evaluate"), (1, "evaluate_labelled"))
    evaluated = [amounts[*stage, "evaluation"] for stage in evaluations]
    assert sum(usage["reply_tokens"] for usage in evaluated) == sum(answer.tokens for answer in answers)
    for stage in ("train_challenger", "train_solver", "train_labelled"):
        training = amounts[1, stage, "training"]
        assert min(training["cpu_seconds"], training["prompt_tokens"], training["reply_tokens"]) > 0
    assert amounts[1, "train_challenger", "reward"]["reply_tokens"] > 0
    took = {
        (row.iteration, row.stage): (row.finished_at - row.started_at).total_seconds()
        for row in stages
        if row.finished_at
    }
    for key, seconds in took.items():  # of one attempt; the stored times are of the database's clock
        assert amounts[*key, "stage"]["seconds"] == pytest.approx(seconds, abs=1.0)
        assert amounts.get((*key, "applications"), {"seconds": 0})["seconds"] <= seconds + 1
    assert sum(took.values()) <= costs["elapsed_seconds"] + 1
    total = costs["total"]
    assert total["reply_tokens"] == sum(usage["reply_tokens"] for usage in amounts.values())
    text = live.coevo("show", "cost", whole_run.name).stdout
    assert f"{total['reply_tokens']:,}" in text
    assert "kept questions took" in text
