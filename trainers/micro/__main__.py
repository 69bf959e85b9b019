"""`python -m trainers.micro build FOLDER`: build a tiny base again, or in another size; `prompts WORLD FILE`: make
prompts whose solutions can take many ways (Poly-EPO 6.2)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.errors import CoevoError
from core.files import make_folder, replacing
from trainers.micro import synthetic
from trainers.micro.bases import BASES, DEFAULT, SIZES


def options() -> argparse.ArgumentParser:
    """The options of both commands."""
    parser = argparse.ArgumentParser(prog="python -m trainers.micro", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    build = commands.add_parser("build", help="twenty minutes on one core for micro; much longer for micro-long")
    build.add_argument("folder", type=Path, help="folder to write the model to")
    build.add_argument("--base", choices=[*BASES], default=DEFAULT)
    build.add_argument("--size", choices=[*SIZES], default="0.5M", help="number of parameters")
    build.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    prompts = commands.add_parser("prompts", help="write JSONL with problem, answer and level")
    prompts.add_argument("world", choices=["multiplication", "polynomials"])
    prompts.add_argument("file", type=Path)
    prompts.add_argument("--n", type=int, default=500, help="number of different prompts")
    prompts.add_argument("--seed", type=int, default=0, help="the same seed gives the same prompts")
    prompts.add_argument(
        "--digits", type=int, choices=range(2, synthetic.MAX_DIGITS + 1), default=3, help="most of a factor"
    )
    prompts.add_argument(
        "--degree", type=int, choices=range(1, synthetic.MAX_DEGREE + 1), default=2, help="of the polynomials"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the arguments say, and print the path of what was made. An error exits with code 1 or 2."""
    parser = options()
    given = parser.parse_args(arguments)
    if given.command == "build":
        from trainers.micro.build import build as pretrain  # imported here, because torch takes seconds to import

        base = BASES[given.base]
        config = replace(base.pretraining, size=SIZES[given.size])
        pretrain(given.folder, lambda line: print(line, file=sys.stderr, flush=True), base, config, given.device)
        print(given.folder)
        return
    try:
        if given.n < 1 or given.seed < 0:
            parser.error(f"--n and --seed: expected at least 1 and at least 0, got {given.n} and {given.seed}")
        if given.world == "multiplication":
            made = synthetic.multiplications(given.seed, given.n, given.digits)
        else:
            made = synthetic.polynomials(given.seed, given.n, given.degree)
        make_folder(given.file.parent)
        with replacing(given.file) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in synthetic.lines(made)), encoding="utf-8")
    except CoevoError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {given.file}: cannot be written: {error.strerror}")
    print(given.file)


if __name__ == "__main__":
    main()
