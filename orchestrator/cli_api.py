"""`coevo api` serves the REST API, `coevo keys` are who may use it, `coevo questions` asks it."""

from __future__ import annotations

import ipaddress
import os
from itertools import islice
from typing import Annotated, get_args

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from core.config import ConfigError
from orchestrator.home import home
from orchestrator.terminal import AsJson, RunName, clear_errors
from storage import queries
from storage.rows import Scope
from storage.session import open_store

keys = typer.Typer(help="Keys of the REST API.", no_args_is_help=True)
_URL = "http://127.0.0.1:8080"
KeyName = Annotated[str, typer.Argument(help="What the key is called.", show_default=False)]


def api(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8080,
    with_keys: Annotated[
        bool | None,
        typer.Option("--keys/--no-keys", help="Ask for keys; by default on all but loopback.", show_default=False),
    ] = None,
) -> None:
    """Serve the REST API over the store, until it is interrupted."""
    import uvicorn  # here and below: no other command waits for it

    from services.api.app import PREFIX, create_app

    with clear_errors():
        inside = _is_loopback(host)
        if with_keys is False and not inside:
            raise ConfigError(f"--no-keys: expected a loopback address as --host, got {host}")
        asks = not inside if with_keys is None else with_keys
        store = open_store(home().database)
        said = "keys are asked for (coevo keys add)" if asks else "no keys are asked for"
        print(
            f"http://{host}:{port}{PREFIX}/runs, described at http://{host}:{port}/api/openapi.json; {said}", flush=True
        )
        try:
            served = create_app(store, home().path / "exports", ask_for_keys=asks)
            uvicorn.run(served, host=host, port=port, log_level="warning")
        finally:
            store.close()


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
        print(new_key(store, name, tuple(_scope(each) for each in scope or ["read"])))


@keys.command("list")
def list_() -> None:
    """Show the keys that there are, not the keys themselves."""
    with clear_errors():
        with open_store(home().database).read() as session:
            rows = queries.list_keys(session)
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
            queries.revoke_key(session, name)
        print(f"revoked: {name}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _scope(text: str) -> Scope:
    for known in get_args(Scope):
        if text == known:
            found: Scope = known
            return found
    raise ConfigError(f"--scope: expected one of {', '.join(get_args(Scope))}, got {text!r}")


def questions(
    run: RunName,
    iteration: Annotated[int, typer.Argument(help="Iteration of the run.", show_default=False)],
    verdict: Annotated[list[str] | None, typer.Option(help="Only of this; may be given again.")] = None,
    p_hat_min: Annotated[float | None, typer.Option(help="Only of at least this share of votes.")] = None,
    p_hat_max: Annotated[float | None, typer.Option(help="Only of at most this share of votes.")] = None,
    text: Annotated[str | None, typer.Option(help="Only with this in the question.")] = None,
    oracle_verdict: Annotated[str | None, typer.Option(help="Only where an oracle said this of the label.")] = None,
    sort: Annotated[str, typer.Option(help="index or p_hat, with - before it downwards.")] = "index",
    limit: Annotated[int, typer.Option(help="How many at most; 0: all.", min=0)] = 20,
    url: Annotated[str, typer.Option(envvar="COEVO_API_URL", help="Where `coevo api` serves.")] = _URL,
    as_json: AsJson = False,
) -> None:
    """Show an iteration's questions, from the REST API; with --json one a line. Its key is in COEVO_API_KEY."""
    from services.api.client import ApiClient

    wanted = {"verdict": verdict, "p_hat_min": p_hat_min, "p_hat_max": p_hat_max, "text": text}
    wanted |= {"oracle_verdict": oracle_verdict, "sort": sort}
    with clear_errors():
        client = ApiClient(url, os.environ.get("COEVO_API_KEY"))
        found = islice(client.questions(run, iteration, **wanted), limit or None)
        if as_json:
            for question in found:
                print(question.model_dump_json())
            return
        table = Table("index", "verdict", "p_hat", "label", "oracles", "question", box=SIMPLE_HEAD)
        for question in found:
            p_hat = f"{question.p_hat:.2f} of {question.m}" if question.p_hat is not None else ""
            oracles = ", ".join(f"{said.oracle}: {said.verdict}" for said in question.oracles)
            cells = (question.verdict or "", p_hat, question.answer or "", oracles, question.text or "")
            table.add_row(str(question.index), *(escape(_printable(cell)) for cell in cells))
        Console().print(table)


def _printable(text: str) -> str:
    """What a model wrote, on one line and without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]
