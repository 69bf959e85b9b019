"""`coevo evaluate`: a model's accuracy on benchmarks."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from core.grading.grader import process_grader
from core.settings.evaluation import Benchmark, Columns, Protocol
from core.settings.parsing import validated
from core.settings.serving import Service, Serving
from core.statistics.estimates import Estimate
from core.types import evaluation_id
from orchestrator.cli.terminal import AsJson, clear_errors
from orchestrator.evaluation.answering import answer_all
from orchestrator.evaluation.manifest import begin, key_of
from orchestrator.evaluation.models import EvaluationError, find_model
from orchestrator.installation.home import home
from orchestrator.question_sets.benchmarks import LoadedBenchmark, load, read_suite
from orchestrator.question_sets.rows import SUFFIXES
from services.evaluations import Results, results_of
from storage import queries
from storage.session import open_store
from storage.texts import TextWriter, evaluation_path

_DEFAULT, _COLUMNS = Protocol(), Columns()


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="RUN:ITERATION, RUN:base or RUN:best; a folder with a Hugging Face model; or a URL up to /v1, with "
            "--model.",
            show_default=False,
        ),
    ],
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(help="Names in deploy/benchmarks, or paths of JSONL, Parquet or CSV files.", show_default=False),
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
    max_tokens: Annotated[int, typer.Option(help="Of each answer.")] = _DEFAULT.sampling.max_tokens,
    limit: Annotated[int, typer.Option(help="Ask only the first so many questions of a benchmark; 0 asks all.")] = 0,
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
    as_json: AsJson = False,
) -> None:
    """Ask a model the questions of benchmarks, and print how many answers are right (docs/evaluation.md).

    The answers are stored. The same command goes on after an interruption, and prints the stored results once all
    questions are answered. A run's checkpoint or a folder is served by `coevo up`'s services; a URL needs none.
    """
    with clear_errors():
        own = Benchmark(title="", source="", columns=Columns(question=question, answer=answer))
        asked = _asked(benchmarks or [], suite, own, limit)
        sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        protocol = validated(Protocol, {"samples": samples, "sampling": sampling}, "how to ask")
        protocols = read_suite(suite).protocols() if suite is not None else {}
        service = _service(model, served_model, key_variable)
        coevo_home = home()
        store = open_store(coevo_home.database, create=True)
        serving = Serving(applications=applications) if applications is not None else None
        to_evaluate = find_model(coevo_home, store, model, serving, service)
        ways = {benchmark.name: protocols.get(benchmark.name, protocol) for benchmark in asked}
        keys = [evaluation_id(*key_of(to_evaluate, one, ways[one.name], seed)) for one in asked]
        with store.read() as session:
            rows = [queries.evaluations.find_evaluation(session, key) for key in keys]
        open_ones = [one for one, row in zip(asked, rows, strict=True) if row is None or row.finished_at is None]
        if open_ones:
            with to_evaluate.serve() as ask:
                for one in open_ones:
                    with store.write() as session:
                        row = begin(session, to_evaluate, one, ways[one.name], seed)
                    texts = TextWriter(evaluation_path(coevo_home.texts, row.id))
                    answer_all(store, row, one, ways[one.name], seed, ask, process_grader(), _print_progress, texts)
        with store.read() as session:
            results = [result for key in keys if (result := results_of(session, key))]
        if as_json:
            print(json.dumps([result.as_json() for result in results], indent=1, allow_nan=False))
        else:
            Console().print(table(results))


def _asked(names: Sequence[str], suite: str | None, own: Benchmark, limit: int) -> list[LoadedBenchmark]:
    """The benchmarks to ask, with their questions."""
    names = [*names, *(read_suite(suite).benchmarks if suite is not None else ())]
    if not names:
        raise EvaluationError("benchmark: expected a benchmark's name, a file, or --suite, got none")
    if limit < 0:
        raise EvaluationError(f"limit: expected 0 or more, got {limit}")
    return [load(name, own if name.endswith(SUFFIXES) else None, limit) for name in dict.fromkeys(names)]


def _service(model: str, served_model: str | None, key_variable: str | None) -> Service | None:
    is_url = model.startswith(("http://", "https://"))
    if is_url and served_model is None:
        raise EvaluationError(f"--model: expected the model's name at {model}, got none")
    if not is_url and (served_model is not None or key_variable is not None):
        raise EvaluationError(f"--model and --key-variable: expected only with a URL, got {model!r}")
    described = {"url": model.rstrip("/"), "model": served_model, "key_variable": key_variable}
    return validated(Service, described, f"model {model}") if is_url else None


def _print_progress(done: int, total: int, what: str) -> None:
    print(f"{done:,} of {total:,} {what}", file=sys.stderr, flush=True)


def table(results: Sequence[Results]) -> Table:
    """One row for each benchmark. k is the number of sampled answers."""
    result = Table(box=SIMPLE_HEAD, show_lines=True)
    result.title = f"{escape(results[0].row.model)}: percent right, with 95% intervals" if results else ""
    result.add_column("benchmark", overflow="fold")
    for name in ("n", "k", "pass@1", "greedy", "maj@k", "pass@k", "cut off", "no answer", "tokens"):
        result.add_column(name, no_wrap=name != "no answer")
    for one in results:
        last = one.curve[-1]
        figures = (one.accuracy.pass_at_1, one.accuracy.greedy, last.maj_at_k, last.pass_at_k)
        shares = [f"{share.value:.1%}" if share else "" for share in (one.truncated, one.unparsed)]
        name, k = escape(Path(one.row.benchmark).name), str(one.samples or "-")
        result.add_row(name, f"{one.questions:,}", k, *map(_figure, figures), *shares, f"{one.mean_tokens:,.0f}")
    return result


def _figure(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f}\n[{100 * estimate.lo:.1f}, {100 * estimate.hi:.1f}]".replace("[", r"\[")
