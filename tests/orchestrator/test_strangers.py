"""Another user of the machine listens where a service of coevo shall listen, or has listened, and gets no secret."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.installation import cluster
from orchestrator.installation.environment import environment
from orchestrator.installation.home import Home, Services
from orchestrator.installation.ports import Ports, StartError, free_port
from tests.attackers.stranger import attacking
from tests.live import terminated, wait_until
from tests.services.prefect_server import AUTH, prefect_server

pytestmark = pytest.mark.heavy

HELLO = "with get_client(sync_client=True) as client: client.hello()"
IMPORTS = "from prefect.client.orchestration import get_client"


@pytest.fixture(autouse=True)
def services_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COEVO_RAY_ADDRESS", "COEVO_DATABASE", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)


def test_a_stranger_who_takes_the_port_of_a_starting_service_gets_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port is in the arguments of the service before the service listens."""
    home, log, port = Home(tmp_path / "home"), tmp_path / "stranger.log", free_port()
    spawn = cluster._spawn

    def slowly(*arguments: Any) -> subprocess.Popen[bytes]:
        """Hold the service until the stranger listens: on a busy machine the stranger would come second."""
        process = spawn(*arguments)
        process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: "listening" in log.read_text(), "the stranger")
        finally:
            process.send_signal(signal.SIGCONT)
        return process

    monkeypatch.setattr(cluster, "_spawn", slowly)
    with attacking(log), pytest.raises(StartError):
        cluster.up(home, Ports(0, 0, port, 0), lambda _line: None, only={"prefect"})
    assert f"listening at {port}" in log.read_text()
    assert "Authorization" not in log.read_text()
    assert cluster.running(home) == []


def test_a_stranger_at_the_port_of_a_service_that_ended_gets_no_password(tmp_path: Path) -> None:
    """The flow runner asks Prefect every few seconds, by itself and by Prefect's own client."""
    home, stranger, log, port = Home(tmp_path), tmp_path / "stranger.log", tmp_path / "runner.log", free_port()
    (tmp_path / "prefect").mkdir()
    services = Services("a:1", "", "", f"http://127.0.0.1:{port}", "", {}, prefect_auth=AUTH)
    home.save_services(services)
    variables = {**environment(home, services), "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    program = "from orchestrator.runner import process as runner; runner._CHECK_S = 0.3; runner.main()"
    with prefect_server(tmp_path / "prefect", port):
        with log.open("w") as output:
            runner = subprocess.Popen([sys.executable, "-c", program], env=variables, stdout=output, stderr=output)
        wait_until(lambda: "are being served" in log.read_text() or runner.poll() is not None, f"flows in {log}")
        assert runner.poll() is None, log.read_text()
    with terminated(runner), attacking(stranger, port):
        wait_until(lambda: "listening" in stranger.read_text(), "the stranger")
        # Each of Prefect's own loops has tried in vain once it has logged that it cannot connect.
        wait_until(lambda: log.read_text().count("expected a process of user") > 1, f"failed requests in {log}")
        assert "GET" not in stranger.read_text()
        assert "POST" not in stranger.read_text()


CLIENTS: dict[str, str] = {
    "Prefect's client": f"{IMPORTS}\n{HELLO}",
    "Prefect's events": "import asyncio; from prefect.events.clients import PrefectEventsClient\n"
    "asyncio.run(PrefectEventsClient(reconnection_attempts=0).__aenter__())",
    "Prefect's logs": "import asyncio; from prefect.logging.clients import PrefectLogsSubscriber\n"
    "asyncio.run(PrefectLogsSubscriber(reconnection_attempts=0).__aenter__())",
    "the API's client": "from orchestrator.cli.addresses import client; client(url, 'key').get('/runs/r')",
    "the applications' client": "import asyncio; from services.inference.client import InferenceClient\n"
    "InferenceClient(url, 'solver', patience_s=0.1, deadline_s=0.1).generate([], 'a')",
    "a judge's client": "import asyncio; from services.inference.external import ask_each, post\n"
    "from core.asking.service import Service\n"
    "service = Service(url=url, model='m', key_variable='RAY_AUTH_TOKEN')\n"
    "service = service.model_copy(update={'attempts': 1, 'timeout': 1})\n"
    "asyncio.run(ask_each(service, [1], lambda http, _: post(http, service, 'x', {}), 1))",
    "Ray's dashboard": "from orchestrator.installation.reachable import has_node; assert has_node(services)",
    "Ray's applications": "from orchestrator.serving import checkpoints; from services.inference import serve\n"
    "serve._RETRY_S = 0.1; checkpoints.reserved(services)",
    "the hub": "import os; os.environ |= {'HF_ENDPOINT': url, 'HF_TOKEN': 'token'}\n"
    "from orchestrator.question_sets import hub; from core.settings.evaluation import Hub; from pathlib import Path\n"
    "hub._ATTEMPTS = 1; hub.fetch(Hub(dataset='a/b', config='c', split='s'), Path(folder) / 'file')",
    "a flow run": "import os; os.environ['PREFECT__FLOW_RUN_ID'] = '0' * 8 + '-0000-0000-0000-' + '0' * 12\n"
    "from orchestrator.runner import flow_run_process; flow_run_process.main()",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_no_client_sends_a_secret_to_a_stranger(client: str, tmp_path: Path) -> None:
    log, port = tmp_path / "stranger.log", free_port()
    url = f"http://127.0.0.1:{port}"
    home = Home(tmp_path)
    services = Services(f"127.0.0.1:{port}", url, url, url, "t" * 64, {}, url, AUTH)
    home.save_services(services)
    given = f"url, folder = {url!r}, {str(tmp_path)!r}\nfrom orchestrator.installation.home import home\n"
    of_home = "services = home().services()\n"
    program = given + (of_home if "Prefect" in client or "Ray" in client else "") + CLIENTS[client]
    variables = {**environment(home, services), "PREFECT_CLIENT_MAX_RETRIES": "0"}
    with attacking(log, port):
        wait_until(lambda: "listening" in log.read_text(), "the stranger")
        ended = subprocess.run(
            [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False, timeout=300
        )
    assert "Error" in ended.stderr or "expected a process of user" in ended.stderr
    assert log.read_text() == f"listening at {port}\n", ended.stderr[-2000:]
