"""A client of a store's API, which asks for no keys and runs in the test's own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from services.api.app import create_app
from services.api.installation import Installation
from storage.session import Store


def local_api(store: Store, folder: Path, **here: Any) -> TestClient:
    """`here` is what the API's installation has; its exports are written into `folder`."""
    app = create_app(store, folder, ask_for_keys=False, installation=Installation(**here))
    return TestClient(app, "http://localhost")
