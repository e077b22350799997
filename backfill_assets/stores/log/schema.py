"""The log's tables: made when they are first needed, changed one version at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.core.errors import LogSchemaError
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    import psycopg

VERSION = 1

_STATEMENTS = load_statements("backfill_assets.stores.log", "schema.sql")


def prepare_schema(connection: psycopg.Connection) -> None:
    """Make the tables, or bring them to this program's version; one process at a time.

    Raises:
        LogSchemaError: a newer program made the tables.
    """
    with connection.transaction():
        connection.execute(_STATEMENTS["lock"])
        connection.execute(_STATEMENTS["create_version"])
        row = connection.execute(_STATEMENTS["version"]).fetchone()
        found = row[0] if row and row[0] is not None else 0
        if found > VERSION:
            message = (
                f"the log database has tables of version {found}, and this program knows version "
                f"{VERSION}: a newer one made them; start that one, or give this one a database of "
                "its own"
            )
            raise LogSchemaError(message)
        for version in range(found + 1, VERSION + 1):
            connection.execute(_STATEMENTS[f"version_{version}"])
            connection.execute(_STATEMENTS["record_version"], {"version": version})
