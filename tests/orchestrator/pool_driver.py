"""A driver that asks the worker pool for slots. Each line of its input is a request:

    RUN UNITS STAGE [LIMIT]

It prints "began" when it has the slot, and gives it back after one more line. If it can never have the slot, it prints
the reason. LIMIT is the value of COEVO_POOL_LIMIT.
"""

from __future__ import annotations

import os
import sys

import ray

from core.settings.config import CoEvolution
from core.types import STAGES, Stage, StageKey
from orchestrator.installation.home import home
from orchestrator.ledger import LastWrite, run_once
from orchestrator.pool import slot
from orchestrator.pool.slot import LIMIT, Demand, PoolError, training_slot
from orchestrator.run import Run
from storage import queries
from storage.session import open_store


def main() -> None:
    slot._SETTLE_S = 0.0  # no application is being stopped when this driver asks for a slot
    ray.init(home().services().ray_address, log_to_driver=False)
    print("ready", flush=True)
    while request := sys.stdin.readline().split():
        run, units, stage, *limit = request
        os.environ[LIMIT] = limit[0] if limit else ""
        print(_use_slot(run, float(units), next(name for name in STAGES if name == stage)), flush=True)
    os._exit(0)  # ends the process without waiting for Ray's threads


def _use_slot(run: str, units: float, stage: Stage) -> str:
    here = home()
    store, config = open_store(here.database), CoEvolution()
    with store.write() as session:
        queries.runs.create_run(session, name=run, config=config)
    opened, key = Run(run, here, store, here.services(), config), StageKey(run, 1, stage)

    def body() -> LastWrite:
        # The applications stay as they are while a Challenger trains.
        is_challenger = stage == "train_challenger"
        with training_slot(opened, key, Demand("CPU", units), lambda _note: None, holds_applications=is_challenger):
            print("began", flush=True)
            sys.stdin.readline()
        return lambda _session: {}

    try:
        run_once(store, key, body)
    except PoolError as error:
        return str(error)
    return "over"


if __name__ == "__main__":
    main()
