"""What the docs name exists, their links lead somewhere, and what is made from the source is up to date."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from orchestrator.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*DOCS.glob("*.md"), *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "AGENTS", "SECURITY"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
OF_EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

FILE = re.compile(r"`((?:benchmarks|core|deploy|docs|orchestrator|services|storage|tests|trainers)/[\w/.-]+\.\w+)`")
MADE_BY_THE_READER = {  # docs/extending.md
    *("core/methods/quorum.py", "deploy/runs/quorum.toml", "tests/core/test_methods_quorum.py"),
    *("services/oracles/NAME.py", "orchestrator/stages/NAME.py"),
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@OF_EVERY_PAGE
def test_coevo_takes_the_commands_of_the_code_blocks_with_their_options(page: Path) -> None:
    blocks = BLOCK.findall(TEXTS[page])
    lines = [line for kind, block in blocks if not kind for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        if not line.startswith("coevo "):
            continue
        _, *arguments = shlex.split(re.split(r" (?:>|\||&&) ", line)[0], comments=True)
        node: Any = get_command(app)
        while isinstance(node, TyperGroup) and arguments and not arguments[0].startswith("-"):
            _, node, arguments = node.resolve_command(node.context_class(node), arguments)
        node.make_context(line, arguments)


@OF_EVERY_PAGE
def test_the_files_in_backticks_exist(page: Path) -> None:
    named = {*FILE.findall(TEXTS[page])} - MADE_BY_THE_READER
    assert [name for name in sorted(named) if not any((root / name).exists() for root in (ROOT, ROOT / "tests"))] == []


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, dashes for spaces, without other signs."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@OF_EVERY_PAGE
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", TEXTS[page])):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize(
    ("script", "function", "page"),
    [
        ("draw_architecture.py", "with_folders", "architecture.md"),  # the table of packages
        ("list_benchmarks.py", "with_tables", "evaluation.md"),  # the tables of benchmarks and suites
    ],
)
def test_what_a_script_writes_into_a_page_is_up_to_date(script: str, function: str, page: str) -> None:
    assert runpy.run_path(str(DOCS / script))[function](TEXTS[DOCS / page]) == TEXTS[DOCS / page]


def test_the_functions_of_the_page_of_the_architecture_exist_and_its_picture_shows_every_package() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|js)):\s(\w+)`", TEXTS[DOCS / "architecture.md"])
    assert named
    pattern = r"^\s*(?:async |export )?(?:def|class|function) {}\b"
    assert [
        (file, name)
        for file, name in named
        if not re.search(pattern.format(name), (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ] == []
    picture = (DOCS / "pictures" / "architecture.svg").read_text(encoding="utf-8")
    packages = ("core", "storage", "services", "trainers", "orchestrator", "benchmarks")
    assert [package for package in packages if f"<!-- {package} -->" not in picture] == []
