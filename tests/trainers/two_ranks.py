"""Two processes that are the two ranks of a job and run the functions that a test gives them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from local_loops import PROCESSES

from trainers.local.ranks import Ranks

# Takes a function of (ranks, *arguments), and the arguments; returns what the function returned on each of two ranks.
Pair = Callable[..., list[Any]]


def _rank(rank: int, rendezvous: Path, pipe: Connection) -> None:
    """The process of one rank: it runs functions until it receives None."""
    gc.freeze()  # what was imported is never freed, and some tests look at all that was made later
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    for work, arguments in iter(pipe.recv, None):
        pipe.send(work(Ranks(rank, 2), *arguments))
    dist.destroy_process_group()


@contextmanager
def two_ranks(rendezvous: Path) -> Iterator[Pair]:
    """Run both ranks for the block; `rendezvous` is a file that does not exist yet."""
    pipes = [PROCESSES.Pipe() for _ in range(2)]
    workers = [PROCESSES.Process(target=_rank, args=(rank, rendezvous, pipe[1])) for rank, pipe in enumerate(pipes)]
    for worker, (_, theirs) in zip(workers, pipes, strict=True):
        worker.start()
        theirs.close()  # so that a dead worker is the end of its pipe

    def run_on_both(work: Callable[..., Any], *arguments: Any) -> list[Any]:
        for ours, _ in pipes:
            ours.send((work, arguments))
        return [ours.recv() for ours, _ in pipes]

    yield run_on_both
    for worker, (ours, _) in zip(workers, pipes, strict=True):
        if worker.is_alive():
            ours.send(None)
        worker.join(20)
        worker.kill()
