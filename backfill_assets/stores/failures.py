"""The memory of failed partitions: how often, why, and when to try again.

It is kept outside the truth. It decides when missing work is tried again, never whether it is
missing; losing it costs a retry.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from psycopg import errors

from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.stores.postgres.connections import Target, connect
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    import psycopg

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Partition

FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=1)  # a mended source is noticed within the hour
ALERT_ATTEMPTS = 5  # half an hour of trying: from here on a person should look

_STATEMENTS = load_statements("backfill_assets.stores", "failures.sql")


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known about a partition that could not be made.

    Attributes:
        attempts: How often it failed in a row; 0 where only its source was not ready.
        error: What the last failure said.
        retry_at: The real instant before which it is not tried again.
    """

    partition: Partition
    attempts: int
    error: str
    failed_at: datetime
    retry_at: datetime

    @property
    def needs_a_person(self) -> bool:
        """Whether it failed so often that an alert is raised; it goes on being tried."""
        return self.attempts >= ALERT_ATTEMPTS


class FailureMemory:
    """Failed partitions in PostgreSQL.

    Args:
        url: Gives the address of the database; asked at each use, because a server that was
            restarted may listen elsewhere.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url

    def note(self, partitions: Iterable[Partition], error: str, now: datetime) -> None:
        """Remember that these failed, and put their next attempt off."""
        self._note(partitions, error, now, spent=1)

    def note_waiting(self, partitions: Iterable[Partition], error: str, now: datetime) -> None:
        """Remember that the source of these is not ready: they wait, and no attempt is spent."""
        self._note(partitions, error, now, spent=0)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that are committed by now."""
        names = [str(partition) for partition in partitions]
        if names:
            with self._connected() as connection:
                connection.execute(_STATEMENTS["forget"], {"partitions": names})

    def failures(self, catalogue: Catalogue) -> list[Failure]:
        """Return all that is known about a catalogue's partitions."""
        with self._connected() as connection:
            values = {"prefix": f"{catalogue.name}/"}
            rows = connection.execute(_STATEMENTS["read"], values).fetchall()
        found = []
        for name, *rest in rows:
            try:
                found.append(Failure(catalogue.parse(name), *rest))
            except UnknownPartitionError:
                continue  # of a unit or a query that was removed since
        return found

    def _note(
        self, partitions: Iterable[Partition], error: str, now: datetime, *, spent: int
    ) -> None:
        failed = list(partitions)
        values = {
            "partitions": [str(partition) for partition in failed],
            "versions": [partition.query.version for partition in failed],
            "error": error,
            "now": now,
            "spent": spent,
            "first_wait": FIRST_WAIT,
            "longest_wait": LONGEST_WAIT,
        }
        with self._connected() as connection:
            connection.execute(_STATEMENTS["note"], values)

    def _connected(self) -> psycopg.Connection:
        connection = connect(
            Target(
                url=self._url(),
                name="the log database",
                password=None,
                remedy="Correct BACKFILL_DATABASE_URL, or allow the login",
            )
        )
        # Two processes may make the table in the same moment: one of them is told so.
        with contextlib.suppress(errors.DuplicateTable, errors.UniqueViolation):
            connection.execute(_STATEMENTS["create"])
        return connection


def backing_off(catalogue: Catalogue, failures: Iterable[Failure], now: datetime) -> PartitionSet:
    """Return the partitions that are not to be tried again at ``now``, a real instant."""
    waiting = (failure.partition for failure in failures if failure.retry_at > now)
    return PartitionSet.of(catalogue, waiting)
