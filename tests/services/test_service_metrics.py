"""Whether Prefect and the flow runner are up, and the disk of the home, as Prometheus reads them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from local_api import local_api
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.installation.home import Home, Services
from orchestrator.installation.reachable import ray_check
from services.prefect.server import PrefectServer
from storage.session import Store
from tests.http_server import Handler, listening
from tests.services.prefect_server import post, prefect_at


class _Ray(Handler):
    def do_GET(self) -> None:
        is_asked = (self.path, self.headers["Authorization"]) == ("/api/version", "Bearer token")
        self.answer(200 if is_asked else 401, {})


def scraped(
    store: Store, folder: Path, prefect: PrefectServer | None, ray: Callable[[], bool] | None = None
) -> dict[str, float]:
    """Metric or service -> its value."""
    text = local_api(store, folder, prefect=prefect, ray_answers=ray).get("/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.labels.get("service", sample.name): sample.value for sample in samples}


def test_a_runner_is_up_once_it_has_asked_prefect_for_work(sqlite: Store, tmp_path: Path, prefect_url: str) -> None:
    server = prefect_at(prefect_url)
    before = scraped(sqlite, tmp_path, server)
    assert (before["prefect"], before["runner"]) == (1, 0)
    deployment = server.request("GET", "/deployments/name/co-evolve/co-evolve").json()["id"]
    post(prefect_url, "/deployments/get_scheduled_flow_runs", deployment_ids=[deployment])  # as a runner asks
    assert scraped(sqlite, tmp_path, server)["runner"] == 1


def test_without_an_answer_of_prefect_nothing_is_known_of_the_runner(sqlite: Store, tmp_path: Path) -> None:
    silent = scraped(sqlite, tmp_path, PrefectServer("http://127.0.0.1:9"))
    assert silent["prefect"] == 0
    assert "runner" not in silent
    assert "prefect" not in scraped(sqlite, tmp_path, None)


def test_ray_is_up_if_it_answers_and_absent_if_the_api_does_not_know_it(sqlite: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert ray_check(home) is None
    assert "ray" not in scraped(sqlite, tmp_path, None)
    with listening(_Ray) as url:
        home.save_services(Services("a:1", url, "http://a:3", "http://a:4", "token", {}))
        assert scraped(sqlite, tmp_path, None, ray_check(home))["ray"] == 1
    assert scraped(sqlite, tmp_path, None, ray_check(home))["ray"] == 0


def test_the_disk_is_that_of_the_folder_even_before_it_is_made(sqlite: Store, tmp_path: Path) -> None:
    metrics = scraped(sqlite, tmp_path / "exports" / "later", None)
    assert metrics["coevo_home_size_bytes"] == shutil.disk_usage(tmp_path).total
    assert 0 < metrics["coevo_home_free_bytes"] < metrics["coevo_home_size_bytes"]
