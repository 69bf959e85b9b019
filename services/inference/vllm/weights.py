"""Swaps weights inside vLLM's workers: `engine_kwargs.worker_extension_cls` in deploy/serve names this class.

vLLM mixes the class into its own worker. Its `reload_weights` alone is not enough, as found with vLLM 0.29.0. If the
tensors of a folder do not fit, it leaves the engine unusable. If tensors are missing, they keep their old values
without any message. And on a CPU, a model with tied embeddings continues to answer with the old output head, because
vLLM made a packed copy of it at the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.inference.engines.base import ModelMismatch

_HEAD = "lm_head.weight"


class SwappedWeights:
    """The methods that `collective_rpc` calls on every worker of a replica."""

    model_runner: Any  # an attribute of vLLM's worker
    _shapes: dict[str, tuple[int, ...]]

    def swap_weights(self, folder: str) -> None:
        """Replace the weights by those in `folder`. Raises `ModelMismatch` before it changes anything."""
        current, new = self._shapes, self._shapes_in(folder)
        if new != current:
            differing = sorted(name for name in new.keys() | current.keys() if new.get(name) != current.get(name))
            raise ModelMismatch(
                f"{folder}: expected the tensors of the loaded model, these differ: {', '.join(differing[:3])}"
            )
        self.model_runner.reload_weights(weights_path=folder)
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        head = getattr(self.model_runner.get_model(), "lm_head", None)
        if hasattr(head, "cpu_linear"):  # on a CPU, vLLM has a packed copy of the output head, which is renewed here
            dispatch_cpu_unquantized_gemm(head, remove_weight=False)

    def limits(self) -> dict[str, int]:
        """The number of tokens that a prompt and its answer may have together, and the size of the vocabulary. To be
        called once, while the folder is there from which the engine has started: a training removes its own."""
        config = self._config()
        self._shapes = self._shapes_in(config.model)
        return {"context": int(config.max_model_len), "vocabulary": int(config.get_vocab_size())}

    def _shapes_in(self, folder: str) -> dict[str, tuple[int, ...]]:
        return _tensor_shapes(Path(folder), self._config().hf_config.tie_word_embeddings)

    def _config(self) -> Any:
        return self.model_runner.model_config


def _tensor_shapes(folder: Path, tied: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of a folder's tensors by name, without a tied head, which may or may not have been saved."""
    from safetensors import safe_open

    shapes = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            shapes.update({name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()})  # noqa: SIM118
    if tied:
        shapes.pop(_HEAD, None)
    return shapes
