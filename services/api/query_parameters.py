"""The refusal of query parameters that a route does not have: a mistyped filter would otherwise select everything."""

from __future__ import annotations

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_dependant, get_flat_params
from fastapi.exceptions import RequestValidationError

from core.validation.suggestions import no_such
from services.api.problems import LONGEST_NAME


async def refuse_unknown_parameters(request: Request) -> None:  # async, because it waits for nothing
    """Check the names of the query's parameters against those of the route.

    Raises `RequestValidationError` with one entry for each unknown name.
    """
    if not request.query_params:
        return
    of_query = Dependant(query_params=get_flat_dependant(request.scope["route"].dependant).query_params)
    known = [field.alias for field in get_flat_params(of_query)]
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        # The names are shortened before they are compared, because the time grows with the square of their length.
        short = [name[:LONGEST_NAME] for name in unknown]
        messages = [no_such("parameter", known, name) if known else "this route has no parameters" for name in short]
        errors = zip(short, messages, strict=True)
        raise RequestValidationError([{"loc": ("query", name), "msg": message} for name, message in errors])
