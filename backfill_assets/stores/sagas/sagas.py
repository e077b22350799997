"""Sagas: start them, drive them, cancel them, and decide about those that wait for a person."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.errors import (
    SagaArgumentsError,
    SagaStateError,
    SagaVersionError,
    UnreadableSagaError,
)
from backfill_assets.core.saga_decisions import Question
from backfill_assets.core.saga_plans import make_plan
from backfill_assets.core.sagas import Choice, Direction, SagaStatus
from backfill_assets.stores.log.results import fingerprint
from backfill_assets.stores.sagas.deciding import Deciding, Decision
from backfill_assets.stores.sagas.driver import LEASE, SYSTEM, Driver
from backfill_assets.stores.sagas.store import Record, SagaStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from backfill_assets.core.operations import Json
    from backfill_assets.stores.log.log import IdempotencyLog
    from backfill_assets.stores.sagas.actions import SagaRegistry
    from backfill_assets.stores.sagas.case_files import CaseFile
    from backfill_assets.stores.sagas.rows import Saga

NO_PATIENCE = timedelta(0)
FIRST_FAULT_WAIT = timedelta(seconds=10)  # doubled each time: the fifth is after two and a half
FAULTS_BEFORE_ASKING = 5  # minutes; what still breaks off then needs a person
SHORTEST_SLEEP_SECONDS = 0.05  # clocks of two machines differ; nobody spins over that
CANCEL_TRIES = 20  # a saga that is being driven moves on at each step


class Sagas:
    """The sagas of a deployment.

    Args:
        url: Gives the address of the log's database; asked whenever a connection is opened.
        log: The idempotency log in that database.
        registry: The definitions, and the code behind their names.
        worker: Who we are; unique to this process.
        clock: Gives the present instant, aware.
        sleep: Waits so many seconds.
        chance: Gives a number from 0 to 1, for the jitter of waits.
    """

    def __init__(
        self,
        url: Callable[[], str],
        log: IdempotencyLog,
        registry: SagaRegistry,
        *,
        worker: str,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = SagaStore(url, sleep)
        self._log = log
        self._registry = registry
        self._worker = worker
        self._clock = clock
        self._sleep = sleep
        self._driver = self._make_driver(chance)

    def _make_driver(self, chance: Callable[[], float]) -> Driver:
        return Driver(
            store=self._store,
            log=self._log,
            registry=self._registry,
            worker=self._worker,
            clock=self._clock,
            chance=chance,
        )

    def start(
        self, name: str, key: str, arguments: Mapping[str, Json], *, who: str, why: str = ""
    ) -> Saga:
        """Store a new saga with everything that undoing it will need; run nothing yet.

        Starting it again returns it as it stands. A key whose saga is at its end stays so.

        Args:
            arguments: One JSON value for each step.

        Raises:
            UnknownSagaError: no saga of that name is defined.
            SagaArgumentsError: the arguments do not fit the steps.
            KeyReusedError: the key was used with other arguments.
        """
        if not key or key != key.strip():
            raise SagaArgumentsError(f"saga {name!r}: {key!r} is no key; give a text")
        plan = make_plan(self._registry.definition(name), arguments)
        record = Record(event="started", who=who, why=why)
        prints = fingerprint(dict(arguments))
        return self._store.insert(f"{name}/{key}", plan, prints, record, self._clock())

    def run(self, saga_id: str, *, patience: timedelta = NO_PATIENCE) -> Saga:
        """Drive a saga as far as it goes: to its end, to a question, or to a timer.

        Where somebody else drives it, it is returned as it stands. A crash at any point leaves it
        to whoever comes after the lease.

        Args:
            patience: For how long the call may wait for timers and other drivers, in all.

        Raises:
            UnknownSagaError: there is none of that id.
            PostgresError: the database was lost.
        """
        give_up_at = self._clock() + patience
        while True:
            saga = self._run_once(saga_id)
            if saga.due_at is None or saga.due_at > give_up_at or not patience:
                return saga
            seconds = (saga.due_at - self._clock()).total_seconds()
            self._sleep(max(seconds, SHORTEST_SLEEP_SECONDS))

    def due(self) -> list[Saga]:
        """Return the sagas whose lease or timer has passed, the longest waiting first."""
        return self._store.due(self._clock())

    def recover(self, *, patience: timedelta = NO_PATIENCE) -> list[Saga]:
        """End attempts past their deadline, and drive every saga that is due.

        One that cannot be driven is put off, and asks a person in the end; the others go on.
        """
        self.fence()
        found: list[Saga] = []
        for saga in self.due():
            try:
                found.append(self.run(saga.saga_id, patience=patience))
            except Exception:  # noqa: BLE001 - it is counted and told; it must not stop the others
                found.append(self._store.get(saga.saga_id))
        return found

    def fence(self) -> list[tuple[str, str]]:
        """End attempts past their deadline, of sagas that are due; return saga and operation."""
        names = {name for saga in self.due() for name in _operations(saga)}
        return self._log.supervise(names) if names else []

    def cancel(self, saga_id: str, *, who: str, why: str) -> Saga:
        """Have everything undone that a saga did, also when it is completed; run it afterwards.

        Twice is once. A step that is under way is fenced at once, and undone.

        Raises:
            UnknownSagaError: there is none of that id.
            SagaStateError: an irreversible step has happened or may have, or it waits with an undo
                that failed.
        """
        record = Record(event="cancelled", who=who, why=why)
        for _ in range(CANCEL_TRIES):
            saga = self._store.get(saga_id)
            if saga.is_turned_back:
                return self._already_turned(saga)
            try:
                return self._driver.turn_back(saga, record, owner=None)
            except SagaVersionError:
                continue  # it took a step meanwhile
        raise SagaVersionError(f"saga {saga_id} moves on all the time; cancel it again")

    def decide(
        self,
        saga_id: str,
        version: int,
        choice: Choice,
        *,
        who: str,
        why: str,
        step: str | None = None,
        arguments: Json = None,
        receipt: Json = None,
    ) -> Saga:
        """Decide about a saga that waits for a person; run it afterwards.

        Args:
            version: Of the saga that was looked at: of two who decide at once one is refused.
            step: Of REPLACE; and of the others, where they are about one of several.
            arguments: Of REPLACE: the step's new ones.
            receipt: Of ACCEPT: what doing the step would have returned.

        Raises:
            UnknownSagaError: there is none of that id.
            SagaVersionError: it has moved on since.
            SagaStateError: it does not wait, or this is not one of its choices.
            SagaArgumentsError: the step or its new arguments do not fit.
        """
        decision = Decision(
            choice=choice, who=who, why=why, step=step, arguments=arguments, receipt=receipt
        )
        return Deciding(self._driver).decide(self._store.get(saga_id), version, decision)

    def get(self, saga_id: str) -> Saga:
        """Return a saga.

        Raises:
            UnknownSagaError: there is none of that id.
        """
        return self._store.get(saga_id)

    def find(self, *, name: str | None = None, statuses: Collection[SagaStatus] = ()) -> list[Saga]:
        """Return sagas, the newest first; of all names and states where none is given."""
        return self._store.find(name, statuses)

    def case_file(self, saga_id: str) -> CaseFile:
        """Return everything that is known of a saga.

        Raises:
            UnknownSagaError: there is none of that id.
        """
        return self._driver.case_file(self._store.get(saga_id))

    def prune(self, before: datetime) -> list[str]:
        """Forget sagas that ended before an instant, and return their ids.

        From then on they cannot be cancelled. The log forgets their operations when it is pruned;
        until a saga is forgotten here, it keeps them.
        """
        return self._store.prune(before)

    def close(self) -> None:
        """Close this thread's connections; the next use opens others."""
        self._store.close()
        self._log.close()

    def _run_once(self, saga_id: str) -> Saga:
        now = self._clock()
        saga = self._store.claim(saga_id, self._worker, now, now + LEASE)
        if saga is None:
            return self._store.get(saga_id)
        try:
            return self._driver.drive(saga)
        except SagaVersionError:
            return self._store.get(saga_id)  # somebody cancelled it, or took it over
        except Exception as error:
            self._note_fault(saga, error)
            raise

    def _note_fault(self, saga: Saga, error: Exception) -> None:
        """Put a saga off whose driving broke off; a person is asked when that goes on."""
        now = self._clock()
        fault = f"{type(error).__name__}: {error}"
        due_at = now + FIRST_FAULT_WAIT * 2 ** min(saga.faults, FAULTS_BEFORE_ASKING)
        noted = self._store.note_fault(saga.saga_id, self._worker, fault, now, due_at)
        if noted is not None and noted.faults >= FAULTS_BEFORE_ASKING:
            choices = [Choice.RETRY] if noted.is_turned_back else [Choice.RETRY, Choice.COMPENSATE]
            reason = f"driving it broke off {noted.faults} times: {fault}"
            record = Record(event="asked", who=SYSTEM, why=reason)
            self._driver.ask(noted, Question(reason, (), tuple(choices)), record)

    def _already_turned(self, saga: Saga) -> Saga:
        if saga.status is SagaStatus.AWAITING_DECISION:
            message = (
                f"saga {saga.saga_id} is being undone, and waits: "
                f"{saga.question.reason if saga.question else ''}; decide about that"
            )
            raise SagaStateError(message)
        return saga


def _operations(saga: Saga) -> list[str]:
    """Return the names of a saga's operations; none where its plan cannot be read."""
    try:
        entries = saga.plan.every_entry
    except UnreadableSagaError:
        return []
    return [entry.operation(direction) for entry in entries for direction in Direction]
