"""Who answers a run's prompts: a preset's `[serving]` and `[solver.signals]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from core.methods import Method
from core.settings.bounds import Attempts, Part, Seconds, Workers


class Serving(Part):
    """The Ray Serve applications that a run asks, `challenger` and `solver` among them.

    One Ray has one set of applications at a time: a run that names another waits for its turn, then they are replaced.
    """

    applications: str = "embedded"  # of deploy/serve, or the path of a YAML file that `serve deploy` takes
    # Batches of 128 questions under way at once. With few, whoever serves waits for the longest answers of each; with
    # many, a killed run asks for many again.
    batches: Workers = 8
    release: bool = False  # stop them while the Solver trains, which asks none of them: their GPUs are its then


class Service(Part):
    """An OpenAI-compatible service of somebody else's.

    `key_variable` names what holds its key in the environment of the process that runs the flow: of `coevo run`, or of
    `coevo up` where the Prefect UI triggers it.
    """

    url: str = Field(pattern=r"^https?://[^@?#]+$")  # up to and including /v1; it is stored, so it holds no secret
    model: str
    key_variable: str | None = None
    timeout: Seconds = 120.0  # seconds, for one request
    attempts: Attempts = 5


class Signals(Part):
    """Where a method's signals come from, beyond what the sampling itself tells.

    `served` is the run's own application, `embedder` or `judge`, of the file that `[serving]` names.
    """

    embedder: Literal["hashing", "served"] | Service = "hashing"  # hashed words, not their meaning
    clusterer: Literal["skeleton", "served"] | Service = "skeleton"  # the text without its numbers, not its strategy

    def services(self, method: Method) -> list[Service]:
        """Those that `method` asks."""
        asked = {"embeddings": self.embedder, "clusters": self.clusterer}
        return [service for signal, service in asked.items() if signal in method.needs and isinstance(service, Service)]

    def served(self, method: Method) -> dict[str, str]:
        """Application -> the setting that asks for it, of those that `method` asks."""
        asked = {
            "embedder": ("embeddings", "embedder", self.embedder),
            "judge": ("clusters", "clusterer", self.clusterer),
        }
        return {
            name: setting
            for name, (signal, setting, service) in asked.items()
            if signal in method.needs and service == "served"
        }
