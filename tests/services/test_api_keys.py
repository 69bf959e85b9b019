"""Keys of the REST API: where keys are on, every route needs one, and no scope includes another."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from api_examples import RUN
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from services.api.access.keys import new_key
from services.api.app import PREFIX, create_app
from storage import queries
from storage.errors import StoreError
from storage.rows import Scope
from storage.session import Store

# a route's tag and method -> the scope that it needs, if that is not `read`
NEEDED = {
    ("triggers", "GET"): "run",
    ("triggers", "POST"): "run",
    ("evaluations", "POST"): "run",
    ("alerts", "POST"): "run",
    ("notes", "POST"): "run",
    ("labelling", "GET"): "label",
    ("labelling", "POST"): "label",
    ("audits", "POST"): "label",
    ("keys", "GET"): "admin",
    ("keys", "POST"): "admin",
    ("keys", "DELETE"): "admin",
}


def test_every_route_needs_a_key_of_its_scope_when_keys_are_on(filled: Store, tmp_path: Path) -> None:
    app = create_app(filled, tmp_path, ask_for_keys=True)
    api = TestClient(app)
    keys = {scope: new_key(filled, scope, (scope,)) for scope in get_args(Scope)}
    values = {"run": RUN, "role": "solver", "kind": "jsonl"}
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path.startswith(PREFIX)]
    assert len(routes) >= 11

    def status(route: APIRoute, key: str | None) -> int:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        [method] = route.methods
        path = route.path.format_map({**dict.fromkeys(route.param_convertors, "1"), **values})
        return api.request(method, path, headers=headers).status_code

    for route in routes:
        assert (status(route, None), status(route, "coevo_guess")) == (401, 401)
        needed = NEEDED.get((str(route.tags[0]), *route.methods), "read")
        assert [scope for scope, key in keys.items() if status(route, key) != 403] == [needed], route.path
        assert status(route, keys[needed]) in ({415} if route.methods == {"POST"} else {200, 404, 422}), route.path
    assert api.get(f"{PREFIX}/runs").headers["www-authenticate"] == "Bearer"
    assert api.get("/healthz").status_code == 200
    with filled.write() as session:
        queries.keys.revoke_key(session, "read")
    assert status(routes[0], keys["read"]) == 401


def test_keys_are_stored_as_hashes_and_their_names_are_unique(store: Store) -> None:
    key = new_key(store, "me", ("read", "run"))
    with store.read() as session:
        [row] = queries.keys.list_keys(session)
    assert (row.name, row.scopes, row.revoked_at) == ("me", ["read", "run"], None)
    assert key not in repr(row)
    for name in ("me", "a key"):
        with pytest.raises(StoreError, match=f"'{name}'"):
            new_key(store, name, ("read",))
    with pytest.raises(StoreError, match="'you'"), store.write() as session:
        queries.keys.revoke_key(session, "you")
