"""What we correct in EasyR1 when it is imported; its files stay as they are. Runs in EasyR1's environment (start.py).

- EasyR1 gives all requests the same seed, so vLLM answers equal prompts with equal rollouts, and all of a step's
  prompts to the Challenger are equal. Corrected: requests have no seed.
- EasyR1 seeds the generators of its ranks with 1000, 1001, …, in every training and again after each restart.
  Corrected: the seeds derive from `worker.rollout.seed`, which differs from job to job and from start to start.
- Of a step EasyR1 logs the KL of the last micro batch. Corrected: `coevo/kl` is the mean over all tokens of the step.

`unknown` says whether a checkout of EasyR1 has what is corrected here.
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
    """Correct EasyR1's modules in this process, each when it is imported."""
    sys.meta_path.insert(0, _Finder())


def _sample_freely(module: Any) -> None:
    """Requests without a seed, and a generator for each group of ranks that share a vLLM: those must draw the same."""
    rollout = module.vLLMRollout
    begin, generate = rollout.__init__, rollout.generate_sequences

    @functools.wraps(begin)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.sampling_params.seed = None
        self.drawn = False

    @functools.wraps(generate)
    def generate_sequences(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.drawn:  # from now on EasyR1 keeps the generator's state from one step to the next
            group = self.rank // self.config.tensor_parallel_size
            module.torch.cuda.manual_seed(seed_for(self.config.seed, "rank", group))
            self.drawn = True
        return generate(self, *args, **kwargs)

    rollout.__init__, rollout.generate_sequences = __init__, generate_sequences


def _log_the_whole_kl(module: Any) -> None:
    """In the actor's module `average_loss` is called for the KL only; the policy's loss is averaged elsewhere."""
    average, actor = module.average_loss, module.DataParallelPPOActor
    update = actor.update_policy
    sums = [0.0, 0.0]  # of this process: nats, tokens

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


_CORRECTIONS: dict[str, Callable[[Any], None]] = {_ROLLOUT: _sample_freely, _ACTOR: _log_the_whole_kl}


class _Finder:
    """Lets the other finders find a module, and has it corrected when it has been executed."""

    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        correct = _CORRECTIONS.get(name)
        if correct is None or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = find_spec(name)
        finally:
            self._asking.discard(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            correct(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


# What the corrections rest on: a class, its methods, and the names that each method uses.
_EXPECTED: dict[str, tuple[str, dict[str, frozenset[str]]]] = {
    _ROLLOUT: (
        "vLLMRollout",
        {"__init__": frozenset({"sampling_params", "rank", "config"}), "generate_sequences": frozenset({"generate"})},
    ),
    _ACTOR: ("DataParallelPPOActor", {"update_policy": frozenset({"average_loss", "compute_kl"})}),
}


def unknown(source: Path) -> str | None:
    """Why `source` is no EasyR1 that the corrections fit; None where they do."""
    for name, (expected, methods) in _EXPECTED.items():
        file = source / (name.replace(".", "/") + ".py")
        if not file.is_file():
            return f"there is no {file}"
        classes = {node.name: node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)}
        if expected not in classes:
            return f"{file} has no class {expected}"
        have = {node.name: _names(node) for node in classes[expected].body if isinstance(node, ast.FunctionDef)}
        for method, names in methods.items():
            if missing := sorted(names - have.get(method, frozenset())):
                return f"{expected}.{method} in {file} has no {missing[0]}"
    return None


def _names(tree: ast.AST) -> frozenset[str]:
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(names | {node.attr for node in nodes if isinstance(node, ast.Attribute)})
