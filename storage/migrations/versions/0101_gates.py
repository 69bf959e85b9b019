"""Gates: which questions they refuse, and what they were told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    op.create_table(
        "gate_evidence",
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("voter", sa.Text(), nullable=False),
        sa.Column("question", sa.Text(), nullable=True),
        sa.Column("answers", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["question_id"], ["questions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("question_id", "gate", "voter"),
        sqlite_with_rowid=False,
    )
    op.add_column("filter_stats", sa.Column("refused", sa.Integer(), server_default="0", nullable=False))
    op.add_column("pseudo_labels", sa.Column("gate", sa.Text(), nullable=True))
