"""The presets for real models and the Serve files that they name: all checks that need no GPU."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from core.settings.config import RunConfig, SelfTraining
from core.settings.parsing import load_config
from core.settings.training import trained_rollouts
from core.types import TINY_BASES
from orchestrator.check.refusals import untrainable
from orchestrator.check.size.estimate import estimate
from orchestrator.check.size.shapes import shape_of
from orchestrator.installation.home import APPLICATIONS, PRESETS, ROOT
from orchestrator.serving.applications import is_vllm, read_applications, refuse_missing

REAL = ("rzero-qwen3-4b", "rzero-qwen3-8b", "octothinker-3b", "rzero-single-gpu", "rzero-24-gb", "single-qwen3-4b")
ONE_GPU = {"rzero-single-gpu": 80, "rzero-24-gb": 24}  # its memory in GB; both train with LoRA
ALL = sorted(path.stem for path in PRESETS.glob("*.toml"))
LARGE = [name for name in ALL if load_config(PRESETS / f"{name}.toml").base_model not in TINY_BASES]
COSINE = ("ttrl", "evol_rl", "scrl")  # the papers with a cosine schedule (docs/methods.md)
# The other papers' numbers: rollouts a prompt, prompts a step, prompts an update, learning rate, tokens of an answer.
PAPERS = {
    "srt": (32, 16, None, 1e-6, 3072),
    "ttrl": (64, 8, 1, 5e-7, 12288),
    "evol_rl": (64, 8, 1, 5e-7, 12288),
    "scrl": (64, 8, 1, 5e-7, 3072),
    "poly_epo": (8, 128, 64, 1e-6, 4096),
}
FILES = sorted(path.name for path in APPLICATIONS.glob("*.yaml"))
VLLM = [name for name in FILES if "llm_configs" in (APPLICATIONS / name).read_text()]


def test_the_demo_takes_as_long_in_its_preset_as_in_the_readme() -> None:
    files = (ROOT / "README.md", PRESETS / "demo.toml")
    first, second = (re.findall(r"\d+ to \d+ minutes", file.read_text()) for file in files)
    assert first == second != []


def preset(name: str) -> RunConfig:
    return load_config(PRESETS / f"{name}.toml")


@pytest.mark.parametrize("name", REAL)
def test_an_r_zero_preset_has_the_paper_s_numbers(name: str) -> None:
    """The numbers are from R-Zero's sections E.1.1, E.1.2 and D.1."""
    config = preset(name)
    for part, steps, rollouts in ((config.solver, 15, 5), (config.challenger, 5, 4)):
        training, reward = part.training, part.reward
        assert (training.steps, training.prompts_per_step, part.rollouts) == (steps, 128, rollouts)
        rate = 1e-5 if name in ONE_GPU else 1e-6
        assert (training.learning_rate, training.weight_decay, reward.kl_coefficient) == (rate, 1e-2, 1e-2)
        assert (training.sampling.temperature, training.sampling.top_p) == (1.0, 0.99)
        assert training.prompts_per_update is None
    assert config.solver.reward.type == "rzero"
    assert (config.dataset.candidates, config.dataset.votes, config.dataset.delta) == (8000, 10, 0.25)
    assert (config.challenger.reward.votes, config.challenger.reward.bleu_distance) == (10, 0.5)
    for training in (config.challenger.training, config.solver.training):
        assert training.checkpoint_every < training.steps  # else a killed training would begin anew


def test_single_r_zero_is_r_zero_with_one_model_and_the_iterations_of_table_5() -> None:
    two, one = preset("rzero-qwen3-4b"), preset("single-qwen3-4b")
    assert one == two.model_copy(update={"shared": True, "iterations": 4})


@pytest.mark.parametrize("name", PAPERS)
def test_a_preset_keeps_its_paper_s_numbers(name: str) -> None:
    solver = preset(name).solver
    training = solver.training
    numbers = (solver.rollouts, training.prompts_per_step, training.prompts_per_update, training.learning_rate)
    assert (*numbers, training.sampling.max_tokens) == PAPERS[name]


@pytest.mark.parametrize(("votes", "trained"), [(64, 32), (32, 16)])
def test_scrl_and_its_ttrl_train_on_half_of_their_votes(votes: int, trained: int) -> None:
    """SCRL 4.1: "we generate 64 (or 32) candidate responses …, we downsample 32 (or 16) responses per prompt"."""
    for method in ("scrl", "ttrl"):
        settings = {"solver.reward.type": method, "solver.training.rollouts_per_prompt": votes}
        solver = load_config(PRESETS / "scrl.toml", settings).solver
        assert (solver.rollouts, trained_rollouts(solver.rollouts, solver.reward)) == (votes, trained)


@pytest.mark.parametrize("name", ALL)
def test_a_preset_has_its_paper_s_schedule_and_betas_and_names_a_serve_file_that_exists(name: str) -> None:
    """The warm-up is 3% of all steps, rounded down, as verl rounds the released scripts' lr_warmup_steps_ratio. On
    given prompts, all rounds are one training. Only the tiny world has other betas than the papers."""
    config = preset(name)
    assert {"challenger", "solver"} <= read_applications(config.serving.applications).keys()
    expected = (0.9, 0.999) if name in LARGE else (0.9, 0.99)
    assert {planned.training.betas for planned in config.trainings} == {expected}
    schedules = [(planned.training.schedule, planned.training.warmup_steps) for planned in config.trainings]
    if name in COSINE:
        assert schedules == [("cosine", int(0.03 * config.solver_steps))]
    else:
        assert {*schedules} == {("constant", 0)}
    if isinstance(config, SelfTraining):
        assert config.rounds_are_one_training == (name in LARGE)


@pytest.mark.parametrize("name", LARGE)
def test_a_preset_fits_the_gpus_that_it_is_for_and_its_serve_file_has_what_its_method_needs(name: str) -> None:
    config = preset(name)
    refuse_missing(config.serving.applications, [*config.solver.signals.served(config.solver.reward)])
    assert config.solver.signals.services(config.solver.reward) == []  # it needs no external service
    assert not [*untrainable(config)]  # by EasyR1, where the preset has it
    plan = estimate(config, ONE_GPU.get(name, 80))
    assert plan.problems == ()
    assert plan.gpus == (1 if name in ONE_GPU else 8)


@pytest.mark.parametrize("name", LARGE)
def test_an_answer_and_its_prompt_fit_the_served_context(name: str) -> None:
    """The served context also fits the model's own, which vLLM uses where the file does not set one."""
    config, own = preset(name), shape_of(preset(name).base_model).max_position_embeddings
    longest = max(config.solver.training.sampling.max_tokens, config.evaluation.sampling.max_tokens)
    applications = read_applications(config.serving.applications)
    for role in config.roles:
        context = applications[role]["args"]["llm_configs"][0]["engine_kwargs"].get("max_model_len", own)
        assert longest + (2048 if own > 4096 else 1024) <= context <= own


@pytest.mark.parametrize("name", FILES)
def test_a_serve_file_follows_ray_serve_s_schema(name: str) -> None:
    ServeDeploySchema.model_validate(yaml.safe_load((APPLICATIONS / name).read_text()))


def llm_configs(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The file's LLM configurations, each with its application."""
    tree = yaml.safe_load((APPLICATIONS / name).read_text())
    llm = [app for app in tree["applications"] if is_vllm(app)]
    return [(app, config) for app in llm for config in app["args"]["llm_configs"]]


@pytest.mark.parametrize("name", VLLM)
def test_a_swapped_model_uses_our_server_and_has_its_deployment_s_name(name: str) -> None:
    for app, config in llm_configs(name):
        if "deployments" not in app:
            continue
        model = config["model_loading_config"]["model_id"]
        assert app["import_path"] == "services.inference.vllm.app:build"
        assert config["server_cls"] == "services.inference.vllm.server.SwappedLLMServer"
        assert config["engine_kwargs"]["worker_extension_cls"] == "services.inference.vllm.weights.SwappedWeights"
        assert (app["name"], app["deployments"]) == (model, [{"name": f"SwappedLLMServer:{model}"}])
        assert "max_ongoing_requests" not in config["deployment_config"]  # control calls share its slots


@pytest.mark.parametrize("name", VLLM)
def test_ray_and_vllm_accept_each_model(name: str) -> None:
    """`LLMConfig` builds it, vLLM has its engine's arguments, and the server and worker classes exist."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from ray.serve.llm import LLMConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    for _, config in llm_configs(name):
        built = LLMConfig(**config)
        assert built.model_id == config["model_loading_config"]["model_id"]
        assert built.get_engine_config().engine_kwargs.items() >= config["engine_kwargs"].items()
        assert config["engine_kwargs"].keys() <= AsyncEngineArgs.__dataclass_fields__.keys()
        if extension := config["engine_kwargs"].get("worker_extension_cls"):
            module, _, attribute = extension.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute)
