"""Alembic migrations, which upgrade the tables of an earlier version of coevo."""
