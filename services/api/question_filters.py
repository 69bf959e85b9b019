"""The parameters that select questions, which their list and their exports share."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from core.types import OracleVerdict, Verdict
from storage.queries.browse import QuestionFilter


class QuestionFilters(BaseModel):
    """Which questions to select."""

    verdict: list[Verdict] = Field(
        [], max_length=len(get_args(Verdict)), description="Questions with one of these verdicts."
    )
    p_hat_min: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    p_hat_max: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    text: str | None = Field(None, min_length=1, max_length=200, description="In the question, ignoring case.")
    oracle: str | None = Field(None, pattern=r"^[a-z_0-9]{1,40}$", description="Questions that this oracle has graded.")
    oracle_verdict: OracleVerdict | None = Field(None, description="Given by `oracle`, or by any oracle.")
    cluster: int | None = Field(None, ge=0, le=2**31 - 1, description="Number of a cluster in /clusters.")

    @field_validator("p_hat_max")
    @classmethod
    def _not_below_p_hat_min(cls, p_hat_max: float | None, info: ValidationInfo) -> float | None:
        p_hat_min = info.data.get("p_hat_min")
        if p_hat_min is not None and p_hat_max is not None and p_hat_max < p_hat_min:
            raise ValueError(f"expected at least p_hat_min, {p_hat_min:g}, got {p_hat_max:g}")
        return p_hat_max

    def as_filter(self) -> QuestionFilter:
        values: dict[str, Any] = {name: getattr(self, name) for name in QuestionFilters.model_fields}
        return QuestionFilter(verdicts=tuple(values.pop("verdict")), **values)
