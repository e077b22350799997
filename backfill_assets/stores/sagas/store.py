"""The table of sagas: every change is a compare-and-set on the version, with its journal entry."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from backfill_assets.core.errors import KeyReusedError, SagaVersionError, UnknownSagaError
from backfill_assets.core.saga_codec import plan_facts, question_facts
from backfill_assets.stores.log.sessions import Sessions
from backfill_assets.stores.sagas.rows import JournalEntry, Saga, saga_of
from backfill_assets.stores.sagas.schema import prepare_schema
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import Json
    from backfill_assets.core.saga_plans import SagaPlan
    from backfill_assets.core.sagas import SagaStatus

Result = TypeVar("Result")

_STATEMENTS = load_statements("backfill_assets.stores.sagas", "sagas.sql")

LONGEST_LIST = 1_000  # rows; more than that nobody reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the journal says about a change."""

    event: str
    who: str
    why: str
    detail: Json = None


class SagaStore:
    """Sagas in PostgreSQL.

    Args:
        url: Gives the address of the log's database; asked whenever a connection is opened.
        sleep: Waits so many seconds, while a server restarts.
    """

    def __init__(self, url: Callable[[], str], sleep: Callable[[float], None]) -> None:
        self._sessions = Sessions(url, sleep)
        self._preparing = threading.Lock()
        self._is_prepared = False

    def insert(
        self, saga_id: str, plan: SagaPlan, prints: str, record: Record, now: datetime
    ) -> Saga:
        """Store a new saga, or return the one that stands under this id.

        Raises:
            KeyReusedError: it was started with other arguments.
        """
        name, _, key = saga_id.partition("/")
        values = {
            "saga_id": saga_id,
            "name": name,
            "key": key,
            "plan": Jsonb(plan_facts(plan)),
            "fingerprint": prints,
            "now": now,
        }

        def work(connection: psycopg.Connection) -> Saga | None:
            with connection.transaction():
                row = _one(connection, "insert", values)
                if row is not None:
                    _write_journal(connection, saga_id, 1, record, now)
            return None if row is None else saga_of(row)

        saga = self._execute(work) or self.get(saga_id)
        if saga.fingerprint != prints:
            message = (
                f"saga {saga_id} was started with other arguments, and is {saga.status}; give "
                "every request a key of its own"
            )
            raise KeyReusedError(message)
        return saga

    def get(self, saga_id: str) -> Saga:
        """Return a saga.

        Raises:
            UnknownSagaError: there is none of that id.
        """
        row = self._execute(lambda connection: _one(connection, "get", {"saga_id": saga_id}))
        if row is None:
            raise UnknownSagaError(f"there is no saga {saga_id!r}; see `backfill-assets saga list`")
        return saga_of(row)

    def find(self, name: str | None, statuses: Collection[SagaStatus]) -> list[Saga]:
        """Return sagas, the newest first."""
        values = {"name": name, "statuses": [str(s) for s in statuses], "limit": LONGEST_LIST}
        return self._execute(lambda connection: _sagas(connection, "find", values))

    def due(self, now: datetime) -> list[Saga]:
        """Return the sagas that anyone may take up, the longest waiting first."""
        values = {"now": now, "limit": LONGEST_LIST}
        return self._execute(lambda connection: _sagas(connection, "due", values))

    def claim(self, saga_id: str, owner: str, now: datetime, until: datetime) -> Saga | None:
        """Take a saga up until an instant; None where it is not due, or somebody was faster."""
        values = {"saga_id": saga_id, "owner": owner, "now": now, "due_at": until}
        row = self._execute(lambda connection: _one(connection, "claim", values))
        if row is not None:
            return saga_of(row)
        stands = self.get(saga_id)
        # The answer was lost, and the statement executed again: it is ours already.
        is_own = (stands.owner, stands.due_at, stands.updated_at) == (owner, until, now)
        return stands if is_own else None

    def save(
        self,
        saga: Saga,
        now: datetime,
        *,
        record: Record | None = None,
        also: Callable[[psycopg.Connection], object] | None = None,
    ) -> Saga:
        """Store a changed saga, if nobody has changed it since it was read.

        A crash leaves all of it done or none: the state, the journal, and what ``also`` writes.

        Args:
            saga: With the version at which it was read.
            also: Gets the connection of the transaction; what it raises rolls all back.

        Raises:
            SagaVersionError: somebody else has changed it.
        """
        values = _values(saga) | {"now": now}

        def work(connection: psycopg.Connection) -> dict[str, Any] | None:
            with connection.transaction():
                row = _one(connection, "advance", values)
                if row is not None and record is not None:
                    _write_journal(connection, saga.saga_id, row["version"], record, now)
                if row is not None and also is not None:
                    also(connection)
            return row

        row = self._execute(work)
        if row is None and (stands := self._stored_before(saga, now, record)) is not None:
            return stands
        if row is None:
            message = (
                f"saga {saga.saga_id} has moved on since version {saga.version}; look at it again"
            )
            raise SagaVersionError(message)
        return saga_of(row)

    def _stored_before(self, saga: Saga, now: datetime, record: Record | None) -> Saga | None:
        """Return the saga if this very change stands: its answer was lost, and it came twice."""
        stands = self.get(saga.saga_id)
        if (stands.version, stands.updated_at) != (saga.version + 1, now):
            return None
        if record is None:
            is_own = (stands.status, stands.owner) == (saga.status, saga.owner)
            return stands if is_own else None
        wrote = [(e.version, e.event, e.who, e.why) for e in self.journal(saga.saga_id)]
        is_own = (stands.version, record.event, record.who, record.why) in wrote
        return stands if is_own else None

    def note_fault(
        self, saga_id: str, owner: str, fault: str, now: datetime, due_at: datetime
    ) -> Saga | None:
        """Count that driving a saga broke off; None where it is somebody else's by now."""
        values = {
            "saga_id": saga_id,
            "owner": owner,
            "fault": fault.replace("\0", "�"),
            "now": now,
            "due_at": due_at,
        }
        row = self._execute(lambda connection: _one(connection, "note_fault", values))
        return None if row is None else saga_of(row)

    def journal(self, saga_id: str) -> list[JournalEntry]:
        """Return all changes of a saga's state, in order."""
        values = {"saga_id": saga_id}
        rows = self._execute(
            lambda connection: connection.execute(_STATEMENTS["journal"], values).fetchall()
        )
        return [JournalEntry(*row) for row in rows]

    def prune(self, before: datetime) -> list[str]:
        """Forget sagas that ended before an instant; return their ids."""
        values = {"before": before}
        rows = self._execute(lambda c: c.execute(_STATEMENTS["prune"], values).fetchall())
        return [saga_id for (saga_id,) in rows]

    def execute(self, work: Callable[[psycopg.Connection], Result]) -> Result:
        """Do some work on this thread's connection, on which each statement commits by itself."""
        return self._execute(work)

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        self._sessions.close()

    def _execute(self, work: Callable[[psycopg.Connection], Result]) -> Result:
        if not self._is_prepared:
            with self._preparing:
                self._sessions.execute(prepare_schema)
                self._is_prepared = True
        return self._sessions.execute(work)


def _one(
    connection: psycopg.Connection, name: str, values: Mapping[str, Any]
) -> dict[str, Any] | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_STATEMENTS[name], values).fetchone()


def _sagas(connection: psycopg.Connection, name: str, values: Mapping[str, Any]) -> list[Saga]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return [saga_of(row) for row in cursor.execute(_STATEMENTS[name], values)]


def _write_journal(
    connection: psycopg.Connection, saga_id: str, version: int, record: Record, now: datetime
) -> None:
    values = {
        "saga_id": saga_id,
        "version": version,
        "event": record.event,
        "who": record.who,
        "why": record.why,
        "detail": Jsonb(record.detail),
        "now": now,
    }
    connection.execute(_STATEMENTS["write_journal"], values)


def _values(saga: Saga) -> dict[str, Any]:
    return {
        "saga_id": saga.saga_id,
        "version": saga.version,
        "plan": Jsonb(saga.stored_plan),
        "status": str(saga.status),
        "is_turned_back": saga.is_turned_back,
        "owner": saga.owner,
        "due_at": saga.due_at,
        "question": None if saga.question is None else Jsonb(question_facts(saga.question)),
        "lock_wait_since": saga.lock_wait_since,
        "faults": saga.faults,
        "fault": saga.fault,
    }
