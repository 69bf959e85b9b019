"""The model that a training starts from, in a form that EasyR1 can read.

EasyR1 needs transformers 4, and our models are saved by transformers 5, which writes two things differently: the class
of the tokenizer, so that transformers 4 does not load it, and the base of the rotary embedding, instead of which
transformers 4 silently takes its default. For such a model EasyR1 gets a folder in which these two files are rewritten,
and all others are links. The weights are the same in both.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from trainers.base import TrainError

_CONFIG, _TOKENIZER = "config.json", "tokenizer_config.json"
# What transformers 4 has outside of rope_scaling; the rest of transformers 5's rope_parameters it has there.
_AT_THE_TOP = ("rope_theta", "partial_rotary_factor")


def readable_start(start: Path, folder: Path) -> Path:
    """`start` if transformers 4 reads it as it is, else `folder`, which is made anew. Raises `TrainError` for what
    transformers 4 cannot express."""
    rewritten = {
        name: after
        for name, rewrite in ((_CONFIG, _config), (_TOKENIZER, _tokenizer))
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


def _config(tree: dict[str, Any], start: Path) -> dict[str, Any]:
    rope = tree.get("rope_parameters")
    if rope is None or "rope_theta" in tree:
        return tree
    if "rope_theta" not in rope:
        raise TrainError(
            f"start: {start / _CONFIG}: rope_parameters: expected one rope_theta for all layers, which is what "
            f"EasyR1's transformers 4 can read; got {', '.join(rope)}"
        )
    rest = {name: value for name, value in rope.items() if name not in _AT_THE_TOP}
    scaling = None if rest.get("rope_type", "default") == "default" else rest
    top = {name: rope[name] for name in _AT_THE_TOP if name in rope}
    return {
        **{name: value for name, value in tree.items() if name != "rope_parameters"},
        **top,
        "rope_scaling": scaling,
    }


def _tokenizer(tree: dict[str, Any], start: Path) -> dict[str, Any]:
    changed = dict(tree)
    if tree.get("tokenizer_class") == "TokenizersBackend":  # tokenizer.json alone says how it tokenizes
        changed["tokenizer_class"] = "PreTrainedTokenizerFast"
    elif str(tree.get("tokenizer_class")).endswith("Backend"):
        raise TrainError(
            f"start: {start / _TOKENIZER}: tokenizer_class: EasyR1's transformers 4 reads tokenizer.json "
            f"(TokenizersBackend); got {tree['tokenizer_class']}"
        )
    if isinstance(extra := tree.get("extra_special_tokens"), list):  # a dictionary in transformers 4
        del changed["extra_special_tokens"]
        changed["additional_special_tokens"] = [*changed.get("additional_special_tokens", []), *extra]
    return changed
