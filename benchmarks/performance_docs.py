"""Writes the measured part of docs/performance.md from the output of `coevo bench NAME --json`:

coevo bench NAME --json > FOLDER/NAME.json    # for each NAME of BENCHES
python -m benchmarks.performance_docs FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.pages import DOCS, write_measured
from benchmarks.targets import BENCHES, ENGINES, SMOLLM2, TARGETS, VLLM, Figures, Target
from core.errors import CoevoError


class PerformanceError(CoevoError):
    """Raised when the JSON of a benchmark is missing, or lacks figures that the benchmark prints now."""


def write(folder: Path, page: Path = DOCS / "performance.md") -> None:
    """Replace the measured part of `page` by the figures in `folder`/NAME.json, for each NAME of BENCHES.

    Raises `PerformanceError` if a file is missing, is not JSON, or lacks a figure. The page is unchanged then.
    """
    all_figures = {bench: _read(folder, bench) for bench in BENCHES}
    rows, sections = list[str](), list[str]()
    for bench, figures in all_figures.items():
        try:
            rows += [_row(target, figures) for target in TARGETS if target.bench == bench]
            sections.append(f"### {bench}\n\n{_SECTIONS[bench](figures)}")
        except KeyError as error:
            raise PerformanceError(f"{folder / bench}.json has no {error}: {_how_to_make(folder, bench)}") from error
    table = _table(("benchmark", "figure", "measured", "target", "result", "what it is, and what limits it"), rows)
    write_measured(page, [_machines(all_figures), _summary(all_figures), table, *sections])


def _read(folder: Path, bench: str) -> Figures:
    path = folder / f"{bench}.json"
    try:
        figures: Figures = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PerformanceError(f"{path} is missing: {_how_to_make(folder, bench)}") from error
    except json.JSONDecodeError as error:
        raise PerformanceError(f"{path} is not JSON ({error}): {_how_to_make(folder, bench)}") from error
    if "machine" not in figures:
        raise PerformanceError(f"{path} has no 'machine': {_how_to_make(folder, bench)}")
    return figures


def _how_to_make(folder: Path, bench: str) -> str:
    return f"make it with: coevo bench {bench} --json > {folder / bench}.json"


def _machines(all_figures: dict[str, Figures]) -> str:
    """The machine of all benchmarks, or one line for each machine with the benchmarks that ran on it."""
    benches_by_machine: dict[str, list[str]] = {}
    for bench, figures in all_figures.items():
        benches_by_machine.setdefault(_machine(figures["machine"]), []).append(bench)
    if len(benches_by_machine) == 1:
        return f"Measured on {next(iter(benches_by_machine))}."
    return "\n".join(f"- {', '.join(names)}: measured on {machine}." for machine, names in benches_by_machine.items())


def _machine(machine: dict[str, Any]) -> str:
    avx512 = {True: "with AVX-512", False: "without AVX-512", None: "AVX-512 not known"}[machine["avx512"]]
    versions = f"Python {machine['python']}, torch {machine['torch']}"
    return f"{machine['processor']}, {machine['cores']} cores, {avx512}; {versions}"


def _summary(all_figures: dict[str, Figures]) -> str:
    values = [(target, target.measured(all_figures[target.bench])) for target in TARGETS]
    missed = [
        f"`{target.bench}` `{target.figure}`"
        for target, value in values
        if value is not None and not target.is_met(value)
    ]
    skipped = sum(value is None for _, value in values)
    met = len(values) - len(missed) - skipped
    return (
        f"Of {len(values)} targets {met} are met, {len(missed)} missed and {skipped} not measured. "
        f"Missed: {', '.join(missed) or 'none'}."
    )


def _row(target: Target, figures: Figures) -> str:
    value = target.measured(figures)
    if value is None:
        measured, verdict = "", f"not measured: {target.needs} was not installed"
    else:
        measured, verdict = _with_unit(value, target.unit), "met" if target.is_met(value) else "**missed**"
    bound = f"{target.bound} {_with_unit(target.target, target.unit)}"
    return _cells(target.bench, f"`{target.figure}`", measured, bound, verdict, target.meaning)


def _overhead(figures: Figures) -> str:
    growth = [
        _cells(
            *(f"{int(size):,}", row["total_s"], f"{1000 * row['total_s'] / int(size):.2f}"),
            *(row["cpu_s"], f"{row['memory_mb']:,}"),
        )
        for size, row in figures["data_sets"].items()
    ]
    iterations = figures["demo"]["iterations"]
    parts = {
        "whole": "wall_s",
        "training": "training_s",
        "sampling and grading": "sampling_and_grading_s",
        "overhead": "overhead_s",
    }
    demo = [_cells(name, *(row[key] for row in iterations)) for name, key in parts.items()]
    demo += [
        _cells(f"overhead {_stage(stage)}", *(row["overhead"][stage] for row in iterations))
        for stage in iterations[0]["overhead"]
    ]
    client, start = figures["client"], figures["train_start"]
    return "\n\n".join(
        [
            "A data set by its number of questions, with ten votes each:",
            _table(("questions", "seconds", "ms a question", "processor seconds", "memory at most, MB"), growth),
            "The demo's iterations, in seconds:",
            _table(("part", *(f"iteration {i}" for i, _ in enumerate(iterations, 1))), demo),
            fill(
                f"{client['requests']:,} requests, {client['at_once']} at once, took {client['seconds']} s; the "
                f"engine's pauses alone take {client['least_seconds']} s. The first training of a process began after "
                f"{start['cold_s']} s, a later one after {start['warm_s']} s (median of {start['jobs']}).",
                120,
            ),
        ]
    )


def _stage(stage: str) -> str:
    return "between the stages" if stage == "between" else f"in `{stage}`"


def _trainer(figures: Figures) -> str:
    rates, memory = figures["tokens_per_s"], figures["memory_mb"]
    comparison = [
        _cells(name, *(f"{row[trainer]:,}" for trainer in ("ours", "trl")))
        for name, row in (("tokens a second", rates), ("memory at most, MB", memory))
    ]
    shares = [_cells(part.replace("_", " and "), _with_unit(share, "%")) for part, share in figures["shares"].items()]
    return "\n\n".join(
        [
            _table((f"median of {figures['steps']} steps", "ours", "TRL"), comparison),
            _table(("part of our step", "share"), shares),
        ]
    )


def _sampler(figures: Figures) -> str:
    models = {"tiny": figures["tiny"], "SmolLM2-135M": figures["smollm2"] or {}}
    rows = [
        _cells(
            *(model, batch, f"{row['tokens_per_s']:,}", f"{row['generate_tokens_per_s']:,}"),
            *(_with_unit(row["ratio"], "times"), row["limit"], _with_unit(row["share_of_limit"], "%")),
        )
        for model, by_batch in models.items()
        for batch, row in by_batch.items()
    ]
    head = ("model", "batch size", "tokens/s", "`generate`, tokens/s", "ratio", "limit", "share of the limit")
    speeds = (
        f"One thread of this machine does {figures['gflops']} GFLOP/s in a matrix product and copies "
        f"{figures['copied_gb_per_s']} GB/s: the limits."
    )
    skipped = [] if figures["smollm2"] else [_skipped("SmolLM2-135M", SMOLLM2)]
    return "\n\n".join([_table(head, rows), speeds, *skipped])


def _serving(figures: Figures) -> str:
    rows = [
        _cells(
            *(ENGINES[engine], model, f"{row['direct_tokens_per_s']:,}", f"{row['served_tokens_per_s']:,}"),
            _with_unit(row["ratio"], "%"),
        )
        for engine, larger in _engines(figures).items()
        for model, row in ((f"{larger['parameters']:,} parameters", larger), ("the tiny one", larger["tiny"]))
    ]
    head = ("engine", "model", "tokens/s of the engine alone", "served", "share")
    return "\n\n".join([_table(head, rows), *_without_vllm(figures)])


def _swap(figures: Figures) -> str:
    rows = [
        _cells(
            *(ENGINES[engine], f"{row['cold_start_s']} s", f"{row['swap_s']} s", _with_unit(row["ratio"], "%")),
            *(row["swaps"], f"{row['requests']:,}", row["lost_requests"]),
        )
        for engine, row in _engines(figures).items()
    ]
    head = ("engine", "cold start", "swap", "swap / cold start", "swaps", "requests", "lost")
    return "\n\n".join([_table(head, rows), *_without_vllm(figures)])


def _startup(figures: Figures) -> str:
    names = {
        "help_cpu_s": "`coevo --help`, processor time",
        "status_s": "`coevo status`",
        "up_s": "`coevo up`, in a new home",
        "down_s": "`coevo down`",
    }
    return _table(("command", "seconds"), [_cells(name, figures[key]) for key, name in names.items()])


_SECTIONS: dict[str, Callable[[Figures], str]] = {
    "overhead": _overhead,
    "trainer": _trainer,
    "sampler": _sampler,
    "serving": _serving,
    "swap": _swap,
    "startup": _startup,
}


def _engines(figures: Figures) -> Figures:
    return {engine: figures[engine] for engine in ENGINES if engine in figures}


def _without_vllm(figures: Figures) -> list[str]:
    return [] if "vllm" in figures else [_skipped("The vLLM engine", VLLM)]


def _skipped(subject: str, needs: str) -> str:
    return f"{subject} was not measured: {needs} was not installed."


def _with_unit(value: float, unit: str) -> str:
    return f"{100 * value:g}%" if unit == "%" else f"{value:,} {unit}"


def _table(head: Iterable[str], rows: Iterable[str]) -> str:
    head = tuple(head)
    return "\n".join([_cells(*head), f"|{'---|' * len(head)}", *rows])


def _cells(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]))
    except PerformanceError as problem:
        sys.exit(f"error: {problem}")
