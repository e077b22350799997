"""Connecting, and saying plainly why it did not work."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import pq

from backfill_assets.stores.postgres.errors import DatabaseRefusedError, DatabaseUnreachableError

CONNECT_TIMEOUT_SECONDS = 10  # a server that is there answers in milliseconds
SHUTDOWNS = {"57P01", "57P02", "57P03"}  # it is told to stop, or another of its processes died
ANSWERS = (pq.Ping.OK, pq.Ping.REJECT)  # REJECT: it is starting, stopping, or full


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, and how messages speak of it.

    Attributes:
        url: Where to connect; never shown.
        name: What a person calls it.
        password: What must not appear in a message.
        remedy: What to do when it does not let us in.
    """

    url: str
    name: str
    password: str | None
    remedy: str


def connect(target: Target) -> psycopg.Connection:
    """Return a connection that commits each statement by itself.

    Raises:
        DatabaseUnreachableError: nothing answers there.
        DatabaseRefusedError: the server answers and does not let us in.
    """
    try:
        return psycopg.connect(target.url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS)
    except psycopg.OperationalError as error:
        said = _without_password(str(error), target.password)
        # `from None`: the original text is in the message, and what it hides may not be printed.
        if isinstance(error, psycopg.errors.ConnectionTimeout) or not is_answering(target.url):
            message = (
                f"{target.name}: no PostgreSQL answers there: {said}\n"
                "Start it, or correct host and port"
            )
            raise DatabaseUnreachableError(message) from None
        message = f"{target.name}: PostgreSQL does not let us in: {said}\n{target.remedy}"
        raise DatabaseRefusedError(message) from None


@contextmanager
def loss_is_told(connection: psycopg.Connection, name: str) -> Iterator[None]:
    """Say plainly that the connection was lost in the context, where it was.

    Args:
        name: What a person calls the server.

    Raises:
        DatabaseUnreachableError: the server died, or ended the connection.
    """
    try:
        yield
    except psycopg.OperationalError as error:
        if not connection.broken and error.sqlstate not in SHUTDOWNS:
            raise
        message = f"{name}: PostgreSQL went away in the middle: {str(error).strip()}"
        raise DatabaseUnreachableError(message) from error


def is_answering(url: str) -> bool:
    """Return whether a PostgreSQL answers there, be it with a refusal."""
    return pq.PGconn.ping(url.encode()) in ANSWERS


def _without_password(text: str, password: str | None) -> str:
    return text.replace(password, "***") if password else text
