"""The databases of the project: what they are called, and that they exist."""

from dataclasses import dataclass
from typing import Self

import psycopg
from psycopg import errors, sql

from backfill_assets.stores.postgres.errors import DatabaseRightError, DatabaseUrlError
from backfill_assets.stores.sql import load_statements

MAX_NAME_BYTES = 63  # PostgreSQL cuts longer names off, and two could become one
STATEMENTS = load_statements("backfill_assets.stores.postgres", "databases.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """The names of the three databases, alike in every process.

    Attributes:
        source: What the example business reads.
        dagster: Dagster's own; may be thrown away.
        log: The idempotency log and the sagas, which outlive Dagster's.
    """

    source: str
    dagster: str
    log: str

    @classmethod
    def named_after(cls, base: str) -> Self:
        """Return the names that belong to ``base``, which is itself the source's.

        Raises:
            DatabaseUrlError: the names would be too long.
        """
        databases = cls(source=base, dagster=f"{base}_dagster", log=f"{base}_log")
        if len(databases.dagster.encode()) > MAX_NAME_BYTES:
            message = (
                f"BACKFILL_DATABASE_URL: the database name {base!r} is too long; with '_dagster' "
                f"added it may have {MAX_NAME_BYTES} bytes"
            )
            raise DatabaseUrlError(message)
        return databases


def database_exists(connection: psycopg.Connection, database: str) -> bool:
    """Return whether the server has the database."""
    found = connection.execute(STATEMENTS["database_exists"], {"database": database})
    return found.fetchone() is not None


def create_database(connection: psycopg.Connection, database: str) -> None:
    """Create the database unless it exists, whoever else is creating it at the same time.

    Raises:
        DatabaseRightError: the role may not; the message holds the SQL that helps.
    """
    if database_exists(connection, database):
        return
    name = sql.Identifier(database)
    try:
        connection.execute(sql.SQL(STATEMENTS["create_database"]).format(database=name))
    except (errors.DuplicateDatabase, errors.UniqueViolation):
        return  # another process was faster; a unique violation is how the closest race shows
    except errors.InsufficientPrivilege:
        role = sql.Identifier(connection.info.user)
        message = (
            f"BACKFILL_DATABASE_URL: the database {database!r} does not exist on "
            f"{connection.info.host}:{connection.info.port}, and the role "
            f"{connection.info.user!r} may not create it. Run as an administrator either\n"
            f"  CREATE DATABASE {name.as_string()} OWNER {role.as_string()};\n"
            f"or\n  ALTER ROLE {role.as_string()} CREATEDB;"
        )
        raise DatabaseRightError(message) from None
