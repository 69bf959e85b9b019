"""A copy of the working tree, whose docker-compose.yml is brought up with the commands of docs/deploying.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from orchestrator.installation.home import ROOT
from tests.live import wait_until

_DOCUMENT = ROOT / "docs" / "deploying.md"


@dataclass(frozen=True)
class Composed:
    """The containers and volumes of a Compose project that only these tests use."""

    folder: Path

    @classmethod
    def copy_into(cls, folder: Path) -> Composed:
        """Copy every file that git tracks or would track into the folder."""
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        return cls(folder)

    def run_documented(self, heading: str, index: int = 0) -> str:
        """Run the commands of a block in a section of docs/deploying.md, unchanged; returns what they print."""
        _, _, section = _DOCUMENT.read_text().partition(f"\n{heading}\n")
        assert section, f"docs/deploying.md: expected the heading {heading!r}"
        blocks = re.findall(r"^```\n(.*?)^```$", re.split(r"^## ", section, flags=re.MULTILINE)[0], re.M | re.S)
        print(f"\n--- docs/deploying.md, {heading}\n{blocks[index]}---", flush=True)
        return self.shell(blocks[index])

    def shell(self, commands: str, patience_s: float = 1800) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr[-8000:]}"
        return done.stdout

    def compose(self, *arguments: str) -> str:
        return self.shell(" ".join(["docker", "compose", *arguments]))

    @property
    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "COMPOSE_FILE": os.environ["COEVO_CONTAINERS_COMPOSE_FILE"],
            "COMPOSE_PROJECT_NAME": "coevo-containers-test",
        }

    @property
    def secrets(self) -> dict[str, str]:
        lines = (self.folder / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if line)

    def containers(self) -> dict[str, dict[str, Any]]:
        """The output of `docker inspect` for every container, by the container's service."""
        ids = self.compose("ps", "--all", "--quiet").split()
        inspected = json.loads(self.shell(f"docker inspect {' '.join(ids)}"))
        return {container["Config"]["Labels"]["com.docker.compose.service"]: container for container in inspected}

    def restart(self, service: str) -> None:
        """Restart a service, and wait until all are healthy again: a lost Ray node takes others down a bit later."""
        before = self.containers()[service]["State"]["StartedAt"]
        self.compose("restart", service)
        wait_until(lambda: self.containers()[service]["State"]["StartedAt"] != before, f"{service} to start again")
        wait_until(self.healthy, f"all to be healthy after {service} was restarted", 600)

    def healthy(self) -> bool:
        states = [container["State"] for name, container in self.containers().items() if name != "migrate"]
        return all(state["Status"] == "running" and state["Health"]["Status"] == "healthy" for state in states)

    def prefect(self) -> httpx.Client:
        password = ("coevo", self.secrets["PREFECT_PASSWORD"])
        return httpx.Client(base_url="http://127.0.0.1:4200/api", auth=password, trust_env=False, timeout=60)

    def add_key(self, name: str, *scopes: str) -> str:
        options = " ".join(f"--scope {scope}" for scope in scopes)
        return self.compose("exec", "-T", "api", "coevo", "store", "keys", "add", name, options).strip()

    def reaches(self, service: str, host: str, port: int) -> bool:
        """Whether a process in this service's container can open a connection."""
        code = f"import socket; socket.create_connection(('{host}', {port}), 5)"
        try:
            self.compose("exec", "-T", service, "python", "-c", f'"{code}"')
        except AssertionError:
            return False
        return True

    def contents(self) -> dict[str, str]:
        """The data that must not be lost: every table's number of rows, and the hash of every checkpoint and text."""
        psql = "docker compose exec -T postgres psql --username=postgres --dbname=coevo --tuples-only --no-align"
        tables = self.shell(f"{psql} --command=\"SELECT relname FROM pg_stat_user_tables WHERE schemaname = 'public'\"")
        counts = {table: self.shell(f'{psql} --command="SELECT count(*) FROM {table}"') for table in tables.split()}
        checksums = self.compose(
            "exec",
            "-T",
            "api",
            "sh",
            "-c",
            "'cd /var/lib/coevo && find checkpoints texts -type f | sort | xargs sha256sum'",
        )
        assert checksums
        return {**counts, **{line.split()[1]: line.split()[0] for line in checksums.splitlines()}}
