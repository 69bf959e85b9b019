"""Errors as RFC 9457 has them: `application/problem+json` with a title, a status, what went wrong, and which fields."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from services.api.headers import SAFE
from storage.errors import NotThere

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 20  # that an answer names; how many more there are is in its `detail`
_LONGEST_NAME, _LONGEST_MESSAGE = 100, 300  # characters: both may hold what a client sent


class FieldProblem(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """What an error says."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "about:blank",
                "title": "Unprocessable Content",
                "status": 422,
                "detail": "query.limit: Input should be less than or equal to 200",
                "errors": [{"field": "query.limit", "message": "Input should be less than or equal to 200"}],
            }
        }
    )

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: the errors that it may answer with."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"model": Problem, "description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}}
        for status in statuses
    }


def invalid(field: str, message: str) -> RequestValidationError:
    """To raise for a field of the body that its type cannot refuse."""
    return RequestValidationError([{"loc": ("body", field), "msg": message}])


def install(app: FastAPI) -> None:
    """Have the application answer so, whatever the error is."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(NotThere, _not_there)
    app.add_exception_handler(OperationalError, _no_database)
    app.add_exception_handler(Exception, _unforeseen)


def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _answer(error.status_code, str(error.detail), headers=error.headers)


def _not_there(_request: Request, error: Exception) -> JSONResponse:
    return _answer(404, str(error))


def _no_database(_request: Request, error: Exception) -> JSONResponse:
    log.error("the database did not answer: %s", error)
    return _answer(503, "the database did not answer; its reason is in the API's log")


def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s: not foreseen", request.method, request.url.path, exc_info=error)
    # Starlette answers this one outside of all middleware.
    return _answer(500, "something went wrong that nobody foresaw; its traceback is in the API's log", headers=SAFE)


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    fields = [
        FieldProblem(
            field=_cut(".".join(str(part) for part in problem["loc"]), _LONGEST_NAME),
            message=_cut(problem["msg"], _LONGEST_MESSAGE),
        )
        for problem in errors[:_MOST_ERRORS]
    ]
    named = "; ".join(f"{problem.field}: {problem.message}" for problem in fields)
    more = len(errors) - len(fields)
    return _answer(422, f"{named}; and {more:,} more" if more else named, fields)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _answer(status: int, detail: str, errors: list[FieldProblem] | None = None, headers: Any = None) -> JSONResponse:
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors or [])
    return JSONResponse(problem.model_dump(), status, headers, MEDIA_TYPE)
