"""Which package may import which: read from the source, so that a forbidden import fails a test at once."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from core.settings.trackers import TRACKERS

ROOT = Path(__file__).parents[1]
OUR_PACKAGES = {"core", "storage", "services", "trainers", "orchestrator", "benchmarks", "tests"}
INFERENCE = {
    "services.inference.access",
    "services.inference.encoding",
    "services.inference.client",
    "services.inference.engines.base",
    "services.inference.engines.decoder",
    "services.inference.keys",
    "services.inference.serve",
    "services.inference.signals",
    "services.inference.engines.embedded",
    "services.inference.engines.model_files",
}
# package -> prefixes of our modules that it may import
MAY = {
    "core": {"core"},
    "storage": {"core", "storage"},
    "services": {"core", "storage", "services"},
    "trainers": {"core", "trainers", *INFERENCE},
    "orchestrator": {"core", "storage", "services", "trainers", "orchestrator"},
    "benchmarks": OUR_PACKAGES,
}
# core also runs inside another trainer's environment, so it may import only light libraries
CORE_LIBRARIES = {
    "numpy",
    "scipy",
    "sklearn",
    "nltk",
    "sympy",
    "math_verify",
    "latex2sympy2_extended",
    "pydantic",
    "typing_extensions",
    "psutil",  # only in core/processes/identity.py, which no trainer imports
}


@cache
def imports(package: str) -> list[tuple[str, str]]:
    """Each module of a package with a module that it imports, at its top or anywhere in it."""
    pairs = []
    for path in (ROOT / package).rglob("*.py"):
        importer = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                pairs += [(importer, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                assert node.level == 0, f"{path}: relative import"
                pairs += [(importer, f"{node.module}.{alias.name}") for alias in node.names]
    assert pairs
    return pairs


def allowed(module: str, prefixes: set[str]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


OF_EVERY_PACKAGE = pytest.mark.parametrize("package", sorted(MAY))


@OF_EVERY_PACKAGE
def test_a_package_imports_only_the_packages_that_it_may(package: str) -> None:
    ours = [pair for pair in imports(package) if pair[1].split(".")[0] in OUR_PACKAGES]
    assert [pair for pair in ours if not allowed(pair[1], MAY[package])] == []


@OF_EVERY_PACKAGE
def test_no_rooms_of_a_package_import_one_another(package: str) -> None:
    """A room is a folder of a package, such as `orchestrator.cli`, or a file that lies loose in the package."""
    inside = [pair for pair in imports(package) if pair[1].startswith(f"{package}.")]
    arrows = {tuple(".".join(module.split(".")[:2]) for module in pair) for pair in inside}
    assert arrows
    assert [(a, b) for a, b in arrows if a < b and (b, a) in arrows] == []


@pytest.mark.parametrize("package", sorted({*MAY} - {"benchmarks"}))
def test_few_files_lie_loose_in_the_root_of_a_package(package: str) -> None:
    loose = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert len(loose) <= 7


def test_core_imports_only_light_libraries() -> None:
    light = {*CORE_LIBRARIES, *sys.stdlib_module_names, "core"}
    assert [pair for pair in imports("core") if pair[1].split(".")[0] not in light] == []


@OF_EVERY_PACKAGE
def test_every_package_that_is_imported_is_named_in_pyproject(package: str) -> None:
    """Another package may cease to require it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    developers = ["dev"] if package == "benchmarks" else []  # some measure what only developers install
    extras = ("vllm", *TRACKERS, *developers)
    requirements = [*project["dependencies"], *(text for extra in extras for text in optional[extra])]
    named = {canonicalize_name(Requirement(text).name).removesuffix("-skinny") for text in requirements}
    distributions = packages_distributions()
    tops = {module.split(".")[0] for _, module in imports(package)}
    unnamed = [
        top
        for top in tops - OUR_PACKAGES - sys.stdlib_module_names
        if named.isdisjoint(map(canonicalize_name, [top, *distributions.get(top, [])]))
    ]
    assert not unnamed


def test_the_command_and_the_api_start_without_libraries_that_only_a_run_needs() -> None:
    """Importing torch and ray would take ten seconds and half a gigabyte, in `coevo status` and in each process of the
    API; scipy would take a third of a second and 40 MB."""
    heavy = {"torch", "ray", "scipy", "sklearn", "prefect", "transformers"}
    code = f"import sys, orchestrator.cli, services.api.app; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
