"""`coevo plan`: GPUs, memory, tokens and hours of a preset, by arithmetic that is shown."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from core.settings.parsing import load_config
from orchestrator.cli.terminal import AsJson, clear_errors, setting
from orchestrator.runs import preset_path
from orchestrator.sizing import Assumptions, SizingError, calculate
from orchestrator.sizing.table import table
from orchestrator.sizing.text import as_json as json_of
from orchestrator.sizing.text import page

_DEFAULT = Assumptions()
_MOST = 64  # GPUs: what the arithmetic was thought through for


def plan(
    preset: Annotated[str, typer.Argument(help="A preset of deploy/runs, or a TOML file.", show_default=False)],
    gpus: Annotated[
        int | None, typer.Option(help="Find the fastest layout of up to so many, 1 to 64, instead of the preset's own.")
    ] = None,
    gpu_memory: Annotated[float, typer.Option(help="GiB of one GPU.", min=1)] = _DEFAULT.gpu_memory,
    gpus_per_node: Annotated[int, typer.Option(help="Of one machine.", min=1)] = _DEFAULT.gpus_per_node,
    trainer_nodes: Annotated[int, typer.Option(help="Machines that the trainer may span.", min=1)] = (
        _DEFAULT.trainer_nodes
    ),
    peak_tflops: Annotated[float, typer.Option(help="Of one GPU, bfloat16.", min=1)] = _DEFAULT.peak_tflops,
    cpu_peak_tflops: Annotated[float, typer.Option(help="Of one core, float32.", min=0.001)] = _DEFAULT.cpu_peak_tflops,
    mfu_train: Annotated[float, typer.Option(help="Share of the peak in training.", min=0.001, max=1)] = (
        _DEFAULT.mfu_train
    ),
    mfu_sample: Annotated[float, typer.Option(help="Share of the peak in sampling.", min=0.001, max=1)] = (
        _DEFAULT.mfu_sample
    ),
    token_seconds: Annotated[float, typer.Option(help="From one token of an answer to the next.", min=0)] = (
        _DEFAULT.token_seconds
    ),
    typical_share: Annotated[
        float, typer.Option(help="Of its max_tokens that an answer has, typically.", min=0.001, max=1)
    ] = _DEFAULT.typical_share,
    prompt_tokens: Annotated[int, typer.Option(help="Of a prompt.", min=1)] = _DEFAULT.prompt_tokens,
    longest_prompt: Annotated[int, typer.Option(help="Tokens of the longest one.", min=1)] = _DEFAULT.longest_prompt,
    benchmark_items: Annotated[int, typer.Option(help="Of a benchmark that is not here.", min=1)] = (
        _DEFAULT.benchmark_items
    ),
    given_prompts: Annotated[int, typer.Option(help="Of a prompt file without a limit.", min=1)] = (
        _DEFAULT.given_prompts
    ),
    override: Annotated[
        list[str] | None, typer.Option("--set", help="A setting by its dotted name.", show_default=False)
    ] = None,
    as_table: Annotated[
        bool, typer.Option("--table", help="A Markdown table of 1, 2, 4, … 64 GPUs instead: docs/sizing.md has it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Work out what a preset takes: who holds which GPU in which stage, memory, tokens, hours. Nothing is run.

    The sums are shown; what they assume is listed at the end, and nothing in them was measured (docs/sizing.md).
    """
    with clear_errors():
        assumed = Assumptions(
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
        if gpus is not None and not 1 <= gpus <= _MOST:
            raise SizingError(f"--gpus: expected 1 to {_MOST}, got {gpus}")
        config = load_config(preset_path(preset), dict(setting(text) for text in override or []))
        if as_table:
            print(table(preset, config, assumed))
            return
        calculated = calculate(preset, config, assumed, gpus)
        print(json.dumps(json_of(calculated), indent=1) if as_json else page(calculated))
