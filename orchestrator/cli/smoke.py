"""`coevo smoke`: run a preset's whole path once, with little work, and say whether it works on this machine."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from orchestrator.check.smoke.canary import Gap
from orchestrator.check.smoke.run import Smoke
from orchestrator.check.smoke.run import smoke as run_smoke
from orchestrator.cli.terminal import AsJson, Overrides, PresetName, clear_errors, overrides_of
from trainers.base import LARGEST_SAMPLER_GAP


def smoke(
    preset: PresetName,
    override: Overrides = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the run's files, its checkpoints among them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a preset's whole path in minutes, with its own model and trainer but little work. No services may be up.

    It starts services of its own on free ports, with a store of its own, and removes them. Each training does one step
    of two prompts. At the end, the log-probabilities of the served Solver are compared with the trainer's. The exit
    code is 1 if anything failed.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that its services end too
    with clear_errors():
        result = run_smoke(preset, overrides_of(override), keep, lambda line: print(line, file=sys.stderr))
        print(json.dumps(_as_json(result), indent=1) if as_json else _text(result))
        raise typer.Exit(0 if result.passed else 1)


def _as_json(result: Smoke) -> dict[str, object]:
    stages = [{**asdict(stage), "tokens_per_second": stage.tokens_per_second} for stage in result.stages]
    return {"passed": result.passed, **asdict(result), "stages": stages, "gap_limit": LARGEST_SAMPLER_GAP}


def _text(result: Smoke) -> str:
    # Memory is the greatest in use while the stage ran: the machine's, and that of its fullest GPU.
    table = Table(Column("stage", no_wrap=True), "seconds", "tokens", "tokens/s", "GiB", "GPU GiB", box=SIMPLE_HEAD)
    for stage in result.stages:
        figures = (stage.seconds, stage.tokens or None, stage.tokens_per_second, stage.memory_gib, stage.gpu_memory_gib)
        table.add_row(f"{stage.stage} {stage.iteration}", *map(_figure, figures))
    console = Console()
    with console.capture() as capture:
        console.print(table)
    lines = [capture.get().rstrip()]
    if result.gap is not None:
        lines += [
            f"log-probabilities of the served Solver and of the trainer: {_difference(result.gap)}",
            f"expected a mean of at most {LARGEST_SAMPLER_GAP:g}",
        ]
    if result.gap_before is not None:
        lines.append(f"of the served Solver and of the base model: {_difference(result.gap_before)}")
    lines += [result.error] if result.error else []
    verdict = "passed" if result.passed else "failed"
    return "\n".join([*lines, f"{result.preset}: {verdict} after {result.seconds:.0f} s"])


def _difference(gap: Gap) -> str:
    return f"they differ by {gap.mean:.2g} nats a token on average, {gap.largest:.2g} at most (n = {gap.n} tokens)"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
