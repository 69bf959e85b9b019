"""A run may begin with iterations that other runs have made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0102"
down_revision = "0101"


def upgrade() -> None:
    op.create_table(
        "inherited_iterations",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["made_by"], ["runs.name"]),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "iteration"),
        sqlite_with_rowid=False,
    )
    op.create_index(None, "inherited_iterations", ["made_by"])
