"""The tables of the sagas; they live in the database of the idempotency log."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from psycopg import errors

from backfill_assets.core.errors import LogSchemaError
from backfill_assets.stores.log.schema import prepare_schema as prepare_log_schema
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    import psycopg

VERSION = 1

_STATEMENTS = load_statements("backfill_assets.stores.sagas", "schema.sql")
_BOOKKEEPING = ("lock", "version", "create_version", "record_version")


def prepare_schema(connection: psycopg.Connection) -> None:
    """Make the tables where there are none, the log's included; one process at a time.

    Raises:
        LogSchemaError: a newer program made the tables.
    """
    if _version(connection) == VERSION:
        return  # without a lock: this is asked by every process
    prepare_log_schema(connection)
    with connection.transaction():
        connection.execute(_STATEMENTS["lock"])
        connection.execute(_STATEMENTS["create_version"])
        found = _version(connection)
        if found > VERSION:
            message = (
                f"the log database has sagas of version {found}, and this program knows version "
                f"{VERSION}: a newer one made them; start that one, or give this one a database of "
                "its own"
            )
            raise LogSchemaError(message)
        if found < VERSION:
            for name in _STATEMENTS:
                if name not in _BOOKKEEPING:
                    connection.execute(_STATEMENTS[name])
            connection.execute(_STATEMENTS["record_version"], {"version": VERSION})


def _version(connection: psycopg.Connection) -> int:
    """Return the version of the tables; 0 where there are none."""
    # A transaction of its own, or a savepoint: an absent table must not end the one around it.
    with suppress(errors.UndefinedTable), connection.transaction():
        row = connection.execute(_STATEMENTS["version"]).fetchone()
        return int(row[0]) if row and row[0] is not None else 0
    return 0
