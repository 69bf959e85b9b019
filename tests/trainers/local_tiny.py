"""A model small enough to train within a test, and jobs for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from core.challenger import RZeroChallenger
from core.methods import LossAverage
from core.methods.rzero import RZero
from core.settings.templates import CHALLENGER_USER, ChallengerTemplate, SolverTemplate
from core.settings.training import Sampling, Training, TrainingSampling
from core.types import Checkpoint
from trainers.base import ChallengerJob, SolverJob, SolverService, TrainQuestion
from trainers.local.state import Metrics

PAD, END = "<pad>", "<end>"
WORDS = [PAD, END, "<other>", *"0123456789", "\\boxed{", "}", *"abcdefghijklmnopqrstuvwxyz"]
VOCABULARY = len(WORDS)
TIMINGS = {"sample_seconds", "swap_seconds", "reward_seconds", "update_seconds", "tokens_per_second"}


@contextmanager
def one_thread() -> Iterator[None]:
    """Tiny models are faster with one thread, and their last digits do not depend on the machine's cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each digit and letter and one for `\\boxed{`; its chat template writes the last
    message alone, so the jobs below have no system message."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<other>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template="{{ messages[-1]['content'] }}"
    )


def tiny_model(seed: int = 0) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=0.2,  # the distributions are far from uniform, so that a wrong weight shows
    )
    return Qwen3ForCausalLM(config).eval()


def save_tiny(folder: Path, model: PreTrainedModel | None = None) -> Path:
    """Save a model and its tokenizer in `folder`."""
    (model or tiny_model()).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def answering_model(steps: int = 150) -> Qwen3ForCausalLM:
    """A model that has learned to answer `\\boxed{d}` with any digit d, so that a reward differs between answers."""
    model, generator = tiny_model(), torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    words = {word: i for i, word in enumerate(WORDS)}
    for _ in range(steps):
        question = torch.randint(words["a"], VOCABULARY, (32, 1), generator=generator)
        digit = torch.randint(words["0"], words["9"] + 1, (32, 1), generator=generator)
        rest = torch.tensor([words["}"], words[END]]).expand(32, 2)
        ids = torch.cat([question, torch.full((32, 1), words["\\boxed{"]), digit, rest], dim=1)
        optimiser.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimiser.step()
    return model


def without_timings(metrics: Iterable[Metrics]) -> list[Metrics]:
    """The metrics of a job, step by step, without the timings, which differ from run to run."""
    return [{name: value for name, value in step.items() if name not in TIMINGS} for step in metrics]


def tiny_training(**changes: Any) -> Training:
    sampling = changes.pop("sampling", Sampling(top_p=1.0, max_tokens=8))
    values: dict[str, Any] = {
        "steps": 4,
        "prompts_per_step": 3,
        "rollouts_per_prompt": 4,
        "learning_rate": 1e-2,
        "betas": (0.9, 0.99),
        "micro_batch": 5,
        "checkpoint_every": 2,
        "sampling": TrainingSampling(**sampling.model_dump(exclude={"top_k"})),
    }
    return Training(**{**values, **changes})


def tiny_job(work: Path, start: Path | None = None, **changes: Any) -> SolverJob:
    """A Solver's job on five questions, in the folder `work/job`, that starts from `start`, by default `work/start`."""
    reward = changes.pop("reward", RZero())
    questions = tuple(TrainQuestion(f"t/1/{i:06d}", text, str(i)) for i, text in enumerate(["a", "bc", "d", "ee", "f"]))
    return SolverJob(
        key="t/1/train_solver",
        run_seed=7,
        start=Checkpoint("t/base/0", "t", "base", 0, 0, str(start or work / "start"), "0" * 64, None),
        training=tiny_training(**changes),
        reward=reward,
        questions=questions,
        work_dir=work / "job",
        template=SolverTemplate(system=""),
    )


def tiny_challenger(work: Path, solver: SolverService, votes: int = 4, **changes: Any) -> ChallengerJob:
    """A Challenger's job in the folder `work/job` that starts from the model in `work/start`."""
    return ChallengerJob(
        key="t/1/train_challenger",
        run_seed=7,
        start=Checkpoint("t/base/0", "t", "base", 0, 0, str(work / "start"), "0" * 64, None),
        training=tiny_training(**changes),
        reward=RZeroChallenger(votes=votes),
        solver=solver,
        work_dir=work / "job",
        template=ChallengerTemplate(system="", user=CHALLENGER_USER),
    )


SETTINGS: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.28, "kl_coefficient": 0.1}


AVERAGES: list[LossAverage] = ["sequence", "token", "max_length"]


def objective(average: LossAverage, **changes: Any) -> RZero:
    """A method with these settings and constants."""
    values = {**SETTINGS, **changes}
    constants: dict[str, Any] = {name: values.pop(name) for name in ("clip_low", "kl_in") if name in values}
    return RZero(loss_average=average, **values).model_copy(update=constants)
