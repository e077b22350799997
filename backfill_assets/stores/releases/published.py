"""The rows of released days in PostgreSQL: loaded, taken back, looked at, and mended."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from backfill_assets.core.agreement import StoredPartition
from backfill_assets.core.errors import ConflictError, NotAppliedError, ReleaseError
from backfill_assets.core.partitions import ColumnType
from backfill_assets.core.releases import ReleaseKey, Round
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.core.store import CommitRecord
from backfill_assets.stores.log.alerts import write_alert
from backfill_assets.stores.log.sessions import Sessions
from backfill_assets.stores.releases.cells import Cells, cells_of, digest_of_cells
from backfill_assets.stores.releases.schema import prepare_schema
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import date, datetime

    import pyarrow as pa

    from backfill_assets.core.operations import Json
    from backfill_assets.core.partitions import Partition

Result = TypeVar("Result")

_STATEMENTS = load_statements("backfill_assets.stores.releases", "releases.sql")


@dataclass(frozen=True, slots=True)
class Content:
    """A partition as its file was read: what it says about itself, and its rows."""

    partition: Partition
    record: CommitRecord
    table: pa.Table


@dataclass(frozen=True, slots=True)
class PublishedDay:
    """Whose rows stand for a day."""

    day: date
    saga: str
    round: int


class PublishedRows:
    """The tables of released days.

    Args:
        url: Gives the address of the log's database; asked whenever a connection is opened.
        sleep: Waits so many seconds, while a server restarts.
    """

    def __init__(self, url: Callable[[], str], sleep: Callable[[float], None] = time.sleep) -> None:
        self._sessions = Sessions(url, sleep)
        self._preparing = threading.Lock()
        self._is_prepared = False

    def load(
        self,
        connection: psycopg.Connection,
        key: ReleaseKey,
        contents: Sequence[Content],
        now: datetime,
    ) -> None:
        """Write all rows of a day in the caller's transaction, instead of an earlier round's.

        Raises:
            NotAppliedError: a later round's rows stand, or PostgreSQL cannot hold a value.
        """
        self.prepare()
        values = _day_values(key) | {"saga": key.saga_id, "round": key.round, "now": now}
        if connection.execute(_STATEMENTS["take_day"], values).fetchone() is None:
            message = f"{key.saga_id}: the rows of a later round stand; nothing was loaded"
            raise NotAppliedError(message)
        connection.execute(_STATEMENTS["clear_day"], values)
        _copy(connection, contents)

    def take_back(self, connection: psycopg.Connection, key: ReleaseKey) -> bool:
        """Remove a day's rows in the caller's transaction; return whether this release had any.

        Raises:
            ConflictError: somebody changed them since they were loaded; nothing was removed.
        """
        self.prepare()
        values = _day_values(key)
        held = connection.execute(_STATEMENTS["hold_day_row"], values).fetchone()
        if held is None or held[0] != key.saga_id:
            return False
        found = _stored(connection, values)
        changed = [stored for stored in found.values() if stored.is_changed]
        if changed:
            evidence: Json = {
                one.recorded.partition: {
                    "loaded": [one.recorded.rows, one.recorded.digest],
                    "found": [one.found.rows, one.found.digest],
                }
                for one in changed
            }
            message = f"rows of {key} were changed by somebody else since they were loaded"
            raise ConflictError(message, evidence)
        connection.execute(_STATEMENTS["take_back"], values | {"saga": key.saga_id})
        return True

    def records(self, key: ReleaseKey) -> list[CommitRecord]:
        """Return what a release loaded of each partition; nothing where its rows do not stand."""

        def read(connection: psycopg.Connection) -> list[CommitRecord]:
            with connection.transaction():
                values = _day_values(key)
                held = connection.execute(_STATEMENTS["hold_day_row"], values).fetchone()
                if held is None or held[0] != key.saga_id:
                    return []
                rows = connection.execute(_STATEMENTS["partitions"], values)
                return [_record(key.catalogue, row) for row in rows]

        return self._execute(read)

    def days(self, catalogue: str) -> dict[date, PublishedDay]:
        """Return whose rows stand, by day, newest first."""
        rows = self._execute(
            lambda c: c.execute(_STATEMENTS["days"], {"catalogue": catalogue}).fetchall()
        )
        return {row[0]: PublishedDay(*row) for row in rows}

    def recorded(self, catalogue: str) -> dict[date, dict[str, CommitRecord]]:
        """Return what was loaded of each partition of all released days, by day and name."""
        values = {"catalogue": catalogue, "day": None}
        rows = self._execute(lambda c: c.execute(_STATEMENTS["partitions"], values).fetchall())
        found: dict[date, dict[str, CommitRecord]] = defaultdict(dict)
        for row in rows:
            record = _record(catalogue, row)
            found[row[0]][record.partition] = record
        return found

    def stored(self, catalogue: str, day: date) -> dict[str, StoredPartition]:
        """Return what was loaded of a day's partitions, and what stands of it, by name."""
        values = {"catalogue": catalogue, "day": day}
        return self._execute(lambda connection: _stored(connection, values))

    def rounds(self, catalogue: str, day: date | None = None) -> dict[date, list[Round]]:
        """Return all rounds of releasing days, oldest first, by day."""
        values = {"catalogue": catalogue, "day": None if day is None else day.isoformat()}
        rows = self._execute(lambda c: c.execute(_STATEMENTS["rounds"], values).fetchall())
        found: dict[date, list[Round]] = defaultdict(list)
        for text, status, updated_at, is_by_person, was_held, why in rows:
            key = ReleaseKey.parse(text)
            if key is None:
                continue  # a person started it under a key of their own
            one = Round(
                key=key,
                status=SagaStatus(status),
                updated_at=updated_at,
                is_by_person=bool(is_by_person),
                was_held=was_held,
                why=why or "",
            )
            found[key.day].append(one)
        return {day: sorted(ones, key=lambda one: one.key) for day, ones in found.items()}

    def mend(
        self,
        key: ReleaseKey,
        contents: Sequence[Content],
        without_file: Collection[str],
        now: datetime,
    ) -> None:
        """Make the rows of some partitions what their files say, in one transaction.

        Args:
            key: The release that stands; another one's rows are left alone.
            without_file: Names of partitions whose rows go.

        Raises:
            ReleaseError: another release's rows stand by now.
        """

        def write(connection: psycopg.Connection) -> None:
            with connection.transaction():
                values = _day_values(key) | {
                    "saga": key.saga_id,
                    "round": key.round,
                    "now": now,
                }
                held = connection.execute(_STATEMENTS["hold_day_row"], values).fetchone()
                stands = connection.execute(_STATEMENTS["keep_completed"], values).fetchone()
                if stands is None or (held is not None and held[0] != key.saga_id):
                    message = f"{key.saga_id} was to be mended, and does not stand; look again"
                    raise ReleaseError(message)
                if held is None:
                    connection.execute(_STATEMENTS["take_day"], values)
                for name in [*without_file, *(one.record.partition for one in contents)]:
                    connection.execute(_STATEMENTS["clear_partition"], _partition_values(name))
                _copy(connection, contents)

        self._execute(write)

    def remove_day(self, catalogue: str, published: PublishedDay) -> None:
        """Remove the rows of a day that no release stands for."""
        values = {"catalogue": catalogue, "day": published.day, "saga": published.saga}
        self._execute(lambda connection: connection.execute(_STATEMENTS["take_back"], values))

    def alert(self, dedup_key: str, subject: str, body: Json, now: datetime) -> None:
        """Raise an alert, once for a deduplication key."""
        self._execute(lambda connection: write_alert(connection, dedup_key, subject, body, now))

    def prepare(self) -> None:
        """Make the tables, once in a process."""
        if not self._is_prepared:
            with self._preparing:
                self._sessions.execute(prepare_schema)
                self._is_prepared = True

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        self._sessions.close()

    def _execute(self, work: Callable[[psycopg.Connection], Result]) -> Result:
        self.prepare()
        return self._sessions.execute(work)


def _copy(connection: psycopg.Connection, contents: Sequence[Content]) -> None:
    """Load partitions and their rows, in bulk."""
    try:
        with connection.cursor() as cursor:
            with cursor.copy(_STATEMENTS["copy_partitions"]) as copy:
                for one in contents:
                    copy.write_row(_partition_row(one))
            with cursor.copy(_STATEMENTS["copy_values"]) as copy:
                for row in _value_rows(contents):
                    copy.write_row(row)
    except psycopg.DataError as error:
        message = f"PostgreSQL cannot hold a value of {contents[0].partition.day}: {error}"
        raise NotAppliedError(message) from error


def _partition_row(one: Content) -> tuple[Any, ...]:
    partition, query, record = one.partition, one.partition.query, one.record
    return (
        query.catalogue,
        partition.day,
        query.category,
        query.value_type,
        partition.unit,
        record.version,
        record.rows,
        record.digest,
        str(query.category_type),
        str(query.column_type),
    )


def _value_rows(contents: Iterable[Content]) -> Iterable[tuple[Any, ...]]:
    for one in contents:
        query = one.partition.query
        start = (query.catalogue, one.partition.day, query.category, query.value_type)
        for position, cells in enumerate(cells_of(query, one.table)):
            yield (*start, one.partition.unit, position, *cells)


def _stored(
    connection: psycopg.Connection, values: Mapping[str, Any]
) -> dict[str, StoredPartition]:
    cells: dict[tuple[str, str, str], list[Cells]] = defaultdict(list)
    for category, value_type, unit, *rest in connection.execute(_STATEMENTS["values"], values):
        cells[category, value_type, unit].append((rest[0], rest[1], rest[2]))
    found = {}
    for row in connection.execute(_STATEMENTS["partitions"], values):
        record = _record(values["catalogue"], row)
        rows = cells[row[1], row[2], row[3]]
        digest = digest_of_cells(ColumnType(row[7]), ColumnType(row[8]), rows)
        as_found = CommitRecord(record.partition, record.version, len(rows), digest)
        found[record.partition] = StoredPartition(record, as_found)
    return found


def _record(catalogue: str, row: Sequence[Any]) -> CommitRecord:
    day, category, value_type, unit, version, rows, digest = row[:7]
    name = f"{catalogue}/{category}/{value_type}/{day.isoformat()}/{unit}"
    return CommitRecord(name, version, rows, digest)


def _day_values(key: ReleaseKey) -> dict[str, Any]:
    return {"catalogue": key.catalogue, "day": key.day}


def _partition_values(name: str) -> dict[str, str]:
    parts = ("catalogue", "category", "value_type", "day", "unit")
    return dict(zip(parts, name.split("/", 4), strict=True))
