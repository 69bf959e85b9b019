"""Whole runs in a store, made by the real stages from the replies of fake applications and from fake trainings."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from core.settings.templates import CHALLENGER_USER
from core.types import Flow
from orchestrator.installation.home import Home
from orchestrator.ledger import run_once
from orchestrator.plan import plan
from orchestrator.run import Run
from orchestrator.runs import prepare, stored_config
from orchestrator.stages.by_name import last_write_of
from orchestrator.stages.context import Context
from orchestrator.verification.checks import Violation
from orchestrator.verification.run import verify_run
from storage import queries
from storage.session import Store, open_store
from tests.fake_applications import fake_applications
from tests.fake_training import fake_training

RUN = "whole"
_TRAINING = {"steps": 2, "prompts_per_step": 3, "rollouts_per_prompt": 4, "workers": 1}
# Of four votes two are for 3 (p_hat 1/2, in the band), three for 12, and two for x + 1, which only the grader finds
# equal to 1 + x; all four for 7 is too easy, and the last question has no majority.
_VOTES = {
    "What is 1 + 2?": ["It is \\boxed{3}.", "\\boxed{4}", "\\boxed{3}", "no idea"],
    "What is 5 + 7?": ["\\boxed{12}", "\\boxed{12}", "\\boxed{12}", "\\boxed{13}"],
    "What is x + 1?": ["\\boxed{x + 1}", "\\boxed{1 + x}", "\\boxed{3}", "no idea"],
    "What is 3 + 4?": ["\\boxed{7}"] * 4,
    "What is y?": ["no idea"] * 4,
}
_OTHER_FORMS = {"What is 7 + 5?": ["\\boxed{12}"] * 4}  # asked for a gate only
_HELD_OUT = {"What is 2 + 2?": "4", "What is 20 + 1?": "21"}
_REFUSED = ["What is 1 + 2?", "What is 2 + 2?"]  # an earlier candidate's text, and that of a held-out question
_ANSWERS = {
    "What is 2 + 2?": ["\\boxed{4}", "\\boxed{4}", "\\boxed{5}"],
    "What is 20 + 1?": ["\\boxed{3}", "no idea", "\\boxed{21}"],
}
_CANDIDATES = [
    *(f"<question>{question}</question> \\boxed{{0}}" for question in [*_VOTES, *_REFUSED]),
    "a reply without a question",
]


def store_loop(store: Store, home: Home, **more: Any) -> None:
    """Two iterations of eight candidates, each with a branch on labelled data. `more` are further settings, with `__`
    for the dots in their names."""
    settings = {
        **_settings(home),
        **_training("challenger"),
        "dataset.candidates": len(_CANDIDATES),
        "labelled.file": "micro",
        "labelled.limit": 6,
        **_named(more),
    }
    _store(store, home, "demo", "co_evolve", settings)


def store_rounds(store: Store, home: Home, **more: Any) -> None:
    """Two rounds on given prompts, which are voted on before; `more` as above."""
    rows = [{"problem": question, "answer": str(i)} for i, question in enumerate(_VOTES)]
    settings = {
        **_settings(home),
        "prompts.file": _write(home.path / "prompts.jsonl", rows),
        "prompts.labels": "offline",
        "prompts.answer": "answer",
        "solver.reward.type": "srt",
        "solver.reward.labels": "offline",
        "solver.training.optimiser": "continued",
        "early_stopping.benchmark": str(home.path / "benchmark.jsonl"),
        "audit.oracle": "given",
        **_named(more),
    }
    _store(store, home, "micro", "self_train", settings)


def _named(more: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in more.items()}


def _settings(home: Home) -> dict[str, Any]:
    items = [{"id": f"{i}", "problem": item[0], "answer": item[1]} for i, item in enumerate(_HELD_OUT.items())]
    return {
        "iterations": 2,
        "rollout_text": "all",
        "dataset.votes": 4,
        "evaluation.benchmark": _write(home.path / "benchmark.jsonl", items),
        "evaluation.samples": 3,
        **_training("solver"),
    }


def _training(table: str) -> dict[str, int]:
    return {f"{table}.training.{name}": value for name, value in _TRAINING.items()}


def _write(file: Path, rows: list[dict[str, str]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def _store(store: Store, home: Home, preset: str, flow: Flow, settings: dict[str, Any]) -> None:
    prepare(home, store, RUN, preset, 0, settings, flow)
    go_on(store, home)


def go_on(store: Store, home: Home, run: str = RUN) -> None:
    """Run the stages that are not done yet, to the end of the run."""
    config = stored_config(store, run)
    with store.read() as session:
        begins_at = queries.forks.begins_at(session, run)
    texts = {CHALLENGER_USER: _CANDIDATES, **_VOTES, **_ANSWERS, **_OTHER_FORMS}
    with pytest.MonkeyPatch.context() as patch, fake_applications(texts) as (services, _):
        patch.setattr("orchestrator.stages.training.running.run_training", fake_training)
        for t, stage in plan(config, begins_at):
            context = Context(Run(run, home, store, services, config), t, stage, lambda *_: None)
            run_once(store, context.key, partial(last_write_of, context))
    with store.write() as session:
        queries.runs.set_run_status(session, run, "done")
    shutil.rmtree(home.work, ignore_errors=True)


def copy_of(home: Home, folder: Path) -> tuple[Home, Store]:
    """A copy of a home with its SQLite database, whose rows name the files of the copy."""
    shutil.copytree(home.path, folder, dirs_exist_ok=True)
    store = open_store(f"sqlite:///{folder / 'coevo.db'}")
    with store.write() as session:
        names = {"old": str(home.path), "new": str(folder)}
        session.execute(text("UPDATE checkpoints SET path = replace(path, :old, :new)"), names)
    return Home(folder), store


def violations(home: Home, store: Store, run: str = RUN, *, quick: bool = False) -> dict[str, list[Violation]]:
    """What `coevo store verify` names, by check; checks without violations are left out."""
    checks = verify_run(home, store, run, quick=quick).checks
    return {check.name: check.violations for check in checks if check.violations}


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
