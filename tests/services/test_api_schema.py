"""Whatever a client sends, the API answers as its own description says, and never with a 5xx."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
import schemathesis
from api_examples import RUN, alert, fill
from hypothesis import HealthCheck, given, settings
from prefect_server import known
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from services.api.app import PREFIX, create_app
from services.api.keys import new_key
from services.oracles.samples import draw_sample
from storage import queries
from storage.rows import Scope
from storage.session import Store

_CURSORS = [positive_data_acceptance]  # what `after` takes no schema can say
_MENDED = [negative_data_rejection]  # it may only have left the key out, which is put in again
_PRESETS = Path(__file__).parents[2] / "deploy" / "runs"
# What the example has nothing for: a run that somebody is at, or that waits.
_EMPTY = {f"POST {PREFIX}/runs/{{run}}/{asked}" for asked in ("cancel", "decision")}
_ALERT = "0123456789abcdef"


@pytest.mark.parametrize("cases", [6, pytest.param(20, marks=pytest.mark.slow)])  # of each kind and route
def test_every_answer_is_as_described(store: Store, tmp_path: Path, prefect_url: str, cases: int) -> None:
    if store.address.startswith("postgresql"):
        cases //= 2  # the routes are the same; the queries have tests of their own on both
    fill(store)
    draw_sample(store, RUN, 1, "human", 4)
    with store.write() as session:
        queries.alerts.add_alerts(session, [alert(_ALERT)])
    key = new_key(store, "tester", get_args(Scope))
    new_key(store, "spare", ["read"])
    app = create_app(store, tmp_path, ask_for_keys=True, prefect=known(prefect_url), presets=_PRESETS)
    described = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    operations = [found.ok() for found in described.get_all_operations()]
    statuses = {operation.label: _statuses(operation, key, cases) for operation in operations}
    assert len(statuses) >= 20
    assert {label for label, seen in statuses.items() if not {200, 201, 202} & seen.keys()} <= _EMPTY
    assert sum(seen.total() for seen in statuses.values()) >= 50 * cases
    assert {200, 400, 422} <= statuses[f"GET {PREFIX}/runs/{{run}}/iterations/{{iteration}}/questions"].keys()


def _statuses(operation: Any, key: str, cases: int) -> Counter[int]:
    """What a route answered with: to what its description allows, and to what it does not."""
    seen, sent = Counter[int](), {"Authorization": f"Bearer {key}"}
    asked = settings(max_examples=cases, derandomize=True, suppress_health_check=list(HealthCheck))

    @asked
    @given(case=operation.as_strategy())
    def answers(case: Any) -> None:
        path = case.path_parameters  # as they are nearly all would be 404
        path.update({name: RUN for name in path if name == "run"})
        path.update({name: 1 for name in path if name == "iteration"})
        path.update({name: path[name] % 7 for name in path if name in ("index", "sample_index")})
        path.update({name: "spare" for name in path if name == "key"})
        path.update({name: _ALERT for name in path if name == "alert"})
        if isinstance(case.body, dict) and "preset" in case.body:
            # Prefect is the same for both databases, and has the runs that it was asked for with the first.
            case.body.update(preset="demo", name=f"fuzz-{uuid4().hex}")
        seen[case.call_and_validate(headers=sent, excluded_checks=_CURSORS).status_code] += 1

    @asked
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def refuses(case: Any) -> None:
        seen[case.call_and_validate(headers=sent, excluded_checks=_MENDED).status_code] += 1

    answers()
    if operation.path_parameters or operation.query or operation.body:
        refuses()
    return seen
