"""From EasyR1's checkpoints, a shard a GPU, to a folder with a Hugging Face model in safetensors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from core.settings.trainers import EasyR1Settings
from trainers.base import TrainError
from trainers.folders import appearing

_TRACKER = "checkpoint_tracker.json"
_SHARD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json")


def newest_step(checkpoints: Path) -> int | None:
    """The last step whose checkpoint is whole; None before the first. EasyR1 writes its tracker when all shards are."""
    try:
        step = int(json.loads((checkpoints / _TRACKER).read_text(encoding="utf-8"))["last_global_step"])
    except FileNotFoundError:
        return None
    return step if (checkpoints / f"global_step_{step}").is_dir() else None


def merge(checkpoints: Path, step: int, start: Path, settings: EasyR1Settings, target: Path) -> None:
    """Make `target` of the step's shards, by EasyR1's own merger: whole, loadable, or not there at all.

    The tokenizer is `start`'s, since EasyR1 was given another chat template. Raises `TrainError`.
    """
    actor = checkpoints / f"global_step_{step}" / "actor"
    _expect_all_shards(actor)
    command = [settings.python, str(Path(settings.source) / "scripts" / "model_merger.py"), "--local_dir", str(actor)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = (done.stdout + done.stderr)[-2000:]
    if done.returncode or "Cannot find key" in done.stdout:  # which it says, and goes on with another tensor
        raise TrainError(f"{actor}: EasyR1's merger failed (exit status {done.returncode}): {output}")
    made = actor / "huggingface"
    with appearing(target) as folder:
        for file in (file for pattern in _WEIGHTS for file in made.glob(pattern)):
            shutil.copyfile(file, folder / file.name)
        weights = {file.name for file in folder.iterdir()}
        for file in (file for file in start.iterdir() if file.is_file()):
            if not any(file.match(pattern) for pattern in (*_WEIGHTS, "manifest.json")) and file.name not in weights:
                shutil.copyfile(file, folder / file.name)
        _verify(folder, start)


def _expect_all_shards(actor: Path) -> None:
    shards = [match for path in actor.glob("*.pt") if (match := _SHARD.fullmatch(path.name))]
    sizes = {int(match[1]) for match in shards}
    if len(sizes) != 1:
        raise TrainError(f"{actor}: expected the shards of one training, got those of {sorted(sizes) or 'none'} GPUs")
    (size,) = sizes
    if missing := sorted(set(range(size)) - {int(match[2]) for match in shards}):
        raise TrainError(f"{actor}: expected a shard of each of {size} GPUs, rank {missing[0]}'s is missing")


def _verify(folder: Path, start: Path) -> None:
    """Load what was made: every parameter there, none left over, all of it finite, and of the start's architecture."""
    before, after = (json.loads((path / "config.json").read_text()) for path in (start, folder))
    if before["architectures"] != after["architectures"]:
        raise TrainError(f"{folder}: expected {before['architectures']}, got {after['architectures']}")
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        load: Any = AutoModelForCausalLM.from_pretrained
        settings = {"dtype": torch.bfloat16, "local_files_only": True, "use_safetensors": True}
        model, info = load(folder, output_loading_info=True, **settings)
    finally:
        if bars:
            transformers_logging.enable_progress_bar()
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[what]:
            raise TrainError(
                f"{folder}: expected none of the parameters to be among {what}, got {sorted(info[what])[:5]}"
            )
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise TrainError(f"{folder}: {name}: expected finite numbers")
