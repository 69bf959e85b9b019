"""One set of names: an export's columns, the REST API's answers, and docs/api.md."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from services.api.question_filters import QuestionFilters
from services.api.routes.traces import VoteText
from storage.exports.columns import (
    QUESTION_COLUMNS,
    RUN_COLUMNS,
    SCHEMA_VERSION,
    TEXT_COLUMN,
    VOTE_COLUMNS,
    oracle_columns,
)
from storage.queries.browse import QuestionFilter
from storage.rows import QuestionSummary

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def test_a_question_has_the_fields_of_the_rest_api_with_two_columns_for_each_oracle() -> None:
    names = [field.name for field in fields(QuestionSummary)]
    assert [column.name for column in QUESTION_COLUMNS] == names[:-1]
    assert names[-1] == "oracles"
    assert [column.name for column in oracle_columns("exact")] == ["exact_verdict", "exact_truth"]


def test_a_vote_has_the_fields_of_the_rest_api_and_its_question_s_place() -> None:
    columns = [column.name for column in (*VOTE_COLUMNS, TEXT_COLUMN)]
    assert sorted(columns) == sorted(["run", "iteration", "index", *(field.name for field in fields(VoteText))])


def test_the_list_of_questions_and_the_store_have_the_same_filters() -> None:
    in_store = [field.name for field in fields(QuestionFilter)]
    assert ["verdicts" if name == "verdict" else name for name in QuestionFilters.model_fields] == in_store


def test_the_page_names_every_column_and_filter() -> None:
    columns = (*QUESTION_COLUMNS, *oracle_columns("ORACLE"), *VOTE_COLUMNS, TEXT_COLUMN, *RUN_COLUMNS)
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert {column.name for column in columns} | {*QuestionFilters.model_fields} <= named
    assert f"schema version {SCHEMA_VERSION};" in PAGE
