"""`coevo evaluate`: a model's accuracy on benchmarks."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import TypeAdapter

from core.settings.evaluation import Columns, Protocol
from core.settings.parsing import validated
from orchestrator.cli.evaluation_tables import show
from orchestrator.cli.terminal import AsJson, LogFormat, opened, print_progress
from orchestrator.evaluation import request as requests
from services.evaluations.figures import EvaluationFigures

_DEFAULT, _COLUMNS = Protocol(), Columns()


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="RUN:ITERATION, RUN:base, RUN:best or RUN:labelled/ITERATION; a folder with a Hugging Face model; or "
            "a URL up to /v1, with --model.",
            show_default=False,
        ),
    ],
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(help="Names in deploy/benchmarks, or paths of files with questions.", show_default=False),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(help="Name of a suite in deploy/suites, which says what is asked and how.", show_default=False),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Sampled answers to each question, beside a greedy one. 0: greedy only.")
    ] = _DEFAULT.samples,
    temperature: Annotated[float, typer.Option(help="Of the sampled answers.")] = _DEFAULT.sampling.temperature,
    top_p: Annotated[float, typer.Option(help="Of the sampled answers.")] = _DEFAULT.sampling.top_p,
    top_k: Annotated[
        int | None,
        typer.Option(
            help="Sample only from so many tokens, the most likely ones; by default from all.", show_default=False
        ),
    ] = _DEFAULT.sampling.top_k,
    max_tokens: Annotated[int, typer.Option(help="Of each answer.")] = _DEFAULT.sampling.max_tokens,
    limit: Annotated[int, typer.Option(help="Ask only a sample of so many questions of a benchmark; 0 asks all.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the sampled answers.")] = 0,
    question: Annotated[str, typer.Option(help="A file's column of questions.")] = _COLUMNS.question,
    answer: Annotated[str, typer.Option(help="A file's column of true answers.")] = _COLUMNS.answer,
    applications: Annotated[
        str | None,
        typer.Option(help="Serve file in deploy/serve; by default the run's, or embedded.", show_default=False),
    ] = None,
    served_model: Annotated[
        str | None, typer.Option("--model", help="The model's name at the URL.", show_default=False)
    ] = None,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the URL's key.", show_default=False)
    ] = None,
    by_majority_share: Annotated[
        bool,
        typer.Option("--by-majority-share", help="Print accuracy by the majority's share of the votes too."),
    ] = False,
    as_json: AsJson = False,
    _log_format: LogFormat = None,
) -> None:
    """Ask a model the questions of benchmarks, and print how many answers are right (docs/evaluation.md).

    The answers are stored. The same command goes on after an interruption, and prints the stored results once all
    questions are answered. A run's checkpoint or a folder is served by `coevo up`'s services; a URL needs none.
    """
    request = {
        "model": model,
        "benchmarks": benchmarks or [],
        "suite": suite,
        "protocol": {
            "samples": samples,
            "sampling": {"temperature": temperature, "top_p": top_p, "top_k": top_k, "max_tokens": max_tokens},
        },
        "limit": limit,
        "seed": seed,
        "columns": {"question": question, "answer": answer},
        "applications": applications,
        "served_model": served_model,
        "key_variable": key_variable,
    }
    checked = validated(requests.EvaluationRequest, request, "coevo evaluate")
    coevo_home, store = opened(create=True)
    figures = requests.evaluate(coevo_home, store, checked, print_progress)
    if as_json:
        print(TypeAdapter(list[EvaluationFigures]).dump_json(figures, indent=1, ensure_ascii=True).decode())
    else:
        show(figures, by_majority_share)
