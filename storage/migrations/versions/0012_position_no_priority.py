"""An audit sample's order is its `position`, as everywhere else; trainings in the worker pool have no priority."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_RUNS = sa.table("runs", sa.column("name", sa.Text()), sa.column("config", sa.JSON()))


def upgrade() -> None:
    op.drop_index("ix_audit_samples_run_iteration_oracle_place", "audit_samples")
    op.alter_column("audit_samples", "place", new_column_name="position")
    op.create_index(None, "audit_samples", ["run", "iteration", "oracle", "position"])
    for column in ("priority", "preempted"):
        op.drop_column("pool_jobs", column)
    connection = op.get_bind()
    for name, config in connection.execute(sa.select(_RUNS).with_for_update()).all():
        without = {setting: value for setting, value in config.items() if setting != "pool"}
        connection.execute(sa.update(_RUNS).where(_RUNS.c.name == name).values(config=without))
