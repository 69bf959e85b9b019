"""The process that `coevo up` starts to run flows which are triggered from the Prefect UI or its API."""

from __future__ import annotations

from typing import Any, cast

from prefect import serve
from prefect.deployments.runner import RunnerDeployment

from orchestrator.flows import co_evolve, iteration, self_train


def main() -> None:
    """Register the deployments and run what is triggered, one flow run at a time a run."""
    deployments = [
        co_evolve.to_deployment(name="coevo", description=co_evolve.description, tags=["coevo"]),
        self_train.to_deployment(name="coevo", description=self_train.description, tags=["coevo"]),
        iteration.to_deployment(name="coevo", description=iteration.description, tags=["coevo"]),
    ]
    serve(*cast(list[RunnerDeployment], deployments), limit=cast(Any, 4))


if __name__ == "__main__":
    main()
