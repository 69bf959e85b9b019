"""A run's page of the dashboard as one HTML file: what `coevo report` writes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from starlette.testclient import TestClient

from core.files import make_folder, replacing
from services.api.app import PREFIX, create_app
from services.api.installation import Installation
from services.dashboard.one_file import one_file
from storage import queries
from storage.session import Store

_OF_RUN = (
    "",
    "/headline",
    "/iterations",
    "/series",
    "/stages",
    "/metrics?name=reward_mean",
    "/checkpoints",
    "/evaluations",
    "/training-labels",
    "/audits",
    "/matrix",
    "/costs",
    "/log?lines=50",
    "/configuration",
)
_MOST_ITERATIONS = 10  # whose questions and steps of training are in the file
_MOST_QUESTIONS = 6  # of each iteration; report.js has the same number


def write_run_page(
    store: Store, run: str, folder: Path, *, presets: Path | None = None, papers: Path | None = None
) -> Path:
    """Write FOLDER/RUN.html, completely or not at all, and return its path. The run may be in progress.

    The page is that of the dashboard, and what it asks the API for is in the file. `presets` and `papers` are those of
    `Installation`. The log of the run, which names files of this machine, is left out.

    Raises `StoreError` when there is no such run.
    """
    with store.read() as session:
        queries.runs.get_run(session, run)
        asked = sorted(queries.figures.filter_stats_of(session, run))[-_MOST_ITERATIONS:]
        begun = sorted({stage.iteration for stage in queries.ledger.stages_of(session, run)})[-_MOST_ITERATIONS:]
    app = create_app(store, folder, ask_for_keys=False, installation=Installation(presets=presets, papers=papers))
    of_run = f"{PREFIX}/runs/{run}"
    paths = [  # what the page asks for, written as api.js writes it
        *(f"{of_run}{path}" for path in _OF_RUN),
        f"{PREFIX}/alerts?run={run}&limit=20",
        f"{PREFIX}/alerts?run={run}&acknowledged=false&severity=critical&limit=20",
        *(f"{of_run}/metrics?iteration={t}" for t in begun),
        *(f"{of_run}/iterations/{t}/statistics" for t in asked),
        *(f"{of_run}/iterations/{t}/questions?verdict=kept&limit={_MOST_QUESTIONS}" for t in asked),
    ]
    with TestClient(app, base_url="http://localhost") as client:
        responses = {path: client.get(path) for path in paths}
    report = {
        "run": run,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "asked": asked,
        "begun": begun,
        "answers": {path: [response.status_code, response.json()] for path, response in responses.items()},
    }
    make_folder(folder)
    target = folder / f"{run}.html"
    with replacing(target) as temporary:
        temporary.write_text(one_file(report), encoding="utf-8")
    return target
