"""The questions of an iteration, one question with its votes, and what became of them all."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from core.drift import share
from core.types import OracleVerdict, Verdict, question_id
from services.api.given import Index, Iteration, Reading, RunName
from services.api.pages import LARGEST_PAGE, cursor, place
from services.api.problems import documented
from services.api.schemas import Bin, Estimate, Question, QuestionDetail, QuestionPage, Statistics
from storage import queries

router = APIRouter(prefix="/runs/{run}/iterations/{iteration}", tags=["questions"])


class Wanted(BaseModel):
    """Which questions, in which order."""

    model_config = ConfigDict(extra="forbid")

    verdict: list[Verdict] = Field([], max_length=6, description="One of these.")
    p_hat_min: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    p_hat_max: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    text: str | None = Field(None, min_length=1, max_length=200, description="In the question, in either case.")
    oracle: str | None = Field(None, pattern=r"^[a-z_]{1,40}$", description="It has said something of the label.")
    oracle_verdict: OracleVerdict | None = Field(None, description="An oracle, or the one named, has said this.")
    sort: queries.Sort = Field("index", description="In order of p_hat there are only those that were voted on.")
    limit: int = Field(50, ge=1, le=LARGEST_PAGE, description="Entries a page.")
    after: str | None = Field(None, max_length=200, description="`next` of the page before.")


@router.get("/questions", responses=documented(400, 404))
def list_questions(
    session: Reading, run: RunName, iteration: Iteration, wanted: Annotated[Wanted, Query()]
) -> QuestionPage:
    """A page of an iteration's questions."""
    queries.get_run(session, run)
    found = queries.browse(
        session,
        run,
        iteration,
        queries.QuestionFilter(
            tuple(wanted.verdict),
            wanted.p_hat_min,
            wanted.p_hat_max,
            wanted.text,
            wanted.oracle,
            wanted.oracle_verdict,
        ),
        sort=wanted.sort,
        after=place(wanted.after, 2 if wanted.sort.endswith("p_hat") else 1),
        limit=wanted.limit + 1,
    )
    page = found[: wanted.limit]
    more = cursor(queries.place_of(page[-1], wanted.sort)) if len(found) > wanted.limit else None
    return QuestionPage(items=[Question.of(entry) for entry in page], next=more)


@router.get("/questions/{index}", responses=documented(404))
def get_question(session: Reading, run: RunName, iteration: Iteration, index: Index) -> QuestionDetail:
    """One question with every vote, all answers, the checkpoints that wrote them, and what oracles said."""
    key = question_id(run, iteration, index)
    return QuestionDetail.with_votes(queries.get_question(session, key), queries.rollouts_of_question(session, key))


@router.get("/statistics", responses=documented(404))
def get_statistics(session: Reading, run: RunName, iteration: Iteration) -> Statistics:
    """How many questions have which verdict, and the histogram of p_hat."""
    queries.get_run(session, run)
    verdicts = queries.count_verdicts(session, run, iteration)
    stats = queries.filter_stats_of(session, run).get(iteration)
    bins = queries.vote_counts(session, run, iteration)
    return Statistics(
        verdicts=verdicts,
        kept=Estimate.of(share(verdicts.get("kept", 0), sum(verdicts.values()))),
        mean_p_hat=stats.mean_p_hat if stats else None,
        unparsed_share=stats.unparsed_share if stats else None,
        histogram=[Bin(verdict=verdict, p_hat=p_hat, questions=count) for verdict, p_hat, count in bins],
    )
