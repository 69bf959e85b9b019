"""The address of a service that is not part of the run."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field, field_validator

from core.validation.bounds import SettingsTable

# Variables of coevo, of Prefect and of Ray: with some, one can run programs or use the API. Of these, only the key of
# the run's own applications may be named.
_PREFIXES_OF_COEVO = ("COEVO_", "PREFECT_", "RAY_")
_KEY_OF_APPLICATIONS = "COEVO_INFERENCE_KEY"


class Service(SettingsTable):
    """An OpenAI-compatible service that is not part of the run.

    `key_variable` is the name of the environment variable that holds its key. It must be set in the process that runs
    the flow: in `coevo run`, or in `coevo up` if the run is started from the Prefect UI.
    """

    url: str = Field(pattern=r"^https?://[^@?#]+$")  # up to and including /v1; it is stored, so it holds no secret
    model: str
    key_variable: str | None = None  # of this service alone: with a secret of coevo's own, it could run programs

    # Seconds for one request, in which a judge writes 4,096 tokens at 14 tokens a second.
    timeout: ClassVar[float] = 300.0
    attempts: ClassVar[int] = 5  # of one request, with growing pauses, since a service may be restarted
    deadline: ClassVar[float] = 600.0  # seconds for all attempts of one request and the pauses between them

    @field_validator("key_variable")
    @classmethod
    def _is_no_secret_of_coevo(cls, name: str | None) -> str | None:
        if name is None or name == _KEY_OF_APPLICATIONS:
            return name
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):  # not quoted, because it may be the key itself
            raise ValueError("expected the name of an environment variable, such as JUDGE_API_KEY, got another text")
        if name.startswith(_PREFIXES_OF_COEVO):
            raise ValueError(f"expected a variable with a key of the service, got {name}, which is for coevo alone")
        return name
