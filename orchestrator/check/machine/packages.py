"""Whether the Python and the installed packages are those that coevo was made for."""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from orchestrator.check.machine.result import CheckFailed, Finding, Subject, ok
from orchestrator.installation.home import ROOT

_SHOWN = 5  # packages in a line


def check_python(_: Subject) -> Finding:
    """Whether this Python is one that pyproject.toml allows."""
    expected, actual = SpecifierSet(_project()["requires-python"]), platform.python_version()
    if actual not in expected:
        raise CheckFailed(f"expected Python {expected}, got {actual}", "make clean, then make PYTHON=python3.11 ready")
    return ok(actual)


def check_packages(_: Subject) -> Finding:
    """Whether every package that coevo needs is installed in a version that pyproject.toml allows.

    Versions that pyproject.toml allows, but that are not those in constraints.txt, with which the tests passed, are a
    warning.
    """
    requirements = [Requirement(text) for text in _project()["dependencies"]]
    reinstall = "pip install -c constraints.txt -e ."
    if problems := list(_unmet(requirements)):
        raise CheckFailed(_listed(problems), reinstall)
    tested = _tested_versions()
    other = [
        f"{requirement.name} {installed} (tested with {tested[name]})"
        for requirement in requirements
        if (name := canonicalize_name(requirement.name)) in tested
        and (installed := version(name).partition("+")[0]) != tested[name]
    ]
    if other:
        return Finding("warning", _listed(other), reinstall)
    return ok(f"{len(requirements)} packages that coevo needs, all in {'tested' if tested else 'allowed'} versions")


def _unmet(requirements: list[Requirement]) -> Iterator[str]:
    for requirement in requirements:
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            yield f"{requirement.name} is not installed (expected {requirement.specifier})"
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            yield f"{requirement.name}: expected {requirement.specifier}, got {installed}"


def _project() -> dict[str, Any]:
    """`requires-python` and `dependencies` of pyproject.toml, or, without a checkout, of the installed package.

    An installed package has those of the day on which it was installed, which may be before the last `git pull`.
    """
    file = ROOT / "pyproject.toml"
    if file.is_file():
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        return project
    needed = [text for text in requires("coevo") or [] if "extra ==" not in text]
    return {"requires-python": metadata("coevo")["Requires-Python"], "dependencies": needed}


def _tested_versions() -> dict[str, str]:
    """Package -> version in constraints.txt; empty without a checkout."""
    file = ROOT / "constraints.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pairs = (line.partition("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name.strip()): tested.strip() for name, _, tested in pairs if tested}


def _listed(texts: list[str]) -> str:
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return "; ".join([*texts[:_SHOWN], *more])
