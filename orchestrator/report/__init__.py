"""The report of a run: its figures as JSON, a page of pictures, and a small picture of the curves."""

from __future__ import annotations

from orchestrator.report.charts import curves_png
from orchestrator.report.figures import figures
from orchestrator.report.page import write_report

__all__ = ["curves_png", "figures", "write_report"]
