"""A model that transformers 5 saved is rewritten so that EasyR1's transformers 4 can read it. Where EasyR1 is
installed, test_easyr1_contract.py reads it with transformers 4 itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from local_tiny import save_tiny, tiny_model

from orchestrator.installation.home import MICRO_MODEL
from trainers.base import TrainError
from trainers.easyr1.start_model import readable_start


def read_json(folder: Path, name: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((folder / name).read_text())
    return tree


def change_json(folder: Path, name: str, **changes: Any) -> None:
    (folder / name).write_text(json.dumps({**read_json(folder, name), **changes}))


def test_the_shipped_model_becomes_readable_and_keeps_its_weights(tmp_path: Path) -> None:
    folder = readable_start(MICRO_MODEL, tmp_path / "start")
    assert folder == tmp_path / "start"
    assert {path.name for path in folder.iterdir()} == {path.name for path in MICRO_MODEL.iterdir()}
    config = read_json(folder, "config.json")
    assert (config["rope_theta"], config["rope_scaling"]) == (10_000, None)
    assert "rope_parameters" not in config
    assert read_json(folder, "tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (folder / "model.safetensors").samefile(MICRO_MODEL / "model.safetensors")
    assert readable_start(folder, tmp_path / "again") == folder  # a readable model is used as it is
    assert readable_start(MICRO_MODEL, folder) == folder  # an existing folder is made anew


def test_rope_parameters_other_than_theta_become_rope_scaling(tmp_path: Path) -> None:
    start = save_tiny(tmp_path / "model")
    rope = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "partial_rotary_factor": 0.5}
    change_json(start, "config.json", rope_parameters=rope)
    change_json(start, "tokenizer_config.json", extra_special_tokens=["<x>"])
    folder = readable_start(start, tmp_path / "start")
    config, tokenizer = read_json(folder, "config.json"), read_json(folder, "tokenizer_config.json")
    assert (config["rope_theta"], config["partial_rotary_factor"]) == (5e5, 0.5)
    assert config["rope_scaling"] == {"rope_type": "yarn", "factor": 4.0}
    assert tokenizer["additional_special_tokens"] == ["<x>"]
    assert "extra_special_tokens" not in tokenizer


@pytest.mark.parametrize(
    ("file", "change", "setting"),
    [
        (
            "config.json",
            {"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e6}}},
            "rope_parameters",
        ),
        ("tokenizer_config.json", {"tokenizer_class": "SentencePieceBackend"}, "tokenizer_class"),
    ],
)
def test_a_model_that_transformers_4_cannot_express_is_refused(
    tmp_path: Path, file: str, change: dict[str, Any], setting: str
) -> None:
    start = save_tiny(tmp_path / "model", tiny_model())
    change_json(start, file, **change)
    with pytest.raises(TrainError, match=f"{re.escape(str(start / file))}: {setting}: "):
        readable_start(start, tmp_path / "start")
    assert not (tmp_path / "start").exists()
