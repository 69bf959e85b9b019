"""EasyR1's own code on our files, in a process of its own: `python easyr1_contract.py SOURCE`, requests as JSON lines.

What EasyR1 imports and a CPU has no build of, is stubbed: vllm, flash_attn, liger_kernel, qwen_vl_utils.
None of it has a part in what is asked here.
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
    """A module in which every name is there."""

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


def merged(path: str) -> Any:
    """The file merged as `verl.trainer.main` does it: an unknown key or a wrong type is an error."""
    from omegaconf import OmegaConf
    from verl.trainer.config import PPOConfig

    config = OmegaConf.merge(OmegaConf.structured(PPOConfig()), OmegaConf.load(path))
    made: Any = OmegaConf.to_object(config)
    made.deep_post_init()
    return made


def keys() -> dict[str, str]:
    """Every key of EasyR1's configuration and its type, but for those that it fills in itself."""
    from verl.trainer.config import PPOConfig

    def flat(cls: Any, prefix: str) -> dict[str, str]:
        hints, found = typing.get_type_hints(cls), dict[str, str]()
        for each in dataclasses.fields(cls):
            kind = hints[each.name]
            if dataclasses.is_dataclass(kind):
                found |= flat(kind, f"{prefix}{each.name}.")
            elif each.init:
                found[prefix + each.name] = getattr(kind, "__name__", None) if isinstance(kind, type) else str(kind)
        return found

    return flat(PPOConfig, "")


def merge(path: str) -> dict[str, Any]:
    config: dict[str, Any] = merged(path).to_dict()
    return config


def reads(model: str, text: str) -> dict[str, Any]:
    """What EasyR1's transformers makes of a model's folder."""
    from transformers import AutoConfig, AutoTokenizer

    config, tokenizer = AutoConfig.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    special = tokenizer.decode(ids, skip_special_tokens=True)
    return {"theta": config.rope_theta, "scaling": config.rope_scaling, "ids": ids, "without_special": special}


def dataset(path: str, model: str) -> list[dict[str, Any]]:
    """What EasyR1's data set class makes of each row: the prompt's tokens, and the ground truth."""
    from transformers import AutoTokenizer
    from verl.utils.dataset import RLHFDataset

    config = merged(path)
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
    """A batch scored by EasyR1's reward manager through the function that the configuration names, and the advantages
    that its estimator makes of that. `batch`: `{"tokens", "ground_truth", "uid"}`."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer
    from verl.protocol import DataProto
    from verl.trainer.core_algos import AdvantageEstimator, compute_advantage_return
    from verl.workers.reward import AutoRewardManager

    config = merged(path)
    manager = AutoRewardManager(config.worker.reward, AutoTokenizer.from_pretrained(model))
    longest = max(len(each["tokens"]) for each in batch)
    responses, mask = torch.zeros(len(batch), longest, dtype=torch.long), torch.zeros(len(batch), longest)
    for i, each in enumerate(batch):
        responses[i, : len(each["tokens"])] = torch.tensor(each["tokens"])
        mask[i, : len(each["tokens"])] = 1
    truths = np.array([each["ground_truth"] for each in batch], dtype=object)
    data = DataProto.from_dict({"responses": responses, "response_mask": mask}, {"ground_truth": truths})
    scores, metrics = manager.compute_reward(data)
    index = np.array([each["uid"] for each in batch], dtype=object)
    estimator = AdvantageEstimator(config.algorithm.adv_estimator)
    made, _ = compute_advantage_return(estimator, token_level_rewards=scores, response_mask=mask, index=index)
    return {"advantages": made[:, 0].tolist(), "metrics": metrics}


ANSWERED = {"keys": keys, "merge": merge, "reads": reads, "dataset": dataset, "reward": reward}

if __name__ == "__main__":
    import transformers  # noqa: F401 (looks for what is stubbed, and must not find it)

    stub()
    sys.path.insert(0, sys.argv[1])
    answers = sys.stdout
    sys.stdout = sys.stderr  # EasyR1 prints
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answers.write(json.dumps(ANSWERED[name](*arguments)) + "\n")
        answers.flush()
