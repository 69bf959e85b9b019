"""`coevo plan`: the GPUs, memory, tokens and hours of a preset, computed by arithmetic that the output shows."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from core.settings.parsing import load_config
from orchestrator.check.size import Assumptions, SizingError, calculate
from orchestrator.check.size.calculate import Plan
from orchestrator.check.size.measured import Measured, measured
from orchestrator.check.size.table import table
from orchestrator.check.size.text import as_json as json_of
from orchestrator.check.size.text import page
from orchestrator.check.start import preset_path
from orchestrator.cli.terminal import SET, AsJson, Overrides, PresetName, clear_errors, overrides_of
from orchestrator.installation.home import home
from storage.errors import StoreError
from storage.session import open_store

_DEFAULT = Assumptions()
_MAX_GPUS = 64  # the arithmetic has not been checked for more


def plan(
    preset: PresetName,
    gpus: Annotated[
        int | None,
        typer.Option(
            help="Find the fastest layout on at most this many GPUs, 1 to 64, instead of the preset's layout."
        ),
    ] = None,
    gpu_memory: Annotated[float, typer.Option(help="Memory of one GPU, in GiB.", min=1)] = _DEFAULT.gpu_memory,
    gpus_per_node: Annotated[int, typer.Option(help="Number of GPUs in one machine.", min=1)] = _DEFAULT.gpus_per_node,
    trainer_nodes: Annotated[int, typer.Option(help="Number of machines that the trainer may use.", min=1)] = (
        _DEFAULT.trainer_nodes
    ),
    peak_tflops: Annotated[float, typer.Option(help="Peak of one GPU in bfloat16, in TFLOP/s.", min=1)] = (
        _DEFAULT.peak_tflops
    ),
    cpu_peak_tflops: Annotated[float, typer.Option(help="Peak of one CPU core in float32, in TFLOP/s.", min=0.001)] = (
        _DEFAULT.cpu_peak_tflops
    ),
    mfu_train: Annotated[float, typer.Option(help="Share of the peak that training reaches.", min=0.001, max=1)] = (
        _DEFAULT.mfu_train
    ),
    mfu_sample: Annotated[float, typer.Option(help="Share of the peak that sampling reaches.", min=0.001, max=1)] = (
        _DEFAULT.mfu_sample
    ),
    token_seconds: Annotated[
        float, typer.Option(help="Seconds from one token of an answer to the next, on a GPU.", min=0)
    ] = _DEFAULT.token_seconds,
    typical_share: Annotated[
        float, typer.Option(help="Length of a typical answer, as a share of its max_tokens.", min=0.001, max=1)
    ] = _DEFAULT.typical_share,
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of a prompt.", min=1)] = _DEFAULT.prompt_tokens,
    longest_prompt: Annotated[int, typer.Option(help="Tokens of the longest prompt.", min=1)] = _DEFAULT.longest_prompt,
    benchmark_items: Annotated[
        int, typer.Option(help="Questions of a benchmark whose number is not known on this machine.", min=1)
    ] = _DEFAULT.benchmark_items,
    given_prompts: Annotated[int, typer.Option(help="Prompts of a prompt set without a limit.", min=1)] = (
        _DEFAULT.given_prompts
    ),
    override: Overrides = None,
    as_table: Annotated[
        bool,
        typer.Option("--table", help="Print a Markdown table for 1, 2, 4, … 64 GPUs instead, as in docs/sizing.md."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate what a preset needs: the GPUs of each stage, memory, disk, tokens and hours. Nothing is run.

    The output shows the arithmetic and ends with the assumptions. Only the times of finished runs of the preset, if the
    store has such, were measured (docs/sizing.md).
    """
    with clear_errors():
        assumptions = Assumptions(
            gpu_memory=gpu_memory,
            gpus_per_node=gpus_per_node,
            trainer_nodes=trainer_nodes,
            peak_tflops=peak_tflops,
            cpu_peak_tflops=cpu_peak_tflops,
            mfu_train=mfu_train,
            mfu_sample=mfu_sample,
            token_seconds=token_seconds,
            typical_share=typical_share,
            prompt_tokens=prompt_tokens,
            longest_prompt=longest_prompt,
            benchmark_items=benchmark_items,
            given_prompts=given_prompts,
        )
        if gpus is not None and not 1 <= gpus <= _MAX_GPUS:
            raise SizingError(f"--gpus: expected 1 to {_MAX_GPUS}, got {gpus}")
        config = load_config(preset_path(preset), overrides_of(override), SET)
        if as_table:
            print(table(preset, config, assumptions))
            return
        estimate = calculate(preset, config, assumptions, gpus)
        of_runs = _of_finished_runs(estimate) if gpus is None else None  # another layout has other times
        print(json.dumps(json_of(estimate, of_runs), indent=1) if as_json else page(estimate, of_runs))


def _of_finished_runs(estimate: Plan) -> Measured | None:
    """What finished runs took; None also without a store."""
    try:
        store = open_store(home().database)
    except StoreError:
        return None
    with store.read() as session:
        return measured(session, estimate)
