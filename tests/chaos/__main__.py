"""`python -m tests.chaos --kills 30 --seed 0 --json`: a campaign on real services (docs/storage.md).

It starts services of its own in a temporary folder, and touches no others. A thousand kills take an hour or two. The
exit status is 1 if anything differs; then the folder, with its traces and logs, stays.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from core.processes.imports import collection_paused
from orchestrator.disk import deletion
from orchestrator.installation import cluster
from orchestrator.installation.home import Home, home
from orchestrator.installation.ports import ANY_FREE
from services.prefect.client import Prefect
from storage.session import open_store
from tests.chaos import small_run
from tests.chaos.victims import OF_THE_RUN, VICTIMS, Victim


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="how many processes are killed")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of the kills, and of the run")
    parser.add_argument(
        "--here",
        action="store_true",
        help="use the services of COEVO_HOME, and kill only processes of the campaign's runs",
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="coevo-chaos-"))
    outcome = None
    try:
        with _services(folder, options.here) as (coevo_home, victims):
            outcome = _campaign(coevo_home, folder, options.kills, options.seed, victims)
    finally:
        if outcome is None or outcome["violations"]:
            _report(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    print(json.dumps(outcome) if options.json else "\n".join(f"{name}: {value}" for name, value in outcome.items()))
    sys.exit(1 if outcome["violations"] else 0)


@contextmanager
def _services(folder: Path, here: bool) -> Iterator[tuple[Home, tuple[Victim, ...]]]:
    """The home whose services the campaign uses, and the processes that it may kill."""
    if here:
        try:
            yield home(), OF_THE_RUN
        finally:
            # Prefect would show those of killed processes as running, and `coevo runs list` their run as preparing.
            prefect = Prefect(home().services().prefect)
            deletion.delete_flow_runs(prefect, prefect.flow_runs(small_run.NAME))
        return
    own = Home(folder / "home")
    open_store(own.database, create=True).close()
    cluster.up(own, ANY_FREE, _report)
    try:
        yield own, VICTIMS
    finally:
        cluster.down(own)


def _campaign(coevo_home: Home, folder: Path, kills: int, seed: int, victims: tuple[Victim, ...]) -> dict[str, Any]:
    started = time.monotonic()
    cluster.join(coevo_home)
    cluster.wait_until_ready(coevo_home)
    with collection_paused():
        # These take seconds. The forks have what is imported here.
        import matplotlib.figure  # noqa: F401 (of the pictures in Prefect)

        from orchestrator import flows  # noqa: F401
        from tests.chaos.campaign import Campaign
        from tests.chaos.flow_attempts import FlowAttempt
        from trainers.local import worker  # noqa: F401

    benchmark = small_run.write_benchmark(folder)
    settings = {own: small_run.overrides(seed, benchmark, own) for own in (False, True)}
    campaign = Campaign(
        coevo_home,
        folder,
        partial(small_run.work, coevo_home, settings),
        kills=kills,
        seed=seed,
        victims=victims,
        report=_report,
        begin_flow=partial(FlowAttempt, coevo_home, settings[False]),
    )
    return {**campaign.run().as_json(), "seconds": round(time.monotonic() - started)}


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
