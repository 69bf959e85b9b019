"""The order in which an audit's sample is asked is called `position`, as everywhere else."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.drop_index("ix_audit_samples_run_iteration_oracle_place", "audit_samples")
    op.alter_column("audit_samples", "place", new_column_name="position")
    op.create_index(None, "audit_samples", ["run", "iteration", "oracle", "position"])
