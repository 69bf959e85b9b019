"""Whether the Python and the installed packages are those that coevo was made for."""

from __future__ import annotations

import platform
import tomllib
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from orchestrator.check.machine.result import CheckFailed, Finding, Subject, ok
from orchestrator.installation.home import ROOT

_REINSTALL = "pip install -c constraints.txt -e ."
_SHOWN = 5  # packages in a line


def check_python(_: Subject) -> Finding:
    """Whether this Python is one that pyproject.toml allows."""
    expected, actual = SpecifierSet(_project()["requires-python"]), platform.python_version()
    if actual not in expected:
        raise CheckFailed(f"expected Python {expected}, got {actual}", "make clean, then make PYTHON=python3.11 ready")
    return ok(actual)


def check_packages(_: Subject) -> Finding:
    """Whether every package that coevo needs is installed in a version that pyproject.toml allows.

    A version that is allowed, but is not the one in constraints.txt, with which the tests passed, is a warning.
    """
    file, tested = ROOT / "constraints.txt", dict[str, str]()  # package -> version; empty without a checkout
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        name, _equals, tested_version = line.partition("==")
        if tested_version and not line.startswith("#"):
            tested[canonicalize_name(name.strip())] = tested_version.strip()
    requirements, problems, other = [Requirement(text) for text in _project()["dependencies"]], list[str](), list[str]()
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            problems.append(f"{requirement.name} is not installed (expected {requirement.specifier})")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            problems.append(f"{requirement.name}: expected {requirement.specifier}, got {installed}")
        elif (installed := installed.partition("+")[0]) != tested.get(name, installed):
            other.append(f"{requirement.name} {installed} (tested with {tested[name]})")
    if problems:
        raise CheckFailed(_listed(problems), _REINSTALL)
    if other:
        return Finding("warning", _listed(other), _REINSTALL)
    return ok(f"{len(requirements)} packages that coevo needs, all in {'tested' if tested else 'allowed'} versions")


def _project() -> dict[str, Any]:
    """`requires-python` and `dependencies` of pyproject.toml, or, without a checkout, of the installed package.

    An installed package says what it needed when it was installed, perhaps before the last `git pull`.
    """
    file = ROOT / "pyproject.toml"
    if file.is_file():
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        return project
    needed = [text for text in requires("coevo") or [] if "extra ==" not in text]
    return {"requires-python": metadata("coevo")["Requires-Python"], "dependencies": needed}


def _listed(texts: list[str]) -> str:
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return "; ".join([*texts[:_SHOWN], *more])
