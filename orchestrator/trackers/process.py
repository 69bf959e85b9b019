"""The process of a tracker: `python -m orchestrator.trackers.process TRACKER RUN PAGES`. It reads the store and sends
what the tracker has not yet.

Whatever a tracker does, it does here: it may raise, hang or crash, and the run goes on. Each line on standard input is
an iteration in which something is new; `end`, or the end of the input if the run's process was killed, says that
nothing more comes. The first error is a line on standard output.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from fcntl import LOCK_EX, flock
from queue import SimpleQueue
from threading import Thread
from urllib.parse import quote

from core.files import make_folder
from core.texts.redaction import without_secrets
from core.texts.unicode import to_json
from orchestrator.installation.home import home
from orchestrator.trackers.adapters import ADAPTERS, Send, Subject
from services.listeners import guard
from services.views.metrics import Metric, metrics_of
from storage import queries
from storage.session import Store, open_store

PATIENCE_S = 20  # after the run's end, for what is left to send; a tracker that takes longer is given up
_LONGEST_ERROR = 500  # characters
_Opened = Callable[[], AbstractContextManager[Send]]


def main(tracker: str, run: str, pages: str) -> None:
    """Follow a run to its end. `pages` is the dashboard's address, or empty."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a tracker prints
    os.nice(10)
    told = list[str]()

    def tell(error: Exception) -> None:
        if not told:
            told.append(without_secrets(f"{type(error).__name__}: {error}")[:_LONGEST_ERROR])
            print(to_json(told[0]), file=channel, flush=True)

    with closing(open_store(home().database)) as store:
        with store.read() as session:
            stored = queries.runs.get_run(session, run)
            settings = queries.runs.config_from(stored).trackers
        guard(*filter(None, (settings.mlflow_url, settings.wandb_url)))
        folder = home().trackers / run / tracker
        subject = Subject(run, stored.created_at.isoformat(), settings, folder)
        adapter = next(adapter for name, adapter in ADAPTERS.items() if name == tracker)
        make_folder(folder.parent)
        with folder.with_suffix(".lock").open("w") as lock:
            flock(lock, LOCK_EX)  # after a kill, the process before this one may still be sending
            follow(store, run, pages, lambda: adapter(subject), _news(), tell)


def follow(
    store: Store,
    run: str,
    pages: str,
    opened: _Opened,
    news: Iterable[Collection[int] | None],
    tell: Callable[[Exception], None],
) -> None:
    """Send what is in the store at each of the `news`, which are iterations, or None for all.

    A tracker has what the store has. So if a value has changed, or is gone since steps are repeated after a kill, the
    tracker is opened anew. After an error too: what is lost by it is sent again.
    """
    stack, known = ExitStack(), dict[tuple[str, int], Metric]()
    send: Send | None = None
    sent, sent_labels = known, dict[str, str]()
    for iterations in news:
        try:
            some = iterations if known else None  # the first reading may have failed
            others = [] if some is None else [metric for metric in known.values() if metric.iteration not in some]
            kept = [metric for metric in others if metric.kind == "training"]
            known = {(metric.name, metric.x): metric for metric in (*kept, *metrics_of(store, run, some))}
            labels = _labels(store, run, pages)
            if send is None or any(known.get(key) != metric for key, metric in sent.items()):
                send = None  # in case that the next line fails
                stack.close()
                send, sent, sent_labels = stack.enter_context(opened()), {}, {}
            new = [metric for key, metric in known.items() if key not in sent]
            send(new, {name: value for name, value in labels.items() if sent_labels.get(name) != value})
            sent, sent_labels = known, labels
        except Exception as error:  # noqa: BLE001 (of any kind: with its next news this process tries again)
            tell(error)
            send = None
    try:
        stack.close()
    except Exception as error:  # noqa: BLE001 (as above)
        tell(error)


def _labels(store: Store, run: str, pages: str) -> dict[str, str]:
    """What a tracker says of the run beside its metrics."""
    with store.read() as session:
        stored = queries.runs.get_run(session, run)
        checkpoints = queries.checkpoints.checkpoints_of(session, run)
    labels = {"run": run, "seed": str(stored.seed), "status": stored.status}
    labels |= {"dashboard": f"{pages}/runs/{quote(run)}"} if pages else {}
    return labels | {f"checkpoint/{of.role}/{of.iteration}": of.sha256 for of in checkpoints}


def _news() -> Iterator[set[int] | None]:
    """First None, then what comes on standard input, as much as there is at once, and None at the end."""
    queue = SimpleQueue[int | None]()

    def listen() -> None:
        for line in sys.stdin:
            if line == "end\n":
                break
            queue.put(int(line))
        signal.alarm(PATIENCE_S)  # ends the process, also one whose tracker hangs
        queue.put(None)

    Thread(target=listen, daemon=True).start()
    yield None
    while True:
        got = {queue.get()}
        while not queue.empty():
            got.add(queue.get())
        if None in got:
            yield None
            return
        yield {iteration for iteration in got if iteration is not None}


if __name__ == "__main__":
    main(*sys.argv[1:])
