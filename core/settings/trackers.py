"""Where a run's figures are shown besides coevo's own pages: a preset's `[trackers]` (docs/dashboard.md)."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from core.validation.bounds import SettingsTable

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
TRACKERS: tuple[TrackerName, ...] = get_args(TrackerName)
_Url = Annotated[str, Field(pattern=r"^https?://[^@?#]+$")]  # it is stored, so it holds no secret


class Trackers(SettingsTable):
    """The trackers that get each series, training metric and evaluation of a run, as it is made.

    TensorBoard and Trackio write files in the run's folder of `Home.trackers`, and so does W&B without `wandb_url`. A
    secret comes from the environment, `WANDB_API_KEY` or `MLFLOW_TRACKING_TOKEN` for example, and is sent only to the
    address here.
    """

    to: tuple[TrackerName, ...] = ()
    project: str = Field("coevo", min_length=1, max_length=100)  # of W&B and Trackio; MLflow's experiment
    mlflow_url: _Url | None = None
    wandb_url: _Url | None = None  # such as https://api.wandb.ai; None: files for `wandb sync`

    @model_validator(mode="after")
    def _mlflow_has_a_server(self) -> Trackers:
        if "mlflow" in self.to and self.mlflow_url is None:
            raise ValueError("mlflow_url: expected the address of a server, since to has 'mlflow', got none")
        return self
