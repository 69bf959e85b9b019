"""Which package may import which: read from the source, so that a forbidden import fails a test at once."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OUR_PACKAGES = {"core", "storage", "services", "trainers", "orchestrator", "benchmarks", "tests"}
INFERENCE = {
    "services.inference.access",
    "services.inference.encoding",
    "services.inference.client",
    "services.inference.engines.base",
    "services.inference.engines.decoder",
    "services.inference.keys",
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


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def allowed(module: str, prefixes: set[str]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


@pytest.mark.parametrize("package", sorted(MAY))
def test_a_package_imports_only_the_packages_that_it_may(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    violations = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files
        for module in imports(path)
        if module.split(".")[0] in OUR_PACKAGES and not allowed(module, MAY[package])
    ]
    assert not violations


def room(module: str) -> str:
    """A folder of a package, such as `orchestrator.cli`, or a file that lies loose in the package."""
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize("package", sorted(MAY))
def test_no_rooms_of_a_package_import_one_another(package: str) -> None:
    arrows = {
        (room(".".join(path.relative_to(ROOT).with_suffix("").parts)), room(module))
        for path in (ROOT / package).rglob("*.py")
        for module in imports(path)
        if module.startswith(f"{package}.")
    }
    assert arrows
    assert not [(a, b) for a, b in arrows if a < b and (b, a) in arrows]


@pytest.mark.parametrize("package", sorted({*MAY} - {"benchmarks"}))
def test_few_files_lie_loose_in_the_root_of_a_package(package: str) -> None:
    loose = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert len(loose) <= 7


def test_core_imports_only_light_libraries() -> None:
    violations = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in (ROOT / "core").rglob("*.py")
        for module in imports(path)
        if module.split(".")[0] not in {*CORE_LIBRARIES, *sys.stdlib_module_names, "core"}
    ]
    assert not violations


@pytest.mark.parametrize("package", sorted(MAY))
def test_every_package_that_is_imported_is_named_in_pyproject(package: str) -> None:
    """Another package may cease to require it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    extras = ("vllm", "dev") if package == "benchmarks" else ("vllm",)  # some measure what only developers install
    requirements = [*project["dependencies"], *(text for extra in extras for text in optional[extra])]
    named = {canonicalize_name(Requirement(text).name) for text in requirements}
    distributions = packages_distributions()
    tops = {module.split(".")[0] for path in (ROOT / package).rglob("*.py") for module in imports(path)}
    assert tops
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
