"""An entropy may be an estimate, with a bound on its error; those that are stored already are exact."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("rollouts", sa.Column("entropy_error", sa.Double))
    op.execute("UPDATE rollouts SET entropy_error = 0 WHERE mean_entropy IS NOT NULL")
