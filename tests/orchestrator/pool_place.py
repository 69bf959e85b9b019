"""Takes a place in the worker pool with priority 1, and gives it back: each when a line of its input says so. Where it
can never have one, it prints why.

`python pool_place.py RUN UNITS STAGE`
"""

from __future__ import annotations

import os
import sys

import ray

from core.settings.config import CoEvolution
from core.settings.trainers import PoolSettings
from core.types import STAGES, Stage
from orchestrator.installation.home import home
from orchestrator.ledger import LastWrite, run_once
from orchestrator.stages.context import Context
from orchestrator.stages.pool import Demand, PoolError, place
from storage import queries
from storage.session import open_store


def main(run: str, units: float, stage: Stage) -> None:
    here = home()
    store, config = open_store(here.database), CoEvolution(pool=PoolSettings(priority=1))
    with store.write() as session:
        queries.create_run(session, name=run, config=config)
    ray.init(here.services().ray_address, log_to_driver=False)
    context = Context(here, store, here.services(), run, config, 1, lambda *_: None)

    def body() -> LastWrite:
        # The applications stay as they are while a Challenger trains.
        with place(context, stage, Demand("CPU", units), lambda _word: None, has_turn=stage == "train_challenger"):
            print("began", flush=True)
            sys.stdin.readline()
        return lambda _session: {}

    print("ready", flush=True)
    sys.stdin.readline()
    try:
        run_once(store, run, 1, stage, body)
        print("over", flush=True)
    except PoolError as error:
        print(error, flush=True)
    os._exit(0)  # Ray's threads have nothing left to say


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), next(stage for stage in STAGES if stage == sys.argv[3]))
