"""What an evaluation's answers depend on: its manifest, from which also its key is made."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from sqlalchemy.orm import Session

from core.settings.evaluation import Protocol
from orchestrator.evaluation.models import Model
from orchestrator.question_sets.benchmarks import SAMPLE_SEED, LoadedBenchmark
from storage import queries
from storage.rows import EvaluationRow


def manifest_of(
    model: dict[str, Any],
    engine: dict[str, Any],
    benchmark: LoadedBenchmark,
    protocol: Protocol,
    seed: int,
    greedy: bool = True,
) -> dict[str, Any]:
    """All that the answers and their verdicts depend on. How many there are and how long they took is counted."""
    definition = benchmark.definition
    whole = benchmark.sampled_from
    sample = {} if whole is None else {"sampled_from": whole, "sample_seed": SAMPLE_SEED}
    return {
        "model": model,
        "engine": engine,
        "benchmark": {
            "name": benchmark.name,
            "title": definition.title,
            "sha256": benchmark.sha256,
            "questions": len(benchmark.items),
            **sample,
        },
        "prompt": definition.model_dump(mode="json", include={"system", "prompt", "few_shot"}),
        "decoding": {**protocol.model_dump(mode="json"), "greedy": greedy, "seed": str(seed)},
        "grader": {
            "answers": definition.answers,
            **({"math-verify": version("math-verify")} if definition.answers == "math" else {}),
        },
        "coevo": version("coevo"),
    }


def key_of(
    model: Model, benchmark: LoadedBenchmark, protocol: Protocol, seed: int
) -> tuple[str, str, *tuple[str | int, ...]]:
    """The parts of the key of an evaluation that no run makes: model, engine, benchmark, and how it is asked."""
    prompt = benchmark.definition.model_dump_json(include={"system", "prompt", "few_shot", "answers"})
    how = (benchmark.sha256, prompt, protocol.model_dump_json(), seed)
    return model.name, benchmark.name, str(model.identity), str(model.engine), *how


def begin(
    session: Session, model: Model, benchmark: LoadedBenchmark, protocol: Protocol, seed: int, greedy: bool = True
) -> EvaluationRow:
    """Store an evaluation that no run makes, or return the one that was begun with the same key."""
    _, _, *parts = key_of(model, benchmark, protocol, seed)
    queries.evaluations.add_benchmark_items(session, benchmark.sha256, benchmark.items)
    return queries.evaluations.begin_evaluation(
        session,
        model=model.name,
        checkpoint=model.checkpoint,
        benchmark=benchmark.name,
        manifest=manifest_of(model.identity, model.engine, benchmark, protocol, seed, greedy),
        protocol=parts,
    )
