"""A judge can recheck the answers of an evaluation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "judged_answers",
        sa.Column("evaluation_id", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("sample_index", sa.Integer(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("evaluation_id", "item_id", "sample_index", "judge"),
        sqlite_with_rowid=False,
    )
