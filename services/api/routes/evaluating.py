"""Starts evaluations of runs' models through Prefect."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from core.settings.evaluation import Protocol, Samples
from core.validation.bounds import Positive, Seed, Temperature, Tokens
from services.api.dependencies import InstallationDependency, PrefectDependency, StoreDependency
from services.api.problems import documented, invalid
from services.api.schemas import TriggeredEvaluation
from services.evaluations.figures import RUN_MODEL, servable_checkpoint
from storage.errors import NotThere

router = APIRouter(prefix="/evaluations", tags=["evaluations"])
_Name = Annotated[str, Field(max_length=100)]
_DEFAULT = Protocol()


class EvaluationStart(BaseModel):
    """Which model of a run to ask which benchmarks. The same request again goes on where it was cut off.

    `samples`, `temperature`, `top_p`, `top_k` and `max_tokens` are for the benchmarks that the suite does not name.
    """

    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        pattern=f"^{RUN_MODEL.pattern}$",
        examples=["demo:3"],
        description="RUN:ITERATION, RUN:base, RUN:best or RUN:labelled/ITERATION.",
    )
    benchmarks: list[_Name] = Field([], max_length=50, examples=[["micro"]], description="Names of benchmarks.")
    suite: _Name | None = Field(None, description="Name of a suite, which says what is asked and how.")
    samples: Samples = Field(_DEFAULT.samples, description="Sampled answers to each question, beside a greedy one.")
    temperature: Temperature = _DEFAULT.sampling.temperature
    top_p: float = Field(_DEFAULT.sampling.top_p, gt=0, le=1)
    top_k: Positive | None = Field(
        _DEFAULT.sampling.top_k, description="Sample only from so many tokens, the most likely ones; null: from all."
    )
    max_tokens: Tokens = _DEFAULT.sampling.max_tokens
    limit: int = Field(0, ge=0, le=10_000_000, description="Ask only a sample of so many questions; 0 asks all.")
    seed: Seed = 0


@router.post("", status_code=202, responses=documented(409, 503))
def create_evaluation(
    installation: InstallationDependency, store: StoreDependency, prefect: PrefectDependency, body: EvaluationStart
) -> TriggeredEvaluation:
    """Start an evaluation of a run's model. Its figures are under /evaluations once its first answers are stored.

    A model is named by its run, and benchmarks and suites are those of this server, because a path or an address would
    let a caller choose what the server reads.
    """
    installation.question_sets.refuse_unknown(body.benchmarks, body.suite, "body", "benchmarks")
    run, _, which = body.model.rpartition(":")
    try:
        with store.read() as session:
            servable_checkpoint(session, run, which)
    except NotThere as error:
        raise invalid("model", str(error)) from error
    parameters: dict[str, Any] = {**body.model_dump(), "suite": body.suite or ""}
    earlier = prefect.evaluations(body.model, parameters)
    for flow_run in earlier:
        if flow_run.active:
            detail = f"{body.model}: this evaluation is {flow_run.state}: {prefect.page_of(flow_run)}"
            raise HTTPException(409, detail)
    flow_run = prefect.start_evaluation(body.model, parameters, earlier)
    url = prefect.page_of(flow_run)
    return TriggeredEvaluation(model=body.model, flow_run=flow_run.id, state=flow_run.state, url=url)
