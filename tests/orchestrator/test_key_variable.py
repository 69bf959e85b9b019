"""What a preset may name as the environment variable with a service's key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.settings.config import RunConfig
from core.settings.parsing import ConfigError, load_config, parse_config
from orchestrator.evaluation.request import EvaluationRequest
from services.inference import access

PRESET = Path(__file__).parents[2] / "deploy" / "runs" / "micro.toml"
SERVICE = {"url": "http://127.0.0.1:9/v1", "model": "m"}
REFUSED = [
    "RAY_AUTH_TOKEN",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_API_KEY",
    "PREFECT_API_DATABASE_CONNECTION_URL",
    "PREFECT_SERVER_DATABASE_PASSWORD",
    "COEVO_API_KEY",
    "COEVO_DATABASE",
    "COEVO_WEBHOOK_SECRET",
    "COEVO_SOMETHING_NEW",
    "",
    " ",
    "JUDGE KEY",
    "JUDGE_KEY\n",
    "A=B",
    "ＫＥＹ",
    "1KEY",
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


@pytest.mark.parametrize("setting", ["audit.judge", "solver.signals.embedder"])
@pytest.mark.parametrize("name", [*REFUSED, KEY_ITSELF])
def test_a_secret_of_coevo_and_what_is_no_variable_are_refused(setting: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{setting}\.key_variable"):
        config(setting, name)


@pytest.mark.parametrize("name", [*REFUSED, KEY_ITSELF])
def test_an_evaluation_refuses_them_too(name: str) -> None:
    request = EvaluationRequest(model=SERVICE["url"], benchmarks=("micro",), served_model="m", key_variable=name)
    with pytest.raises(ConfigError, match="key_variable"):
        _ = request.service


def test_a_key_in_the_place_of_its_variable_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError) as error:
        config("audit.judge", KEY_ITSELF)
    assert KEY_ITSELF not in str(error.value)


@pytest.mark.parametrize("name", ["JUDGE_API_KEY", "OPENAI_API_KEY", "judge", "_KEY2", "RAYLEIGH_KEY", access.KEY])
def test_a_variable_of_one_s_own_and_the_key_of_the_applications_may_be_named(name: str) -> None:
    judge = config("audit.judge", name).audit.judge
    assert judge is not None
    assert judge.key_variable == name
