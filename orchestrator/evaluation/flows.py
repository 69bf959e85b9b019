"""The Prefect flows of evaluations, which belong to no run: questions to a model, and to a judge about its answers."""

from __future__ import annotations

from contextlib import closing

from prefect import flow

from core.asking.judge import Judge, judge_name
from core.settings.evaluation import Samples
from core.settings.parsing import validated
from core.validation.bounds import Count, Positive, Seed, Temperature, Tokens, TopP
from orchestrator.evaluation import rechecking, request
from orchestrator.evaluation.request import EvaluationRequest
from orchestrator.installation.home import home
from orchestrator.reporting import artifacts
from orchestrator.reporting.flow_process import flow_process
from services.evaluations.figures import figures_of
from services.inference.keys import keys_of
from storage.session import open_store


@flow(flow_run_name="{model}")
def evaluate(
    model: str,
    benchmarks: list[str] = ["micro"],  # noqa: B006 (never changed; with `None` the form would ask for a type)
    suite: str = "",
    samples: Samples = 8,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    top_k: Positive | None = None,
    max_tokens: Tokens = 4096,
    limit: Count = 0,
    seed: Seed = 0,
) -> list[str]:
    """Ask a model the questions of benchmarks; its figures are on the dashboard's page of evaluations.

    Args:
        model: RUN:ITERATION, RUN:base, RUN:best, RUN:labelled/ITERATION, or a folder with a Hugging Face model.
        benchmarks: Names in deploy/benchmarks, or paths of files with questions.
        suite: Name of a suite in deploy/suites, which says what is asked and how.
        samples: Sampled answers to each question, beside a greedy one. 0: greedy only.
        temperature: Of the sampled answers.
        top_p: Of the sampled answers.
        top_k: Sample only from so many tokens, the most likely ones; by default from all.
        max_tokens: Of each answer.
        limit: Ask only a sample of so many questions of a benchmark; 0 asks all.
        seed: Of the sampled answers.
    """
    with flow_process():
        coevo_home = home()
        sampling = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "max_tokens": max_tokens}
        asked = {"model": model, "benchmarks": benchmarks, "suite": suite or None, "limit": limit, "seed": seed}
        protocol = {"samples": samples, "sampling": sampling}
        checked = validated(EvaluationRequest, {**asked, "protocol": protocol}, "evaluate")
        with closing(open_store(coevo_home.database, create=True)) as store, artifacts.flushed():
            figures = request.evaluate(coevo_home, store, checked, lambda *_: None)
            artifacts.evaluated(figures)
        return [measured.evaluation.id for measured in figures]


@flow(flow_run_name="by {model}")
def recheck(
    evaluations: list[str],
    url: str,
    model: str,
    key_variable: str = "",
    failures: bool = False,
    name: str = "",
) -> list[str]:
    """Ask a language model whether the stored answers of evaluations are right. The evaluated model is not asked again.

    Args:
        evaluations: Ids of evaluations, as on the dashboard and as `coevo evaluate` prints them.
        url: URL of an OpenAI-compatible service, up to and including /v1.
        model: Name of the model at the service.
        key_variable: Environment variable of the flow runner with the API key of the service. The key itself is no
            parameter, because Prefect stores and shows parameters.
        failures: Ask only about the answers that the grader calls wrong.
        name: The verdicts are stored as those of judge_NAME; by default NAME is made from model and prompt.
    """
    with flow_process():
        service = {"url": url, "model": model, "key_variable": key_variable or None}
        prompt = {"name": name or judge_name(model, "equivalence"), "prompt": "equivalence"}
        judge = validated(Judge, {**service, **prompt}, "recheck")
        keys_of([judge])
        with closing(open_store(home().database)) as store, artifacts.flushed():
            for key in evaluations:
                rechecking.recheck(store, key, judge, lambda *_: None, failures_only=failures)
            with store.read() as session:
                figures = [measured for key in evaluations if (measured := figures_of(session, key))]
            artifacts.rechecked(figures, judge.oracle)
    return evaluations
