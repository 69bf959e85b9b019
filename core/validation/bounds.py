"""What all parts of a configuration have in common: unknown keys are refused, values are frozen, and every number has
bounds.

The bounds are larger than what any machine can do; they catch typing errors. Without them, a run that asks for 10^12
questions would fail only after it has started, and would use up memory that other processes need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0, le=10_000_000)]  # rows, steps and other counts
Count = Annotated[int, Field(ge=0, le=10_000_000)]  # like Positive, but there may be none
MOST_ITERATIONS = 10_000
Iterations = Annotated[int, Field(gt=0, le=MOST_ITERATIONS)]
Workers = Annotated[int, Field(gt=0, le=1_024)]  # processes, nodes, GPUs, requests at the same time
Answers = Annotated[int, Field(gt=0, le=1_024)]  # answers to one prompt, which one request to a service may ask for
Tokens = Annotated[int, Field(gt=0, le=1_000_000)]  # tokens of one answer, or characters of a question
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # the range that the store can hold
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Decay = Annotated[float, Field(ge=0, lt=1)]  # the weight that a running mean gives to its past
Temperature = Annotated[float, Field(ge=0, le=10)]
TopP = Annotated[float, Field(gt=0, le=1)]  # sample among the most likely tokens with this share of the probability
LearningRate = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(ge=0, le=1_000_000)]  # coefficients, weights and thresholds
Scale = Annotated[float, Field(gt=0, le=1_000_000)]  # like Factor, where 0 has no meaning


class SettingsTable(BaseModel):
    """A table of a preset's TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: Any) -> Any:
        """Keep pydantic from taking true and false for 1 and 0 where a setting is a number."""
        if not isinstance(values, Mapping):
            return values
        fields = cls.model_fields
        return {
            name: _without_booleans(value) if name in fields and bool not in _kinds(fields[name].annotation) else value
            for name, value in values.items()
        }

    @model_validator(mode="before")
    @classmethod
    def _a_table_keeps_its_other_defaults(cls, values: Any) -> Any:
        """Give a table that names some of its settings the others as the table has them by default, which need not be
        the defaults of its class."""
        if not isinstance(values, Mapping):
            return values
        usual = {
            name: field.default for name, field in cls.model_fields.items() if isinstance(field.default, SettingsTable)
        }
        completed = dict(values)
        for name, table in usual.items():
            given, kind = values.get(name), getattr(table, "type", None)
            if isinstance(given, Mapping) and given.get("type", kind) == kind:  # another type has its own defaults
                settings = {setting: getattr(table, setting) for setting in table.model_fields_set}
                completed[name] = {**settings, **({} if kind is None else {"type": kind}), **given}
        return completed


class _NoNumber:
    """A boolean that pydantic refuses as a number; errors show it as what it is."""

    def __init__(self, value: bool) -> None:
        self._value = value

    def __repr__(self) -> str:
        return str(self._value).lower()


def _without_booleans(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_booleans(part) for part in value]
    return _NoNumber(value) if isinstance(value, bool) else value


def _kinds(annotation: Any) -> set[Any]:
    """The types that an annotation is made of: {int, None's type} of `Annotated[int, ...] | None`."""
    parts = get_args(annotation)
    return {annotation} if not parts or get_origin(annotation) is Literal else set().union(*map(_kinds, parts))
