"""What a preset needs: GPUs, memory, tokens and hours, compared with values by hand, and what holds for all presets."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from core.settings.config import CoEvolution, Retention
from core.settings.parsing import load_config
from orchestrator.check.presets import preset_names, preset_path
from orchestrator.check.size import work
from orchestrator.check.size.estimate import Estimate, advice, estimate
from orchestrator.check.size.measured import measured
from orchestrator.check.size.memory import GIB, OTHER_FILES, checkpoint_bytes, disk_lines
from orchestrator.check.size.shapes import shape_of
from orchestrator.installation.home import APPLICATIONS, ROOT
from orchestrator.plan import plan as run_plan
from orchestrator.run import BATCH
from storage import queries
from storage.session import Store
from tests.synthetic_run import finish

P = 4_022_468_096  # Qwen3-4B: 151,936 x 2,560 + 36 x 100,930,816 + 2,560
OUTSIDE, LAYER = 388_956_160, 100_930_816


def found(preset: str, gpu_memory: float = 80.0, **overrides: object) -> Estimate:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return estimate(load_config(preset_path(preset), named), gpu_memory)


def places(preset: str, **overrides: object) -> dict[str, dict[str, list[int]]]:
    return {stage.stage: stage.gpus for stage in found(preset, **overrides).stages if stage.gpus}


def work_of(preset: str, **overrides: object) -> dict[str, list[work.Work]]:
    config = found(preset, **overrides).config
    return {stage: [*work.work_of(config, stage)] for t, stage in run_plan(config) if t < 2}


def test_the_memory_of_rzero_on_eight_gpus_by_hand() -> None:
    plan = found("rzero-qwen3-4b")
    assert (plan.shape.parameters, plan.gpus, plan.problems, advice(plan)) == (P, 8, (), [])
    assert plan.shape.kv_bytes() == 2 * 36 * 8 * 128 * 2 == 147_456

    sampling, updating, *apps = plan.memory
    shard = P / 4 / GIB  # the trainer's four GPUs
    states = {"weights, float32": 4 * shard, "AdamW's moments, float32": 8 * shard, "reference, float32": 4 * shard}
    assert sampling.lines == pytest.approx({**states, "vLLM, for the rollouts": 48.0, "context": 1.5})
    tokens = 4 * (4096 + 1024)  # the tokens of a micro batch
    assert updating.lines == pytest.approx(
        {
            **states,
            "gradients, float32": 4 * shard,
            "gathered, bfloat16": 4 * (OUTSIDE + 2 * LAYER) / GIB,
            "activations, bfloat16": 2 * tokens * (36 * 2560 + 8 * 2560 + 4 * 9728) / GIB,
            "logits and their gradient": 4 * tokens * 151_936 / GIB,
            "context": 1.5,
            "vLLM asleep": 1.0,
        }
    )
    assert (sampling.gib, updating.gib) == pytest.approx((64.48, 40.80), abs=0.01)
    for app in apps:
        assert app.gib == pytest.approx(0.9 * 80)
        assert app.lines["weights, bfloat16"] == pytest.approx(2 * P / GIB)


def test_the_tokens_and_hours_of_rzero_by_hand() -> None:
    answers: Counter[tuple[str, str, bool]] = Counter()
    rounds: Counter[tuple[str, str]] = Counter()
    for name, parts in work_of("rzero-qwen3-4b").items():
        for part in parts:
            answers[name, part.holder, part.passes > 0] += part.answers
            rounds[name, part.holder] += part.rounds  # 0 of a part that trains
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
    assert rounds == {
        ("train_challenger", "trainer"): 5,
        ("train_challenger", "solver"): 5,
        ("generate_questions", "challenger"): 8,
        ("label_questions", "solver"): 8,  # a round has 8 x 128 questions and takes as long as its longest answer
        ("train_solver", "trainer"): 15,
        ("evaluate", "solver"): 8,  # one for each of seven benchmarks, two for GSM8K's 1,319 questions
    }
    assert work.BATCH == BATCH

    plan = found("rzero-qwen3-4b")
    stages = {stage.stage: stage for stage in plan.stages}
    labelling = stages["label_questions"]
    assert labelling.million_tokens == pytest.approx((80_000 * 1024 / 1e6, 80_000 * 4096 / 1e6))
    typical, most = (2 * P * (80_000 * tokens + 8000 * 256) / (4 * 989e12 * 0.1) / 3600 for tokens in (1024, 4096))
    waiting = 8 * 4096 * 0.01 / 3600
    assert labelling.hours == pytest.approx((typical, most))
    assert stages["generate_questions"].hours[0] == pytest.approx(waiting)  # it has 8 rounds too, and needs few FLOPs
    training = 10 * P * 9600 * (1024 + 256)  # 6 for forward and backward, 2 for the reference, 2 for the old policy
    sampling = 2 * P * (9600 * 1024 + 1920 * 256) / (989e12 * 0.1)
    expected = (training / (989e12 * 0.3) + max(sampling, 4 * 15 * 4096 * 0.01)) / 4 / 3600
    assert stages["train_solver"].hours[0] == pytest.approx(expected)
    assert plan.run_hours[1] == pytest.approx(3 * plan.hours[1] + plan.before[0].hours[1])


def test_the_memory_and_time_of_the_embedded_trainer_by_hand() -> None:
    """EVOL-RL's preset has seven workers that share the states of a 4B model, and answers of 12,288 tokens."""
    alone: dict[str, object] = {"trainer__sampler": "embedded", "trainer__sampling_rows": 11}
    alone |= {"trainer__precision": "float32", "trainer__tokens_per_micro_batch": 1}
    plan = found("evol_rl", **alone)
    sampling, updating, *_ = plan.memory
    share, tokens = P / 7 / GIB, 12_288 + 1_024
    outside = OUTSIDE + 2_560
    states = {"weights, float32": 4 * share, "AdamW's moments, float32": 8 * share, "reference, float32": 4 * share}
    assert sampling.lines == pytest.approx(
        {
            **states,
            "gathered, float32": 4 * (P + outside) / GIB,
            "KV cache, float32": 11 * tokens * 2 * 37 * 8 * 128 * 4 / GIB,  # for 36 layers, one of them twice
            "context": 1.5,
        }
    )
    assert updating.lines == pytest.approx(
        {
            **states,
            "gradients, float32": 4 * share,
            "gathered, float32": (8 * outside + 20 * LAYER) / GIB,
            "activations, float32": 4 * tokens * (36 * 2560 + 16 * 2560 + 6 * 9728) / GIB,
            "logits, float32": 5 * 4 * 2**27 / GIB,  # five copies with a gradient of the entropy, of a part
            "context": 1.5,
        }
    )
    # A worker samples 74 answers a step, 11 at once; there is a second forward pass; float32 runs at 67 TFLOP/s.
    sampled, trained = work_of("evol_rl", **alone)["train_solver"]
    assert (sampled.rounds, trained.passes) == (24 * 7, 2 + 1 + 1 + 1 + 1)
    [stage] = [stage for stage in plan.stages if stage.stage == "train_solver"]
    answers = 24 * 8 * 32
    updates = 2 * 6 * P * answers * (12_288 + 256) / (7 * 67e12 * 0.3)
    asked = 2 * P * (2 * answers * 12_288 + 24 * 8 * 256) / (7 * 67e12 * 0.1)
    waiting = 24 * 7 * 12_288 * 0.07  # transformers starts 70 ms of small operations a token
    assert waiting > asked
    assert stage.hours[1] == pytest.approx((updates + waiting) / 3600)
    sparing: dict[str, object] = {"trainer__sampling_rows": 74, "trainer__checkpoint_activations": False}
    sampled, trained = work_of("evol_rl", **{**alone, **sparing})["train_solver"]
    assert (sampled.rounds, trained.passes) == (24, 5)


def test_the_memory_and_time_of_lora_in_bfloat16_by_hand() -> None:
    """A 4B model on one GPU, whose application samples and gets the merged weights at each step."""
    plan = found("rzero-single-gpu")
    sampling, updating, *_ = plan.memory
    # Of rank 32: of queries, keys, values, the attention's output, and of the three matrices of the MLP.
    ends = (2560 + 4096) + 2 * (2560 + 1024) + (4096 + 2560) + 3 * (2560 + 9728)
    adapters = 32 * 36 * ends
    states = {"weights, float32": 4 * (P + adapters) / GIB, "AdamW's moments, float32": 8 * adapters / GIB}
    assert sampling.lines == pytest.approx({**states, "context": 1.5})
    assert updating.lines == pytest.approx(
        {
            **states,
            "gradients, float32": 4 * adapters / GIB,
            "activations, bfloat16": 16_384 * (4 * 36 * 2560 + 2 * (16 * 2560 + 6 * 9728)) / GIB,
            "logits, float32": 3 * 4 * 2**27 / GIB,
            "context": 1.5,
        }
    )
    sampled, trained = work_of("rzero-single-gpu")["train_solver"]
    assert (sampled.holder, sampled.rounds, sampled.swaps) == ("solver", 15, 15)
    assert trained.passes == 2 + 1 + 1  # forward twice, backward without gradients of weights, the reference
    [stage] = [stage for stage in plan.stages if stage.stage == "train_solver"]
    swaps, waiting = 15 * 2 * P / 1.5e9, 15 * 4096 * 0.01
    asked = 2 * P * (9600 * 4096 + 1920 * 256) / (989e12 * 0.1)
    updates = 2 * 4 * P * 9600 * (4096 + 256) / (989e12 * 0.3)
    assert stage.hours[1] == pytest.approx((swaps + max(waiting, asked) + updates) / 3600)


def test_replayed_questions_are_voted_on_again_for_the_newest_label() -> None:
    first, newest = (
        work_of("rzero-qwen3-4b", dataset__replay__share=0.2, dataset__replay__label=label)["train_solver"]
        for label in ("first", "newest")
    )
    votes, *others = newest
    assert others == first
    assert (votes.holder, votes.answers, votes.rounds) == ("solver", 2000 * 10, 2)


def test_the_papers_methods_take_at_most_half_as_long_again_as_with_easyr1() -> None:
    """With EasyR1's trainer in their presets, for as many answers; it samples on all eight GPUs, ours on seven."""
    for name in ("srt", "ttrl", "evol_rl", "scrl", "poly_epo"):
        easyr1: dict[str, object] = {"trainer__type": "easyr1", "solver__reward__trained_share": 1.0}
        ours, theirs = (
            [stage.hours for stage in found(name, **changes).stages if stage.stage == "train_solver"]
            for changes in ({"solver__reward__trained_share": 1.0}, easyr1)
        )
        assert all(a <= 1.5 * b for a, b in zip(ours[0], theirs[0], strict=True)), name


def test_easyr1_trains_on_all_answers_of_a_group() -> None:
    kinds: dict[str, dict[str, object]] = {"local": {}, "easyr1": {"trainer__type": "easyr1"}}
    trained = {kind: work_of("ttrl", **changes)["train_solver"][1].answers for kind, changes in kinds.items()}
    assert trained == {"local": 24 * 8 * 32, "easyr1": 24 * 8 * 64}


def test_further_prompts_are_sampled_in_a_round_more_and_trained_on_no_more() -> None:
    without, refilled = (work_of("ttrl", solver__training__refill=most)["train_solver"] for most in (0, 16))
    assert refilled[0].answers == without[0].answers + 24 * 16 * 64
    assert refilled[0].prompts == without[0].prompts + 24 * 16
    assert refilled[0].rounds == without[0].rounds + 24
    assert refilled[1:] == without[1:]


FIRST, LAST = [0, 1, 2, 3], [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        # The Challenger's training needs a running Solver at the same time, the Solver's training needs no application.
        (
            "rzero-qwen3-4b",
            {
                "train_challenger": {"trainer": FIRST, "solver": LAST},
                "generate_questions": {"challenger": [*FIRST, *LAST]},
                **{stage: {"solver": FIRST} for stage in ("label_questions", "evaluate")},
                "train_solver": {"trainer": FIRST},
            },
        ),
        # A model that the roles share is in the Solver's application only.
        (
            "single-qwen3-4b",
            {
                "train_challenger": {"trainer": FIRST, "solver": LAST},
                **{stage: {"solver": FIRST} for stage in ("generate_questions", "label_questions", "evaluate")},
                "train_solver": {"trainer": FIRST},
            },
        ),
        (
            "evol_rl",
            {
                "train_solver": {"trainer": [*FIRST, 4, 5, 6], "embedder": [7], "solver": [*FIRST, 4, 5, 6]},
                "evaluate": {"solver": [*FIRST, 4, 5, 6]},
            },
        ),
    ],
)
def test_the_gpus_of_each_stage(preset: str, expected: dict[str, dict[str, list[int]]]) -> None:
    assert places(preset) == expected


def test_applications_that_are_not_released_need_their_own_gpus() -> None:
    kept = found("rzero-qwen3-4b", serving__release=False)
    assert kept.gpus == 4 + 4 + 8
    assert kept.stages[3].gpus.keys() == {"trainer", "solver", "challenger"}
    assert places("single-qwen3-4b", serving__release=False)["train_solver"].keys() == {"trainer", "solver"}
    assert not any("challenger" in memory.title for memory in found("single-qwen3-4b").memory)


SAMPLED: dict[str, object] = {"trainer__type": "local", "trainer__sampler": "application"}


def test_an_application_that_samples_stays_on_the_trainer_s_gpus_which_needs_no_cache() -> None:
    plans = {sampler: found("srt", trainer__sampler=sampler) for sampler in ("embedded", "application")}
    held = {
        sampler: next(stage.gpus for stage in plan.stages if stage.stage == "train_solver")
        for sampler, plan in plans.items()
    }
    assert held == {
        "embedded": {"trainer": [*FIRST, *LAST]},
        "application": {"trainer": [*FIRST, *LAST], "solver": [*FIRST, 4, 5, 6]},
    }
    alone = places("rzero-qwen3-4b", **SAMPLED, solver__training__workers=4)["train_solver"]
    assert alone == {"trainer": FIRST, "solver": LAST}  # whose replicas reserve whole GPUs

    sampling = {sampler: plan.memory[0].lines.keys() for sampler, plan in plans.items()}
    assert sampling["embedded"] - sampling["application"] == {"KV cache, bfloat16", "gathered, float32"}
    work = {sampler: work_of("srt", trainer__sampler=sampler)["train_solver"] for sampler in plans}
    assert [part.holder for part in work["application"]] == ["solver", "trainer"]
    assert work["application"][1] == work["embedded"][1]
    stages = plans["embedded"].stages, plans["application"].stages
    before, after = (next(stage.hours[1] for stage in each if stage.stage == "train_solver") for each in stages)
    assert after < before


def test_while_the_challenger_is_trained_one_application_votes_and_the_other_samples() -> None:
    training = places("rzero-qwen3-4b", **SAMPLED)["train_challenger"]
    assert training.keys() == {"trainer", "solver", "challenger"}


def test_a_fixed_model_has_its_own_gpu_where_the_method_needs_it(tmp_path: Path) -> None:
    tree = yaml.safe_load((APPLICATIONS / "rzero-8-gpus.yaml").read_text())
    judge = copy.deepcopy(tree["applications"][1]) | {"name": "judge"}
    del judge["deployments"]
    judge["args"]["llm_configs"][0]["deployment_config"] = {"num_replicas": 1}
    file = tmp_path / "judged.yaml"
    file.write_text(yaml.safe_dump({"applications": [*tree["applications"], judge]}))
    judged = {"serving__applications": str(file), "solver__signals__clusterer": "served"}
    for method, beside in (("grpo_div", {"judge": [4]}), ("rzero", {})):
        stages = places("rzero-qwen3-4b", solver__reward__type=method, **judged)
        assert stages["train_solver"] == {"trainer": [0, 1, 2, 3], **beside}


def test_an_embedded_engine_s_memory_depends_on_the_rows_in_its_serve_file(tmp_path: Path) -> None:
    tree = yaml.safe_load((APPLICATIONS / "embedded.yaml").read_text())
    caches = list[float]()
    for rows in (512, 100):
        for application in tree["applications"]:
            application["args"] |= {"device": "cuda", "max_rows": rows}
        file = tmp_path / "rows.yaml"
        file.write_text(yaml.safe_dump(tree))
        memory = found("demo", serving__applications=str(file)).memory
        caches.append(next(part.lines["KV cache"] for part in memory if part.holder == "solver"))
    assert caches[0] / caches[1] == pytest.approx((512 + 256) / (100 + 256))


def test_applications_that_a_run_never_starts_take_no_memory() -> None:
    for name, held in (("srt", set()), ("evol_rl", {"embedder"}), ("poly_epo", {"judge"})):
        assert {part.holder for part in found(name).memory} & {"embedder", "judge"} == held


SMALLEST: dict[str, object] = {"serving__applications": "rzero-1-gpu", "trainer__gpus_per_node": 1}
SMALLEST |= {"trainer__offload": True, "trainer__update_micro_batch": 1}


@pytest.mark.parametrize(
    ("preset", "overrides", "stages"),
    [
        ("rzero-qwen3-4b", SMALLEST, ["train_challenger"]),
        ("rzero", {"trainer__type": "local"}, ["train_challenger", "train_solver"]),
    ],
)
def test_a_4b_model_does_not_fit_one_gpu_of_a_trainer(
    preset: str, overrides: dict[str, object], stages: list[str]
) -> None:
    plan = found(preset, **overrides)
    assert [problem.partition(":")[0] for problem in plan.problems if problem.startswith("train_")] == stages
    assert advice(plan)
    small = found("rzero-single-gpu")
    assert (small.gpus, small.problems) == (1, ())


@pytest.mark.parametrize(
    "careless",
    [
        {"solver__training__sharded": False},
        {"trainer__checkpoint_activations": False},
        {"trainer__tokens_per_micro_batch": 32768},
    ],
)
def test_without_any_of_its_memory_settings_a_preset_does_not_fit_and_the_setting_is_advised(
    careless: dict[str, object],
) -> None:
    plan = found("srt", **careless)
    assert [problem.split(":")[0] for problem in plan.problems] == ["train_solver"]
    (name,) = careless
    assert len([line for line in advice(plan) if name.rpartition("__")[2] in line]) == 1
    assert found("srt").problems == ()


def test_a_small_gpu_is_told_the_settings_that_take_less_memory() -> None:
    plan = found("rzero-single-gpu", gpu_memory=24)
    advised = " ".join(advice(plan))
    assert plan.problems
    assert all(name in advised for name in ("kv_cache_memory_bytes", "tokens_per_micro_batch"))


@given(st.integers(1, 8192), st.integers(0, 4096), st.sampled_from(["rzero-qwen3-4b", "demo"]))
@settings(max_examples=40)
def test_longer_answers_never_need_fewer_tokens_hours_or_bytes(tokens: int, more: int, preset: str) -> None:
    def plan_with(limit: int) -> Estimate:
        return found(preset, solver__training__sampling__max_tokens=limit, dataset__sampling__max_tokens=limit)

    short, long = plan_with(tokens), plan_with(tokens + more)
    for before, after in zip(short.stages, long.stages, strict=True):
        assert before.million_tokens <= after.million_tokens
        assert before.hours <= after.hours
    assert all(memory.gib <= more_memory.gib for memory, more_memory in zip(short.memory, long.memory, strict=True))


def test_a_benchmark_that_is_not_here_has_the_number_of_questions_that_its_definition_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COEVO_BENCHMARKS", str(tmp_path))

    def answers(benchmark: str) -> int:
        return work_of("rzero-qwen3-4b", evaluation__benchmark=benchmark, evaluation__suite=None)["evaluate"][0].answers

    assert [answers("amc_83"), answers("olympiadbench"), answers("mine.jsonl")] == [83 * 9, 500 * 9, 500 * 9]
    (tmp_path / "amc_83.jsonl").write_text('{"problem": "1 + 1?", "answer": 2}')
    assert answers("amc_83") == 9


def test_prompts_that_are_held_out_for_early_stopping_are_counted() -> None:
    own = {"prompts.limit": 400, "evaluation.samples": 3, "early_stopping": {"benchmark": "prompts"}}
    [asked] = work.work_of(load_config(preset_path("micro"), own), "evaluate")
    # 1,020 questions of the benchmark, and 1% of the prompts; three samples each, and a greedy one.
    assert asked.answers == (1_020 + 4) * 4


@pytest.mark.parametrize(("keep", "iterations"), [("all", 40), ("best_and_last", 5), (10, 9)])
def test_the_disk_need_only_have_room_for_the_checkpoints_that_a_run_keeps(keep: str | int, iterations: int) -> None:
    """Up to three iterations are a best one, one is the last, and one is at work."""
    config = CoEvolution(iterations=40, checkpoints=Retention.model_validate({"keep": keep}))
    training = 3 * 12 * shape_of("micro").parameters
    needed = (1 + 2 * iterations) * checkpoint_bytes(config) + training + OTHER_FILES
    assert sum(disk_lines(config).values()) == pytest.approx(needed / GIB)


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_for_gpus_fits_and_is_in_the_docs_with_its_model(preset: str) -> None:
    plan, page = found(preset), (ROOT / "docs" / "presets.md").read_text().partition("\n## ")[0]
    rows = [line for line in page.splitlines() if line.startswith("|") and f"`{preset}`" in line]
    if not plan.gpus:  # of the tiny world
        assert (rows, plan.problems, plan.memory) == ([], (), ())
        return
    [row] = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    assert row[2:] == [Path(plan.config.base_model).name]
    assert plan.gpus == (1 if preset in ("rzero-single-gpu", "rzero-24-gb") else 8)
    assert plan.problems == ()


@pytest.mark.parametrize(
    ("overrides", "asked", "expected"),
    [
        ({}, {}, (0.1, 0.1)),  # seven stages of 360/7 seconds
        # Half as many candidates: the two stages that ask and label them take half as long.
        ({}, {"dataset.candidates": 160}, (0.1 * 6 / 7, 0.1 * 6 / 7)),
        ({"base_model": "elsewhere"}, {}, None),  # another machine's speed
    ],
    ids=["the same settings", "fewer candidates", "another model"],
)
def test_finished_runs_of_the_preset_are_worth_more_than_assumed_speeds(
    sqlite: Store, overrides: dict[str, str], asked: dict[str, int], expected: tuple[float, float] | None
) -> None:
    config = load_config(preset_path("demo"), {"iterations": 2, "dataset.candidates": 320, **overrides})
    with sqlite.write() as session:
        queries.runs.create_run(session, name="before", config=config, preset="demo")
        queries.runs.set_run_status(session, "before", "done")
        for t, stage in run_plan(config):
            finish(session, "before", t, stage, {}, 360 / 7 if t else 36)
    wanted = load_config(preset_path("demo"), {"iterations": 5, "dataset.candidates": 320, **asked})
    with sqlite.read() as session:
        hours = measured(session, "demo", estimate(wanted))
    if hours is None:
        assert expected is None
        return
    assert hours.runs == ("before",)
    assert hours.hours == pytest.approx(expected, rel=0.15)
    assert hours.run_hours == pytest.approx([0.01 + 5 * each for each in hours.hours])


def test_gates_ask_at_most_about_all_candidates() -> None:
    gates = [{"type": "lead"}, {"type": "solvers", "earlier": 2, "votes": 5}, {"type": "reordered"}]
    of_stage = work_of("rzero-qwen3-4b", dataset__gates=gates)
    [votes] = of_stage["label_questions"]
    assert of_stage["admit_questions"] == [
        replace(votes, answers=2 * 8_000 * 5, prompts=2 * 8_000, rounds=2 * votes.rounds),
        replace(votes, answers=8_000 * 10),
    ]
    assert [stage for stage in work_of("rzero-qwen3-4b") if stage == "admit_questions"] == []
