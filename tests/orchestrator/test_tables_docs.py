"""docs/methods.md: it has every table and figure of the papers, and coevo takes all of its commands; its equations."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
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
from orchestrator.installation.home import EXPERIMENTS, ROOT
from orchestrator.question_sets.benchmarks import definition_of, evaluated_in, read_suite
from services.comparison.models import METRIC
from trainers.micro.__main__ import options

PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
# The highest number of a figure and of a table in each paper.
PAPERS = {"R-Zero": (4, 8), "SRT": (17, 1), "EVOL-RL": (5, 4), "SCRL": (5, 9), "Poly-EPO": (5, 1)}
WORDS = " ".join(PAGE.split())  # a line may end within a command
SHORT = dict(re.findall(r"`([A-Z]+)` stands for `([^`]+)`", WORDS))
TABLE = PAGE.partition("| paper | commands |")[2].partition("\n\n")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines()[2:]]
TITLES = [f"{paper} {number}" for row in ROWS for paper, *of in map(str.split, row[0].split(";")) for number in of]


def _commands(cell: str) -> Iterator[str]:
    """The commands of a cell. A span of a name with settings is a further run of the last preset."""
    preset = ""
    for span in re.findall(r"`([^`]+)`", cell):
        if span.startswith("coevo "):
            yield span.removeprefix("coevo ")
            preset = " ".join(span.split()[1:3])
        elif " " in span and not span.startswith(("-", "python ")):
            yield f"{preset} --name {span}"


EXAMPLES = re.findall(r"`coevo (compare [^`]+)`", WORDS)
COMMANDS = sorted({command for row in ROWS for command in _commands(row[1])} | {*EXAMPLES})


def _parsed(command: str) -> dict[str, Any]:
    """The parameters of a command, read by the command line itself. Nothing is run."""
    words = [word for part in shlex.split(command) for word in (SHORT[part].split() if part in SHORT else [part])]
    arguments = [word for part in words for word in (["--set", part] if "=" in part else [part])]
    node: Any = get_command(app)
    while isinstance(node, TyperGroup) and not arguments[0].startswith("-"):
        _, node, arguments = node.resolve_command(node.context_class(node), arguments)
    return dict(node.make_context(command, arguments).params)


def test_every_table_and_figure_has_one_row() -> None:
    expected = [
        f"{paper} {letter}{number + 1}"
        for paper, highest in PAPERS.items()
        for letter, numbers in zip("FT", highest, strict=True)
        for number in range(numbers)
    ]
    assert sorted(TITLES) == sorted(expected)
    assert all(len(row) == 2 and row[1] for row in ROWS)


def test_every_shipped_experiment_is_on_its_page() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page.partition("## Shipped")[2].partition("\n## ")[0], re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in EXPERIMENTS.glob("*.toml"))


def test_the_code_and_the_test_of_every_equation_exist() -> None:
    table = PAGE.partition("| what | paper, equation |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [line.strip("|").split("|") for line in table]
    code = [("core/methods", span) for row in rows for span in re.findall(r"`([^`]+)`", row[2])]
    tests = [("tests/core", span) for row in rows for span in re.findall(r"`([^`]+)`", row[3])]
    assert len(code) >= len(tests) == len(rows) > 15
    for folder, span in [*code, *tests]:
        file, _, name = span.partition(": ")
        text = (ROOT / (file if "/" in file else f"{folder}/{file}")).read_text(encoding="utf-8")
        assert all(re.search(rf"(class|def) {part}\b", text) for part in filter(None, name.split("."))), span


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


def test_the_tiny_world_takes_its_commands() -> None:
    commands = re.findall(r"`python -m trainers\.micro ([^`]+)`", WORDS)
    assert len(commands) >= 4
    for command in commands:
        options().parse_args(shlex.split(command))


def test_the_commands_and_the_short_forms_are_found() -> None:
    assert SHORT.keys() == {"COLLAPSE", "MATH"}
    assert len(COMMANDS) > 60
