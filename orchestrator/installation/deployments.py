"""The deployments of the flows, by which Prefect starts them. A deployment has the name of its flow."""

from __future__ import annotations

import logging
from typing import Any, cast

from prefect.client.orchestration import SyncPrefectClient
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.flows import Flow

from orchestrator.evaluation_flows import evaluate, recheck
from orchestrator.flows import co_evolve, iteration, self_train

_log = logging.getLogger(__name__)
FLOWS: tuple[Flow[Any, Any], ...] = (co_evolve, self_train, iteration, evaluate, recheck)
_FORMER_NAME = "coevo"  # of every deployment in earlier versions, so that Prefect's list had it five times


def served() -> list[RunnerDeployment]:
    """The deployments of the runner that starts flow runs in processes of its own machine."""
    return [
        cast(RunnerDeployment, flow.to_deployment(name=flow.name, description=flow.description, tags=["coevo"]))
        for flow in FLOWS
    ]


def remove_former(client: SyncPrefectClient) -> None:
    """Delete the deployments that have the name of earlier versions, with their schedules and waiting flow runs."""
    for flow in FLOWS:
        try:
            former = client.read_deployment_by_name(f"{flow.name}/{_FORMER_NAME}")
        except ObjectNotFound:
            continue
        client.delete_deployment(former.id)
        lost = f"; make its schedules ({len(former.schedules)}) there again" if former.schedules else ""
        _log.info("deployment %s/%s is now %s/%s%s", flow.name, _FORMER_NAME, flow.name, flow.name, lost)
