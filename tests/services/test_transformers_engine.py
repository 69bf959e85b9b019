from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, DynamicLayer

from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER
from core.settings.training import Sampling
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Completion, ModelMismatch, Prompt, PromptTooLong
from services.inference.engines.decoder import Decoder, can_join
from services.inference.engines.embedded import TransformersEngine

QUESTIONS = [
    "What is 3 + 4?",
    "Compute 12 * 7.",
    "Tom has 31 coins, finds 12 more, then loses 5. How many coins does Tom have?",
    "Evaluate 81 - 9 + 44 - 7 + 16 + 28.",
    "Mia has 12 pens, buys 34 more, then eats 5, then wins 61 more, then drops 7, then finds 88 more, then sells 9. "
    "How many pens does Mia have?",
]


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    torch.set_num_threads(1)
    return TransformersEngine(MICRO_MODEL)


def prompt(question: str, seed: int = 0, n: int = 4, **sampling: float) -> Prompt:
    return Prompt(tuple(RZERO_SOLVER.messages(question)), seed, n, Sampling(**{"max_tokens": 100, **sampling}))


def test_a_completion_is_the_same_alone_and_in_a_batch_to_the_last_bit(engine: TransformersEngine) -> None:
    prompts = [prompt(q, seed=1000 * i, n=9, top_p=0.97) for i, q in enumerate(QUESTIONS)]
    prompts.append(Prompt(tuple(RZERO_CHALLENGER.messages()), 77, 40, Sampling(max_tokens=60)))
    prompts += [prompt(q, seed=50, n=3, top_p=1.0) for q in QUESTIONS]
    cuts = ({"top_p": 1.0, "top_k": 2}, {"top_p": 0.9, "top_k": 3}, {"top_p": 1.0, "top_k": 70})
    prompts += [prompt(q, seed=60, n=3, **cut) for q in QUESTIONS for cut in cuts]
    prompts += [prompt(q, n=1, temperature=0) for q in QUESTIONS]
    together = engine.generate(prompts)
    for p, group in zip(prompts, together, strict=True):
        assert engine.generate([p])[0] == group
        alone = [Prompt(p.messages, p.seed + j, 1, p.sampling) for j in range(p.n)]
        assert [engine.generate([single])[0][0] for single in alone[:3]] == group[:3]


def test_with_a_top_k_of_one_sampling_is_greedy(engine: TransformersEngine) -> None:
    greedy = engine.generate([prompt(QUESTIONS[0], n=1, temperature=0)])[0][0]
    sampled = engine.generate([prompt(QUESTIONS[0], seed=7, n=2, temperature=1, top_k=1)])[0]
    assert [completion.tokens for completion in sampled] == [greedy.tokens] * 2
    assert sampled[0].mean_entropy == greedy.mean_entropy  # over the whole vocabulary


@pytest.mark.parametrize("rows", [1, 3, 8, 20])
@pytest.mark.parametrize("window", [None, 24])
def test_completions_do_not_depend_on_the_size_of_batches(window: int | None, rows: int, tmp_path: Path) -> None:
    """This holds also with layers that attend to the last 24 tokens only, fewer than a prompt has."""
    folder = MICRO_MODEL if window is None else _with_window(tmp_path, window)
    whole, small = TransformersEngine(folder), TransformersEngine(folder, max_rows=rows, waiting_rows=rows // 2)
    prompts = [prompt(q, seed=100 * i, n=9) for i, q in enumerate(QUESTIONS)]
    assert small.generate(prompts) == whole.generate(prompts)
    assert window is None or whole.generate(prompts) != TransformersEngine(MICRO_MODEL).generate(prompts)


def prompts_of_uneven_lengths() -> list[Prompt]:
    """Prompts with 64 answers, alternately eight of 3 tokens and eight of 8 tokens."""
    return [prompt(QUESTIONS[0], seed=8 * i, n=8, max_tokens=(3, 8)[i % 2]) for i in range(8)]


def test_a_batch_s_unfinished_rows_are_joined_to_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that, four batches would take four times the seven steps after the first token."""
    engine = TransformersEngine(MICRO_MODEL, max_rows=16, waiting_rows=8)
    steps = []
    real = Decoder.step
    monkeypatch.setattr(Decoder, "step", lambda decoder, tokens: steps.append(len(tokens)) or real(decoder, tokens))
    groups = engine.generate(prompts_of_uneven_lengths())
    lengths = [len(completion.tokens) for group in groups for completion in group]
    assert sorted(lengths) == [3] * 32 + [8] * 32
    # The first and the third batch stop after their third step; the others continue with their unfinished rows.
    assert len(steps) == 2 * 3 + 2 * 7
    assert max(steps) == 16


@pytest.mark.parametrize(("waiting", "in_memory"), [(0, 16), (7, 16), (8, 24), (40, 48)])
def test_the_number_of_rows_in_memory_is_limited(waiting: int, in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`coevo check` counts on this limit: 16 rows and those that wait. A batch has eight rows unfinished."""
    alive: WeakSet[Decoder] = WeakSet()
    most = 0
    real = Decoder.step

    def step(decoder: Decoder, tokens: torch.Tensor) -> torch.Tensor:
        nonlocal most
        alive.add(decoder)
        keys = [other._cache.layers[0].keys for other in alive]
        most = max(most, sum(len(rows) for rows in keys if rows is not None))
        return real(decoder, tokens)

    monkeypatch.setattr(Decoder, "step", step)
    TransformersEngine(MICRO_MODEL, max_rows=16, waiting_rows=waiting).generate(prompts_of_uneven_lengths())
    assert most == in_memory


def test_batches_are_not_joined_where_the_cache_has_more_than_keys_and_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OtherLayer(DynamicLayer):
        pass

    assert can_join(TransformersEngine(MICRO_MODEL).model)
    monkeypatch.setitem(DYNAMIC_LAYER_TYPE_MAPPING, "full_attention", OtherLayer)
    monkeypatch.setattr(Decoder, "join", None)
    engine = TransformersEngine(MICRO_MODEL, max_rows=8, waiting_rows=4)
    assert len(engine.generate([prompt(QUESTIONS[2], n=32)])[0]) == 32


def test_logprobs_and_entropy_are_those_of_the_model_s_own_forward_pass(engine: TransformersEngine) -> None:
    sampled = prompt(QUESTIONS[2], n=3, temperature=0.8)
    template = engine.tokenizer.apply_chat_template
    ids = template(list(sampled.messages), add_generation_prompt=True, return_dict=True)["input_ids"]
    for completion in engine.generate([sampled])[0]:
        with torch.no_grad():
            logits = engine.model(torch.tensor([[*ids, *completion.tokens]])).logits[0, len(ids) - 1 : -1]
        logp = torch.log_softmax(logits / 0.8, -1)
        chosen = logp.gather(-1, torch.tensor(completion.tokens)[:, None])[:, 0]
        assert torch.allclose(chosen, torch.tensor(completion.logprobs), atol=1e-4)
        entropy = -(logp.exp() * logp).sum(-1).mean().item()
        assert completion.mean_entropy == pytest.approx(entropy, abs=1e-4)


def test_greedy_sampling_equals_the_library_s_generate(engine: TransformersEngine) -> None:
    ours = engine.generate([prompt(q, n=1, temperature=0) for q in QUESTIONS])
    for question, (completion,) in zip(QUESTIONS, ours, strict=True):
        encoded = engine.tokenizer.apply_chat_template(
            RZERO_SOLVER.messages(question), add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        whole = engine.model.generate(**encoded, do_sample=False, max_new_tokens=100)
        assert whole[0, encoded["input_ids"].shape[1] :].tolist() == list(completion.tokens)


def test_stop_strings_cut_text_tokens_and_logprobs(engine: TransformersEngine) -> None:
    greedy = prompt(QUESTIONS[0], n=1, temperature=0)
    [[free], [stopped]] = engine.generate([greedy, replace(greedy, stop=("\\boxed",))])
    assert "\\boxed" in free.text
    assert free.text.startswith(stopped.text)
    assert "\\boxed" not in stopped.text
    assert stopped.finish_reason == "stop"
    assert len(stopped.tokens) == len(stopped.logprobs) < len(free.tokens)


def test_a_completion_cut_off_at_max_tokens_has_the_finish_reason_length(engine: TransformersEngine) -> None:
    completion: Completion = engine.generate([prompt(QUESTIONS[3], n=1, max_tokens=2)])[0][0]
    assert (completion.finish_reason, len(completion.tokens)) == ("length", 2)


def test_a_prompt_beyond_the_context_is_refused(engine: TransformersEngine) -> None:
    with pytest.raises(PromptTooLong, match="512"):
        engine.check(prompt("1 + " * 600 + "1"))


def test_load_swaps_the_weights_in_place(engine: TransformersEngine, tmp_path: Path) -> None:
    other = _with_weights(tmp_path, lambda tensors: {name: tensor * 0.5 for name, tensor in tensors.items()})
    swapped = TransformersEngine(MICRO_MODEL)
    before = swapped.generate([prompt(QUESTIONS[0])])
    swapped.load(other)
    assert swapped.generate([prompt(QUESTIONS[0])]) == TransformersEngine(other).generate([prompt(QUESTIONS[0])])
    swapped.load(MICRO_MODEL)
    assert swapped.generate([prompt(QUESTIONS[0])]) == before


@pytest.mark.parametrize("kind", ["missing", "unknown", "shape"])
def test_weights_that_do_not_fit_are_refused_and_change_nothing(tmp_path: Path, kind: str) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        name = next(iter(sorted(tensors)))
        tensor = tensors[name]
        rest = {key: value * 2 for key, value in tensors.items() if key != name}
        spoilt = {"missing": {}, "unknown": {name: tensor, "more": tensor.clone()}, "shape": {name: tensor[:1].clone()}}
        return {**rest, **spoilt[kind]}

    engine = TransformersEngine(MICRO_MODEL)
    before = engine.generate([prompt(QUESTIONS[0])])
    with pytest.raises(ModelMismatch, match=kind.replace("shape", "another shape")):
        engine.load(_with_weights(tmp_path, spoil))
    assert engine.generate([prompt(QUESTIONS[0])]) == before


def test_load_also_loads_the_tokenizer_and_the_end_tokens(tmp_path: Path) -> None:
    """The other model's tokenizer has the same ids with two words exchanged, and one more token ends an answer."""
    other = _with_weights(tmp_path, lambda tensors: tensors)
    words = json.loads((other / "tokenizer.json").read_text())
    vocabulary = words["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (other / "tokenizer.json").write_text(json.dumps(words))
    change(other / "generation_config.json", eos_token_id=[2, vocabulary["3"]])
    swapped, fresh = TransformersEngine(MICRO_MODEL), TransformersEngine(other)
    before = swapped.generate([prompt(q) for q in QUESTIONS])
    swapped.load(other)
    after = swapped.generate([prompt(q) for q in QUESTIONS])
    assert after == fresh.generate([prompt(q) for q in QUESTIONS]) != before


def test_another_architecture_of_the_same_shapes_is_refused(tmp_path: Path) -> None:
    other = _with_weights(tmp_path, lambda tensors: tensors)
    change(other / "config.json", rms_norm_eps=1e-3)
    with pytest.raises(ModelMismatch, match="rms_norm_eps"):
        TransformersEngine(MICRO_MODEL).load(other)


def _with_window(folder: Path, window: int) -> Path:
    """The micro model, in which every second layer attends to the last `window` tokens only."""
    other = _with_weights(folder, lambda tensors: tensors)
    layers = json.loads((other / "config.json").read_text())["num_hidden_layers"]
    kinds = ["full_attention", "sliding_attention"] * (layers // 2)
    change(other / "config.json", use_sliding_window=True, sliding_window=window, layer_types=kinds)
    return other


def change(file: Path, **values: Any) -> None:
    """Set these values in a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def _with_weights(folder: Path, change_of: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Path:
    other = folder / "other"
    shutil.copytree(MICRO_MODEL, other)
    save_file(change_of(load_file(MICRO_MODEL / "model.safetensors")), other / "model.safetensors", {"format": "pt"})
    assert json.loads((other / "config.json").read_text())["model_type"] == "qwen3"
    return other
