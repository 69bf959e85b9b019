"""`coevo evaluate` asks real services, and is killed in between."""

from __future__ import annotations

import json
from typing import Any

from core.types import Evaluated, EvaluatedAnswer
from orchestrator.installation.home import MICRO_MODEL
from storage import queries
from tests.live import Live, wait_until
from tests.orchestrator import whole_runs
from tests.orchestrator.whole_runs import WholeRun


def test_a_checkpoint_and_a_folder_are_evaluated_as_the_run_did_it_though_the_command_is_killed(
    live: Live, whole_run: WholeRun
) -> None:
    """Seed and protocol are the run's, and the folder has the run's base model. So the answers, their classes and their
    verdicts must be those that the run's `evaluate` stage stored."""
    store = live.store()
    with store.read() as session:
        run = queries.runs.get_run(session, whole_run.name)
        rows = queries.evaluations.of_run(session, whole_run.name)
        base = next(
            row for row in rows if row.model == f"{whole_run.name}/base/0" and row.benchmark == whole_runs.BENCHMARK
        )
        expected = queries.evaluations.results_of(session, base.id), queries.evaluations.answers_of(session, base.id)
    settings = run.config["evaluation"]
    protocol = {"--samples": settings["samples"], "--seed": run.seed}
    sampling = {name: value for name, value in settings["sampling"].items() if value is not None}
    protocol |= {f"--{name.replace('_', '-')}": value for name, value in sampling.items()}
    options = (whole_runs.BENCHMARK, *(str(part) for option in protocol.items() for part in option))

    def stored(model: str) -> tuple[list[Evaluated], list[EvaluatedAnswer]]:
        with store.read() as session:
            keys = [row.id for row in queries.evaluations.list_evaluations(session) if row.model == model]
            if not keys:
                return [], []
            return queries.evaluations.results_of(session, keys[0]), queries.evaluations.answers_of(session, keys[0])

    def figures(*command: str) -> dict[str, Any]:
        result = live.coevo(*command, "--json")
        assert result.returncode == 0, result.stderr
        [printed] = json.loads(result.stdout)
        return printed

    command = ("evaluate", f"{whole_run.name}:base", *options)
    killed = live.start(*command)
    wait_until(lambda: bool(stored(base.model)[0]) or killed.poll() is not None, "the first batch")
    killed.kill()
    killed.wait()
    assert 0 < len(stored(base.model)[0]) < whole_runs.BENCHMARK_ITEMS
    printed = figures(*command)
    assert stored(base.model) == expected
    assert printed["questions"] == whole_runs.BENCHMARK_ITEMS
    right = sum(result.correct for result in expected[0]) / sum(result.samples for result in expected[0])
    assert printed["pass_at_1"]["value"] == right
    manifest = printed["evaluation"]["manifest"]
    assert manifest["engine"]["name"] == "embedded"
    assert (manifest["decoding"], manifest["benchmark"]) == (base.manifest["decoding"], base.manifest["benchmark"])

    count = 30
    assert figures("evaluate", str(MICRO_MODEL), *options, "--limit", str(count))["questions"] == count
    results, answers = expected
    sample = stored(str(MICRO_MODEL))
    asked = {result.item_id for result in sample[0]}
    assert len(asked) == count
    of_sample = [result for result in results if result.item_id in asked]
    assert sample == (of_sample, [answer for answer in answers if answer.item_id in asked])


def test_an_evaluation_is_triggered_in_prefect_and_its_table_is_shown_there(live: Live, whole_run: WholeRun) -> None:
    prefect = live.services.prefect
    deployment = prefect.request("GET", "/deployments/name/evaluate/evaluate").json()["id"]
    model = f"{whole_run.name}:best"
    parameters = {"model": model, "benchmarks": ["micro"], "samples": 2, "top_k": 5, "limit": 20}
    flow_run = prefect.request("POST", f"/deployments/{deployment}/create_flow_run", {"parameters": parameters}).json()

    def state() -> str:
        return str(prefect.request("GET", f"/flow_runs/{flow_run['id']}").json()["state_type"])

    wait_until(lambda: state() in {"COMPLETED", "FAILED", "CRASHED"}, "the flow run to end")
    assert state() == "COMPLETED"
    of_flow_run = {"artifacts": {"flow_run_id": {"any_": [flow_run["id"]]}}}
    [artifact] = prefect.request("POST", "/artifacts/filter", of_flow_run).json()
    [row] = json.loads(artifact["data"])
    assert (row["benchmark"], row["questions"], row["samples"]) == ("micro", 20, 2)
    with live.store().read() as session:
        evaluations = queries.evaluations.list_evaluations(session)
        [evaluation] = [row for row in evaluations if row.benchmark == "micro"]
        results = queries.evaluations.results_of(session, evaluation.id)
    assert evaluation.model.startswith(f"{whole_run.name}/")
    assert evaluation.manifest["decoding"]["sampling"]["top_k"] == 5
    assert row["greedy"].startswith(f"{sum(result.greedy_correct for result in results) / 20:.1%} (")
