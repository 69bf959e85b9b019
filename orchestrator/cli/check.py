"""`coevo check`: is this machine ready, what is a preset, what is missing for it, and what does it need?"""

from __future__ import annotations

import signal
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from core.settings.parsing import ConfigError
from core.texts.unicode import without_commands
from orchestrator.check.answers import Answers, answers_for, as_json
from orchestrator.check.machine.examine import OF_MACHINE, Result, examine
from orchestrator.check.machine.result import Status, Subject
from orchestrator.check.presets import describe, preset_names, usual_name
from orchestrator.check.size.estimate import Estimate, Range, advice
from orchestrator.check.size.memory import disk_lines
from orchestrator.check.smoke.run import Smoke, smoke
from orchestrator.cli.terminal import (
    SET,
    AsJson,
    FromRun,
    Iterations,
    LocalRunName,
    Overrides,
    overrides_of,
    print_json,
    printable,
    suggest_presets,
    wide,
)
from orchestrator.installation.home import home
from orchestrator.installation.ports import Ports
from services.views.remaining import range_text
from trainers.base import LARGEST_SAMPLER_GAP

_COLOURS: dict[Status, str] = {"ok": "green", "warning": "yellow", "fault": "red", "-": "bright_black"}
_LONGEST = 1000  # characters of a line about the machine
_WIDTH = 80


def check(
    preset: Annotated[
        str | None,
        typer.Argument(
            help="Name of a preset in deploy/runs, or path of a TOML file; without it, the machine is checked.",
            show_default=False,
            autocompletion=suggest_presets,
        ),
    ] = None,
    from_run: FromRun = None,
    name: LocalRunName = None,
    iterations: Iterations = None,
    override: Overrides = None,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets instead.")] = False,
    gpu_memory: Annotated[
        float | None,
        typer.Option(help="Memory of one GPU, in GiB; by default of this machine's, or 80.", min=1, show_default=False),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Run the preset's whole path once, with little work.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="With --run: keep its files, checkpoints among them.")] = False,
    as_json_: AsJson = False,
) -> None:
    """Check whether this machine is ready; or, with a preset, say what it is, needs and lacks here.

    Nothing is started or written, and all faults are shown at once. A fault keeps the services or the run from
    starting; the exit code is then 1. A warning is about what the run can do without, or would wait for. Hours are by
    assumed speeds, unless finished runs of the preset are in the store.

    --run takes minutes. It starts its own services with their own store, runs each stage with the preset's model and
    trainer, compares the log-probabilities of the served Solver with the trainer's, and removes everything. No other
    services may be up.
    """
    if run:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that its services end too
    if presets:
        _list_presets(as_json_)
        return
    if run and (preset is None or from_run is not None):
        raise ConfigError(f"--run: expected a preset, got {'none' if from_run is None else '--from'}")
    if preset is None and from_run is None:
        failed = _check_machine(as_json_)
    elif run and preset is not None:
        tried = smoke(preset, overrides_of(override), keep, lambda line: print(line, file=sys.stderr))
        if as_json_:
            stages = [{**asdict(stage), "tokens_per_second": stage.tokens_per_second} for stage in tried.stages]
            extra = {"passed": tried.passed, "gap_limit": LARGEST_SAMPLER_GAP}
            print_json({**asdict(tried), "stages": stages, **extra})
        else:
            _show_smoke(tried)
        failed = not tried.passed
    else:
        asked = name or usual_name(preset, from_run), preset or "", iterations or 0, overrides_of(override), SET
        answers = answers_for(home(), *asked, gpu_memory, from_run or "")
        if as_json_:
            print_json(as_json(answers))
        else:
            _show(answers)
        failed = answers.count_of_faults > 0
    raise typer.Exit(1 if failed else 0)


def _list_presets(as_json_: bool) -> None:
    names = preset_names()
    whole = Column("preset", min_width=max(map(len, names)))  # a name that is cut off cannot be used
    table = Table(whole, "what it is", "GPUs", "hours", "missing here", box=SIMPLE_HEAD)
    for preset in map(describe, names):
        if as_json_:
            print_json(preset, indent=None)
        missing = ", ".join(dict.fromkeys(need.kind for need in preset.needs if need.here is False))
        hours = "" if preset.hours is None else _range(preset.hours)
        table.add_row(preset.name, preset.about, str(preset.gpus or "none"), hours, missing)
    if not as_json_:
        wide().print(table)


def _check_machine(as_json_: bool) -> bool:
    """Whether there is a fault. Each line is shown as soon as it is known."""
    results, coevo_home = list[Result](), home()
    for result in examine(Subject(coevo_home, ports=Ports().as_last_time(coevo_home)), OF_MACHINE):
        results.append(result)
        if not as_json_:
            console = Console(emoji=False, highlight=False, soft_wrap=True)
            texts = (result.detail, result.remedy or "")
            detail, remedy = (printable(" ".join(text.split()), _LONGEST) for text in texts)
            console.print(f"[{_COLOURS[result.status]}]{result.status:<8}[/]{result.name:<18}{detail}")
            if remedy:
                console.print(f"{'':<26}-> {remedy}")
    counts = Counter(result.status for result in results)
    if as_json_:
        print_json({"faults": counts["fault"], "warnings": counts["warning"], "checks": results})
    else:
        print(f"faults: {counts['fault']}, warnings: {counts['warning']}")
        print("`coevo check --presets` lists what can be run; `coevo check PRESET` says what is missing for it.")
    return counts["fault"] > 0


def _show(answers: Answers) -> None:
    """One page of a terminal of 80 columns."""
    if (preset := answers.described) is not None:
        of = f"{preset.kind} with {preset.method}, {preset.iterations} iterations of {preset.base_model}"
        papers = f", arXiv {' and '.join(preset.arxiv)}" if preset.arxiv else ""
        print("\n".join([*_wrapped(f"{preset.name}: {preset.about}"), *_wrapped(of + papers)]))
    if answers.estimate is not None:
        print("\n".join(_needed(answers, answers.estimate)))
    rows = [("fault", str(fault)) for fault in answers.faults]
    rows += [("warning", str(fault)) for fault in answers.warnings]
    for result in answers.results:
        if result.status in ("fault", "warning"):
            rows.append((result.status, "; ".join(filter(None, (f"{result.name}: {result.detail}", result.remedy)))))
    for title, text in sorted(rows, key=lambda row: row[0]):
        first, *others = _wrapped(without_commands(text), f"{title}: ")
        typer.secho(first[: len(title) + 2], fg="red" if title == "fault" else "yellow", bold=True, nl=False)
        typer.echo("\n".join([first[len(title) + 2 :], *others]))
    can = "cannot start" if answers.count_of_faults else "can start"
    counts = Counter(title for title, _ in rows)
    print(f"run {answers.run} {can}: faults {counts['fault']}, warnings {counts['warning']}")


def _wrapped(text: str, beginning: str = "") -> list[str]:
    """The lines of a text. A path that is longer than a line stays whole, so that it can be copied."""
    wrapper = textwrap.TextWrapper(_WIDTH, beginning, subsequent_indent="  ", break_on_hyphens=False)
    wrapper.break_long_words = False
    return wrapper.wrap(text)


def _needed(answers: Answers, estimated: Estimate) -> Iterator[str]:
    disk = sum(disk_lines(estimated.config).values())
    if not estimated.gpus:
        yield f"It needs no GPU, and up to {disk:.1f} GiB of disk."
    else:
        fits = "by arithmetic it does not fit" if estimated.problems else "it fits, by arithmetic"
        cards = f"{estimated.gpus} GPU{'s' * (estimated.gpus > 1)} of {estimated.gpu_memory:.0f} GiB"
        yield from _wrapped(f"It needs {cards} ({fits}), and up to {disk:,.0f} GiB of disk.")
        yield f"{'an iteration':<19}{'GPUs':<30}{'GiB':>6}{'M tokens':>14}{'hours':>11}"
        for stage in (row for row in estimated.stages if row.gpus):
            holders = ", ".join(f"{holder}\N{NO-BREAK SPACE}{_numbers(gpus)}" for holder, gpus in stage.gpus.items())
            lines = textwrap.wrap(holders, 29, break_on_hyphens=False)  # a holder and its numbers stay together
            first, *others = (line.replace("\N{NO-BREAK SPACE}", " ") for line in lines)
            tokens, hours = _range(stage.million_tokens), _range(stage.hours)
            yield f"{stage.stage:<19}{first:<30}{stage.fullest_gib:>6.1f}{tokens:>14}{hours:>11}"
            yield from (f"{'':<19}{line}" for line in others)
        run, rate = estimated.run_hours, estimated.config.rates.gpu_hour
        money = f", {_range((run[0] * estimated.gpus * rate, run[1] * estimated.gpus * rate))} of money" if rate else ""
        yield f"The run takes {_range(run)} hours by assumed speeds (typical to most){money}."
        if estimated.problems:
            yield from _wrapped(f"It would take less memory with {'; '.join(advice(estimated))}.")
    if answers.measured is not None:
        took = range_text(*(3600 * hours for hours in answers.measured.run_hours))
        runs = ", ".join(answers.measured.runs)
        yield from _wrapped(f"As {runs} went here, the run takes {took}.")


def _range(interval: Range) -> str:
    return " to ".join(f"{value:.1f}" if value < 10 else f"{value:,.0f}" for value in interval)


def _numbers(gpus: list[int]) -> str:
    """0-3 of 0, 1, 2, 3; they are listed where one is left out."""
    first, last = min(gpus), max(gpus)
    if sorted(gpus) != [*range(first, last + 1)]:
        return ",".join(map(str, sorted(set(gpus))))
    return f"{first}-{last}" if first < last else f"{first}"


def _show_smoke(tried: Smoke) -> None:
    # Memory is the greatest in use while the stage ran: the machine's, and that of its fullest GPU.
    table = Table(Column("stage", no_wrap=True), "seconds", "tokens", "tokens/s", "GiB", "GPU GiB", box=SIMPLE_HEAD)
    for stage in tried.stages:
        figures = (stage.seconds, stage.tokens or None, stage.tokens_per_second, stage.memory_gib, stage.gpu_memory_gib)
        cells = ("" if of is None else f"{of:,}" if isinstance(of, int) else f"{of:,.1f}" for of in figures)
        table.add_row(f"{stage.stage} {stage.iteration}", *cells)
    Console().print(table)
    for gap, whose in ((tried.gap, "the trainer"), (tried.gap_before, "the base model")):
        if gap is not None:
            print(
                f"log-probabilities of the served Solver and of {whose}: they differ by {gap.mean:.2g} nats a token on "
                f"average, {gap.largest:.2g} at most (n = {gap.n} tokens)"
            )
    if tried.gap:
        print(f"expected of the trainer's a mean of at most {LARGEST_SAMPLER_GAP:g}")
    if tried.error:
        print(tried.error)
    print(f"{tried.preset}: {'passed' if tried.passed else 'failed'} after {tried.seconds:.0f} s")
