"""Where a coevo installation keeps its things: one folder, `$COEVO_HOME` or `.coevo` below the current one."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from core.errors import CoevoError

ROOT = Path(__file__).resolve().parents[1]
PRESETS = ROOT / "deploy" / "runs"
APPLICATIONS = ROOT / "deploy" / "serve"
MICRO_MODEL = ROOT / "trainers" / "micro" / "model"


class NotUp(CoevoError):
    """The services are not running."""


@dataclass(frozen=True, slots=True)
class Services:
    """The running services' addresses, and the processes that `coevo up` started: pid -> (name, start time).

    No processes: each service is a container of its own, and somebody else's to start and to end.
    """

    ray_address: str
    dashboard_url: str
    serve_url: str
    prefect_url: str
    ray_token: str  # who has it may run code on this Ray
    processes: dict[int, tuple[str, float]]
    api_url: str = ""  # of the REST API and the dashboard; empty: somebody else's to know

    @classmethod
    def from_environment(cls) -> Services:
        """Services that other containers run. Raises `NotUp` naming a variable that is not set."""
        return cls(
            ray_address=_variable("COEVO_RAY_ADDRESS"),
            dashboard_url=_variable("COEVO_RAY_DASHBOARD_URL").rstrip("/"),
            serve_url=_variable("COEVO_SERVE_URL").rstrip("/"),
            prefect_url=_variable("PREFECT_API_URL").rstrip("/").removesuffix("/api"),
            ray_token=_variable("RAY_AUTH_TOKEN"),
            processes={},
        )

    def endpoint(self, role: str) -> str:
        """The OpenAI-compatible base address of one application."""
        return f"{self.serve_url}/{role}/v1"

    @property
    def ray_headers(self) -> dict[str, str]:
        """What requests to Ray's dashboard must carry."""
        return {"Authorization": f"Bearer {self.ray_token}"}


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise NotUp(
            f"{name}: expected a value, since COEVO_RAY_ADDRESS says that the services are elsewhere; it is not set"
        )
    return value


@dataclass(frozen=True, slots=True)
class Home:
    """The folder's layout."""

    path: Path

    @property
    def database(self) -> str:
        """`$COEVO_DATABASE`, or an SQLite file."""
        return os.environ.get("COEVO_DATABASE") or f"sqlite:///{self.path / 'coevo.db'}"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def texts(self) -> Path:
        return self.path / "texts"

    @property
    def work(self) -> Path:
        return self.path / "work"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def prefect(self) -> Path:
        return self.path / "prefect"

    @property
    def reports(self) -> Path:
        return self.path / "reports"

    @property
    def ray_temp(self) -> Path:
        """Ray's sockets live below it, and a socket's path may have only about 100 characters: not in `path`."""
        name = hashlib.sha256(str(self.path).encode()).hexdigest()[:8]
        return Path(tempfile.gettempdir()) / f"coevo-{name}"

    @property
    def _state(self) -> Path:
        return self.path / "services.json"

    def services(self) -> Services:
        """What the environment names, where `$COEVO_RAY_ADDRESS` is set; what `coevo up` started. Raises `NotUp`."""
        if os.environ.get("COEVO_RAY_ADDRESS"):
            return Services.from_environment()
        try:
            state = json.loads(self._state.read_text())
        except FileNotFoundError as error:
            raise NotUp(f"no services are running for {self.path}: start them with `coevo up`") from error
        state["processes"] = {int(pid): tuple(value) for pid, value in state["processes"].items()}
        return Services(**state)

    def save_services(self, services: Services | None) -> None:
        """Remember what was started; None forgets it."""
        if services is None:
            self._state.unlink(missing_ok=True)
            return
        temporary = self._state.with_suffix(".tmp")
        temporary.touch(mode=0o600)  # it holds a token
        temporary.write_text(json.dumps(asdict(services), indent=1))
        temporary.replace(self._state)


def home() -> Home:
    """`$COEVO_HOME`, or `.coevo` below the current folder. It is made when something is first put in it."""
    return Home(Path(os.environ.get("COEVO_HOME") or ".coevo").resolve())
