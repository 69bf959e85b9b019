"""What runs inside vLLM's workers to swap weights: `engine_kwargs.worker_extension_cls` in deploy/serve.

vLLM mixes this class into its own worker. Found with vLLM 0.29.0, and the reason for not calling its `reload_weights`
alone: a folder whose tensors do not fit leaves the engine unusable, one with tensors missing keeps the old ones without
a word, and on a CPU a model whose output head is its embedding keeps answering with the old head, of which it made a
packed copy when it started.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.inference.engines.base import ModelMismatch

_HEAD = "lm_head.weight"


class SwappedWeights:
    """Methods that `collective_rpc` calls on every worker of a replica."""

    model_runner: Any  # the worker's own

    def swap_weights(self, folder: str) -> None:
        """Replace the weights by those in `folder`. Raises `ModelMismatch`, before anything is touched."""
        loaded, tied = self._config().model, self._config().hf_config.tie_word_embeddings
        now, new = _tensors(Path(loaded), tied), _tensors(Path(folder), tied)
        if new != now:
            differ = sorted(name for name in new.keys() | now.keys() if new.get(name) != now.get(name))
            raise ModelMismatch(f"{folder}: not the loaded model's tensors: {', '.join(differ[:3])} differ")
        self.model_runner.reload_weights(weights_path=folder)
        self._pack_head()

    def limits(self) -> dict[str, int]:
        """Tokens that a prompt and its answer may have together, and the size of the vocabulary."""
        config = self._config()
        return {"context": int(config.max_model_len), "vocabulary": int(config.get_vocab_size())}

    def _config(self) -> Any:
        return self.model_runner.model_config

    def _pack_head(self) -> None:
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        head = getattr(self.model_runner.get_model(), "lm_head", None)
        if hasattr(head, "cpu_linear"):
            dispatch_cpu_unquantized_gemm(head, remove_weight=False)


def _tensors(folder: Path, tied: bool) -> dict[str, tuple[int, ...]]:
    """Name -> shape; a head that is the embedding may or may not have been saved."""
    from safetensors import safe_open

    by_name = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            by_name.update({name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()})  # noqa: SIM118
    if tied:
        by_name.pop(_HEAD, None)
    return by_name
