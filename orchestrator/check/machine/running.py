"""Whether the services are up or can be started: addresses, processes, ports, the database."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from orchestrator.check.machine.result import CheckFailed, Finding, Subject, ok, skipped
from orchestrator.installation import cluster, reachable
from storage.errors import StoreError
from storage.session import open_store

_CONNECT_S = 2.0


def check_addresses(_: Subject) -> Finding:
    """Whether the environment names a Ray cluster that is gone, to which every Ray program would try to connect."""
    address = os.environ.get("RAY_ADDRESS")
    if address is None:
        return ok("the environment names no other Ray cluster")
    host, _colon, port = (urlsplit(address).netloc or address).rpartition(":")
    remedy = "unset RAY_ADDRESS; coevo knows the address of its own Ray"
    try:
        socket.create_connection((host or "127.0.0.1", int(port)), _CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:  # it is no port
        raise CheckFailed(f"RAY_ADDRESS is {address}, where no Ray answers", remedy) from error
    return Finding("warning", f"RAY_ADDRESS is {address}, another Ray than that of `coevo up`", remedy)


def check_services(subject: Subject) -> Finding:
    """Whether the services that are recorded in the home's services.json, or named by the environment, are alive."""
    services = subject.services
    if services is None and os.environ.get("COEVO_RAY_ADDRESS"):
        subject.home.services()  # raises an error, which names the variable that is missing
    if services is None:
        return ok(f"none are up for {subject.home.path}")
    if not services.processes:
        cluster.needed(subject.home)
        return ok("they run elsewhere and answer")
    names = [name for name, _ in services.processes.values()]
    if gone := cluster.ended(subject.home):
        raise CheckFailed(f"these have ended: {', '.join(gone)}; their logs are in {subject.home.logs}", "coevo up")
    return ok(f"{', '.join(names)} are up")


def check_answers(subject: Subject) -> Finding:
    """Whether the services that are up answer to the keys and passwords of this home."""
    services = subject.services
    if services is None or not cluster.running(subject.home):
        return skipped("no services are up")
    problems = [reachable.problem_with_ray(services), reachable.problem_with_prefect(services.prefect)]
    problems += [reachable.problem_with_api(subject.home, services.api_url)] if services.api_url else []
    if listed := [problem for problem in problems if problem]:
        raise CheckFailed("; ".join(listed), f"coevo down, then coevo up; their logs are in {subject.home.logs}")
    return ok("Ray, Prefect and the API answer" if services.api_url else "Ray and Prefect answer")


def check_left_over(subject: Subject) -> Finding:
    """Whether processes of an earlier `coevo up` of this home still run, with their GPUs, ports and memory."""
    services = subject.services
    # Ray's token differs from one `coevo up` to the next.
    tokens = {None, services.ray_token} if services is not None and cluster.running(subject.home) else {None}
    # This process, and those that started it, may have been started by a service.
    ours, left = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}, list[psutil.Process]()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            its = process.environ()
            of_home = process.pid not in ours and its.get("COEVO_HOME") == str(subject.home.path)
            if of_home and its.get("RAY_AUTH_TOKEN") not in tokens:
                left.append(process)
    if left:
        pids = " ".join(str(process.pid) for process in left)
        named = ", ".join(sorted({process.name() for process in left}))
        return Finding("warning", f"{len(left)} processes of an earlier `coevo up` still run: {named}", f"kill {pids}")
    return ok("no processes of an earlier `coevo up`")


def check_ports(subject: Subject) -> Finding:
    """Whether the ports of `coevo up` are free, or its own services have them."""
    if cluster.running(subject.home):
        return skipped("the services are up and have theirs")
    taken = subject.ports.taken()
    if not taken:
        return ok("all that `coevo up` will use are free")
    holders = []
    for name, port in taken.items():
        holder = "a program of another user"
        with suppress(psutil.AccessDenied, psutil.NoSuchProcess):
            pids = [of.pid for of in psutil.net_connections("tcp") if of.laddr and of.laddr.port == port and of.pid]
            holder = f"{psutil.Process(pids[0]).name()} (process {pids[0]})" if pids else "a program"
        holders.append(f"{port} (--{name}-port) by {holder}")
    remedy = "coevo up --free-ports, or end the program that has them"
    raise CheckFailed(f"in use on 127.0.0.1: {'; '.join(holders)}", remedy)


def check_database(subject: Subject) -> Finding:
    """Whether the database answers and has the tables of this version; which kind it is."""
    address = subject.home.database
    try:
        url = make_url(address)
    except ArgumentError:
        url = None  # `open_store` says what is wrong
    if url is not None and url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        return ok(f"SQLite, {url.database} will be made by `coevo up`")
    try:
        store = open_store(address)
    except StoreError as error:
        raise CheckFailed(str(error)) from error
    backend = "SQLite" if url is not None and url.get_backend_name() == "sqlite" else "PostgreSQL"
    store.close()
    return ok(f"{backend}, {store.address}: its tables are up to date")
