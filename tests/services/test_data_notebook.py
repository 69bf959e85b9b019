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

from core.settings.parsing import parse_config
from core.types import LabelledQuestion, Question, Rollout, question_id
from services.drift.series import refresh
from storage import queries
from storage.models import OracleLabels
from storage.session import Store
from tests.api_server import serving
from tests.synthetic_run import create, fill_run, finish

ROOT = Path(__file__).parents[2]
LINES = "lines = sum(hasattr(drawn, 'has_yerr') for drawn in axes.containers)"  # with error bars
KINDS = ("code", "markdown")
NOTEBOOK = json.loads((ROOT / "docs" / "data.ipynb").read_text(encoding="utf-8"))


def executed(store: Store, folder: Path, run: str, checks: list[str]) -> subprocess.CompletedProcess[str]:
    """The notebook's cells and then `checks`, executed for a run."""
    cells = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    program = "\n\n".join([*cells, f"figure.savefig({str(folder / 'figures.png')!r})", *checks])
    (folder / "coevo_client").symlink_to(ROOT / "services" / "client")  # as if it were installed
    with serving(store, folder / "exports") as url:
        environment = {**os.environ, "COEVO_API_URL": url, "COEVO_RUN": run, "COEVO_DATA": str(folder)}
        environment |= {"MPLBACKEND": "Agg", "PYTHONPATH": str(folder)}
        command = [sys.executable, "-W", "error::FutureWarning", "-c", program]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("audited", [True, False])
def test_the_notebook_draws_label_accuracy_and_loads_all_votes(sqlite: Store, tmp_path: Path, audited: bool) -> None:
    fill_run(sqlite, "demo", per_level=2)
    with sqlite.write() as session:
        # The third iteration is estimated, if there is anything to estimate it from.
        estimated = OracleLabels.question_id.startswith("demo/3/")
        session.execute(delete(OracleLabels).where(estimated) if audited else delete(OracleLabels))
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
    hollow = "hollow = sum(line.get_markerfacecolor() == 'white' for line in axes.lines)"
    checks = [LINES, f"assert (lines >= 2) == {audited}", hollow, f"assert hollow == {2 * audited}"]
    done = executed(sqlite, tmp_path, "demo", checks)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "figures.png").stat().st_size > 1_000
    votes = pd.read_parquet(tmp_path / "votes.parquet")
    assert f"votes {len(votes)} rows" in done.stdout
    assert ("No oracle has graded a label of run demo yet" in done.stdout) == (not audited)
    assert set(votes.iteration) == {1, 2, 3}
    assert votes.agrees.notna().all()


def test_the_notebook_reads_a_run_that_trains_on_prompts_without_votes(sqlite: Store, tmp_path: Path) -> None:
    config = parse_config({"prompts": {"file": "benchmark"}, "solver": {"reward": {"type": "srt"}}}, "test")
    prompt = Question(question_id("given", 0, 0), "given", 0, 0, "What is 1 + 1?", "What is 1 + 1?", None, 0, "2")
    with sqlite.write() as session:
        create(session, "given", config)
        queries.questions.add_questions(session, [prompt])
        queries.questions.add_labels(session, [LabelledQuestion(prompt.id, prompt.text, None, "kept")])
        finish(session, "given", 0, "read_prompts", {}, 1.0)
    done = executed(sqlite, tmp_path, "given", [])
    assert done.returncode == 0, done.stderr
    assert "Run given has no kept question with votes." in done.stdout
    assert "votes 0 rows" in done.stdout


def test_the_notebook_names_the_variables_that_it_reads_and_is_kept_without_outputs() -> None:
    """Outputs would differ with every run of the notebook."""
    text = {kind: "".join("".join(c["source"]) for c in NOTEBOOK["cells"] if c["cell_type"] == kind) for kind in KINDS}
    assert {*re.findall(r"COEVO_[A-Z]+(?:_[A-Z]+)?", text["code"])} <= {*re.findall(r"COEVO_[A-Z_]+", text["markdown"])}
    code = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
