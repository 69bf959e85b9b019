"""Runs EasyR1's own code on our files, in its own process: `python easyr1_contract.py SOURCE`, requests as JSON lines.

Modules that EasyR1 imports and that have no build for a CPU are stubs: vllm, flash_attn, liger_kernel, qwen_vl_utils.
The code that runs here does not use them.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import json
import sys
import types
import typing
from typing import Any, ClassVar

STUBBED = (
    "vllm",
    "vllm.distributed",
    "vllm.distributed.parallel_state",
    "vllm.lora",
    "vllm.lora.models",
    "vllm.lora.peft_helper",
    "vllm.lora.request",
    "vllm.lora.utils",
    "vllm.lora.worker_manager",
    "vllm.model_executor",
    "vllm.model_executor.model_loader",
    "vllm.model_executor.models",
    "flash_attn",
    "flash_attn.bert_padding",
    "liger_kernel",
    "liger_kernel.transformers",
    "qwen_vl_utils",
    "qwen_vl_utils.vision_process",
)


class _Anything(types.ModuleType):
    """A module that has every name."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stub() -> None:
    for name in STUBBED:
        module = _Anything(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__version__ = "0"
        sys.modules[name] = module


def load_config(path: str) -> Any:
    """Read the file as `verl.trainer.main` does: an unknown key or a wrong type is an error."""
    from omegaconf import OmegaConf
    from verl.trainer.config import PPOConfig

    config = OmegaConf.merge(OmegaConf.structured(PPOConfig()), OmegaConf.load(path))
    settings: Any = OmegaConf.to_object(config)
    settings.deep_post_init()
    return settings


def keys() -> dict[str, str]:
    """Every key of EasyR1's configuration and its type, without those that EasyR1 fills in itself."""
    from verl.trainer.config import PPOConfig

    def flat(cls: Any, prefix: str) -> dict[str, str]:
        hints, types = typing.get_type_hints(cls), dict[str, str]()
        for field in dataclasses.fields(cls):
            kind = hints[field.name]
            if dataclasses.is_dataclass(kind):
                types |= flat(kind, f"{prefix}{field.name}.")
            elif field.init:
                types[prefix + field.name] = getattr(kind, "__name__", None) if isinstance(kind, type) else str(kind)
        return types

    return flat(PPOConfig, "")


def merge(path: str) -> dict[str, Any]:
    config: dict[str, Any] = load_config(path).to_dict()
    return config


def reads(model: str, text: str) -> dict[str, Any]:
    """What EasyR1's version of transformers reads from a model's folder."""
    from transformers import AutoConfig, AutoTokenizer

    config, tokenizer = AutoConfig.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    special = tokenizer.decode(ids, skip_special_tokens=True)
    return {"theta": config.rope_theta, "scaling": config.rope_scaling, "ids": ids, "without_special": special}


def dataset(path: str, model: str) -> list[dict[str, Any]]:
    """Each row of EasyR1's data set class: the prompt's tokens, and the ground truth."""
    from transformers import AutoTokenizer
    from verl.utils.dataset import RLHFDataset

    config = load_config(path)
    tokenizer = AutoTokenizer.from_pretrained(model)
    with open(config.data.override_chat_template, encoding="utf-8") as file:
        tokenizer.chat_template = file.read()
    rows = RLHFDataset(
        config.data.train_files,
        tokenizer,
        None,
        prompt_key=config.data.prompt_key,
        answer_key=config.data.answer_key,
        max_prompt_length=config.data.max_prompt_length,
        filter_overlong_prompts=config.data.filter_overlong_prompts,
    )
    return [{"ids": rows[i]["raw_prompt_ids"], "ground_truth": rows[i]["ground_truth"]} for i in range(len(rows))]


def reward(path: str, model: str, batch: list[dict[str, Any]]) -> dict[str, Any]:
    """Score a batch with EasyR1's reward manager, by the function that the configuration names, and compute advantages
    with EasyR1's estimator. `batch` is a list of `{"tokens", "ground_truth", "uid"}`."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer
    from verl.protocol import DataProto
    from verl.trainer.core_algos import AdvantageEstimator, compute_advantage_return
    from verl.workers.reward import AutoRewardManager

    config = load_config(path)
    manager = AutoRewardManager(config.worker.reward, AutoTokenizer.from_pretrained(model))
    longest = max(len(row["tokens"]) for row in batch)
    responses, mask = torch.zeros(len(batch), longest, dtype=torch.long), torch.zeros(len(batch), longest)
    for i, row in enumerate(batch):
        responses[i, : len(row["tokens"])] = torch.tensor(row["tokens"])
        mask[i, : len(row["tokens"])] = 1
    truths = np.array([row["ground_truth"] for row in batch], dtype=object)
    data = DataProto.from_dict({"responses": responses, "response_mask": mask}, {"ground_truth": truths})
    scores, metrics = manager.compute_reward(data)
    index = np.array([row["uid"] for row in batch], dtype=object)
    estimator = AdvantageEstimator(config.algorithm.adv_estimator)
    advantages, _ = compute_advantage_return(estimator, token_level_rewards=scores, response_mask=mask, index=index)
    return {"advantages": advantages[:, 0].tolist(), "metrics": metrics}


def learning_rates(path: str) -> list[float]:
    """The learning rate of each step, by EasyR1's schedules; its worker chooses between them as here
    (fsdp_workers.py)."""
    import torch
    from verl.utils.torch_functional import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup

    config = load_config(path)
    optim, steps = config.worker.actor.optim, config.trainer.max_steps
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=optim.lr)
    if optim.lr_scheduler_type == "constant":
        schedule = get_constant_schedule_with_warmup(optimiser, optim.lr_warmup_steps)
    else:
        schedule = get_cosine_schedule_with_warmup(optimiser, optim.lr_warmup_steps, steps, optim.min_lr_ratio)
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step()
    return rates


FUNCTIONS = {
    "keys": keys,
    "merge": merge,
    "reads": reads,
    "dataset": dataset,
    "reward": reward,
    "learning_rates": learning_rates,
}

if __name__ == "__main__":
    import transformers  # noqa: F401 (imported before the stubs exist, because it looks for these modules)

    stub()
    sys.path.insert(0, sys.argv[1])
    answers = sys.stdout
    sys.stdout = sys.stderr  # EasyR1 prints to the standard output, which here has the answers
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answers.write(json.dumps(FUNCTIONS[name](*arguments)) + "\n")
        answers.flush()
