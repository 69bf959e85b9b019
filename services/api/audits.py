"""Samples that oracles grade, what came of them, and how far oracles and annotators agree."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Depends, HTTPException, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from core.statistics.audits import AuditError
from core.statistics.calibration import Fold
from core.statistics.estimates import Estimate
from services.api.dependencies import Iteration, ReadSession, RunName
from services.api.origins import same_site
from services.api.problems import documented
from services.oracles.accuracy import (
    Accuracy,
    Agreement,
    Audits,
    Slice,
    audits_of,
    between_annotators,
    between_oracles,
    measured_in,
)
from services.oracles.human import ORACLE
from services.oracles.samples import draw_sample
from storage import queries
from storage.session import Store

router = APIRouter(prefix="/runs/{run}", tags=["audits"])
drawing = APIRouter(prefix="/runs/{run}", tags=["audits"])  # needs the scope `label`

LARGEST_SAMPLE = 10_000  # more than people grade, and stored in a moment
Oracle = Annotated[str, Path(pattern=r"^[a-z0-9_]{1,40}$", examples=["human"])]


class SampleStratum(BaseModel):
    """Pseudo-labels of like p_hat that were kept, or were not."""

    stratum: str
    size: int
    drawn: int
    audited: int
    right: int


class Measured(BaseModel):
    """Label accuracy, weighted to all pseudo-labels of the slice; n are the audits."""

    over: Slice
    label_accuracy: Estimate
    population: int


class Sample(BaseModel):
    """An oracle's sample of an iteration, and how far it is audited."""

    run: str
    iteration: int
    oracle: str
    drawn: int
    settled: int  # the oracle has said its verdict; what is drawn and not settled is in no figure
    strata: list[SampleStratum]  # by p_hat
    measured: list[Measured]
    annotators: dict[str, int]  # of `human`: how many each has said something of


class SampleWanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    oracle: Literal["human"] = Field(description="Who is to grade it; a judge's sample is drawn with `coevo audit`.")
    size: int = Field(
        ge=1, le=LARGEST_SAMPLE, examples=[200], description="In all: more than before extends the sample."
    )


class Agreements(BaseModel):
    """Cohen's kappa of every two that have said something of the same pseudo-labels; n are these."""

    oracles: list[Agreement]
    annotators: list[Agreement]


class EstimateCheck(BaseModel):
    """How an estimate from p_hat does on the iterations that were audited, each estimated from the others."""

    oracle: str
    over: Slice
    error: float  # the mean of |estimated - measured|
    bias: float  # the mean of estimated - measured: above 0 it promises too much
    held: int  # of how many of the folds the interval held what was measured
    folds: list[Fold]


class RunAudits(BaseModel):
    """What a run's audits come to. `frame` says what the oracle was asked of: all pseudo-labels, or a sample that is
    weighted to all; null where it was not asked, and label accuracy is estimated."""

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
                EstimateCheck(oracle=oracle, over=over, error=c.error, bias=c.bias, held=c.held, folds=list(c.folds))
                for oracle, over, c in audits.checks
            ],
            oracles=audits.oracles,
            annotators=audits.annotators,
        )


@drawing.post(
    "/iterations/{iteration}/samples",
    status_code=201,
    responses=documented(404, 409),
    dependencies=[Depends(same_site)],
)
def draw(request: Request, run: RunName, iteration: Iteration, wanted: SampleWanted) -> Sample:
    """Draw a stratified sample of an iteration's pseudo-labels, or extend the one that there is."""
    store: Store = request.app.state.store
    try:
        draw_sample(store, run, iteration, wanted.oracle, wanted.size)
    except AuditError as error:
        raise HTTPException(409, str(error)) from error
    with store.read() as session:
        return _sample(session, run, iteration, wanted.oracle)


@router.get("/iterations/{iteration}/samples/{oracle}", responses=documented(404))
def get_sample(session: ReadSession, run: RunName, iteration: Iteration, oracle: Oracle) -> Sample:
    """How far an oracle's sample is audited, by stratum; `drawn` is 0 where there is none."""
    queries.runs.get_run(session, run)
    return _sample(session, run, iteration, oracle)


@router.get("/audits", responses=documented(404))
def get_audits(session: ReadSession, run: RunName) -> RunAudits:
    """Label accuracy by iteration and oracle with what the oracle was asked of, the estimates between audits with
    their check, and how far those who graded agree."""
    queries.runs.get_run(session, run)
    return RunAudits.of(audits_of(session, run))


@router.get("/agreement", responses=documented(404))
def get_agreement(session: ReadSession, run: RunName) -> Agreements:
    """How far the oracles agree on the run's pseudo-labels, and how far the annotators do."""
    queries.runs.get_run(session, run)
    return Agreements(oracles=between_oracles(session, run), annotators=between_annotators(session, run))


def _sample(session: Session, run: str, iteration: int, oracle: str) -> Sample:
    drawn, settled = queries.audits.sample_progress(session, run, iteration, oracle)
    by_stratum = queries.audits.drawn_by_stratum(session, run, iteration, oracle)
    strata = queries.audits.named_strata_of(session, run, iteration, oracle)
    counts = queries.audits.annotation_counts(session, run, iteration) if oracle == ORACLE else {}
    return Sample(
        run=run,
        iteration=iteration,
        oracle=oracle,
        drawn=drawn,
        settled=settled,
        strata=[
            SampleStratum(stratum=name, size=s.size, drawn=by_stratum.get(name, 0), audited=s.n, right=s.right)
            for name, s in strata.items()
        ],
        measured=[
            Measured(over=accuracy.over, label_accuracy=accuracy.figure, population=accuracy.population)
            for accuracy in measured_in(session, run, iteration, oracle)
        ],
        annotators={name: sum(verdicts.values()) for name, verdicts in counts.items()},
    )
