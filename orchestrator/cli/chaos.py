"""`coevo chaos`: kill the processes of small runs again and again, and see whether anything is lost."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from core.imports import collection_paused
from orchestrator.chaos import small_run
from orchestrator.chaos.victims import OF_THE_RUN, VICTIMS, Victim
from orchestrator.cli.terminal import AsJson, clear_errors
from orchestrator.disk import deletion
from orchestrator.installation import cluster
from orchestrator.installation.home import Home, home
from orchestrator.installation.ports import ANY_FREE
from orchestrator.starting import RunError
from storage.session import open_store


def chaos(
    kills: Annotated[int, typer.Option(min=1, help="How many processes are killed.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the choice of the kills, and of the run.")] = 0,
    here: Annotated[
        bool,
        typer.Option("--here", help="Use the services of COEVO_HOME, and kill only processes of the campaign's runs."),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the campaign's folder, with its traces and logs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Kill the processes of small runs at random points, resume them, and compare what they store with a run that was
    never killed (docs/reliability.md). Exits with 1 if anything differs.

    It starts services of its own in a temporary folder, and touches no others. A thousand kills take an hour or two.
    """
    with clear_errors():
        folder = Path(tempfile.mkdtemp(prefix="coevo-chaos-"))
        try:
            with _services(folder, here) as (coevo_home, victims):
                result = _campaign(coevo_home, folder, kills, seed, victims)
        finally:
            if keep:
                print(f"kept: {folder}", file=sys.stderr)
            else:
                shutil.rmtree(folder)
        _print(result, as_json)
        if result["violations"]:
            raise typer.Exit(1)


@contextmanager
def _services(folder: Path, here: bool) -> Iterator[tuple[Home, tuple[Victim, ...]]]:
    """The home whose services the campaign uses, and the processes that it may kill."""
    if here:
        try:
            yield home(), OF_THE_RUN
        finally:
            _delete_flow_runs(home())
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
        from orchestrator import flows  # noqa: F401
        from orchestrator.chaos.campaign import Campaign, ChaosError
        from orchestrator.chaos.flow_attempts import FlowAttempt
        from trainers.local import worker  # noqa: F401

    benchmark = small_run.write_benchmark(folder)
    settings = {own: small_run.overrides(seed, benchmark, own) for own in (False, True)}
    work = partial(small_run.work, coevo_home, settings)
    try:
        campaign = Campaign(
            coevo_home,
            folder,
            work,
            kills=kills,
            seed=seed,
            victims=victims,
            report=_report,
            begin_flow=partial(FlowAttempt, coevo_home, settings[False]),
        )
        outcome = campaign.run()
    except ChaosError as error:
        raise RunError(f"chaos: {error}") from error
    return {**outcome.as_json(), "seconds": round(time.monotonic() - started)}


def _delete_flow_runs(coevo_home: Home) -> None:
    """Delete the campaign's flow runs in Prefect. It would show those of killed processes as running, and `coevo runs
    list` their run as preparing."""
    from services.api.prefect import Prefect  # imports FastAPI

    prefect = Prefect(coevo_home.services().prefect)
    deletion.delete_flow_runs(prefect, prefect.flow_runs(small_run.NAME))


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    victims = ", ".join(f"{count} of {name}" for name, count in result["by_victim"].items())
    print(f"{result['kills']} kills ({victims}) in {result['runs']} runs; {result['seconds']} s")
    print(f"most batches that one kill cost: {result['max_redone_batches']}")
    print(f"seconds until a resumed run went on: median {result['median_resume_s']}, most {result['slowest_resume_s']}")
    print(f"fault points at which no process was killed: {', '.join(result['not_killed_at']) or 'none'}")
    print(f"violations: {len(result['violations'])}")
    for violation in result["violations"]:
        print(f"  {violation}")
