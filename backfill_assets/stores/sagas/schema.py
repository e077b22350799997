"""The tables of the sagas; they live in the database of the idempotency log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.stores.log.schema import prepare_schema as prepare_log_schema
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    import psycopg

_STATEMENTS = load_statements("backfill_assets.stores.sagas", "schema.sql")


def prepare_schema(connection: psycopg.Connection) -> None:
    """Make what is not there yet, the log's tables included; one process at a time."""
    prepare_log_schema(connection)
    with connection.transaction():
        for name in _STATEMENTS:  # the first one is the lock
            connection.execute(_STATEMENTS[name])
