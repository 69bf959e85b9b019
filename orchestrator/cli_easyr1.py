"""The commands about EasyR1: `coevo easyr1 render`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from core.config import RunConfig, load_config
from core.trainer_settings import EasyR1Settings
from core.types import Checkpoint
from orchestrator.home import MICRO_MODEL
from orchestrator.prompt_sets import trained_on
from orchestrator.runs import RunError, preset_path
from orchestrator.terminal import clear_errors, setting
from trainers.base import SolverService, TrainJob, TrainQuestion
from trainers.easyr1.fit import deviations

easyr1 = typer.Typer(help="EasyR1 as the trainer: docs/easyr1.md.", no_args_is_help=True)


@easyr1.callback()
def _group() -> None:
    """EasyR1 as the trainer: docs/easyr1.md."""


@easyr1.command()
def render(
    preset: Annotated[str, typer.Option(help="A preset of deploy/runs, or a TOML file.", show_default=False)],
    role: Annotated[str, typer.Option(help="solver or challenger.")] = "solver",
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("easyr1"),
    solver_url: Annotated[str, typer.Option(help="The Solver's service, for the Challenger's reward.")] = "",
    override: Annotated[
        list[str] | None, typer.Option("--set", help="A setting by its dotted name: trainer.gpus_per_node=4.")
    ] = None,
) -> None:
    """Write what EasyR1 would be started with for the first training of a preset: nothing is run, no GPU is needed.

    The Solver's questions are those of the preset's [prompts]: what a loop's Challenger will ask is not known yet.
    """
    from transformers import AutoTokenizer  # seconds, which no other command should take

    from trainers.easyr1.config import render as write

    with clear_errors():
        config = load_config(preset_path(preset), dict(setting(text) for text in override or []))
        if role not in ("solver", "challenger"):
            raise RunError(f"role: expected solver or challenger, got {role!r}")
        settings = config.trainer if isinstance(config.trainer, EasyR1Settings) else EasyR1Settings()
        folder = MICRO_MODEL if config.base_model == "micro" else Path(config.base_model)
        if not (folder / "config.json").is_file():
            raise RunError(f"base_model: {folder} is not a folder with a Hugging Face model (it has no config.json)")
        job = _job(config, "solver" if role == "solver" else "challenger", folder, out, solver_url)
        path = write(job, settings, AutoTokenizer.from_pretrained(folder, local_files_only=True), out)
        print(f"{path}: {job.training.steps} steps of {job.training.prompts_per_step} x {job.rollouts} rollouts")
        print("It differs from the embedded trainer's in this:")
        for sentence in deviations(job.training, job.reward):
            print(f"- {sentence}")


def _job(
    config: RunConfig, role: Literal["solver", "challenger"], folder: Path, out: Path, solver_url: str
) -> TrainJob:
    start = Checkpoint("preset/base/0", "preset", "base", 0, 0, str(folder), "", None)
    key = f"1/train_{role}"
    if role == "challenger":
        service = SolverService(solver_url or "http://127.0.0.1:8000/solver/v1", start.id, config.dataset.sampling)
        training, reward = config.challenger.training, config.challenger.reward
        return TrainJob(key, role, config.seed, start, training, reward, (), service, out)
    if config.prompts is None:
        raise RunError("prompts: this preset's Solver learns from what its Challenger will ask; --set prompts.file=…")
    given = config.prompts.labels == "given"
    if "label" in config.solver.reward.needs and not given:
        raise RunError("prompts.labels: the base model's votes are not known yet; expected 'given'")
    questions = tuple(
        TrainQuestion(f"{at:06d}", prompt.text, prompt.answer if given else None, prompt.answer)
        for at, prompt in trained_on(config, config.prompts)
    )
    solver = config.solver
    return TrainJob(key, role, config.seed, start, solver.training, solver.reward, questions, None, out, solver.signals)
