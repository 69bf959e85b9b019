"""Samples that oracles grade, label accuracy, and how far oracles and annotators agree."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from core.statistics.calibration import Fold
from core.statistics.estimates import Estimate
from services.api.dependencies import Iteration, RunName, StoreDependency
from services.api.problems import documented
from services.oracles.accuracy import (
    Accuracy,
    Agreement,
    Audits,
    audits_of,
    between_annotators,
    between_oracles,
    measured_in,
)
from services.oracles.human import ORACLE
from services.oracles.samples import draw_sample
from storage import queries
from storage.rows import Slice

router = APIRouter(prefix="/runs/{run}", tags=["audits"])
drawing = APIRouter(prefix="/runs/{run}", tags=["audits"])  # needs the scope `label`

LARGEST_SAMPLE = 10_000  # more than people can grade, and quickly stored
Oracle = Annotated[str, Path(pattern=r"^[a-z0-9_]{1,40}$", examples=["human"])]


class SampleStratum(BaseModel):
    """Pseudo-labels of similar p_hat whose questions were kept, or were not."""

    stratum: str
    size: int
    drawn: int
    audited: int
    right: int


class Measured(BaseModel):
    """Label accuracy, weighted to all pseudo-labels of the slice. n is the number of audits."""

    over: Slice
    label_accuracy: Estimate
    population: int


class Sample(BaseModel):
    """An oracle's sample of an iteration, and how far it is audited."""

    run: str
    iteration: int
    oracle: str
    drawn: int
    settled: int  # those with the oracle's verdict; the others count in no figure
    strata: list[SampleStratum]  # by p_hat
    measured: list[Measured]
    annotators: dict[str, int]  # of `human`: annotator -> number of annotated questions


class SampleRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    oracle: Literal["human"] = Field(description="Who grades the sample. A judge's sample is drawn with `coevo audit`.")
    size: int = Field(
        ge=1, le=LARGEST_SAMPLE, examples=[200], description="Of the whole sample; a larger one than before extends it."
    )


class Agreements(BaseModel):
    """Cohen's kappa of every two that have graded pseudo-labels in common. n is the number of these."""

    oracles: list[Agreement]
    annotators: list[Agreement]


class EstimateCheck(BaseModel):
    """How good the estimate from p_hat is: each audited iteration is estimated from the others, and compared."""

    oracle: str
    over: Slice
    error: float  # the mean of |estimated - measured|
    covered: int  # the number of folds whose interval contains the measured value
    folds: list[Fold]


class RunAudits(BaseModel):
    """The results of a run's audits. `frame` says what the oracle was asked about: all pseudo-labels, or a sample that
    is weighted to all. It is null if the oracle was not asked, and label accuracy is estimated."""

    measured: list[Accuracy]
    estimated: list[Accuracy]
    checks: list[EstimateCheck]
    oracles: list[Agreement]  # Cohen's kappa of every two
    annotators: list[Agreement]

    @classmethod
    def of(cls, audits: Audits) -> Self:
        return cls(
            measured=audits.measured,
            estimated=audits.estimated,
            checks=[
                EstimateCheck(
                    oracle=oracle, over=over, error=check.error, covered=check.covered, folds=list(check.folds)
                )
                for oracle, over, check in audits.checks
            ],
            oracles=audits.oracles,
            annotators=audits.annotators,
        )


@drawing.post("/iterations/{iteration}/samples", status_code=201, responses=documented(404, 409))
def draw(store: StoreDependency, run: RunName, iteration: Iteration, body: SampleRequest) -> Sample:
    """Draw a stratified sample of an iteration's pseudo-labels, or extend the existing one."""
    with store.read() as session:
        queries.runs.refuse_missing_iteration(session, run, iteration)
        run = queries.forks.made_by(session, run, iteration)
    draw_sample(store, run, iteration, body.oracle, body.size)
    with store.read() as session:
        return _sample(session, run, iteration, body.oracle)


@router.get("/iterations/{iteration}/samples/{oracle}", responses=documented(404))
def get_sample(store: StoreDependency, run: RunName, iteration: Iteration, oracle: Oracle) -> Sample:
    """How far an oracle's sample is audited, by stratum. `drawn` is 0 if there is no sample."""
    with store.read() as session:
        queries.runs.refuse_missing_iteration(session, run, iteration)
        return _sample(session, queries.forks.made_by(session, run, iteration), iteration, oracle)


@router.get("/audits", responses=documented(404))
def get_audits(store: StoreDependency, run: RunName) -> RunAudits:
    """Label accuracy by iteration and oracle, the estimates between audits with their check, and how far oracles and
    annotators agree."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        return RunAudits.of(audits_of(session, run))


@router.get("/agreement", responses=documented(404))
def get_agreement(store: StoreDependency, run: RunName) -> Agreements:
    """How far the oracles agree on the run's pseudo-labels, and how far the annotators do."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        return Agreements(oracles=between_oracles(session, run), annotators=between_annotators(session, run))


def _sample(session: Session, run: str, iteration: int, oracle: str) -> Sample:
    drawn, settled = queries.audits.sample_progress(session, run, iteration, oracle)
    drawn_by_stratum = queries.audits.drawn_by_stratum(session, run, iteration, oracle)
    strata = queries.audits.named_strata_of(session, run, iteration, oracle)
    counts = queries.audits.annotation_counts(session, run, iteration) if oracle == ORACLE else {}
    return Sample(
        run=run,
        iteration=iteration,
        oracle=oracle,
        drawn=drawn,
        settled=settled,
        strata=[
            SampleStratum(
                stratum=name,
                size=stratum.size,
                drawn=drawn_by_stratum.get(name, 0),
                audited=stratum.n,
                right=stratum.right,
            )
            for name, stratum in strata.items()
        ],
        measured=[
            Measured(over=accuracy.over, label_accuracy=accuracy.figure, population=accuracy.population)
            for accuracy in measured_in(session, run, iteration, oracle)
        ],
        annotators={name: sum(verdicts.values()) for name, verdicts in counts.items()},
    )
