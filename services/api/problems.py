"""Errors in the format of RFC 9457, `application/problem+json`: title, status, what went wrong, and which fields."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException

from services.api.access.headers import SAFE
from storage.errors import NotThere, UnreadableSettings

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 20  # that an answer lists; `detail` has the number of the others
LONGEST_NAME, _LONGEST_MESSAGE = 100, 500  # characters: both may hold what a client sent


class FieldProblem(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """The body of an error."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for the errors that it may answer with (description.py adds their media type)."""
    return {status: {"model": Problem, "description": HTTPStatus(status).phrase} for status in statuses}


def problem(status: int, detail: str, errors: Sequence[FieldProblem] = ()) -> Problem:
    return Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=[*errors])


def invalid(field: str, message: str, where: str = "body") -> RequestValidationError:
    """Make the error for a field of the body, or of the query, whose type is right but whose value is not; the caller
    raises it."""
    return RequestValidationError([{"loc": (where, field), "msg": message}])


def install(app: FastAPI) -> None:
    """Have the application answer every error in this format."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(NotThere, _not_there)
    app.add_exception_handler(UnreadableSettings, _unreadable)
    app.add_exception_handler(OperationalError, _no_database)
    app.add_exception_handler(PoolTimeoutError, _no_database)
    app.add_exception_handler(Exception, _unexpected)


def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _answer(error.status_code, str(error.detail), headers=error.headers)


def _not_there(_request: Request, error: Exception) -> JSONResponse:
    return _answer(404, str(error))


def _unreadable(_request: Request, error: Exception) -> JSONResponse:
    return _answer(409, str(error))


def _no_database(_request: Request, error: Exception) -> JSONResponse:
    log.error("the database did not answer: %s", error)
    return _answer(503, "the database did not answer; the reason is in the API's log")


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s: unexpected error", request.method, request.url.path, exc_info=error)
    # Starlette sends this answer outside of all middleware, so it needs the headers of `DefaultHeaders`.
    return _answer(500, "unexpected error; its traceback is in the API's log", headers=SAFE)


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    fields = [
        FieldProblem(
            field=_shortened(".".join(str(part) for part in problem["loc"]), LONGEST_NAME),
            message=_shortened(problem["msg"], _LONGEST_MESSAGE),
        )
        for problem in errors[:_MOST_ERRORS]
    ]
    listed = "; ".join(f"{problem.field}: {problem.message}" for problem in fields)
    others = len(errors) - len(fields)
    return _answer(422, f"{listed}; and {others:,} more" if others else listed, fields)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _answer(status: int, detail: str, errors: Sequence[FieldProblem] = (), headers: Any = None) -> JSONResponse:
    return JSONResponse(problem(status, detail, errors).model_dump(), status, headers, MEDIA_TYPE)
