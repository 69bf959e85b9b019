"""docs/tables.md: it has every table and figure of the papers, and coevo takes all of its commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from core.settings.parsing import load_config
from orchestrator.check.presets import preset_path
from orchestrator.check.refusals import untrainable
from orchestrator.cli import app
from orchestrator.cli.terminal import setting
from orchestrator.installation.home import ROOT
from orchestrator.question_sets.benchmarks import definition_of, evaluated_in, read_suite
from services.model_comparison import METRIC

PAGE = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
SECTIONS = {section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
# The highest number of a figure and of a table in each paper.
PAPERS = {"R-Zero": (4, 8), "SRT": (17, 1), "EVOL-RL": (5, 4), "SCRL": (5, 9), "Poly-EPO": (5, 1)}
SHORT = dict(re.findall(r"`([A-Z]+)`(?: stands)? for\s+`(--set [^`]+)`", PAGE))
ROWS = {
    paper: [
        [cell.strip() for cell in line.split("|")] for line in re.findall(r"^\| ((?:Table|Figure) .*)\|$", text, re.M)
    ]
    for paper, text in SECTIONS.items()
}
COMMANDS = sorted(
    {command for rows in ROWS.values() for row in rows for command in re.findall(r"`coevo ([^`]+)`", row[2])}
)


def _parsed(command: str) -> dict[str, Any]:
    """The parameters of a command, read by the command line itself. Nothing is run."""
    arguments = [word for part in shlex.split(command) for word in shlex.split(SHORT.get(part, shlex.quote(part)))]
    node: Any = get_command(app)
    while isinstance(node, TyperGroup) and not arguments[0].startswith("-"):
        _, node, arguments = node.resolve_command(node.context_class(node), arguments)
    return dict(node.make_context(command, arguments).params)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_and_figure_has_one_row(paper: str) -> None:
    figures, tables = PAPERS[paper]
    expected = [f"Figure {n + 1}" for n in range(figures)] + [f"Table {n + 1}" for n in range(tables)]
    assert sorted(row[0] for row in ROWS[paper]) == sorted(expected)
    assert all(len(row) == 4 and row[1] and row[3] for row in ROWS[paper])


@pytest.mark.parametrize("command", COMMANDS)
def test_coevo_takes_the_command(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").touch()
    parameters = _parsed(command)
    if command.startswith("run "):
        overrides = dict(setting(text) for text in parameters["override"] or ())
        config = load_config(preset_path(parameters["preset"]), overrides)
        assert not [*untrainable(config)]
        for name in evaluated_in(config):
            definition_of(name)
    elif parameters.get("suite"):
        read_suite(parameters["suite"])
    if command.startswith("compare "):
        for name in parameters["benchmarks"] or ():
            definition_of(name)
        assert all(METRIC.fullmatch(metric) for metric in parameters["metrics"] or ())


WARMED_UP = ("run scrl", "run evol_rl", "run ttrl")  # presets whose warmup_steps are 3% of the steps


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith(WARMED_UP)])
def test_a_run_warms_up_for_three_percent_of_its_steps(command: str) -> None:
    parameters = _parsed(command)
    overrides = dict(setting(text) for text in parameters["override"] or ())
    if parameters["iterations"]:
        overrides["iterations"] = parameters["iterations"]
    config = load_config(preset_path(parameters["preset"]), overrides)
    assert config.solver.training.warmup_steps == int(0.03 * config.solver_steps)


def test_the_commands_and_the_short_forms_are_found() -> None:
    assert SHORT.keys() == {"COLLAPSE", "MATH"}
    assert len(COMMANDS) > 60


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
