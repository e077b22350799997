"""Connecting, and saying plainly why it did not work."""

from dataclasses import dataclass

import psycopg
from psycopg import pq

from backfill_assets.stores.postgres.errors import DatabaseRefusedError, DatabaseUnreachableError

CONNECT_TIMEOUT_SECONDS = 10  # a server that is there answers in milliseconds
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


def is_answering(url: str) -> bool:
    """Return whether a PostgreSQL answers there, be it with a refusal."""
    return pq.PGconn.ping(url.encode()) in ANSWERS


def _without_password(text: str, password: str | None) -> str:
    return text.replace(password, "***") if password else text
