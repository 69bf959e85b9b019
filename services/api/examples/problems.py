"""Errors, one for each status that the API's description lists."""

from __future__ import annotations

from typing import Any

from services.api.problems import FieldProblem, problem

_WRONG = FieldProblem(field="query.limit", message="expected at most 200, got 201")
_ERRORS = (
    problem(400, "after: expected `next` of a page in the same order, got 'nobody'"),
    problem(401, "Authorization: expected `Bearer KEY`, got none"),
    problem(403, "Authorization: this route needs the scope run, the key has read"),
    problem(404, "run nobody: no such run; the store has demo"),
    problem(409, "run demo, iteration 2: its questions are not all labelled yet"),
    problem(413, "the request's body: expected at most 65,536 bytes, got more"),
    problem(415, "Content-Type: expected application/json, got 'text/plain'"),
    problem(416, "Range: expected ranges of bytes within the file, got 'bytes=999999-'"),
    problem(422, f"{_WRONG.field}: {_WRONG.message}", [_WRONG]),
    problem(503, "the database did not answer; the reason is in the API's log"),
)
PROBLEMS: dict[int, dict[str, Any]] = {error.status: error.model_dump() for error in _ERRORS}
