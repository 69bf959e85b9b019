"""The deployments of the flows, by which Prefect starts them. A deployment has the name of its flow."""

from __future__ import annotations

from typing import Any, cast

from prefect.deployments.runner import RunnerDeployment
from prefect.flows import Flow

from orchestrator.evaluation.flows import evaluate, recheck
from orchestrator.flows import co_evolve, iteration, self_train

FLOWS: tuple[Flow[Any, Any], ...] = (co_evolve, self_train, iteration, evaluate, recheck)


def served() -> list[RunnerDeployment]:
    """The deployments of the runner that starts flow runs in processes of its own machine."""
    return [
        cast(RunnerDeployment, flow.to_deployment(name=flow.name, description=flow.description, tags=["coevo"]))
        for flow in FLOWS
    ]
