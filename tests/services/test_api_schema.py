"""Whatever a client sends, the API's response follows its description and is never a 5xx."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
import schemathesis
from api_examples import RUN, alert, fill
from hypothesis import HealthCheck, given, settings
from prefect_server import prefect_at
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from core.settings.config import CoEvolution
from core.types import evaluation_id
from services.api.access.keys import new_key
from services.api.app import PREFIX, create_app
from services.api.installation import Installation, QuestionSets
from services.oracles.samples import draw_sample
from storage import queries
from storage.rows import Scope
from storage.session import Store
from tests.stored_evaluations import store_answers_of

_CURSORS = [positive_data_acceptance]  # no schema can say which values `after` accepts
_MENDED = [negative_data_rejection]  # a bad request may only lack the key, which the test adds
_PRESETS = Path(__file__).parents[2] / "deploy" / "runs"
# Routes that need a run that is worked on or that waits, which the example does not have.
_EMPTY = {f"POST {PREFIX}/runs/{{run}}/{action}" for action in ("cancel", "decision")}
_ALERT = "0123456789abcdef"
_MODELS = ["/models/a", "/models/b"]
_MANY, _PATIENCE_S = 120, 100
OTHER = "another-run"  # without results
_EVALUATION = evaluation_id(f"{RUN}/solver/1", "micro")  # that of the example
_THERE = {"run": RUN, "iteration": 1, "role": "solver", "key": "spare", "alert": _ALERT, "evaluation": _EVALUATION}
# The end of a route and one of its parameters -> what every request asks for that has the parameter.
_ASKED: dict[tuple[str, str], dict[str, Any]] = {
    ("/comparison", "name"): {"name": [RUN, OTHER]},
    ("/alerts", "run"): {"run": RUN},
    ("/runs/{run}/series", "name"): {"name": "kl"},
    ("/v1/series", "run"): {"run": [RUN, OTHER], "name": ["kl", "held_out"]},
    ("/comparison/series", "name"): {"name": "reward_mean", "by": "step"},
    ("/comparison/models", "model"): {"model": _MODELS, "benchmark": ["micro"]},
}


# For each kind and route: a thousand in all, or more than ten thousand.
@pytest.mark.parametrize("cases", [6, pytest.param(_MANY, marks=pytest.mark.slow)])
def test_every_response_is_as_described(store: Store, tmp_path: Path, prefect_url: str, cases: int) -> None:
    if store.address.startswith("postgresql"):
        cases //= 2  # the routes are the same, and other tests run the queries on both databases
    fill(store)
    with store.write() as session:
        queries.runs.create_run(session, name=OTHER, config=CoEvolution())
    draw_sample(store, RUN, 1, "human", 4)
    for model in _MODELS:
        store_answers_of(store, model, "micro", ["RX", "RR"])
    with store.write() as session:
        queries.alerts.add_alerts(session, [alert(_ALERT)])
    key = new_key(store, "tester", get_args(Scope))
    new_key(store, "spare", ["read"])
    prefect, question_sets = prefect_at(prefect_url), QuestionSets(("micro",))
    app = create_app(
        store,
        tmp_path,
        ask_for_keys=True,
        installation=Installation(prefect=prefect, presets=_PRESETS, question_sets=question_sets),
    )
    described = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    operations = [result.ok() for result in described.get_all_operations()]
    statuses = {operation.label: _statuses(operation, key, cases) for operation in operations}
    assert len(statuses) >= 20
    assert {label for label, counts in statuses.items() if not {200, 201, 202} & counts.keys()} <= _EMPTY
    together = sum(statuses.values(), Counter[int]())
    print(f"{together.total()} requests: {together}")
    assert together.total() >= 80 * cases
    assert {200, 202, 400, 401, 404, 409, 422} <= together.keys()


def _statuses(operation: Any, key: str, cases: int) -> Counter[int]:
    """The statuses of a route's responses to requests that its description allows and to requests that it does not."""
    counts, headers = Counter[int](), {"Authorization": f"Bearer {key}"}
    with_settings = settings(max_examples=cases, derandomize=True, suppress_health_check=list(HealthCheck))

    def validated(case: Any, excluded: Any) -> int:
        """The status of the response, which is as described. A busy Prefect is a 503: the request may be sent again."""
        for _ in range(5):
            response = case.call(headers=headers, timeout=_PATIENCE_S)
            if response.status_code != 503:
                break
        case.validate_response(response, excluded_checks=excluded, headers=headers)
        return int(response.status_code)

    @with_settings
    @given(case=operation.as_strategy())
    def answers(case: Any) -> None:
        path = case.path_parameters  # with the generated values nearly all responses would be 404
        path.update({name: value for name, value in _THERE.items() if name in path})
        path.update({name: path[name] % 2 for name in ("index", "sample_index", "prompt", "rollout") if name in path})
        if "step" in path:
            path["step"] = 1 + path["step"] % 2
        for (end, name), values in _ASKED.items():
            if operation.path.endswith(end) and name in (case.query or {}):
                case.query.update(values)
        if "run" in (case.query or {}) and "/comparison/" in operation.path:
            case.query["run"] = [RUN, OTHER]
            case.query.update({name: RUN for name in case.query if name == "baseline"})
        # No schema says that 3-1 is no range, that questions have no texts, or that an experiment excludes runs.
        if "/runs/{run}/export" in operation.path or "/v1/export" in operation.path:
            case.query = {**(case.query or {}), "iterations": "1"}
            case.query.pop("texts", None)
        if "/v1/export" in operation.path:
            case.query.pop("experiment", None)
            case.query["run"] = [RUN]
        if "item" in (case.query or {}):
            case.query["item"] = "i1"
        if isinstance(case.body, dict) and operation.path.endswith("/alerts/acknowledgement"):
            case.body.update(run=RUN)
        if isinstance(case.body, dict) and "preset" in case.body:
            # Both databases' tests use the same Prefect server, which still has the runs of the first test.
            case.body.update(preset="demo", name=f"fuzz-{uuid4().hex}")
        if isinstance(case.body, dict) and "model" in case.body:
            case.body.update(model=f"{RUN}:1", benchmarks=["micro"], suite=None, seed=uuid4().int % 2**31)
        counts[validated(case, _CURSORS)] += 1

    @with_settings
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def refuses(case: Any) -> None:
        counts[validated(case, _MENDED)] += 1

    answers()
    if operation.path_parameters or operation.query or operation.body:
        refuses()
    return counts
