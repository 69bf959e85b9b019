"""The Dockerfiles pin their bases, do not run as root and have no secrets; hadolint checks them where it is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from orchestrator.installation.environment import environment
from orchestrator.installation.home import ROOT, Home, Services

FOLDER = ROOT / "deploy" / "docker"
SERVICE, EASYR1 = FOLDER / "service.Dockerfile", FOLDER / "easyr1.Dockerfile"
each_file = pytest.mark.parametrize("file", [SERVICE, EASYR1], ids=lambda file: file.stem)


def instructions(file: Path) -> list[tuple[str, str]]:
    """Every instruction and its arguments, with continued lines joined and without comments."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def arguments(file: Path, name: str) -> list[str]:
    return [rest for instruction, rest in instructions(file) if instruction == name]


@each_file
def test_an_image_has_pinned_bases_no_secret_and_a_last_user_that_is_not_root(file: Path) -> None:
    assert arguments(file, "USER")[-1] == "1000:1000"
    variables = [*arguments(file, "ENV"), *arguments(file, "ARG")]
    assert not re.search(r"\b\w*(PASSWORD|SECRET|AUTH_TOKEN|API_KEY)\w*=", " ".join(variables))
    defaults = dict(argument.split("=", 1) for argument in arguments(file, "ARG") if "=" in argument)
    for base in arguments(file, "FROM"):
        image = re.sub(r"\$\{(\w+)\}", lambda match: defaults[match[1]], base.split()[0])
        assert re.search(r":v?\d+\.\d+\.\d+", image), image


def test_the_image_has_a_health_check_and_the_environment_of_coevo_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(arguments(SERVICE, "HEALTHCHECK")) == 1
    (joined,) = arguments(SERVICE, "ENV")[1:]
    image = dict(pair.split("=", 1) for pair in joined.split())
    monkeypatch.setattr("os.environ", {})
    services = Services("address:1", "http://dashboard:1", "http://serve:1", "http://prefect:1", "token", {})
    monkeypatch.setenv("COEVO_RAY_ADDRESS", "address:1")
    expected = environment(Home(tmp_path), services)
    elsewhere = {"COEVO_HOME", "PREFECT_HOME", "PREFECT_API_URL", "PREFECT_UI_API_URL", "RAY_AUTH_TOKEN"}
    elsewhere |= {"COEVO_RAY_ADDRESS"}
    for name in expected.keys() - elsewhere:
        assert image.get(name) == expected[name], name


REQUIREMENTS = {variant: FOLDER / f"requirements-{variant}.txt" for variant in ("cpu", "gpu")}
_NOT_OF_GPUS = {"grpcio-reflection", "numpy", "protobuf"}  # deploy/docker/lock.sh


def pinned(file: Path) -> dict[str, Version]:
    """Each package of a requirements file, and its version."""
    lines = re.findall(r"^([\w.-]+)==([^\s;\\]+)", file.read_text(), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in lines}


@pytest.mark.parametrize("variant", REQUIREMENTS)
def test_the_locked_versions_match_pyproject_and_constraints(variant: str) -> None:
    """Where this fails, run deploy/docker/lock.sh."""
    locked, constraints = pinned(REQUIREMENTS[variant]), pinned(ROOT / "constraints.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = project["dependencies"] + (project["optional-dependencies"]["vllm"] if variant == "gpu" else [])
    for requirement in map(Requirement, dependencies):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement
    free = _NOT_OF_GPUS if variant == "gpu" else set()
    for name in locked.keys() & constraints.keys() - free:
        assert locked[name].public == constraints[name].public, name


@pytest.mark.parametrize("variant", REQUIREMENTS)
def test_every_installed_package_has_a_hash(variant: str) -> None:
    text = REQUIREMENTS[variant].read_text()
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pinned(REQUIREMENTS[variant])) > 100
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"://|find-links", text)
    (install,) = [run for run in arguments(SERVICE, "RUN") if "requirements-" in run]
    assert {"--require-hashes", "--only-binary"} <= set(install.split())


def test_easyr1_s_environment_is_linked_to_a_python_by_its_full_name(tmp_path: Path) -> None:
    """In the final stage `python` is the service's, so an environment linked to that name would get another Python."""
    (program,) = re.findall(r"(\S+) -m venv /opt/easyr1-env", EASYR1.read_text())
    assert f"COPY --from=build /usr/local/bin/{program} /usr/local/bin/" in EASYR1.read_text()
    # venv names the environment's program like the one that it is called by.
    python = tmp_path / program
    python.symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    assert (tmp_path / "env" / "bin" / program).exists()


def test_easyr1_is_the_documented_commit_in_the_folder_that_the_presets_name() -> None:
    text = EASYR1.read_text()
    documented = re.search(r"commit `(\w+)`", (ROOT / "docs" / "gpu.md").read_text())
    assert documented is not None
    assert re.search(rf"/EasyR1 {documented[1]}[0-9a-f]{{33}}\b", text)
    copied = set(re.findall(r"^COPY --from=build (/opt/[\w-]+) \1$", text, re.MULTILINE))
    presets = "".join(file.read_text() for file in (ROOT / "deploy" / "runs").glob("*.toml"))
    folders = re.findall(r'^(?:source|python) = "(/opt/[\w-]+)', presets, re.MULTILINE)
    assert set(folders) <= copied == {"/opt/EasyR1", "/opt/easyr1-env"}
    assert "deploy/docker/easyr1.Dockerfile" in (ROOT / "docs" / "gpu.md").read_text()


def test_easyr1_s_image_installs_the_packages_that_the_reward_imports() -> None:
    documented = re.search(r"^pip install (.+?)\s+#", (ROOT / "docs" / "gpu.md").read_text(), re.MULTILINE)
    assert documented is not None
    installed = " ".join(arguments(EASYR1, "RUN")).replace('"', " ")
    for package in documented[1].split():
        assert re.search(rf"\s{re.escape(package)}[\s><=,]", installed), package


def test_the_build_context_has_no_secrets_and_no_state() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    admitted = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in admitted)
    assert not admitted & {".git", ".env", ".coevo", "shared", "tests"}
    assert "**/.env*" in lines


@each_file
def test_hadolint_has_no_complaint(file: Path) -> None:
    program = shutil.which("hadolint")
    if program is None:
        pytest.skip("no hadolint on this machine")
    done = subprocess.run([program, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
