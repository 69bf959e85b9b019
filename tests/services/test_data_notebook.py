"""The cells of docs/data.ipynb run one after another against a served API, in a process that knows `coevo_client`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import delete

from core.types import Rollout
from services.api.app import create_app
from services.drift.series import refresh
from storage import queries
from storage.models import OracleLabels
from storage.session import Store
from tests.api_server import served
from tests.synthetic_run import fill_run

ROOT = Path(__file__).parents[2]
LINES = "lines = sum(hasattr(drawn, 'has_yerr') for drawn in axes.containers)"  # with error bars
KINDS = ("code", "markdown")
NOTEBOOK = json.loads((ROOT / "docs" / "data.ipynb").read_text(encoding="utf-8"))


@pytest.mark.parametrize("audited", [True, False])
def test_the_notebook_draws_label_accuracy_and_loads_all_votes(sqlite: Store, tmp_path: Path, audited: bool) -> None:
    fill_run(sqlite, "demo", per_level=2)
    with sqlite.write() as session:
        if not audited:
            session.execute(delete(OracleLabels))
        for iteration in (1, 2, 3):
            for label in queries.questions.labels_of(session, "demo", iteration):
                classes = label.label.classes if label.label else ()
                answers = [answer for answer, count in classes for _ in range(count)]
                votes = [
                    Rollout(label.question_id, s, "", answer, 7, "stop", 0.25, 0.0, "demo/base/0", s)
                    for s, answer in enumerate(answers)
                ]
                queries.questions.add_rollouts(session, votes)
            refresh(session, "demo", iteration)
    cells = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    figures = tmp_path / "figures.png"
    program = "\n\n".join([*cells, f"figure.savefig({str(figures)!r})", LINES, f"assert (lines >= 2) == {audited}"])
    (tmp_path / "coevo_client").symlink_to(ROOT / "services" / "client")  # as if it were installed
    with served(create_app(sqlite, tmp_path / "exports", ask_for_keys=False)) as url:
        environment = {**os.environ, "COEVO_API_URL": url, "COEVO_RUN": "demo", "COEVO_DATA": str(tmp_path)}
        environment |= {"MPLBACKEND": "Agg", "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-W", "error::FutureWarning", "-c", program]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert figures.stat().st_size > 1_000
    votes = pd.read_parquet(tmp_path / "votes.parquet")
    assert f"votes {len(votes)} rows" in done.stdout
    assert ("No oracle has graded a label of run demo yet" in done.stdout) == (not audited)
    assert set(votes.iteration) == {1, 2, 3}
    assert votes.agrees.notna().all()


def test_the_notebook_says_which_variables_it_reads() -> None:
    text = {kind: "".join("".join(c["source"]) for c in NOTEBOOK["cells"] if c["cell_type"] == kind) for kind in KINDS}
    assert {*re.findall(r"COEVO_[A-Z]+(?:_[A-Z]+)?", text["code"])} <= {*re.findall(r"COEVO_[A-Z_]+", text["markdown"])}
    assert "export COEVO_API_URL=" in text["markdown"]


def test_the_notebook_is_kept_without_outputs() -> None:
    """Outputs would differ with every run of the notebook."""
    code = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
