"""The calculator's memory, tokens and hours, compared with values by hand, and properties that hold for all presets."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.settings.parsing import load_config
from orchestrator.check.presets import preset_path
from orchestrator.check.size import Assumptions, Plan, advice, calculate, work
from orchestrator.check.size.memory import Memory
from orchestrator.stages.context import BATCH
from tests.orchestrator.plans import plan_of

GIB = 1024**3
P = 4_022_468_096  # Qwen3-4B: 151,936 x 2,560 + 36 x 100,930,816 + 2,560


def lines(memory: Memory) -> dict[str, float]:
    return {line.what: line.gib for line in memory.lines}


def test_the_memory_of_rzero_on_eight_gpus_by_hand() -> None:
    plan = plan_of("rzero-qwen3-4b")
    assert (plan.shape.parameters, plan.gpus, plan.problems) == (P, 8, ())
    assert plan.shape.kv_bytes() == 2 * 36 * 8 * 128 * 2 == 147_456

    sampling, updating, *apps = plan.memory
    shard = P / 4 / GIB  # the trainer's four GPUs
    assert lines(sampling) == pytest.approx(
        {
            "weights, float32": 4 * shard,
            "AdamW's two moments, float32": 8 * shard,
            "reference, float32": 4 * shard,
            "vLLM, for the rollouts": 48.0,
            "context": 1.5,
        }
    )
    tokens = 4 * (4096 + 1024)  # the tokens of a micro batch
    assert lines(updating) == pytest.approx(
        {
            "weights, float32": 4 * shard,
            "gradients, float32": 4 * shard,
            "AdamW's two moments, float32": 8 * shard,
            "reference, float32": 4 * shard,
            "gathered, bfloat16": 4 * (388_956_160 + 2 * 100_930_816) / GIB,
            "activations, bfloat16": 2 * tokens * (36 * 2560 + 8 * 2560 + 4 * 9728) / GIB,
            "logits and their gradient": 4 * tokens * 151_936 / GIB,
            "context, and vLLM asleep": 2.5,
        }
    )
    assert sampling.gib == pytest.approx(64.48, abs=0.01)
    assert updating.gib == pytest.approx(40.80, abs=0.01)
    for app in apps:
        assert app.gib == pytest.approx(0.9 * 80)
        assert lines(app)["weights, bfloat16"] == pytest.approx(2 * P / GIB)


def test_the_tokens_and_hours_of_rzero_by_hand() -> None:
    plan = plan_of("rzero-qwen3-4b")
    stages = {stage.stage: stage for stage in plan.stages}
    answers: Counter[tuple[str, str, bool]] = Counter()
    for name, stage in stages.items():
        for part in stage.parts:
            answers[name, part.work.holder, part.work.training] += part.work.answers
    assert answers == {
        ("train_challenger", "trainer", False): 5 * 128 * 4,
        ("train_challenger", "solver", False): 5 * 128 * 4 * 10,
        ("train_challenger", "trainer", True): 5 * 128 * 4,
        ("generate_questions", "challenger", False): 8000,
        ("label_questions", "solver", False): 8000 * 10,
        ("train_solver", "trainer", False): 15 * 128 * 5,
        ("train_solver", "trainer", True): 15 * 128 * 5,
        # MATH-500 8 times and greedily; AMC and twice AIME 32 times too; Minerva, GSM8K, OlympiadBench greedily
        ("evaluate", "solver", False): 500 * 9 + (40 + 30 + 30) * 33 + 272 + 1319 + 500,
    }
    (labelling,) = stages["label_questions"].parts
    assert labelling.tokens == pytest.approx((80_000 * 1024 / 1e6, 80_000 * 4096 / 1e6))
    typical, most = (2 * P * (80_000 * tokens + 8000 * 256) / (4 * 989e12 * 0.1) / 3600 for tokens in (1024, 4096))
    rounds = 8  # a round has 8 x 128 questions and takes as long as its longest answer
    assert labelling.waiting == pytest.approx(rounds * 4096 * 0.01 / 3600)
    assert labelling.hours == pytest.approx((typical, most))
    (asking,) = stages["generate_questions"].parts
    assert asking.hours[0] == pytest.approx(asking.waiting)  # it also has 8 rounds, and needs few FLOPs
    assert asking.waiting == labelling.waiting < typical
    training = stages["train_solver"].parts[1]
    flops = 10 * P * 9600 * (1024 + 256)  # 6 for forward and backward, 2 for the reference, 2 for the old policy
    assert training.hours[0] == pytest.approx(flops / (4 * 989e12 * 0.3) / 3600)
    assert plan.run_hours[1] == pytest.approx(3 * plan.hours[1] + plan.before[0].hours[1])


def test_the_calculator_s_rounds_are_those_of_the_stages() -> None:
    assert work.BATCH == BATCH
    rounds: Counter[tuple[str, str]] = Counter()
    for stage in plan_of("rzero-qwen3-4b").stages:
        for part in stage.parts:
            rounds[stage.stage, part.work.holder] += part.work.rounds  # 0 of a part that trains
    assert rounds == {
        ("train_challenger", "trainer"): 5,
        ("train_challenger", "solver"): 5,
        ("generate_questions", "challenger"): 8,
        ("label_questions", "solver"): 8,
        ("train_solver", "trainer"): 15,
        ("evaluate", "solver"): 8,  # one for each of seven benchmarks, two for GSM8K's 1,319 questions
    }


def test_a_4b_model_does_not_fit_one_gpu_and_the_single_gpu_preset_does() -> None:
    large, small = plan_of("rzero-qwen3-4b", 1), plan_of("rzero-single-gpu")
    assert 16 * P / GIB > 59.9  # AdamW's float32 numbers alone
    assert [problem.split(":")[0] for problem in large.problems] == ["train_challenger"]
    assert large.fullest["train_challenger"] > 76 > large.fullest["train_solver"]
    assert (small.gpus, small.problems) == (1, ())
    assert 70 < small.fullest["train_challenger"] < 76


@pytest.mark.parametrize("preset", ["demo", "micro", "micro-vllm", "micro_test_time"])
def test_the_tiny_world_s_presets_need_no_gpu(preset: str) -> None:
    plan = plan_of(preset)
    assert (plan.gpus, plan.problems, plan.fullest) == (0, (), {})
    assert 0 < plan.hours[0] <= plan.hours[1] < 1


def test_the_memory_of_the_embedded_trainer_by_hand() -> None:
    """EVOL-RL's preset has seven workers that share the states of a 4B model, and answers of 12,288 tokens."""
    plan = plan_of("evol_rl")
    sampling, updating, *_ = plan.memory
    share, outside, layer, tokens = P / 7 / GIB, 388_956_160 + 2_560, 100_930_816, 12_288 + 1_024
    states = {"weights, float32": 4 * share, "AdamW's two moments, float32": 8 * share, "reference, float32": 4 * share}
    assert lines(sampling) == pytest.approx(
        {
            **states,
            "gathered weights, float32": 4 * (P + outside) / GIB,
            "KV cache, float32": 11 * tokens * 2 * 37 * 8 * 128 * 4 / GIB,  # for 36 layers, one of them twice
            "context": 1.5,
        }
    )
    assert lines(updating) == pytest.approx(
        {
            **states,
            "gradients, float32": 4 * share,
            "gathered, float32": (8 * outside + 20 * layer) / GIB,
            "activations, float32": 4 * tokens * (36 * 2560 + 16 * 2560 + 6 * 9728) / GIB,
            "logits, float32, five times": 5 * 4 * tokens * 151_936 / GIB,  # with a gradient of the entropy
            "context": 1.5,
        }
    )
    gpus_by_stage = {stage.stage: stage.places for stage in plan.stages}
    assert gpus_by_stage["train_solver"] == {"trainer": [0, 1, 2, 3, 4, 5, 6], "embedder": [7]}
    assert gpus_by_stage["evaluate"] == {"solver": [0, 1, 2, 3, 4, 5, 6, 7]}
    assert plan.problems == ()


def test_the_time_of_the_embedded_trainer_by_hand() -> None:
    """A worker samples 74 answers a step, 11 at once; there is a second forward pass; float32 runs at 67 TFLOP/s."""
    sampled, trained = plan_of("evol_rl").stages[0].parts
    assert sampled.work.rounds == 24 * 7
    assert sampled.waiting == pytest.approx(24 * 7 * 12_288 * 0.01 / 3600)
    flops = 2 * (2 + 1 + 1 + 1 + 1) * P * 24 * 8 * 32 * (12_288 + 256)  # backward, forward twice, reference, old policy
    assert trained.hours[1] == pytest.approx(flops / (7 * 67e12 * 0.3) / 3600)
    alone = plan_of("evol_rl", trainer__sampling_rows=74, trainer__checkpoint_activations=False).stages[0].parts
    assert (alone[0].work.rounds, alone[1].work.passes) == (24, 5)


@pytest.mark.parametrize(
    "careless",
    [
        {"solver__training__sharded": False},
        {"trainer__sampling_rows": 512},
        {"trainer__checkpoint_activations": False},
        {"solver__training__micro_batch": 8},
    ],
)
def test_without_any_of_its_memory_settings_a_preset_does_not_fit_and_the_setting_is_advised(
    careless: dict[str, object],
) -> None:
    plan = plan_of("srt", **careless)
    assert [problem.split(":")[0] for problem in plan.problems] == ["train_solver"]
    (name,) = careless
    lines_about_it = [line for line in advice(plan) if name.rpartition("__")[2] in line]
    assert len(lines_about_it) == 1
    assert plan_of("srt").problems == ()


def test_a_4b_model_does_not_fit_one_gpu_of_the_embedded_trainer() -> None:
    plan = plan_of("rzero", trainer__type="local")
    assert {problem.split(":")[0] for problem in plan.problems} == {"train_challenger", "train_solver"}
    assert 20 * P / GIB > 74.9
    assert any("easyr1" in line for line in advice(plan))


def test_applications_that_a_run_never_starts_take_no_memory() -> None:
    titles = {name: " ".join(part.title for part in plan_of(name).memory) for name in ("srt", "evol_rl", "poly_epo")}
    assert {name: [app for app in ("embedder", "judge") if app in title] for name, title in titles.items()} == {
        "srt": [],
        "evol_rl": ["embedder"],
        "poly_epo": ["judge"],
    }


def test_easyr1_trains_on_all_answers_of_a_group() -> None:
    local = plan_of("ttrl").stages[0].parts[1].work
    shared = plan_of("ttrl", trainer__type="easyr1").stages[0].parts[1].work
    assert (local.answers, shared.answers) == (24 * 8 * 32, 24 * 8 * 64)


HOURS = {gpus: plan_of("rzero-qwen3-4b", gpus).hours[0] for gpus in range(1, 65)}


@given(st.integers(1, 63))
@settings(max_examples=63)
def test_more_gpus_never_take_more_hours(gpus: int) -> None:
    """This compares typical hours, by which a layout is chosen."""
    assert HOURS[gpus + 1] <= HOURS[gpus]


@given(st.integers(1, 8192), st.integers(0, 4096), st.sampled_from(["rzero-qwen3-4b", "demo"]))
@settings(max_examples=40)
def test_longer_answers_never_need_fewer_tokens_hours_or_bytes(tokens: int, more: int, preset: str) -> None:
    def plan_with(limit: int) -> Plan:
        return plan_of(preset, solver__training__sampling__max_tokens=limit, dataset__sampling__max_tokens=limit)

    short, long = plan_with(tokens), plan_with(tokens + more)
    for before, after in zip(short.stages, long.stages, strict=True):
        for part, longer_part in zip(before.parts, after.parts, strict=True):
            assert part.tokens <= longer_part.tokens
        assert before.hours <= after.hours
    assert all(memory.gib <= more_memory.gib for memory, more_memory in zip(short.memory, long.memory, strict=True))


@given(st.floats(0.01, 1), st.floats(0.01, 1))
@settings(max_examples=20)
def test_hours_go_down_as_the_assumed_speed_goes_up(slow: float, fast: float) -> None:
    slow, fast = sorted((slow, fast))
    config = load_config(preset_path("rzero-qwen3-4b"))
    hours = [calculate("p", config, Assumptions(mfu_sample=mfu, mfu_train=mfu)).hours for mfu in (slow, fast)]
    assert hours[0] >= hours[1]


def test_a_benchmark_that_is_not_here_has_the_number_of_questions_that_its_definition_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COEVO_BENCHMARKS", str(tmp_path))

    def answers(benchmark: str) -> int:
        plan = plan_of("rzero-qwen3-4b", evaluation__benchmark=benchmark, evaluation__suite=None)
        return plan.before[0].parts[0].work.answers

    assert [answers("amc_83"), answers("olympiadbench"), answers("mine.jsonl")] == [83 * 9, 500 * 9, 500 * 9]
    (tmp_path / "amc_83.jsonl").write_text('{"problem": "1 + 1?", "answer": 2}')
    assert answers("amc_83") == 9


def test_prompts_that_are_held_out_for_early_stopping_are_counted() -> None:
    def answers(**stopping: object) -> int:
        own = {"prompts.limit": 400, "evaluation.samples": 3, "early_stopping": {"benchmark": "prompts", **stopping}}
        [asked] = work.work_of(load_config(preset_path("micro"), own), "evaluate", Assumptions())
        return asked.answers

    # 1,020 questions of the benchmark, and 25% or 1% of the prompts; three samples each, and a greedy one.
    assert (answers(share=0.25), answers()) == ((1_020 + 100) * 4, (1_020 + 4) * 4)


def test_every_preset_has_a_plan() -> None:
    presets = sorted(preset_path("demo").parent.glob("*.toml"))
    assert len(presets) > 10
    for path in presets:
        plan = calculate(path.stem, load_config(path), Assumptions())
        assert plan.stages
        assert plan.hours[1] > 0


@pytest.mark.parametrize(
    ("gpus", "remedy"), [(1, ["kv_cache_memory_bytes"]), (None, ["kv_cache_memory_bytes", "offload", "micro_batch"])]
)
def test_a_small_model_on_a_small_gpu_is_told_the_settings_with_which_it_fits(
    tmp_path: Path, gpus: int | None, remedy: list[str]
) -> None:
    """16 GiB of 24 are a KV cache of the Serve file. A smaller model would not be smaller by that."""
    shape = {"hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 3072, "num_attention_heads": 16}
    shape |= {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "qwen3", "max_position_embeddings": 32768, **shape})
    )
    config = load_config(preset_path("rzero-single-gpu"), {"base_model": str(tmp_path)})
    plan = calculate("rzero-single-gpu", config, Assumptions(gpu_memory=24), gpus)
    assert plan.problems
    assert [name for name in remedy for line in advice(plan) if name in line] == remedy
    assert len(advice(plan)) == len(remedy)
