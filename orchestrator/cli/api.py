"""`coevo api` serves the REST API, `coevo keys` are who may use it, `coevo questions` asks it."""

from __future__ import annotations

import gc
import ipaddress
import os
import sys
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from core.settings.parsing import ConfigError
from orchestrator.cli.addresses import Key, Url, client, page
from orchestrator.cli.question import p_hat_of, printable, show
from orchestrator.cli.terminal import AsJson, RunName, clear_errors
from orchestrator.installation import cluster
from orchestrator.installation.home import PRESETS, Home, NotUp, home
from services.prefect_server import PrefectServer
from storage import queries
from storage.rows import Scope
from storage.session import Store, open_store

if TYPE_CHECKING:
    from fastapi import FastAPI

    from services.api.question_schemas import Question
    from services.drift.outbox import Target

keys = typer.Typer(help="Keys of the REST API.", no_args_is_help=True)
_PATIENCE_S = 60  # a process that still imports, on a busy machine, is not one that hangs
# From `coevo api` to its processes: whether keys are asked for, and whether there is one process.
_ASKS, _ALONE = "COEVO_API_ASKS_FOR_KEYS", "COEVO_API_IS_ALONE"
KeyName = Annotated[str, typer.Argument(help="What the key is called.", show_default=False)]


def api(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = cluster.Ports().api,
    no_keys: Annotated[
        bool,
        typer.Option("--no-keys", help="Answer everybody on this machine; for loopback only."),
    ] = False,
    workers: Annotated[int, typer.Option(help="Processes that answer, each with its own connections.", min=1)] = 1,
) -> None:
    """Serve the REST API over the store, until it is interrupted."""
    import uvicorn  # here and below: no other command waits for it

    from services.api.app import PREFIX
    from services.api.connections import UVICORN
    from services.drift.outbox import delivering

    with clear_errors():
        inside = _is_loopback(host)
        if no_keys and not inside:
            raise ConfigError(f"--no-keys: expected a loopback address as --host, got {host}")
        store, targets = open_store(home().database), _targets()  # says here what is wrong with them
        message = "no keys are asked for" if no_keys else "keys are asked for (coevo keys add)"
        prefect = _prefect()
        message += f"; alerts go to {' and '.join(target.name for target in targets)}" if targets else ""
        message += f"; Prefect at {prefect.url} starts runs" if prefect else "; no Prefect to start runs (coevo up)"
        url = f"http://{host}:{port}"
        own = None if no_keys or not inside else _own_key(home(), store)
        shown = page(url, own if sys.stdout.isatty() else None)  # no key gets into a log
        print(f"dashboard {shown}, API {url}{PREFIX}, described at {url}/api/openapi.json; {message}", flush=True)
        os.environ[_ASKS] = "no" if no_keys else "yes"
        os.environ[_ALONE] = "yes" if workers == 1 else "no"
        serving = f"{__name__}:{served.__name__}"
        # In this process, not in those that answer: alerts are sent once, however many these are.
        with closing(store), delivering(store, targets):
            uvicorn.run(
                serving,
                factory=True,
                host=host,
                port=port,
                workers=workers,
                log_level="warning",
                timeout_worker_healthcheck=_PATIENCE_S,
                **UVICORN,
            )


def served() -> FastAPI:
    """What each process of `coevo api` serves, as the environment says."""
    from orchestrator.readiness import refuse_as_the_api_can
    from services.api.app import create_app
    from services.api.connections import Spreading

    coevo_home = home()
    app = create_app(
        open_store(coevo_home.database),
        coevo_home.path / "exports",
        ask_for_keys=os.environ[_ASKS] == "yes",
        prefect=_prefect(),
        presets=PRESETS,
        texts=coevo_home.texts,
        refuse_unready=refuse_as_the_api_can,
    )
    if os.environ[_ALONE] == "no":
        app.add_middleware(Spreading)
    # What was imported stays: a collection that looks through all of it stops every request for a tenth of a second.
    gc.collect()
    gc.freeze()
    return app


@keys.command("add")
def add(
    name: KeyName,
    scope: Annotated[
        list[str] | None,
        typer.Option(help=f"What it may: {', '.join(get_args(Scope))}; read by default, and may be given again."),
    ] = None,
) -> None:
    """Make a key and print it, this once: the store has its hash only."""
    from services.api.keys import new_key

    with clear_errors():
        store = open_store(home().database)
        print(new_key(store, name, tuple(_scope(name_of_scope) for name_of_scope in scope or ["read"])))


@keys.command("list")
def list_() -> None:
    """Show the keys that there are, not the keys themselves."""
    with clear_errors():
        with open_store(home().database).read() as session:
            rows = queries.keys.list_keys(session)
        table = Table("key", "may", "made (UTC)", "revoked (UTC)", box=SIMPLE_HEAD)
        for row in rows:
            revoked = f"{row.revoked_at:%F %H:%M}" if row.revoked_at else ""
            table.add_row(row.name, ", ".join(row.scopes), f"{row.created_at:%F %H:%M}", revoked)
        Console().print(table)


@keys.command("revoke")
def revoke(name: KeyName) -> None:
    """Let a key do nothing from now on."""
    with clear_errors():
        with open_store(home().database).write() as session:
            queries.keys.revoke_key(session, name)
        print(f"revoked: {name}")


def _own_key(home: Home, store: Store) -> str:
    """The home's key, which the store then knows."""
    from services.api.keys import accept_home_key

    accept_home_key(store, home.api_key)
    return home.api_key


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _targets() -> list[Target]:
    """Where alerts are sent: the webhook that the environment names, and Prefect, so far as there are any."""
    from services.drift.prefect_events import PrefectEvents
    from services.drift.webhook import webhook_from

    webhook, prefect = webhook_from(os.environ), _prefect()
    return [*([webhook] if webhook else []), *([PrefectEvents(prefect)] if prefect else [])]


def _prefect() -> PrefectServer | None:
    """What `coevo up` started, or the environment names; None where neither is."""
    try:
        return home().services().prefect
    except NotUp:
        return PrefectServer.from_environment()


def _scope(text: str) -> Scope:
    for known in get_args(Scope):
        if text == known:
            scope: Scope = known
            return scope
    raise ConfigError(f"--scope: expected one of {', '.join(get_args(Scope))}, got {text!r}")


def questions(
    run: RunName,
    iteration: Annotated[int, typer.Argument(help="Iteration of the run.", show_default=False)],
    verdict: Annotated[list[str] | None, typer.Option(help="Only of this; may be given again.")] = None,
    p_hat_min: Annotated[float | None, typer.Option(help="Only of at least this share of votes.")] = None,
    p_hat_max: Annotated[float | None, typer.Option(help="Only of at most this share of votes.")] = None,
    text: Annotated[str | None, typer.Option(help="Only with this in the question.")] = None,
    cluster: Annotated[int | None, typer.Option(help="Only of this cluster of questions that are alike.")] = None,
    oracle: Annotated[str | None, typer.Option(help="Only where this oracle said something of the label.")] = None,
    oracle_verdict: Annotated[
        str | None, typer.Option(help="Only where an oracle, or the one named, said this of the label.")
    ] = None,
    sort: Annotated[str, typer.Option(help="index or p_hat, with - before it downwards.")] = "index",
    limit: Annotated[int, typer.Option(help="How many at most; 0: all.", min=0)] = 20,
    index: Annotated[
        int | None, typer.Option(help="Show this one with every vote and all that was said of it.", min=0)
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show an iteration's questions, or one, from the REST API; with --json one a line."""
    fits = {"verdict": verdict, "p_hat_min": p_hat_min, "p_hat_max": p_hat_max, "text": text}
    fits |= {"cluster": cluster, "oracle": oracle, "oracle_verdict": oracle_verdict}
    with clear_errors():
        rest = client(url, key)
        if index is None:
            rows = islice(rest.questions(run, iteration, **fits, sort=sort), limit or None)
            _list(rows, as_json)
        elif given := [f"--{name.replace('_', '-')}" for name, value in fits.items() if value is not None]:
            raise ConfigError(f"--index: shows one question, and chooses among none; got {', '.join(given)}")
        elif as_json:
            print(rest.question(run, iteration, index).model_dump_json(ensure_ascii=True))
        else:
            show(rest.question(run, iteration, index))


def _list(questions: Iterable[Question], as_json: bool) -> None:
    if as_json:
        for question in questions:
            print(question.model_dump_json(ensure_ascii=True))
        return
    table = Table("index", "verdict", "p_hat", "label", "oracles", "question", box=SIMPLE_HEAD)
    for question in questions:
        oracles = ", ".join(f"{label.oracle}: {label.verdict}" for label in question.oracles)
        cells = (question.verdict or "", p_hat_of(question), question.answer or "", oracles, question.text or "")
        table.add_row(str(question.index), *map(printable, cells))
    Console(emoji=False).print(table)
