from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from local_application import TOKEN
from local_tiny import answering_model, one_thread, save_tiny
from two_ranks import Pair, two_ranks

from core.grading.grader import Grader
from services.inference import access
from tests.fake_serve import FakeServe, fake_serve


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two ranks, started once for all tests that need them."""
    with two_ranks(tmp_path_factory.mktemp("gloo") / "rendezvous") as run_on_both:
        yield run_on_both


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that a job can start from and improve."""
    with one_thread():
        return save_tiny(tmp_path_factory.mktemp("model"), answering_model())


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as opened:
        yield opened


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    """Ray with two GPUs that are made up."""
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def own_ray() -> Iterator[None]:
    """Ray for the tests of a module, which sees a dead worker soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.3")
        patch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # saves the start of a process
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield
        ray.shutdown()


@pytest.fixture
def serve(start: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServe]:
    monkeypatch.setenv(access.RAY_TOKEN, TOKEN)
    with fake_serve(start) as fake:
        yield fake
