"""The worked example of docs/extending.md: the test builds it from the page in a copy of the repository and uses it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def example() -> dict[str, str]:
    """The file of each block of the example -> its text, in the order of the page."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").partition("## Add a method")[2]
    blocks = re.findall(r"^`([\w./]+)`[^\n]*\n\n```\w+\n(.*?)```", page, flags=re.MULTILINE | re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the example in it."""
    root = tmp_path_factory.mktemp("repository")
    for folder in ("core", "orchestrator", "storage", "services", "trainers", "tests/core", "deploy"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = example()
    for name in ("core/methods/quorum.py", "tests/core/test_methods_quorum.py"):
        (root / name).write_text(blocks[name])
    preset = (root / "deploy/runs/ttrl.toml").read_text().replace('type = "ttrl"\n', blocks["deploy/runs/quorum.toml"])
    (root / "deploy/runs/quorum.toml").write_text(preset)
    return root


def run(copy: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'tests' / 'core'}", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_example_s_own_test_passes(copy: Path) -> None:
    test = copy / "tests/core/test_methods_quorum.py"
    out = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), str(test))
    assert "1 passed" in out


def test_the_command_and_a_preset_can_use_the_example_s_method(copy: Path, tmp_path: Path) -> None:
    groups = tmp_path / "groups.jsonl"
    groups.write_text(json.dumps({"question_id": "q", "rollouts": [{"answer": "7"}, {"answer": "7"}, {"answer": "8"}]}))
    out = run(copy, "-m", "orchestrator.cli", "methods", "score", "quorum", "--groups", str(groups), "--json")
    assert json.loads(out)["rewards"] == [1, 1, 0]
    loaded = (
        "from core.settings.parsing import load_config; from pathlib import Path; "
        "print(load_config(Path('{}')).solver.reward)"
    )
    assert "quorum" in run(copy, "-c", loaded.format(copy / "deploy/runs/quorum.toml"))
