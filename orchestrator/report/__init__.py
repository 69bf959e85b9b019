"""The report of a run: its figures as JSON, a table for the terminal, a page of pictures, and a small picture."""

from __future__ import annotations

from orchestrator.report.charts import curves_png
from orchestrator.report.figures import figures
from orchestrator.report.page import write_report
from orchestrator.report.summary import summary_table

__all__ = ["curves_png", "figures", "summary_table", "write_report"]
