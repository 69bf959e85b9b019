"""`coevo micro`: build a tiny base model again or in another size, and make the prompts of synthetic worlds."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from core.errors import CoevoError
from core.files import make_folder
from orchestrator.cli.terminal import clear_errors, written
from trainers.micro import synthetic
from trainers.micro.bases import BASES, DEFAULT, SIZES

micro = typer.Typer(
    help="Build the tiny bases that the demo and the experiments start from; make synthetic prompts.",
    no_args_is_help=True,
)
prompts = typer.Typer(help="Make prompts whose solutions can take many ways (Poly-EPO 6.2).", no_args_is_help=True)
micro.add_typer(prompts, name="prompts")

File = Annotated[Path, typer.Argument(help="JSONL file to write, with problem, answer and level.", show_default=False)]
Count = Annotated[int, typer.Option("--n", min=1, help="Number of different prompts.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same prompts.")]


class MicroError(CoevoError):
    """An option of `coevo micro build` with an unknown value."""


@micro.command("build")
def micro_build(
    folder: Annotated[Path, typer.Argument(help="Folder to write the model to.", show_default=False)],
    base: Annotated[str, typer.Option(help=f"Which one: {' or '.join(BASES)}.")] = DEFAULT,
    size: Annotated[str, typer.Option(help=f"Number of parameters: {', '.join(SIZES)}.")] = "0.5M",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Pre-train a tiny base model on its generated corpus.

    It takes about twenty minutes for `micro` on one core, and much longer for `micro-long`, or about six minutes on an
    H100.
    """
    with clear_errors():
        for option, value, known in (("base", base, BASES), ("size", size, SIZES), ("device", device, ("cpu", "cuda"))):
            if value not in known:
                raise MicroError(f"--{option}: expected one of {', '.join(known)}, got {value!r}")
        from trainers.micro.build import build  # imported here, because torch takes seconds to import

        config = replace(BASES[base].pretraining, size=SIZES[size])
        build(folder, lambda line: print(line, file=sys.stderr, flush=True), BASES[base], config, device)
        print(folder)


@prompts.command("multiplication")
def micro_prompts_multiplication(
    file: File,
    n: Count = 500,
    digits: Annotated[
        int, typer.Option(min=2, max=synthetic.MAX_DIGITS, help="Most digits of a factor; the fewest are 2.")
    ] = 3,
    seed: Seed = 0,
) -> None:
    """Products of two numbers, to be decomposed and distributed; the answer is the product."""
    with clear_errors():
        _write(file, synthetic.multiplications(seed, n, digits))


@prompts.command("polynomials")
def micro_prompts_polynomials(
    file: File,
    n: Count = 500,
    degree: Annotated[int, typer.Option(min=1, max=synthetic.MAX_DEGREE, help="Degree of the polynomials.")] = 2,
    seed: Seed = 0,
) -> None:
    """Polynomials, of which any point (x, y) is asked for; the answer stands for all of its points."""
    with clear_errors():
        _write(file, synthetic.polynomials(seed, n, degree))


def _write(file: Path, made: list[synthetic.SyntheticPrompt]) -> None:
    with written(file) as temporary:
        make_folder(file.parent)
        temporary.write_text("".join(f"{line}\n" for line in synthetic.lines(made)), encoding="utf-8")
    print(file)
