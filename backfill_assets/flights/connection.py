"""One connection to the database that holds the flights, and its errors in this project's words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from backfill_assets.core.errors import SourceError
from backfill_assets.stores.postgres.connections import Target, connect
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_LOADED = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    """Yield a connection that commits each statement by itself; it is closed afterwards.

    Raises:
        SourceError: the database is not reached, is lost, lacks the flights or refuses a
            statement. No message shows the password.
    """
    target = _target(url)
    try:
        with connect(target) as connection:
            yield connection
    except PostgresError as error:
        raise SourceError(str(error)) from error
    except _NOT_LOADED as error:
        message = (
            f"{target.name}: {_one_line(error)}; load the flights: `backfill-assets up` does it, "
            "and so does load_flights(url)"
        )
        raise SourceError(message) from error
    except psycopg.Error as error:
        message = f"{target.name}: PostgreSQL says: {_one_line(error)}"
        raise SourceError(message) from error


def _target(url: str) -> Target:
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # `from None`: the original message may quote a part of the password.
        message = (
            "the flights database: its address cannot be read; expected is "
            "postgresql://user:password@host:5432/database"
        )
        raise SourceError(message) from None
    user, host, port = (parts.get(key, "default") for key in ("user", "host", "port"))
    password = parts.get("password")
    return Target(
        url=url,
        name=f"the flights database {parts.get('dbname')!r} at {host}:{port}, user {user!r}",
        password=None if password is None else str(password),
        remedy="Correct the address, or allow the login in the server's pg_hba.conf",
    )


def _one_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
