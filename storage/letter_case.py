"""Texts without the difference between capital and small letters, of all alphabets and on both databases.

SQLite's own functions know the letters of ASCII only, and PostgreSQL's those of the language that the database was made
with. Capital letters are compared, since a small one may have several forms: Greek has two of sigma.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

_NAME = "coevo_capitals"


class capitals(FunctionElement[str]):
    """A column's text, or a parameter's, in capital letters."""

    type = Text()
    inherit_cache = True


@compiles(capitals, "sqlite")
def _on_sqlite(element: capitals, compiler: SQLCompiler, **options: Any) -> str:
    return f"{_NAME}({compiler.process(element.clauses, **options)})"


@compiles(capitals, "postgresql")
def _on_postgresql(element: capitals, compiler: SQLCompiler, **options: Any) -> str:
    return f'upper({compiler.process(element.clauses, **options)} COLLATE "und-x-icu")'


def add_to(connection: sqlite3.Connection) -> None:
    """Give a connection of SQLite the function that `capitals` calls."""
    connection.create_function(_NAME, 1, lambda text: text and text.upper(), deterministic=True)
