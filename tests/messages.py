"""The messages with which coevo refuses what a person gives it: `python -m tests.messages` writes messages.txt anew.

The file is there to be read in review: a sentence that changes is seen in its diff. So other tests need not repeat the
sentences; they assert on the type of the error and on the setting that it names.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from core.errors import CoevoError
from core.settings.parsing import load_config, parse_method
from orchestrator.cli import app
from orchestrator.installation.home import PRESETS, Home
from services.api.app import PREFIX, create_app
from storage import queries
from storage.session import open_store
from tests.synthetic_run import fill_run

FILE = Path(__file__).with_suffix(".txt")
_DEEP = "[" * 60 + "]" * 60
_SERVICE = {"url": "http://a/v1", "model": "m"}
_NOWHERE = "http://127.0.0.1:9"

TOML = (
    "[dataset]\ncandidate = 3",
    "[dataset]\ncandidates = 0",
    "[dataset]\nband = [0.8, 0.3]",
    "[solver.training]\nrollouts_per_prompt = 1",
    "[solver.training]\nbetas = [0.9, 1.0]",
    '[audit]\noracle = "someone"',
    'shared = true\n[trainer]\nsampler = "application"',
    '[trainer]\nsampler = "vllm"',
    "[trainer]\nahead = 1",
    '[trainer]\ntype = "easyr1"\nsampler = "application"',
    'kind = "self_train"',
    "iterations = ",
    f"seed = {_DEEP}",
    '[solver.reward]\ntype = "grpo"\nadvantage = "set"',
    '[solver.reward]\ntype = "poly_epo"\nset_size = 9',
    '[solver.reward]\ntype = "poly_epo"\nset_size = 5\ntrained_share = 0.5',
    '[solver.reward]\ntype = "rzero"\nlabels = "online"',
    "[dataset]\nvotez = 3\n[evaluation]\nsamples = -1",
    '[audit]\noracle = "judge"',
    '[audit]\noracle = "judge"\njudge.model = "m"',
    "[audit]\nsample = 5",
    '[audit]\njudge = {url = "http://a/v1", model = "m"}',
    '[audit]\noracle = "judge"\njudge = {url = "http://a/v1", model = "m", name = "GPT-4o"}',
    '[audit]\noracle = "judge"\njudge = {url = "http://a/v1", model = "m", samples = 3, temperature = 0}',
    '[solver.template]\nuser = "Answer!"',
    '[solver.template]\nsytem = ""',
    '[solver.template]\nexamples = [{question = "", answer = "1"}]',
    '[challenger.template]\nuser = ""',
    '[challenger.template]\nexamples = ["<question>1 + 2?</question> 3", "What is 3?"]',
    '[challenger]\ntemplate.examples = ["<question>1 + 2?</question> 3"]\nreward.format = "tags_and_answer"',
    '[trackers]\nto = ["tensorbord"]',
    '[trackers]\nto = ["mlflow"]',
    '[trackers]\nmlflow_url = "a:5000"\nproject = ""',
)

OVERRIDES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("demo", {"dataset.candidats": 320}),
    ("demo", {"candidates": 3}),
    ("demo", {"datset.candidates": 3, "budget.huors": 3}),
    ("demo", {"solver.steps": 3}),
    ("demo", {"zzzz": 3}),
    ("demo", {"audit.oracle": "jugde"}),
    ("demo", {"dataset.candidates": "abc"}),
    ("demo", {"dataset.candidates": 10**12}),
    ("demo", {"dataset.candidates": True}),
    ("demo", {"seed": True, "dataset.delta": True, "dataset.band": [False, True], "checkpoints.keep": True}),
    ("demo", {"solver.training.betas": [0.9, False], "solver.training.prompts_per_update": False}),
    ("demo", {"dataset.candidates": None}),
    ("demo", {"dataset.candidates": {}}),
    ("demo", {"dataset.candidates": {"n": 1}}),
    ("demo", {"dataset": []}),
    ("demo", {"dataset": None}),
    ("demo", {"dataset": 5, "dataset.candidates": 320}),
    ("demo", {"dataset": {"votes": 0}}),
    ("demo", {"dataset.delta": 0.7}),
    ("demo", {"dataset.band": [0.8, 0.3]}),
    ("demo", {"shared": "maybe"}),
    ("demo", {"seed": -1}),
    ("demo", {"budget.money": 5}),
    ("demo", {"seed.x": 1}),
    ("demo", {"kind": "both"}),
    ("demo", {"kind": "self_train"}),
    ("demo", {"checkpoints.keep": 0}),
    ("demo", {"challenger.reward.format": "tag"}),
    ("demo", {"solver.reward.type": "grop"}),
    ("demo", {"solver.reward.type": None}),
    ("demo", {"solver.reward.alpha": 0.2}),
    ("demo", {"solver.training.learning_rate": float("inf")}),
    ("demo", {"solver.training.warmup_steps": 24}),
    ("demo", {"solver.training.prompts_per_update": 64}),
    ("demo", {"solver.training.optimiser": "continued"}),
    ("demo", {"solver.signals.embedder": {**_SERVICE, "url": 3}}),
    ("demo", {"trainer.lora": {"rank": 0}}),
    ("demo", {"trainer.lora": {"targets": []}}),
    ("demo", {"trainer.lora.rank": 8, "solver.training.sharded": True, "solver.training.workers": 2}),
    ("micro", {"trainer.lora.rank": 8, "solver.training.optimiser": "continued"}),
    ("demo", {"labelled.file": "micro", "labelled.limit": 9, "labelled.steps": 2, "solver.training.warmup_steps": 2}),
    ("micro", {"dataset.candidates": 320}),
    ("micro", {"shared": True}),
    ("micro", {"challenger": {"training": {"steps": 3}}, "labelled": {"file": "a.jsonl"}}),
    ("micro", {"kind": "co_evolve"}),
    ("micro", {"prompts.labels": "offline"}),
    ("micro", {"solver.reward.type": "srt", "prompts.labels": "offline"}),
    ("micro", {"seed": "x", "dataset.votez": 3, "evaluation.samples": -1}),
)

METHODS = ("evolrl", "x")

# In a home without services whose store has the run `demo`, of four iterations.
COMMANDS = (
    "reprot",
    "init taken",
    "init a --preset mircro",
    "init taken/below",
    "check demo --iterations 0",
    "check --run",
    "run demo --iterations 0",
    "resume demo --iterations 0",
    "run nosuch",
    "run demo --set nonsense",
    "run demo --set dataset.votes=none",
    "run demo --name a/b --iterations -1 --set dataset.candidats=3",
    "run demo --tag 'Not a tag'",
    "run ablation --name mine",
    "run ablation --iterations 2",
    "run ablation --tag mine",
    "run ablation --json",
    "run demo --seeds 2",
    "run demo --plan",
    "run demo --name other",
    "resume nobody",
    "report nobody",
    "runs log nobody",
    "runs cancel demo --url " + _NOWHERE,
    "show questions demo 1 --url " + _NOWHERE,
    "show labels nobody",
    "show cost nobody",
    "show series nobody",
    "show series demo --name label_acuracy",
    "show alerts nobody",
    "show alerts --replay",
    "show alerts nobody --replay",
    "show matrix nobody",
    "compare nobody",
    "compare demo:7 --suite srt",
    "compare demo:1 --benchmark nosuch",
    "compare demo:1 --suite nosuch",
    "compare demo:1 demo:2 --benchmark math500",
    "compare demo:1 --benchmark micro --metric best",
    "compare demo --metric pass@2",
    "compare demo --metric greedy --picture x.pdf --by step",
    "compare demo --series kl",
    "audit plan --drop 0",
    "audit draw nobody 1 --size 5",
    "audit draw demo 1 --size 0",
    "audit draw demo 9 --size 5",
    "audit draw demo 1 --size 5 --oracle exact",
    "evaluate " + _NOWHERE + "/v1 micro",
    "evaluate http://u@h/v1 micro --model m",
    "evaluate http://h/v1 micro --model m --key-variable UNSET",
    "evaluate demo:1 micro --model m",
    "evaluate demo:1",
    "evaluate demo:1 nosuch",
    "evaluate demo:1 micro --suite nosuch",
    "evaluate demo:1 micro --limit -1",
    "evaluate demo:1 micro --samples -1",
    "evaluate demo:1 micro --top-k 0",
    "evaluate demo:1 micro --temperature 11",
    "evaluate nobody:1 micro",
    "evaluate nowhere micro",
    "export evaluation 0000000000000000 r.jsonl",
    "export metrics nobody r.csv",
    "export metrics demo r.txt",
    "export questions demo 1 r.txt",
    "export questions nobody 1 r.csv",
    "export questions 1 r.csv",
    "export questions demo --experiment x 1 r.csv",
    "export questions demo 9 r.csv",
    "export votes --experiment none 1 r.csv",
    "export votes demo 3-1 r.csv",
    "export votes demo 1 r.csv --p-hat-min 2",
    "export votes demo 1 r.csv --p-hat-min 0.8 --p-hat-max 0.2",
    "export votes demo 1 r.csv --cluster -1",
    "export votes demo 1 r.csv --verdict good",
    "export votes demo 1 r.csv --kept --verdict kept",
    "export votes demo 1 nowhere/r.csv",
    "methods grade 1",
    "methods easyr1 --preset micro --role challenger --out x",
    "methods easyr1 --preset micro --role judge --out x",
    "methods easyr1 --preset micro --set solver.reward.type=scrl --out x",
    "store serve --host 0.0.0.0 --no-keys",
    "store keys add me --scope all",
    "store keys revoke you",
)

# GET, from an API without a Prefect server, on the same store.
PATHS = (
    "/nothing",
    "/runs/nobody",
    "/runs/nobody/series",
    "/runs/%00",
    "/runs?status=failed",
    "/runs?after=nobody",
    "/runs?after=WzFlMzAsICJkZW1vIl0",  # [1e30, "demo"]
    "/runs/demo/checkpoints/solver/7",
    "/runs/demo/iterations/99999999999/questions",
    "/runs/demo/iterations/0/questions",
    "/runs/demo/iterations/1/questions/999",
    "/runs/demo/iterations/1/questions?limit=201",
    "/runs/demo/iterations/1/questions?verdict=kep",
    "/runs/demo/iterations/1/questions?verdicts=kept",
    "/runs/demo/iterations/1/questions?p_hat_min=nan",
    "/runs/demo/iterations/1/questions?after=%00x",
    "/runs/demo/iterations/1/questions?after=WzAuNSwxXQ",
    "/runs/demo/iterations/1/questions?sort=p_hat&after=WzAuNSwgMC41XQ",
    "/runs/demo/iterations/1/questions?after=WzFlOTk5XQ",
    "/runs/demo/iterations/1/questions?p_hat_max=2",
    "/runs/demo/iterations/1/questions?p_hat_min=0.8&p_hat_max=0.2",
    "/runs/demo/export?texts=true",
    "/runs/demo/export?texts=perhaps",
    "/runs/nobody/stages?limit=1",
)


def messages(folder: Path) -> str:
    """All messages, each below what it answers; `folder` is empty and is filled."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COEVO_DATABASE", "COEVO_RAY_ADDRESS", "COEVO_BENCHMARKS", "UNSET"):
            patch.delenv(name, raising=False)
        patch.setenv("COEVO_HOME", str(folder / "home"))
        patch.setenv("COLUMNS", "200")
        patch.chdir(folder)
        parts = [*_of_settings(folder), *_of_commands(folder), *_of_requests(folder)]
    return "\n\n".join(parts).replace(str(folder), "FOLDER").replace(str(PRESETS), "PRESETS") + "\n"


def _of_settings(folder: Path) -> Iterator[str]:
    file = folder / "mine.toml"
    for text in TOML:
        file.write_text(f"{text}\n", encoding="utf-8")
        yield f"{text}\n{_refusal(partial(load_config, file))}"
    for preset, overrides in OVERRIDES:
        refusal = _refusal(partial(load_config, PRESETS / f"{preset}.toml", overrides, "--set"))
        yield f"{preset} {json.dumps(overrides)}\n{refusal}"
    for method in METHODS:
        yield f"method {method}\n{_refusal(partial(parse_method, method))}"
    file.unlink()


def _refusal(read: Callable[[], object]) -> str:
    try:
        read()
    except CoevoError as error:
        return _indented(f"{type(error).__name__}: {error}")
    raise AssertionError("it was not refused")


def _of_commands(folder: Path) -> Iterator[str]:
    home = Home(folder / "home")
    home.path.mkdir(mode=0o700)
    (folder / "taken").touch()
    store = open_store(home.database, create=True)
    fill_run(store, "demo", per_level=2)
    with store.read() as session:
        evaluations = queries.evaluations.list_evaluations(session)
    for command in COMMANDS:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code in (1, 2), (command, result.output)
        lines = (line.strip("│╭╮╰╯─ ") for line in result.stderr.splitlines())
        yield "\n".join((f"$ coevo {command}", *(_indented(line) for line in lines if line)))
    assert sorted(path.name for path in folder.iterdir()) == ["home", "taken"]  # nothing is left half-written
    with store.read() as session:
        assert queries.evaluations.list_evaluations(session) == evaluations
    store.close()


def _of_requests(folder: Path) -> Iterator[str]:
    store = open_store(Home(folder / "home").database)
    api = TestClient(create_app(store, folder / "exports", ask_for_keys=False), "http://localhost")
    for path in PATHS:
        response = api.get(PREFIX + path)
        problem = response.json()
        assert response.headers["content-type"] == "application/problem+json", path
        assert response.status_code == problem["status"], path
        # Where fields are wrong, the sentence begins with the first of them.
        assert [error["field"] for error in problem["errors"]][:1] in ([], [problem["detail"].partition(": ")[0]]), path
        yield "\n".join((f"GET {path}", _indented(f"{problem['status']}: {problem['detail']}")))
    store.close()


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        FILE.write_text(messages(Path(temporary)), encoding="utf-8")
    print(f"written: {FILE}", file=sys.stderr)
