"""Whatever a client sends, the API answers as its own description says, and never with a 5xx."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from api_examples import RUN, fill
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from services.api.app import PREFIX, create_app
from services.api.keys import new_key
from storage.session import Store

_CURSORS = [positive_data_acceptance]  # what `after` takes no schema can say
_MENDED = [negative_data_rejection]  # it may only have left the key out, which is put in again
_CASES = 60  # of each kind, route and database


def test_every_answer_is_as_described(store: Store, tmp_path: Path) -> None:
    fill(store)
    key = new_key(store, "tester", ("read",))
    described = schemathesis.openapi.from_asgi("/api/openapi.json", create_app(store, tmp_path, ask_for_keys=True))
    operations = [found.ok() for found in described.get_all_operations()]
    statuses = {operation.path: _statuses(operation, key) for operation in operations}
    assert len(statuses) >= 14
    assert all(200 in seen for seen in statuses.values()), statuses
    assert sum(seen.total() for seen in statuses.values()) >= 1_000
    assert {200, 400, 422} <= statuses[f"{PREFIX}/runs/{{run}}/iterations/{{iteration}}/questions"].keys()


def _statuses(operation: Any, key: str) -> Counter[int]:
    """What a route answered with: to what its description allows, and to what it does not."""
    seen, sent = Counter[int](), {"Authorization": f"Bearer {key}"}
    asked = settings(max_examples=_CASES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

    @asked
    @given(case=operation.as_strategy())
    def answers(case: Any) -> None:
        path = case.path_parameters  # as they are nearly all would be 404
        path.update({name: RUN for name in path if name == "run"})
        path.update({name: 1 for name in path if name == "iteration"})
        path.update({name: path[name] % 7 for name in path if name == "index"})
        seen[case.call_and_validate(headers=sent, excluded_checks=_CURSORS).status_code] += 1

    @asked
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def refuses(case: Any) -> None:
        seen[case.call_and_validate(headers=sent, excluded_checks=_MENDED).status_code] += 1

    answers()
    if operation.path_parameters or operation.query:
        refuses()
    return seen
