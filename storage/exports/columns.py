"""The columns of exported questions and votes: their names, types and descriptions.

The names are those of the REST API's answers. Manifests and the API's reference have the descriptions from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import pyarrow as pa

# Raise it when a column gets another name, type or meaning. The files of an earlier version are not served again.
SCHEMA_VERSION = 5
What = Literal["questions", "votes"]
WHATS: tuple[What, ...] = get_args(What)


class Column(NamedTuple):
    """A column of an exported file. `type` is Arrow's name of the type; a column may have nulls if `nullable`."""

    name: str
    type: str
    description: str
    nullable: bool = True


def _never_null(name: str, type_: str, description: str) -> Column:
    return Column(name, type_, description, nullable=False)


_RUN = _never_null("run", "string", "name of the run")
_ITERATION = _never_null("iteration", "int32", "iteration of the run in which the question was posed")
_INDEX = _never_null("index", "int32", "number of the question within its iteration, from 0")
RUN_COLUMNS = (
    Column("experiment", "string", "the run's experiment; null if it belongs to none"),
    Column("arm", "string", "its arm in the experiment"),
    _never_null("run_seed", "int64", "its seed"),
)
QUESTION_COLUMNS = (
    _never_null("id", "string", "key of the question, `run/iteration/index`"),
    _RUN,
    _ITERATION,
    _INDEX,
    Column("text", "string", "the question; null if the Challenger's text was malformed"),
    Column("checkpoint", "string", "the Challenger that wrote the question; null for a given prompt"),
    _never_null("seed", "int64", "seed with which the question was sampled"),
    Column("given_answer", "string", "the true answer, if a given prompt came with one; null otherwise"),
    _never_null("verdict", "string", "what the filter decided: `kept`, or why the question was not kept"),
    Column("gate", "string", "the gate that refused the question; null if none did"),
    Column("answer", "string", "the pseudo-label, which is the answer with the most votes; null if there is none"),
    Column("votes", "int32", "votes for `answer`"),
    Column("m", "int32", "votes that were asked for; null if the question was not voted on"),
    Column("parsed", "int32", "votes that have an answer"),
    Column("unknown", "int32", "pairs of answers that the grader could not compare"),
    Column("p_hat", "float64", "`votes` divided by the number that `denominator` names"),
    Column("denominator", "string", "`all`: `p_hat` is a share of `m`; `parsed`: it is a share of `parsed`"),
)
VOTE_COLUMNS = (
    _never_null("question_id", "string", "`id` of the question in the export of questions"),
    _RUN,
    _ITERATION,
    _INDEX,
    _never_null("sample_index", "int32", "number of the vote among those on its question, from 0"),
    Column("answer", "string", "the Solver's answer; null if its text has none"),
    Column("in_class", "int32", "class of equal answers, 0 being the largest; null without an answer or if unclear"),
    Column("agrees", "bool", "whether the answer equals the pseudo-label; null if its class is unclear"),
    _never_null("tokens", "int32", "tokens of the Solver's text"),
    _never_null("finish_reason", "string", "`stop`, or `length` if the text was cut off at the largest length"),
    Column("mean_entropy", "float64", "mean entropy of the sampling distribution, in nats per token"),
    Column("entropy_error", "float64", "the exact entropy is within `mean_entropy` ± this; 0 if it is exact"),
    _never_null("checkpoint", "string", "the Solver that voted"),
    _never_null("seed", "int64", "seed with which the vote was sampled"),
)
TEXT_COLUMN = Column(
    "text", "string", "what the Solver wrote, if texts were asked for; null if the run does not keep it"
)


def oracle_columns(oracle: str) -> tuple[Column, Column]:
    """The two columns of an oracle in the export of questions."""
    verdict = "what the oracle says about the pseudo-label: `right`, `wrong`, `ill_posed`, `unknown`; null if not asked"
    return (
        Column(f"{oracle}_verdict", "string", verdict),
        Column(f"{oracle}_truth", "string", "the oracle's own answer; null if it has none"),
    )


def columns_of(what: What, oracles: Iterable[str], *, texts: bool, of_several: bool) -> tuple[Column, ...]:
    """The columns of a file, which is of one run or `of_several`. Questions have two for each oracle that has graded
    some of them."""
    first = RUN_COLUMNS if of_several else ()
    if what == "questions":
        return (*first, *QUESTION_COLUMNS, *(column for oracle in oracles for column in oracle_columns(oracle)))
    return (*first, *VOTE_COLUMNS, TEXT_COLUMN) if texts else (*first, *VOTE_COLUMNS)


def table_of(columns: Iterable[Column]) -> str:
    """The columns' names, types and descriptions as a table in Markdown."""
    rows = [f"| `{column.name}` | {column.type} | {column.description} |" for column in columns]
    return "\n".join(["| column | type | what it has |", "|---|---|---|", *rows])


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    fields = [pa.field(column.name, pa.type_for_alias(column.type), column.nullable) for column in columns]
    return pa.schema(fields)
