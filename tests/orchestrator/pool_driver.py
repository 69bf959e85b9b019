"""A driver that asks the worker pool for slots. Each line of its input is a request:

    RUN UNITS STAGE [LIMIT]

It prints "began" once it has the slot, and gives it back after one more line. Where it can never have the slot, it
prints why. LIMIT is what COEVO_POOL_LIMIT says.
"""

from __future__ import annotations

import os
import sys

import ray

from core.settings.config import CoEvolution
from core.types import STAGES, Stage
from orchestrator.installation.home import home
from orchestrator.ledger import LastWrite, run_once
from orchestrator.pool.slot import LIMIT, Demand, PoolError, training_slot
from orchestrator.stages.context import Context
from storage import queries
from storage.session import open_store


def main() -> None:
    ray.init(home().services().ray_address, log_to_driver=False)
    print("ready", flush=True)
    while request := sys.stdin.readline().split():
        run, units, stage, *limit = request
        os.environ[LIMIT] = limit[0] if limit else ""
        print(_asked(run, float(units), next(known for known in STAGES if known == stage)), flush=True)
    os._exit(0)  # Ray's threads have nothing left to say


def _asked(run: str, units: float, stage: Stage) -> str:
    here = home()
    store, config = open_store(here.database), CoEvolution()
    with store.write() as session:
        queries.runs.create_run(session, name=run, config=config)
    context = Context(here, store, here.services(), run, config, 1, lambda *_: None)

    def body() -> LastWrite:
        # The applications stay as they are while a Challenger trains.
        with training_slot(
            context, stage, Demand("CPU", units), lambda _word: None, has_turn=stage == "train_challenger"
        ):
            print("began", flush=True)
            sys.stdin.readline()
        return lambda _session: {}

    try:
        run_once(store, run, 1, stage, body)
    except PoolError as error:
        return str(error)
    return "over"


if __name__ == "__main__":
    main()
