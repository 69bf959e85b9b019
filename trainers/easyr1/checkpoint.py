"""Converts EasyR1's checkpoints, one shard per GPU, to a folder with a Hugging Face model in safetensors."""

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
    """The last step with a complete checkpoint, or None before the first one.

    EasyR1 updates its tracker file only after it has written all shards.
    """
    try:
        step = int(json.loads((checkpoints / _TRACKER).read_text(encoding="utf-8"))["last_global_step"])
    except FileNotFoundError:
        return None
    return step if (checkpoints / f"global_step_{step}").is_dir() else None


def merge(checkpoints: Path, step: int, start: Path, settings: EasyR1Settings, target: Path) -> None:
    """Merge the shards of `step` into the model folder `target`, with EasyR1's own merger.

    `target` appears only once the merged model is complete and has been loaded successfully. The tokenizer is copied
    from `start`, because EasyR1 ran with a different chat template. Raises `TrainError` if a shard is missing, or if
    the merger or the check of the result fails.
    """
    actor = checkpoints / f"global_step_{step}" / "actor"
    _expect_all_shards(actor)
    command = [settings.python, str(Path(settings.source) / "scripts" / "model_merger.py"), "--local_dir", str(actor)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    output = (result.stdout + result.stderr)[-2000:]
    # The merger prints "Cannot find key" for a missing tensor and continues, so its exit status does not show it.
    if result.returncode or "Cannot find key" in result.stdout:
        raise TrainError(f"{actor}: EasyR1's merger failed (exit status {result.returncode}): {output}")
    merged = actor / "huggingface"
    with appearing(target) as folder:
        for file in (file for pattern in _WEIGHTS for file in merged.glob(pattern)):
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
        raise TrainError(
            f"{actor}: expected the shards of one training, got shards for these numbers of GPUs: "
            f"{sorted(sizes) or 'none'}"
        )
    (size,) = sizes
    if missing := sorted(set(range(size)) - {int(match[2]) for match in shards}):
        raise TrainError(
            f"{actor}: expected one shard for each of {size} GPUs, the shard of rank {missing[0]} is missing"
        )


def _verify(folder: Path, start: Path) -> None:
    """Load the merged model and raise `TrainError` unless it is sound.

    It must have the architecture of `start`, exactly its parameters with their shapes, and only finite numbers.
    """
    before, after = (json.loads((path / "config.json").read_text()) for path in (start, folder))
    if before["architectures"] != after["architectures"]:
        raise TrainError(f"{folder}: expected {before['architectures']}, got {after['architectures']}")
    progress_bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        load: Any = AutoModelForCausalLM.from_pretrained
        settings = {"dtype": torch.bfloat16, "local_files_only": True, "use_safetensors": True}
        model, info = load(folder, output_loading_info=True, **settings)
    finally:
        if progress_bars:
            transformers_logging.enable_progress_bar()
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[problem]:
            raise TrainError(f"{folder}: expected no {problem} when loading the model, got {sorted(info[problem])[:5]}")
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise TrainError(f"{folder}: parameter {name}: expected finite numbers, got infinite ones or NaN")
