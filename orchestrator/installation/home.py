"""The home of a coevo installation: the folder with all its files, `$COEVO_HOME` or `.coevo` in the current folder."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import URL

from core.errors import CoevoError
from core.files import replacing
from core.types import Checkpoint
from services.listeners import guard
from services.prefect.server import PrefectServer
from trainers.micro.bases import BASES, DEFAULT

ROOT = Path(__file__).resolve().parents[2]
PRESETS = ROOT / "deploy" / "runs"
PAPERS = PRESETS / "papers.tsv"  # what the papers state, setting by setting
APPLICATIONS = ROOT / "deploy" / "serve"
BENCHMARKS = ROOT / "deploy" / "benchmarks"
SUITES = ROOT / "deploy" / "suites"
EXPERIMENTS = ROOT / "deploy" / "experiments"
MICRO_MODEL = BASES[DEFAULT].model


class NotUp(CoevoError):
    """The services are not running."""


class NotPrivate(CoevoError):
    """A folder that must be private belongs to another user, or others may enter it."""


@dataclass(frozen=True, slots=True)
class Services:
    """The addresses of the running services, and the processes that `coevo up` started: pid -> (name, start time).

    Without processes, the services run in containers, which are started and stopped elsewhere.
    """

    ray_address: str  # empty while Ray starts
    dashboard_url: str
    serve_url: str
    prefect_url: str
    ray_token: str  # with it, anybody can run code on this Ray
    processes: dict[int, tuple[str, float]]
    api_url: str = ""  # of the REST API and the dashboard; empty if it is not known, as with containers
    prefect_auth: str = ""  # USER:PASSWORD, with which anybody can run code on the runner; empty: Prefect needs none

    def __post_init__(self) -> None:
        """From now on this process sends the secrets of these services to no other user's process."""
        guard(self.ray_address, self.dashboard_url, self.serve_url, self.prefect_url, self.api_url)

    @classmethod
    def from_environment(cls) -> Services:
        """The services that the environment variables name. Raises `NotUp` naming a variable that is not set."""
        return cls(
            ray_address=_variable("COEVO_RAY_ADDRESS"),
            dashboard_url=_variable("COEVO_RAY_DASHBOARD_URL").rstrip("/"),
            serve_url=_variable("COEVO_SERVE_URL").rstrip("/"),
            prefect_url=_variable("PREFECT_API_URL").rstrip("/").removesuffix("/api"),
            ray_token=_variable("RAY_AUTH_TOKEN"),
            processes={},
            prefect_auth=os.environ.get("PREFECT_API_AUTH_STRING", ""),
        )

    def endpoint(self, role: str) -> str:
        """The OpenAI-compatible base address of one application."""
        return f"{self.serve_url}/{role}/v1"

    @property
    def pages_url(self) -> str:
        """The address of the dashboard for a browser: `$COEVO_DASHBOARD_URL`, or that of the API that `coevo up`
        started. Empty if neither is known."""
        return (os.environ.get("COEVO_DASHBOARD_URL") or self.api_url).rstrip("/")

    @property
    def prefect(self) -> PrefectServer:
        """A client of the Prefect server."""
        return PrefectServer(self.prefect_url, self.prefect_auth or None, os.environ.get("PREFECT_UI_URL"))

    @property
    def ray_headers(self) -> dict[str, str]:
        """The headers that requests to Ray's dashboard need."""
        return {"Authorization": f"Bearer {self.ray_token}"}


def make_private(folder: Path) -> None:
    """Make a folder that no other user of the machine can enter, so that the modes of the files in it do not matter.

    Raises `NotPrivate` if the path exists and is open to others, belongs to another user, or is a link or a file. It is
    not changed then, because others may be meant to enter it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        refuse_open(folder)


def refuse_open(path: Path) -> None:
    """Raise `NotPrivate` if the path is open to others, belongs to another user, or is a link or a file."""
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        owner = f"{stat.filemode(status.st_mode)} of user {status.st_uid}"
        raise NotPrivate(f"{path}: expected a folder of user {os.getuid()}, got {owner}") from None
    if mode & 0o077:
        expected = "expected a folder that only its owner may enter"
        raise NotPrivate(f"{path}: {expected}, got mode {mode:o}: chmod 700 {path}") from None


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise NotUp(
            f"{name}: expected a value, since COEVO_RAY_ADDRESS says that the services run elsewhere; it is not set"
        )
    return value


@dataclass(frozen=True, slots=True)
class Home:
    """The folder's layout."""

    path: Path

    @property
    def database(self) -> str:
        """`$COEVO_DATABASE`, or the address of an SQLite file."""
        return os.environ.get("COEVO_DATABASE") or _sqlite("sqlite", self.path / "coevo.db")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def optimisers(self) -> Path:
        return self.path / "optimisers"

    def moments(self, solver: Checkpoint) -> Path:
        """The optimiser's moments after the training of a Solver, which a later round may start from."""
        return self.optimisers / solver.run / "solver" / str(solver.iteration)

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
    def run_logs(self) -> Path:
        return self.logs / "runs"

    @property
    def prefect(self) -> Path:
        return self.path / "prefect"

    @property
    def prefect_database(self) -> str:
        """The address of the file in which Prefect keeps its database, unless it is told of another one."""
        return _sqlite("sqlite+aiosqlite", self.prefect / "prefect.db")

    @property
    def reports(self) -> Path:
        return self.path / "reports"

    @property
    def exports(self) -> Path:
        return self.path / "exports"

    @property
    def trackers(self) -> Path:
        return self.path / "trackers"

    @property
    def ray_temp(self) -> Path:
        """The folder of Ray's sockets. It is not in `path`, because a socket's path may have only about 100 characters.

        Ray lets everybody write to it, so its parent must be private (`make_private`).
        """
        return Path(tempfile.gettempdir()) / self._short_name

    @property
    def memory(self) -> Path:
        """The folder in the machine's memory in which a training gives its weights to an application. As everybody can
        write to /dev/shm, it and its parent must be private (`make_private`)."""
        return Path("/dev/shm") / self._short_name  # noqa: S108 (private, as above)

    @property
    def _short_name(self) -> Path:
        return Path(f"coevo-{os.getuid()}", hashlib.sha256(str(self.path).encode()).hexdigest()[:8])

    @property
    def ray_address_file(self) -> Path:
        """The file in which Ray writes its address when it has started."""
        return self.ray_temp / "ray_current_cluster"

    def secret(self, name: str) -> str:
        """A random secret, which is generated at the first call. It survives `coevo down`, so that a browser or a
        script can go on using it. Raises `OSError` if the home cannot be written."""
        file = self.path / "secrets" / name
        if not file.exists():
            make_private(file.parent)
            temporary = file.with_name(f"{name}.{secrets.token_hex(4)}")
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_hex(32))
            with suppress(FileExistsError):  # a link, unlike a rename, does not replace the file of another process
                os.link(temporary, file)
            temporary.unlink()
        return file.read_text()

    def secrets(self) -> list[str]:
        """The secrets that exist so far, for those who must not print them."""
        files = (self.path / "secrets").glob("*")
        kept = [file.read_text() for file in files if not file.suffix]  # others are being made: `secret`
        try:
            services = self.services()
        except NotUp:
            return kept
        return [*kept, *filter(None, (services.ray_token, services.prefect_auth.partition(":")[2]))]

    @property
    def api_key(self) -> str:
        """The home's own key of the REST API, for everybody who can read this home. Raises what `secret` raises."""
        return self.secret("api")

    @property
    def _state(self) -> Path:
        return self.path / "services.json"

    def services(self) -> Services:
        """The services in the environment if `$COEVO_RAY_ADDRESS` is set, else those that `coevo up` started.

        Raises `NotUp` if there are none.
        """
        if os.environ.get("COEVO_RAY_ADDRESS"):
            return Services.from_environment()
        try:
            state = json.loads(self._state.read_text())
        except FileNotFoundError as error:
            raise NotUp(f"no services are running for {self.path}: start them with `coevo up`") from error
        if not state["ray_address"]:  # Ray chooses it, and is starting
            with suppress(FileNotFoundError):
                state["ray_address"] = self.ray_address_file.read_text()
        state["processes"] = {int(pid): tuple(value) for pid, value in state["processes"].items()}
        return Services(**state)

    def save_services(self, services: Services | None) -> None:
        """Record the running services; None deletes the record."""
        if services is None:
            self._state.unlink(missing_ok=True)
            return
        _write(self._state, asdict(services))  # it contains a token

    @property
    def _last_ports(self) -> Path:
        return self.path / "ports.json"

    def last_ports(self) -> dict[str, int]:
        """Service -> its port after the last `coevo up` here, also while nothing runs; empty before the first one."""
        try:
            ports: dict[str, int] = json.loads(self._last_ports.read_text())
        except FileNotFoundError:
            return {}
        return ports

    def save_last_ports(self, ports: Mapping[str, int]) -> None:
        """Record the ports for the next `coevo up`."""
        _write(self._last_ports, ports)


def _sqlite(driver: str, file: Path) -> str:
    """A path may have characters that mean something else in a URL, such as ? and %."""
    return URL.create(driver, database=str(file)).render_as_string()


def _write(file: Path, value: Mapping[str, object]) -> None:
    """Write JSON that only the owner can read."""
    with replacing(file) as temporary:
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(value, indent=1))


def home() -> Home:
    """The home in `$COEVO_HOME`, or in `.coevo` in the current folder. It is created when something is stored."""
    return Home(Path(os.environ.get("COEVO_HOME") or ".coevo").resolve())
