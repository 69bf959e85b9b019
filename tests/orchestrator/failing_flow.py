"""The process of a flow whose stages fail in ways that carry secrets: `failing_flow.py SECRET…`.

The flow runner would start it like this. Only the stages are fakes, and Ray is taken for started, since they need none.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import ray
from prefect import flow

from core.errors import CoevoError
from orchestrator import flows
from orchestrator.installation.home import home
from orchestrator.ledger import LastWrite
from orchestrator.reporting import artifacts
from orchestrator.reporting.flow_process import flow_process
from orchestrator.run import Run
from orchestrator.runs import stored_config
from orchestrator.stages import by_name
from orchestrator.stages.context import Context
from storage.session import open_store
from trainers.last_lines import log_last_lines

SECRETS = sys.argv[1:]


def fail(context: Context) -> LastWrite:
    """Log all secrets, also as the end of a trainer's log, and raise an error with them, as a bug could."""
    everything = " ".join(SECRETS)
    its_home = context.run.home
    its_home.logs.mkdir(exist_ok=True)
    its_home.work.mkdir(exist_ok=True)
    log = its_home.work / "easyr1.log"
    log.write_text(f"{everything}\n")
    log_last_lines([log])
    logging.getLogger("some.library").warning("sent %s", everything)
    raise RuntimeError(f"not accepted: {everything}")


def fail_as_a_user_can(_: Context) -> LastWrite:
    raise CoevoError(f"not accepted: {' '.join(SECRETS)}")


def fail_with_a_cause(_: Context) -> LastWrite:
    """Only the traceback of the error's cause has the secrets."""
    try:
        raise ValueError(" ".join(SECRETS))
    except ValueError as error:
        raise RuntimeError("of some cause") from error


@flow
@flow_process()
def failing() -> None:
    store = open_store(home().database)
    run = Run("demo", home(), store, home().services(), stored_config(store, "demo"))
    for t, stage in ((0, "evaluate"), (1, "evaluate"), (2, "evaluate"), (3, "audit_labels")):
        with suppress(Exception), artifacts.flushed():
            flows._stage_task(run, t, stage)
    raise RuntimeError(f"the flow itself: {' '.join(SECRETS)}")


if __name__ == "__main__":
    ray.is_initialized = lambda: True

    def failing_stage(context: Context) -> LastWrite:
        return (fail, fail_as_a_user_can, fail_with_a_cause)[context.iteration](context)

    by_name.STAGE_FUNCTIONS["evaluate"] = failing_stage
    failing()
