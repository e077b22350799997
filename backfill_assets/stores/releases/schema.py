"""The tables of released days; they live in the database of the idempotency log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.stores.sagas.schema import prepare_schema as prepare_saga_schema
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    import psycopg

_STATEMENTS = load_statements("backfill_assets.stores.releases", "schema.sql")


def prepare_schema(connection: psycopg.Connection) -> None:
    """Make what is not there yet, the tables of log and sagas included; one process at a time."""
    prepare_saga_schema(connection)
    with connection.transaction():
        for name in _STATEMENTS:  # the first one is the lock
            connection.execute(_STATEMENTS[name])
