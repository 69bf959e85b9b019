"""Which reasons that keep a run from starting the REST API's process checks; test_runs.py tests all the others."""

from __future__ import annotations

import os

import pytest

from core.processes import identity as processes
from core.settings.config import RunConfig
from core.settings.parsing import load_config
from orchestrator.check.refusals import UnreadyError, refuse_as_the_api_can, refuse_unready
from orchestrator.installation.home import PRESETS, Home, Services


def _config(**overrides: object) -> RunConfig:
    return load_config(PRESETS / "demo.toml", overrides)


def test_an_api_on_the_runner_s_machine_checks_files_too(home: Home) -> None:
    """The same `coevo up` started both, so the API finds its own process in services.json."""
    me = os.getpid()
    home.save_services(Services("", "", "", "", "", {me: ("api", processes.started(me))}))
    refuse_as_the_api_can(_config(), new=True)
    with pytest.raises(UnreadyError, match=r"evaluation\.benchmark: "):
        refuse_as_the_api_can(_config(**{"evaluation.benchmark": "none.jsonl"}), new=True)


def test_a_benchmark_of_a_suite_that_cannot_be_had_is_named_before_a_run_starts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The presets name benchmarks whose questions coevo does not ship."""
    evaluation = load_config(PRESETS / "rzero.toml").evaluation
    folder = home.path / "benchmarks"
    folder.mkdir()
    (folder / "math500.jsonl").write_text('{"problem": "1 + 1?", "answer": 2}')
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    config = _config(**{"evaluation.benchmark": evaluation.benchmark, "evaluation.suite": evaluation.suite})
    with pytest.raises(UnreadyError, match=rf"evaluation\.suite: benchmark amc23.* {folder}/amc23"):
        refuse_unready(config, new=True)


@pytest.mark.parametrize("up", [True, False])
def test_an_api_on_another_machine_checks_settings_only(home: Home, up: bool) -> None:
    if up:  # another process started the services, not the one that started this API
        home.save_services(Services("", "", "", "", "", {2**22 + 1: ("api", 1.0)}))
    refuse_as_the_api_can(_config(**{"evaluation.benchmark": "none.jsonl", "base_model": "none"}), new=True)
    with pytest.raises(UnreadyError, match=r"EasyR1 divides .* evenly"):
        refuse_as_the_api_can(_config(**{"trainer.type": "easyr1", "trainer.gpus_per_node": 7}), new=True)
