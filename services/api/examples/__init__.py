"""One complete example of each of the API's answers, from a run called demo, for the API's description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from services.api.examples import audits, evaluations, questions, runs, settings, training
from services.api.examples.problems import PROBLEMS
from services.api.problems import MEDIA_TYPE

EXAMPLES = (
    runs.EXAMPLES | questions.EXAMPLES | evaluations.EXAMPLES | audits.EXAMPLES | settings.EXAMPLES | training.EXAMPLES
)


def add(operations: Iterable[dict[str, Any]]) -> None:
    """Add the examples to the answers of these operations. The example of a list has one entry.

    They are added here and not in the answers' classes, because some of these belong to the store or to `core`, which
    do not know the API.
    """
    for operation in operations:
        for status, response in operation["responses"].items():
            for media_type, answer in response.get("content", {}).items():
                if media_type == MEDIA_TYPE:
                    answer["example"] = PROBLEMS[int(status)]
                elif media_type == "application/json":
                    _show(answer)


def _show(answer: dict[str, Any]) -> None:
    items = answer["schema"].get("items")
    name = (items or answer["schema"]).get("$ref", "").rpartition("/")[2]
    if name in EXAMPLES:
        answer["example"] = [EXAMPLES[name]] if items else EXAMPLES[name]
