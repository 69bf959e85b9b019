"""Errors in the format of RFC 9457, `application/problem+json`: title, status, what went wrong, and which fields."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import islice
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException

from core.errors import CoevoError
from core.texts.redaction import without_secrets
from core.validation.faults import Fault
from core.validation.pydantic_errors import fault_of, name_of
from services.api.access.headers import SAFE
from services.prefect.client import PrefectAway
from storage.errors import NotThere

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
    """Have the application answer every error in this format. One of ours, which says what a caller can do, is 409, or
    404 for what is not there."""

    @app.exception_handler(HTTPException)
    def http(_request: Request, error: HTTPException) -> JSONResponse:
        return _answer(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(CoevoError)
    def ours(_request: Request, error: CoevoError) -> JSONResponse:
        return _answer(404 if isinstance(error, NotThere) else 409, str(error))

    @app.exception_handler(PrefectAway)
    def no_prefect(_request: Request, error: PrefectAway) -> JSONResponse:
        return _answer(503, str(error))

    @app.exception_handler(OperationalError)
    @app.exception_handler(PoolTimeoutError)
    def no_database(_request: Request, error: Exception) -> JSONResponse:
        log.error("the database did not answer: %s", error)
        return _answer(503, "the database did not answer; the reason is in the API's log")

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> JSONResponse:
        run = {"run": name} if (name := request.path_params.get("run")) else {}
        log.error("%s %s: unexpected error", request.method, request.url.path, exc_info=error, extra=run)
        # Starlette sends this answer outside of all middleware, so it needs the headers of `DefaultHeaders`.
        return _answer(500, "unexpected error; its traceback is in the API's log", headers=SAFE)

    app.exception_handler(RequestValidationError)(_invalid)


def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
    by_field: dict[str, list[dict[str, Any]]] = {}
    for details in error.errors():
        by_field.setdefault(_field_of(details, error.body), []).append(details)
    fields = []
    for name in islice(by_field, _MOST_ERRORS):
        faults = [_fault_of(name, details) for details in by_field[name]]
        fault, variants = faults[0], [*dict.fromkeys(fault.expected for fault in faults if fault.expected)]
        if len(variants) > 1:
            fault = replace(fault, expected=f"{', '.join(variants[:-1])} or {variants[-1]}")
        setting, message = _shortened(fault.setting, LONGEST_NAME), _shortened(fault.problem, _LONGEST_MESSAGE)
        fields.append(FieldProblem(field=setting, message=message))
    listed = "; ".join(f"{problem.field}: {problem.message}" for problem in fields)
    others = len(by_field) - len(fields)
    return _answer(422, f"{listed}; and {others:,} more" if others else listed, fields)


def _field_of(details: dict[str, Any], body: Any) -> str:
    """The field that an error is about. The errors of all variants that a value may have are about the same field."""
    part, *names = details["loc"]
    if details.get("type") == "json_invalid":
        return str(part)
    if "type" in details and part == "body":
        return ".".join(filter(None, (part, name_of(names, body, missing=details["type"] == "missing"))))
    # In a query, pydantic also numbers the values of a parameter that is repeated.
    return ".".join(map(str, (part, *names) if part == "body" else (part, *names[:1])))


def _fault_of(name: str, details: dict[str, Any]) -> Fault:
    match details.get("type"):
        case None:  # one that a route has raised
            return Fault(name, details["msg"])
        case "json_invalid":
            return Fault(name, f"expected JSON; character {details['loc'][-1]}: {details['ctx']['error']}")
        case "extra_forbidden":
            return Fault(name, "there is no such field")
    return fault_of(name, details)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _answer(status: int, detail: str, errors: Sequence[FieldProblem] = (), headers: Any = None) -> JSONResponse:
    """An answer without secrets: a message may quote what a client sent, or what another service answered."""
    errors = [error.model_copy(update={"message": without_secrets(error.message)}) for error in errors]
    return JSONResponse(problem(status, without_secrets(detail), errors).model_dump(), status, headers, MEDIA_TYPE)
