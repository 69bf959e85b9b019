"""What a preset may name as the environment variable with a service's key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.asking.service import Service
from core.settings.config import RunConfig
from core.settings.parsing import ConfigError, load_config, parse_config
from orchestrator.evaluation.request import EvaluationRequest
from services.inference import access

PRESET = Path(__file__).parents[2] / "deploy" / "runs" / "micro.toml"
SERVICE = {"url": "http://127.0.0.1:9/v1", "model": "m"}
REFUSED = [
    *("RAY_AUTH_TOKEN", "PREFECT_API_AUTH_STRING", "PREFECT_API_KEY", "PREFECT_API_DATABASE_CONNECTION_URL"),
    *("PREFECT_SERVER_DATABASE_PASSWORD", "COEVO_API_KEY", "COEVO_DATABASE", "COEVO_WEBHOOK_SECRET"),
    *("COEVO_SOMETHING_NEW", "", " ", "JUDGE KEY", "JUDGE_KEY\n", "A=B", "ＫＥＹ", "1KEY"),
]
KEY_ITSELF = "sk-proj-0123456789abcdefghij"


def config(setting: str, name: str) -> RunConfig:
    """The preset with a service at `setting` whose key is in the variable `name`."""
    content: dict[str, Any] = load_config(PRESET).model_dump(mode="json")
    service = {**SERVICE, "key_variable": name}
    if setting == "audit.judge":
        content["audit"] = {"oracle": "judge", "judge": service}
    else:
        content["solver"]["signals"]["embedder"] = service
    return parse_config(content, "a preset")


def evaluation(_: str, name: str) -> Service | None:
    url = SERVICE["url"]
    return EvaluationRequest(model=url, benchmarks=("micro",), served_model="m", key_variable=name).service


@pytest.mark.parametrize(
    ("read", "setting"), [(config, "audit.judge"), (config, "solver.signals.embedder"), (evaluation, "")]
)
@pytest.mark.parametrize("name", [*REFUSED, KEY_ITSELF])
def test_a_secret_of_coevo_and_what_is_no_variable_are_refused_and_a_key_is_not_repeated(
    read: Callable[[str, str], object], setting: str, name: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{setting}.*key_variable") as error:
        read(setting, name)
    assert KEY_ITSELF not in str(error.value)


@pytest.mark.parametrize("name", ["JUDGE_API_KEY", "OPENAI_API_KEY", "judge", "_KEY2", "RAYLEIGH_KEY", access.KEY])
def test_a_variable_of_one_s_own_and_the_key_of_the_applications_may_be_named(name: str) -> None:
    judge = config("audit.judge", name).audit.judge
    assert judge is not None
    assert judge.key_variable == name
