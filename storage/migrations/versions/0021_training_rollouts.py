"""The rollouts of trainings are stored, with what they were rewarded for. Nothing is known of earlier trainings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "training_rollouts",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("step", "prompt", "rollout")),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("question_id", "question", "answer", "label")),
        sa.Column("agrees", sa.Boolean(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("parts", sa.JSON(), nullable=False),
        sa.Column("advantage", sa.Double(), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.Column("mean_entropy", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("run", "iteration", "role", "step", "prompt", "rollout"),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], ondelete="CASCADE"),
    )
