"""`coevo store serve` serves the REST API, `coevo store keys` manages its keys."""

from __future__ import annotations

import ctypes
import gc
import ipaddress
import logging
import os
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from core import logs
from core.settings.parsing import ConfigError
from orchestrator.cli.addresses import REFERENCE, known_prefect, page
from orchestrator.cli.terminal import AsJson, LogFormat, opened, print_json, reading, wide
from orchestrator.installation.home import PAPERS, PRESETS, home
from orchestrator.installation.ports import Ports
from storage import queries
from storage.rows import Scope
from storage.session import open_store

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger(__name__)
keys = typer.Typer(help="Make, list and revoke keys of the REST API.", no_args_is_help=True)
_PATIENCE_S = 60  # so that a process that is still importing on a busy machine is not taken for one that hangs
_READS_WAIT_S = 30.0  # for a busy SQLite; then the client gets an error
# These variables tell the processes of `coevo store serve` whether requests need a key, and whether it is only one.
_NEEDS_KEYS, _IS_SINGLE = "COEVO_API_ASKS_FOR_KEYS", "COEVO_API_IS_ALONE"
_M_ARENA_MAX = -8  # from glibc's malloc.h
KeyName = Annotated[str, typer.Argument(help="Name of the key.", show_default=False)]


def api(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = Ports().api,
    no_keys: Annotated[
        bool,
        typer.Option("--no-keys", help="Answer requests without a key. Allowed on a loopback address only."),
    ] = False,
    workers: Annotated[int, typer.Option(help="Number of processes that answer requests.", min=1)] = 1,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every request. An open page sends one every few seconds.")
    ] = False,
    _log_format: LogFormat = None,
) -> None:
    """Serve the REST API and the dashboard until interrupted. `coevo up` starts this too."""
    import uvicorn  # imported here, as others below, so that no other command waits for it

    from services.api.access.connections import UVICORN
    from services.api.access.keys import accept_home_key
    from services.api.app import PREFIX
    from services.drift.outbox import delivering
    from services.drift.webhook import webhook_from

    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if no_keys and not is_loopback:
        raise ConfigError(f"--no-keys: expected a loopback address as --host, got {host}")
    store = open_store(home().database)  # this and the next raise here, before a process is started
    webhook = webhook_from(os.environ)
    message = "requests need no key" if no_keys else "requests need a key (`coevo store keys add` makes one)"
    prefect = known_prefect()
    message += f"; alerts go to {webhook.name}" if webhook else ""
    message += (
        f"; Prefect at {prefect.url} starts runs"
        if prefect
        else "; runs cannot be started, since no Prefect server is known (`coevo up` starts one)"
    )
    url = f"http://{host}:{port}"
    own_key = None
    if is_loopback and not no_keys:
        own_key = home().api_key
        accept_home_key(store, own_key)
    line = f"API {url}{PREFIX}, described at {url}{REFERENCE}; {message}"
    if sys.stdout.isatty():  # the key must not get into a log
        print(f"dashboard {page(url, own_key)}, {line}", flush=True)
    else:
        log.info("dashboard %s, %s", page(url, None), line)
    os.environ[_NEEDS_KEYS] = "no" if no_keys else "yes"
    os.environ[_IS_SINGLE] = "yes" if workers == 1 else "no"
    app_factory = f"{__name__}:{worker_app.__name__}"
    # This process delivers the alerts, so that each is sent once, however many processes answer requests.
    with closing(store), delivering(store, webhook):
        uvicorn.run(
            app_factory,
            factory=True,
            host=host,
            port=port,
            workers=workers,
            log_config=None,  # its records go where all others go
            log_level="info" if access_log else "warning",
            access_log=access_log,
            timeout_worker_healthcheck=_PATIENCE_S,
            **UVICORN,
        )


def worker_app() -> FastAPI:
    """The application that each process of `coevo store serve` serves. Its settings are in environment variables."""
    from orchestrator.check.presets import details_of
    from orchestrator.check.refusals import refuse_as_the_api_can, refuse_unforkable
    from orchestrator.installation.reachable import ray_check
    from orchestrator.plan import plan
    from orchestrator.question_sets.benchmarks import known_benchmarks, known_suites, read_suite
    from services.api.access.connections import Spreading
    from services.api.app import create_app
    from services.api.installation import Installation, QuestionSets

    limit_arenas()
    coevo_home = home()
    logs.configure("api", coevo_home.secrets())
    installation = Installation(
        prefect=known_prefect(),
        ray_answers=ray_check(coevo_home),
        presets=PRESETS,
        papers=PAPERS,
        question_sets=QuestionSets(tuple(known_benchmarks()), {name: read_suite(name) for name in known_suites()}),
        texts=coevo_home.texts,
        run_logs=coevo_home.run_logs,
        planned=plan,
        refuse_unready=refuse_as_the_api_can,
        refuse_unforkable=refuse_unforkable,
        describe_preset=details_of,
    )
    store = open_store(coevo_home.database, reads_wait_s=_READS_WAIT_S)
    asks = os.environ[_NEEDS_KEYS] == "yes"
    app = create_app(store, coevo_home.exports, ask_for_keys=asks, installation=installation)
    if os.environ[_IS_SINGLE] == "no":
        app.add_middleware(Spreading)
    # Exclude everything imported from garbage collection: a collection that scans it stops every request for 0.1 s.
    gc.collect()
    gc.freeze()
    return app


def limit_arenas() -> None:
    """Have the threads of this process share two of glibc's arenas, which memory is allocated from.

    By default there are up to eight for each processor, and each keeps what a thread has freed: the API would hold as
    much memory as its largest answers in every thread together. Other C libraries have no such setting.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


@keys.command("add")
def add(
    name: KeyName,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help=f"What the key permits: {', '.join(get_args(Scope))}; by default read. May be given more than once."
        ),
    ] = None,
) -> None:
    """Make a key and print it. It is shown only this once, because the store keeps just its hash."""
    from services.api.access.keys import new_key

    _, store = opened()
    if unknown := [given for given in scope or () if given not in get_args(Scope)]:
        raise ConfigError(f"--scope: expected one of {', '.join(get_args(Scope))}, got {unknown[0]!r}")
    print(new_key(store, name, cast(list[Scope], scope or ["read"])))


@keys.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the keys by name, with their scopes and dates. The keys themselves are not stored."""
    with reading() as session:
        rows = queries.keys.list_keys(session)
    if as_json:
        print_json(rows)
        return
    table = Table("key", "scopes", "created (UTC)", "revoked (UTC)", box=SIMPLE_HEAD)
    for row in rows:
        revoked = f"{row.revoked_at:%F %H:%M}" if row.revoked_at else ""
        table.add_row(row.name, ", ".join(row.scopes), f"{row.created_at:%F %H:%M}", revoked)
    wide().print(table)


@keys.command("revoke")
def revoke(name: KeyName) -> None:
    """Revoke a key. The API refuses it from now on."""
    _, store = opened()
    with store.write() as session:
        queries.keys.revoke_key(session, name)
    print(f"revoked: {name}")
