"""What the docs name exists: the commands of their code blocks with their options, and the files in backticks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from orchestrator.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")),
]
FILE = re.compile(r"`((?:benchmarks|core|deploy|docs|orchestrator|services|storage|tests|trainers)/[\w/.-]+\.\w+)`")
MADE_BY_THE_READER = {  # docs/extending.md
    *("core/methods/quorum.py", "deploy/runs/quorum.toml", "tests/core/test_methods_quorum.py"),
    "services/oracles/NAME.py",
    "orchestrator/stages/NAME.py",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_coevo_takes_the_commands(page: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for kind, block in blocks if not kind for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        if not line.startswith("coevo "):
            continue
        _, *arguments = shlex.split(re.split(r" (?:>|\||&&) ", line)[0], comments=True)
        node: Any = get_command(app)
        while isinstance(node, TyperGroup) and arguments and not arguments[0].startswith("-"):
            _, node, arguments = node.resolve_command(node.context_class(node), arguments)
        node.make_context(line, arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_exist(page: Path) -> None:
    named = {*FILE.findall(page.read_text(encoding="utf-8"))} - MADE_BY_THE_READER
    folders = (ROOT, ROOT / "tests")
    assert [name for name in sorted(named) if not any((folder / name).exists() for folder in folders)] == []
