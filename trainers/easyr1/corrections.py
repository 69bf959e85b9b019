"""Corrects three things in EasyR1's modules when they are imported; EasyR1's files stay unchanged.

This module runs in EasyR1's environment (start.py). It makes these corrections:

- EasyR1 gives all requests the same seed, so vLLM answers equal prompts with equal rollouts, and all prompts of a
  Challenger step are equal. Corrected: requests have no seed.
- EasyR1 seeds the generators of its ranks with 1000, 1001, …, in every training and again after each restart.
  Corrected: the seeds derive from `worker.rollout.seed`, which differs from job to job and from start to start.
- EasyR1 logs the KL of a step's last micro batch only. Corrected: the additional metric `coevo/kl` is the mean over all
  tokens of the step.

`unknown` checks whether a checkout of EasyR1 has the code that is corrected here.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.seeds import seed_for

KL = "coevo/kl"

_ROLLOUT, _ACTOR = "verl.workers.rollout.vllm_rollout_spmd", "verl.workers.actor.dp_actor"


def install() -> None:
    """Have EasyR1's modules corrected in this process, each at its import."""
    sys.meta_path.insert(0, _Finder())


def _correct_seeds(module: Any) -> None:
    """Remove the seed of the requests, and seed each rank's generator before its first rollouts.

    The ranks that share one vLLM engine get the same seed, because they must draw the same tokens.
    """
    rollout = module.vLLMRollout
    original_init, generate = rollout.__init__, rollout.generate_sequences

    @functools.wraps(original_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        self.sampling_params.seed = None
        self.seeded = False

    @functools.wraps(generate)
    def generate_sequences(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.seeded:  # once is enough: EasyR1 keeps the generator's state from one step to the next
            engine = self.rank // self.config.tensor_parallel_size
            module.torch.cuda.manual_seed(seed_for(self.config.seed, "rank", engine))
            self.seeded = True
        return generate(self, *args, **kwargs)

    rollout.__init__, rollout.generate_sequences = __init__, generate_sequences


def _log_mean_kl(module: Any) -> None:
    """Log the mean KL over all tokens of a step as `coevo/kl`.

    The correction wraps `average_loss`, which the actor's module calls for the KL only; the policy's loss is averaged
    elsewhere.
    """
    average, actor = module.average_loss, module.DataParallelPPOActor
    update = actor.update_policy
    sums = [0.0, 0.0]  # of the step, in this process: nats and tokens

    @functools.wraps(average)
    def average_loss(values: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        sums[0] += float((values.detach() * mask).sum())
        sums[1] += float(mask.sum())
        return average(values, mask, *args, **kwargs)

    @functools.wraps(update)
    def update_policy(self: Any, *args: Any, **kwargs: Any) -> Any:
        sums[:] = 0.0, 0.0
        metrics = update(self, *args, **kwargs)
        if sums[1]:
            metrics[KL] = sums[0] / sums[1]
        return metrics

    module.average_loss, actor.update_policy = average_loss, update_policy


_CORRECTIONS: dict[str, Callable[[Any], None]] = {_ROLLOUT: _correct_seeds, _ACTOR: _log_mean_kl}


class _Finder:
    """An import finder that takes the spec of EasyR1's modules from the other finders, and corrects the modules.

    A module is corrected right after its code has been executed.
    """

    def __init__(self) -> None:
        self._in_progress: set[str] = set()  # modules whose spec the other finders are asked for

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        correct = _CORRECTIONS.get(name)
        if correct is None or name in self._in_progress:
            return None
        self._in_progress.add(name)
        try:
            spec = find_spec(name)
        finally:
            self._in_progress.discard(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            correct(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


# The code that the corrections change: for each module a class, its methods, and names that each method must use.
_EXPECTED: dict[str, tuple[str, dict[str, frozenset[str]]]] = {
    _ROLLOUT: (
        "vLLMRollout",
        {"__init__": frozenset({"sampling_params", "rank", "config"}), "generate_sequences": frozenset({"generate"})},
    ),
    _ACTOR: ("DataParallelPPOActor", {"update_policy": frozenset({"average_loss", "compute_kl"})}),
}


def unknown(source: Path) -> str | None:
    """The reason why the corrections do not fit the checkout `source` of EasyR1, or None if they fit."""
    for name, (expected, methods) in _EXPECTED.items():
        file = source / (name.replace(".", "/") + ".py")
        if not file.is_file():
            return f"there is no {file}"
        classes = {node.name: node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)}
        if expected not in classes:
            return f"{file} has no class {expected}"
        bodies = {node.name: node for node in classes[expected].body if isinstance(node, ast.FunctionDef)}
        for method, names in methods.items():
            nodes = list(ast.walk(bodies[method])) if method in bodies else []
            used = {node.id for node in nodes if isinstance(node, ast.Name)}
            used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            if missing := sorted(names - used):
                return f"{expected}.{method} in {file} has no {missing[0]}"
    return None
