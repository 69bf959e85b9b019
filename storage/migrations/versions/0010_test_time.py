"""The accuracy of a run that trains on its benchmark's own questions is no longer stored as held-out accuracy."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_runs = sa.table("runs", sa.column("name", sa.Text), sa.column("config", sa.JSON))
_series = sa.table("series", sa.column("run", sa.Text), sa.column("name", sa.Text))


def upgrade() -> None:
    for run, config in op.get_bind().execute(sa.select(_runs.c.name, _runs.c.config)).all():
        if (config.get("prompts") or {}).get("file") == "benchmark":
            of_accuracy = (_series.c.run == run) & (_series.c.name == "held_out")
            op.execute(sa.update(_series).where(of_accuracy).values(name="test_time"))
