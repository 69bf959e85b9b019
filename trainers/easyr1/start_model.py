"""Prepares the model that a training starts from, so that EasyR1 can read it.

EasyR1 needs transformers 4, and our models are saved by transformers 5, which writes two things differently. It writes
another tokenizer class, which transformers 4 cannot load. And it writes the base of the rotary embedding to another
place, so that transformers 4 silently uses its default. For such a model EasyR1 gets a folder in which these two files
are rewritten and all others are links. The weights are the same.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from trainers.base import TrainError

_CONFIG, _TOKENIZER = "config.json", "tokenizer_config.json"
# Of the keys in transformers 5's rope_parameters, transformers 4 expects these at the top level of the configuration,
# and the others in rope_scaling.
_TOP_LEVEL = ("rope_theta", "partial_rotary_factor")


def readable_start(start: Path, folder: Path) -> Path:
    """A folder with the model `start` that transformers 4 can read: `start` itself if it can, else `folder`.

    `folder` is then made anew. Raises `TrainError` if transformers 4 cannot express the model's configuration.
    """
    rewritten = {
        name: after
        for name, rewrite in ((_CONFIG, _rewrite_config), (_TOKENIZER, _rewrite_tokenizer))
        if (start / name).is_file()
        and (after := rewrite(before := json.loads((start / name).read_text(encoding="utf-8")), start)) != before
    }
    if not rewritten:
        return start
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in start.iterdir():
        if file.name not in rewritten:
            (folder / file.name).symlink_to(file.resolve())
    for name, tree in rewritten.items():
        (folder / name).write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return folder


def _rewrite_config(config: dict[str, Any], start: Path) -> dict[str, Any]:
    rope = config.get("rope_parameters")
    if rope is None or "rope_theta" in config:
        return config
    if "rope_theta" not in rope:
        raise TrainError(
            f"start: {start / _CONFIG}: rope_parameters: expected one rope_theta for all layers, because EasyR1's "
            f"transformers 4 can read nothing else; got {', '.join(rope)}"
        )
    scaling = {name: value for name, value in rope.items() if name not in _TOP_LEVEL}
    has_scaling = scaling.get("rope_type", "default") != "default"
    return {
        **{name: value for name, value in config.items() if name != "rope_parameters"},
        **{name: rope[name] for name in _TOP_LEVEL if name in rope},
        "rope_scaling": scaling if has_scaling else None,
    }


def _rewrite_tokenizer(config: dict[str, Any], start: Path) -> dict[str, Any]:
    rewritten = dict(config)
    if config.get("tokenizer_class") == "TokenizersBackend":  # such a tokenizer is defined by tokenizer.json alone
        rewritten["tokenizer_class"] = "PreTrainedTokenizerFast"
    elif str(config.get("tokenizer_class")).endswith("Backend"):
        raise TrainError(
            f"start: {start / _TOKENIZER}: tokenizer_class: expected TokenizersBackend, because EasyR1's "
            f"transformers 4 needs a tokenizer.json; got {config['tokenizer_class']}"
        )
    if isinstance(extra := config.get("extra_special_tokens"), list):  # transformers 4 expects a dictionary here
        del rewritten["extra_special_tokens"]
        rewritten["additional_special_tokens"] = [*rewritten.get("additional_special_tokens", []), *extra]
    return rewritten
