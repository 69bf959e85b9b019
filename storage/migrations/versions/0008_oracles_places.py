"""What an oracle says carries its question's run, iteration and index too, so that an iteration's is counted without
reading every other's; the index by p_hat has the verdict, for the histogram."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_PLACE = {"run": sa.Text, "iteration": sa.Integer, "index": sa.Integer}


def upgrade() -> None:
    with op.batch_alter_table("oracle_labels", table_kwargs={"sqlite_with_rowid": False}) as labels:
        for name, kind in _PLACE.items():
            labels.add_column(sa.Column(name, kind))
    label = sa.table("oracle_labels", sa.column("question_id"), *(sa.column(name) for name in _PLACE))
    question = sa.table("questions", sa.column("id"), *(sa.column(name) for name in _PLACE))
    values = {
        name: sa.select(question.c[name]).where(question.c.id == label.c.question_id).scalar_subquery()
        for name in _PLACE
    }
    op.execute(sa.update(label).values(values))
    with op.batch_alter_table("oracle_labels", table_kwargs={"sqlite_with_rowid": False}) as labels:
        for name, kind in _PLACE.items():
            labels.alter_column(name, existing_type=kind(), nullable=False)
    _index("oracle_labels", ["run", "iteration", "index", "oracle", "verdict"])
    op.drop_index("ix_pseudo_labels_run_iteration_p_hat_index", "pseudo_labels")
    _index("pseudo_labels", ["run", "iteration", "p_hat", "index", "verdict"])


def _index(table: str, columns: list[str]) -> None:
    op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)
