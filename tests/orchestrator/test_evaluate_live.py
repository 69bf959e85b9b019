"""`coevo evaluate` asks real services, and is killed in between."""

from __future__ import annotations

import json

from core.types import Evaluated, EvaluatedAnswer
from orchestrator.installation.home import MICRO_MODEL
from storage import queries
from tests.live import Live, wait_until
from tests.orchestrator import whole_runs
from tests.orchestrator.whole_runs import WholeRun


def test_a_folder_is_evaluated_as_the_run_evaluates_the_same_model_though_it_is_killed(
    live: Live, whole_run: WholeRun
) -> None:
    """The folder's model is the run's base model, and the seed and the protocol are the run's. So the answers, their
    classes and their verdicts must be those that the run's `evaluate` stage stored."""
    with live.store().read() as session:
        run = queries.runs.get_run(session, whole_run.name)
    settings = run.config["evaluation"]
    protocol = {"--samples": settings["samples"], "--seed": run.seed}
    protocol |= {f"--{name.replace('_', '-')}": value for name, value in settings["sampling"].items()}
    options = (str(part) for option in protocol.items() for part in option)
    command = ("evaluate", str(MICRO_MODEL), "micro", *options)

    def answered() -> tuple[str | None, list[Evaluated], list[EvaluatedAnswer]]:
        with live.store().read() as session:
            keys = [row.id for row in queries.evaluations.list_evaluations(session) if row.model == str(MICRO_MODEL)]
            if not keys:
                return None, [], []
            results = queries.evaluations.results_of(session, keys[0])
            return keys[0], results, queries.evaluations.answers_of(session, keys[0])

    killed = live.start(*command)
    wait_until(lambda: bool(answered()[1]) or killed.poll() is not None, "the first batch")
    killed.kill()
    killed.wait()
    assert 0 < len(answered()[1]) < whole_runs.BENCHMARK_ITEMS

    result = live.coevo(*command, "--json")
    assert result.returncode == 0, result.stderr
    key, results, answers = answered()
    with live.store().read() as session:
        base = next(
            row
            for row in queries.evaluations.of_run(session, whole_run.name)
            if row.model == f"{whole_run.name}/base/0" and row.benchmark == "micro"
        )
        assert results == queries.evaluations.results_of(session, base.id)
        assert answers == queries.evaluations.answers_of(session, base.id)
        assert base.manifest["decoding"] == queries.evaluations.get_evaluation(session, key or "").manifest["decoding"]
    [figures] = json.loads(result.stdout)
    assert (figures["id"], figures["questions"]) == (key, whole_runs.BENCHMARK_ITEMS)
    right = sum(result.correct for result in results) / sum(result.samples for result in results)
    assert figures["pass_at_1"]["value"] == right
    assert figures["manifest"]["engine"]["name"] == "embedded"
