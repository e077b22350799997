"""What the tests of the log share: its database, clocks that stand still, effects that count.

An effect is a row without any constraint: were it made twice, it would be there twice.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from backfill_assets.core.operations import Attempt, Found, Json, Kind, Operation, Policy
from backfill_assets.stores.log.alerts import Alert, read_alerts
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.log.schema import prepare_schema

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2013, 8, 4, 1, tzinfo=UTC)
LEASE = timedelta(seconds=60)
AFTER_THE_LEASE = timedelta(seconds=61)

WRITE = Operation(name="write", kind=Kind.TRANSACTIONAL)
FILE = Operation(name="file", kind=Kind.ARTIFACT)
CALL = Operation(name="call", kind=Kind.REMOTE, is_deduplicated=True)
PLAIN_CALL = Operation(name="plain_call", kind=Kind.REMOTE)
PAY = Operation(name="pay", kind=Kind.IRREVERSIBLE)
TWICE = Policy(max_attempts=2)


class Clock:
    """A clock that stands still until it is moved; waiting moves it."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now
        self.waits: list[float] = []

    def __call__(self) -> datetime:
        return self.now

    def forward(self, by: timedelta) -> None:
        """Move the clock."""
        self.now += by

    def sleep(self, seconds: float) -> None:
        """Wait as a process does, without waiting."""
        self.waits.append(seconds)
        self.now += timedelta(seconds=seconds)


def prepare(url: str) -> None:
    """Make the tables of the log and of the effects."""
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_schema(connection)
        connection.execute("CREATE TABLE effect (key text, attempt integer, value text)")
        connection.execute("CREATE TABLE call (remote_key text, worker text)")


@dataclass
class World:
    """One database, and the logs that were opened on it."""

    url: str
    clock: Clock = field(default_factory=Clock)
    _logs: list[IdempotencyLog] = field(default_factory=list)

    def log(
        self,
        worker: str = "first",
        *,
        after: timedelta | None = None,
        url: str | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> IdempotencyLog:
        """Return a log of a worker.

        Args:
            after: Give it a clock of its own, so much later than the world's is now.
            url: Where to connect, instead of the server itself.
            sleep: Waits really, where something real is waited for.
        """
        clock = self.clock if after is None else Clock(self.clock.now + after)
        log = IdempotencyLog(
            lambda: url or self.url,
            worker=worker,
            clock=clock,
            sleep=sleep or clock.sleep,
            chance=lambda: 0.0,
        )
        self._logs.append(log)
        return log

    def close(self) -> None:
        """Close what this process has opened."""
        for log in self._logs:
            log.close()

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statement, values)
            return found.fetchall() if found.description else []

    def row(self, key: str = "k") -> tuple[Any, ...]:
        """Return the whole row of the one operation with a key."""
        (found,) = self.rows("SELECT * FROM idempotency_log WHERE idempotency_key = %s", key)
        return found

    def outcomes(self, key: str = "k") -> list[str]:
        """Return how the attempts with a key ended, oldest first."""
        statement = (
            "SELECT outcome FROM idempotency_attempt WHERE idempotency_key = %s "
            "ORDER BY operation_name, attempt"
        )
        return [outcome for (outcome,) in self.rows(statement, key)]

    def digests(self, key: str = "k") -> list[str | None]:
        """Return what the attempts with a key stored, or wanted to, oldest first."""
        statement = (
            "SELECT result_digest FROM idempotency_attempt WHERE idempotency_key = %s "
            "ORDER BY operation_name, attempt"
        )
        return [digest for (digest,) in self.rows(statement, key)]

    def effects(self) -> list[tuple[str, int, str]]:
        """Return every row that was written, as (key, attempt, value)."""
        return [  # type: ignore[return-value]
            tuple(row) for row in self.rows("SELECT key, attempt, value FROM effect ORDER BY 1, 2")
        ]

    def calls(self) -> list[tuple[str, str]]:
        """Return every call that the remote received, as (remote key, worker)."""
        return self.rows("SELECT remote_key, worker FROM call ORDER BY worker")  # type: ignore[return-value]

    def receive(self, attempt: Attempt, worker: str) -> None:
        """Receive a call as a remote does: it commits whatever becomes of the caller."""
        self.rows("INSERT INTO call VALUES (%s, %s)", attempt.remote_key, worker)

    def received(self, attempt: Attempt) -> Found | None:
        """Ask the remote whether it received a call."""
        found = self.rows("SELECT worker FROM call WHERE remote_key = %s", attempt.remote_key)
        return Found(found[0][0]) if found else None

    def alerts(self, prefix: str = "") -> list[Alert]:
        """Return the alerts that were raised."""
        with psycopg.connect(self.url) as connection:
            return read_alerts(connection, prefix)


def writes(value: str) -> Callable[[Attempt, psycopg.Connection], Json]:
    """Return a write of one row with a value, which is its result as well."""

    def write(attempt: Attempt, connection: psycopg.Connection) -> Json:
        connection.execute(
            "INSERT INTO effect VALUES (%s, %s, %s)", (attempt.key, attempt.number, value)
        )
        return value

    return write


def stop() -> None:
    """Stop this process until somebody lets it go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def not_called(*_: object) -> Json:
    """Be an act that must not be called."""
    raise AssertionError("it was done again")
