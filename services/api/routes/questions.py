"""The questions of an iteration, one question with its votes, and the numbers of questions by verdict."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Annotated, get_args

from fastapi import APIRouter, Query, Response
from pydantic import Field

from core.statistics.estimates import share
from core.types import Verdict, question_id
from services.api.dependencies import Index, Iteration, RunName, StoreDependency, as_json, frequent_route
from services.api.pages import cursor, position
from services.api.problems import documented
from services.api.question_filters import QuestionFilters
from services.api.question_schemas import Bin, QuestionDetail, QuestionPage, Statistics
from services.client import LARGEST_PAGE
from storage import queries

router = APIRouter(prefix="/runs/{run}/iterations/{iteration}", tags=["questions"])


class QuestionQuery(QuestionFilters):
    """Which questions to list, and in which order."""

    sort: queries.browse.Sort = Field("index", description="Sorting by p_hat lists only questions that were voted on.")
    limit: int = Field(50, ge=1, le=LARGEST_PAGE, description="Entries per page.")
    after: str | None = Field(None, max_length=200, description="`next` of the previous page.")


@router.get("/questions", response_model=QuestionPage, responses=documented(400, 404))
@frequent_route
def list_questions(
    store: StoreDependency, run: RunName, iteration: Iteration, query: Annotated[QuestionQuery, Query()]
) -> Response:
    """A page of an iteration's questions."""
    after, filters = position(query.after, 2 if query.sort.endswith("p_hat") else 1), query.as_filter()
    listed = partial(queries.browse.list_questions, sort=query.sort, after=after, limit=query.limit + 1)
    with store.read_once() as session:
        rows = listed(session, run, iteration, filters)
        if not rows:
            queries.runs.refuse_iteration_without_questions(session, run, iteration)
            if (maker := queries.forks.made_by(session, run, iteration)) != run:
                rows = listed(session, maker, iteration, filters)
    page = rows[: query.limit]
    next_page = cursor(queries.browse.sort_key_of(page[-1], query.sort)) if len(rows) > query.limit else None
    return as_json(QuestionPage.model_validate({"items": page, "next": next_page}))


@router.get("/questions/{index}", response_model=QuestionDetail, responses=documented(404))
@frequent_route
def get_question(store: StoreDependency, run: RunName, iteration: Iteration, index: Index) -> Response:
    """One question with every vote, all answers, the checkpoints that wrote them, the verdicts of oracles and people,
    its cluster, and the checkpoints that were trained on it."""
    with store.read() as session:
        key = question_id(queries.forks.made_by(session, run, iteration), iteration, index)
        detail = QuestionDetail.with_votes(
            queries.browse.get_question(session, key),
            queries.questions.rollouts_of_question(session, key),
            queries.audits.annotations_of(session, [key]),
            queries.traces.cluster_of(session, key),
            queries.traces.trained_on_of(session, key),
        )
    return as_json(detail)


@router.get("/statistics", response_model=Statistics, responses=documented(404))
@frequent_route
def get_statistics(store: StoreDependency, run: RunName, iteration: Iteration) -> Response:
    """The number of questions by verdict, and the histogram of p_hat."""
    with store.read() as session:
        counts = queries.browse.vote_counts(session, queries.forks.made_by(session, run, iteration), iteration)
        if not counts:
            queries.runs.refuse_missing_iteration(session, run, iteration)
        stats = queries.figures.filter_stats_of(session, run).get(iteration)
        admission = queries.ledger.find_stage(session, run=run, iteration=iteration, stage="admit_questions")
    verdicts = Counter[Verdict]()
    for verdict, _, count in counts:
        verdicts[verdict] += count
    bins = [Bin(verdict=verdict, p_hat=p_hat, questions=n) for verdict, p_hat, n in counts if p_hat is not None]
    statistics = Statistics(
        verdicts={verdict: verdicts[verdict] for verdict in get_args(Verdict)} if counts else {},
        gates=((admission.result if admission else None) or {}).get("gates", {}),
        kept=share(verdicts["kept"], verdicts.total()),
        mean_p_hat=stats.mean_p_hat if stats else None,
        unparsed_share=stats.unparsed_share if stats else None,
        histogram=sorted(bins, key=lambda bin_: bin_.p_hat),
    )
    return as_json(statistics)
