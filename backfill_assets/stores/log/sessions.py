"""Connections to the log's database, and statements that outlive a restart of the server."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors, pq

from backfill_assets.stores.log.schema import prepare_schema
from backfill_assets.stores.postgres.connections import Target, connect
from backfill_assets.stores.postgres.errors import (
    DatabaseRefusedError,
    DatabaseUnreachableError,
    PostgresError,
)
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from psycopg.rows import TupleRow

Result = TypeVar("Result")

_STATEMENTS = load_statements("backfill_assets.stores.log", "statements.sql")

TRIES = 6  # with the waits below: about six seconds, in which a server restarts
FIRST_WAIT_SECONDS = 0.2
# SQLSTATE classes: the connection, resources, an operator's doing, and the system beneath.
PASSING_CLASSES = ("08", "53", "57", "58")
RIVALS = (errors.DeadlockDetected, errors.SerializationFailure)  # PostgreSQL asks to try again


class Sessions:
    """One connection for each thread and process, opened when it is first used.

    Args:
        url: Gives the address; asked at each opening, because a server that was restarted may
            listen elsewhere.
        sleep: Waits so many seconds.
    """

    def __init__(self, url: Callable[[], str], sleep: Callable[[float], None]) -> None:
        self._url = url
        self._sleep = sleep
        self._local = threading.local()
        self._is_prepared = False
        self._was_let_in = False
        self._inherited: list[psycopg.Connection] = []  # a parent process's; not ours to close

    def execute(self, work: Callable[[psycopg.Connection], Result]) -> Result:
        """Do some work, and return what it returns.

        It is done again when the server restarts or asks for it. The answer to a commit may have
        been lost, so it can be done twice: every statement of the log can tell that it was.

        Args:
            work: Gets a connection on which each statement commits by itself.

        Raises:
            DatabaseUnreachableError: the server does not come back.
        """
        for number in range(TRIES):
            is_last = number + 1 == TRIES
            try:
                return work(self.connection())
            except RIVALS as error:
                if is_last:
                    raise _unreachable(error) from error
            except (psycopg.OperationalError, PostgresError) as error:
                if not self._is_passing(error):
                    raise
                self.close()
                self._is_prepared = False  # what comes back may be another database
                if is_last:
                    raise _unreachable(error) from error
                self._sleep(FIRST_WAIT_SECONDS * 2**number)
        raise AssertionError  # the loop returns or raises

    def rows(self, statement: str, values: Mapping[str, Any]) -> list[TupleRow]:
        """Execute one statement as ``execute`` does, and return its rows."""
        return self.execute(lambda connection: connection.execute(statement, values).fetchall())

    def connection(self) -> psycopg.Connection:
        """Return this thread's connection; each statement commits by itself."""
        opened: psycopg.Connection | None = getattr(self._local, "connection", None)
        if opened is not None and self._local.process != os.getpid():
            self._inherited.append(opened)
            opened = None
        if opened is None or opened.closed:
            opened = self._open("pin_plans", {})
            self._local.connection, self._local.process = opened, os.getpid()
        return opened

    @contextmanager
    def transaction(self, idle_seconds: float) -> Iterator[psycopg.Connection]:
        """Open a connection and a transaction of its own.

        Args:
            idle_seconds: The server ends the transaction when nothing comes for so long: a process
                that was stopped holds no rows for ever.
        """
        milliseconds = max(int(idle_seconds * 1000), 1)
        with (
            self._open("limit_idle", {"milliseconds": str(milliseconds)}) as connection,
            connection.transaction(),
        ):
            yield connection

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        opened: psycopg.Connection | None = getattr(self._local, "connection", None)
        if opened is not None and self._local.process == os.getpid():
            opened.close()
            self._local.connection = None

    def _is_passing(self, error: psycopg.OperationalError | PostgresError) -> bool:
        """Return whether an error goes by: a server that restarts, is full, or is away."""
        if isinstance(error, DatabaseRefusedError):
            # A server that is starting refuses too; one that never let us in means it.
            return self._was_let_in or pq.PGconn.ping(self._url().encode()) == pq.Ping.REJECT
        if isinstance(error, PostgresError):
            return isinstance(error, DatabaseUnreachableError)
        return error.sqlstate is None or error.sqlstate[:2] in PASSING_CLASSES

    def _open(self, setting: str, values: Mapping[str, Any]) -> psycopg.Connection:
        connection = connect(
            Target(
                url=self._url(),
                name="the log database",
                password=None,
                remedy="Correct BACKFILL_DATABASE_URL, or allow the login",
            )
        )
        self._was_let_in = True
        try:
            if not self._is_prepared:
                prepare_schema(connection)
                self._is_prepared = True
            connection.execute(_STATEMENTS[setting], values)
        except BaseException:
            connection.close()
            raise
        return connection


def _unreachable(error: Exception) -> DatabaseUnreachableError:
    if isinstance(error, DatabaseUnreachableError):
        return error
    if isinstance(error, RIVALS):
        message = f"the log database: {TRIES} deadlocks in a row; see its server's log: {error}"
        return DatabaseUnreachableError(message)
    return DatabaseUnreachableError(f"the log database was lost and did not come back: {error}")
