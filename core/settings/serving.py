"""The services that a run asks: a preset's `[serving]` and `[solver.signals]`."""

from __future__ import annotations

from typing import Literal

from core.asking.service import Service
from core.methods import Method
from core.methods.base import Signal
from core.validation.bounds import SettingsTable, Workers


class Serving(SettingsTable):
    """The Ray Serve applications that a run asks, which include `challenger` and `solver`.

    A Ray cluster has one set of applications at a time. A run that names another set waits for its turn and then
    replaces them.
    """

    applications: str = "embedded"  # a file of deploy/serve, or the path of a YAML file that `serve deploy` takes
    # Batches of 128 questions that are asked at once. With few, the servers wait for the longest answers of each batch;
    # with many, a run that was killed must ask many questions again.
    batches: Workers = 8
    release: bool = False  # stop the applications that a stage does not ask, so that training gets their GPUs


class Signals(SettingsTable):
    """Where those signals of a method come from that sampling does not provide.

    "served" is the run's own application, `embedder` or `judge`, in the file that `[serving]` names.
    """

    embedder: Literal["hashing", "served"] | Service = "hashing"  # compares words, not meaning
    # "skeleton" compares texts without their numbers, "answer" compares final answers.
    clusterer: Literal["skeleton", "answer", "served"] | Service = "skeleton"
    # Strategies are told apart even if the method needs none, for the figures of a step alone (Poly-EPO 6.1, Figure 2).
    measure_strategies: bool = False

    def computed_for(self, method: Method) -> frozenset[Signal]:
        """The signals that must be known of a question and its rollouts: those that `method` needs, and those that are
        only measured."""
        return method.needs | ({"clusters"} if self.measure_strategies else set())

    def services(self, method: Method) -> list[Service]:
        """The services that are asked for the signals of `method`."""
        sources = {"embeddings": self.embedder, "clusters": self.clusterer}
        needed = (source for signal, source in sources.items() if signal in self.computed_for(method))
        return [source for source in needed if isinstance(source, Service)]

    def served(self, method: Method) -> dict[str, str]:
        """Application -> the setting that names it, for the applications that are asked for the signals of `method`."""
        sources = {
            "embedder": ("embeddings", "embedder", self.embedder),
            "judge": ("clusters", "clusterer", self.clusterer),
        }
        return {
            name: setting
            for name, (signal, setting, service) in sources.items()
            if signal in self.computed_for(method) and service == "served"
        }
