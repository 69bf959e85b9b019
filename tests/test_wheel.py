"""The wheel that `pip wheel .` makes works without the checkout, in an environment of its own and an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.live import SMALL

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "storage", "services", "trainers", "orchestrator", "deploy")
# Files that are not Python and that coevo reads while it runs.
DATA = (
    "deploy/prefect.yaml",
    "deploy/benchmarks/*.toml",
    "deploy/experiments/*.toml",
    "deploy/suites/*.toml",
    "deploy/runs/*.toml",
    "deploy/runs/papers.tsv",
    "deploy/serve/*.yaml",
    "services/dashboard/*.html",
    "services/dashboard/static/**/*.*",
    "services/dashboard/vendor/**/*.*",
    "trainers/micro/benchmark.jsonl",
    "trainers/micro/model/*",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources because setuptools writes its build beside them."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for package in (*PACKAGES, "benchmarks"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={out}", str(source)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    [built] = out.glob("coevo-*.whl")
    return built


@pytest.fixture(scope="module")
def coevo(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, in an environment that has the wheel and this environment's libraries, but not the checkout."""
    environment = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    libraries = environment / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", f"--python={environment / 'bin' / 'python'}", *install], check=True)
    # Where pip installs these libraries too, it writes their commands beside `coevo`.
    for command in ("ray", "prefect"):
        script = (Path(sys.executable).parent / command).read_text().splitlines(keepends=True)
        (environment / "bin" / command).write_text("".join([f"#!{environment / 'bin' / 'python'}\n", *script[1:]]))
        (environment / "bin" / command).chmod(0o755)
    return environment / "bin" / "coevo"


def run(coevo: Path, folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COEVO_", "PYTHONPATH"))}
    done = subprocess.run([coevo, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_every_file_that_coevo_reads_and_no_tests_or_benchmarks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        packed = set(opened.namelist())
    needed = {str(path.relative_to(ROOT)) for pattern in DATA for path in ROOT.glob(pattern) if path.is_file()}
    assert len(needed) > 80
    assert not needed - packed
    assert not {name for name in packed if name.startswith(("tests/", "benchmarks/"))}


def test_the_installed_command_works_in_an_empty_folder(coevo: Path, tmp_path: Path) -> None:
    assert "run demo can start" in run(coevo, tmp_path, "check", "demo")
    assert "rzero" in run(coevo, tmp_path, "rewards", "--list")
    assert "up to date" in run(coevo, tmp_path, "migrate")


@pytest.mark.slow
def test_the_installed_command_completes_a_run_from_an_empty_folder(coevo: Path, tmp_path: Path) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    try:
        assert "Dashboard" in run(coevo, tmp_path, "up", "--free-ports")
        assert "run demo: done" in run(coevo, tmp_path, "run", "demo", "--iterations", "1", *settings)
    finally:
        assert "stopped: " in run(coevo, tmp_path, "down")
    assert (tmp_path / ".coevo" / "coevo.db").is_file()
