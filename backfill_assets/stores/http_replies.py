"""What a server answered to requests with an idempotency key, kept in PostgreSQL.

The reply, its key and what the request did commit in one transaction. While it is open a lock of
the database says that the first request is at work; a server that dies leaves neither.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg.types.json import Jsonb

from backfill_assets.stores.postgres.connections import Target, connect
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from backfill_assets.core.operations import Json

_STATEMENTS = load_statements("backfill_assets.stores", "http_replies.sql")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer over HTTP; its body is sent as JSON."""

    status: int
    body: Json

    @property
    def is_kept(self) -> bool:
        """Whether the same request gets it again: a refusal may be another one next time."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Replayed:
    """The request was done before; what was answered then."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class InProgress:
    """The first request with the key is at work."""


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key came with another request before."""


Answer = Reply | Replayed | InProgress | KeyReused


class StoredReplies:
    """The replies of one service.

    Args:
        url: Gives the address of the database; asked whenever a connection is opened.
        service: Names the server; keys of different services do not meet.
    """

    def __init__(self, url: Callable[[], str], service: str) -> None:
        self._url = url
        self._service = service
        self._idle: list[psycopg.Connection] = []
        self._lock = threading.Lock()

    def answer(
        self, key: str, fingerprint: str, act: Callable[[psycopg.Connection], Reply]
    ) -> Answer:
        """Do a request, unless it was done or is being done; what it did commits with the reply.

        A crash leaves both or neither. A reply that is not kept, or an error, leaves nothing.

        Args:
            act: Does the request; what it writes over the connection commits with the reply.

        Raises:
            PostgresError: the database is not reached.
            psycopg.Error: it was lost meanwhile; the same request tells what became of it.
        """
        names = {"service": self._service, "key": key}
        with self._connection() as connection, connection.transaction() as transaction:
            if not _only(connection.execute(_STATEMENTS["begin"], names)):
                return InProgress()
            row = connection.execute(_STATEMENTS["read"], names).fetchone()
            if row is not None:
                known, status, body = row
                return Replayed(Reply(status, body)) if known == fingerprint else KeyReused()
            reply = act(connection)
            if not reply.is_kept:
                raise psycopg.Rollback(transaction)
            values = {"fingerprint": fingerprint, "status": reply.status}
            connection.execute(_STATEMENTS["keep"], {**names, **values, "body": Jsonb(reply.body)})
        return reply

    def prune(self, before: datetime) -> int:
        """Forget replies from before an instant; return how many."""
        values = {"service": self._service, "before": before}
        with self._connection() as connection:
            return connection.execute(_STATEMENTS["forget"], values).rowcount

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        """Lend a connection; it is kept for the next request unless it broke."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._open()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)

    def _open(self) -> psycopg.Connection:
        target = Target(
            url=self._url(),
            name="the database of the stored replies",
            password=None,
            remedy="Correct BACKFILL_DATABASE_URL, or allow the login",
        )
        connection = connect(target)
        try:
            with connection.transaction():
                connection.execute(_STATEMENTS["lock"])
                connection.execute(_STATEMENTS["create"])
        except BaseException:
            connection.close()
            raise
        return connection


def _only(cursor: psycopg.Cursor) -> bool:
    row = cursor.fetchone()
    return row is not None and bool(row[0])
