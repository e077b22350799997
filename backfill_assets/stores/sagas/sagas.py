"""Sagas: start them, drive them, cancel them, and decide about those that wait for a person."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.errors import SagaArgumentsError, SagaStateError, SagaVersionError
from backfill_assets.core.operations import Kind
from backfill_assets.core.saga_codec import plan_facts
from backfill_assets.core.saga_decisions import Question
from backfill_assets.core.saga_plans import Allowance, make_plan
from backfill_assets.core.sagas import Choice, Direction, SagaStatus
from backfill_assets.stores.log.results import fingerprint
from backfill_assets.stores.sagas.driver import LEASE, SYSTEM, UNREADABLE, Driver
from backfill_assets.stores.sagas.execution import operation_of
from backfill_assets.stores.sagas.store import Record, SagaStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import Json
    from backfill_assets.core.saga_decisions import Stuck
    from backfill_assets.core.saga_plans import Entry, SagaPlan
    from backfill_assets.core.step_states import OperationFacts
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
            step: Of REPLACE; and of ACCEPT, where it is about one of several.
            arguments: Of REPLACE: the step's new ones.
            receipt: Of ACCEPT: what doing the step would have returned.

        Raises:
            UnknownSagaError: there is none of that id.
            SagaVersionError: it has moved on since.
            SagaStateError: it does not wait, or this is not one of its choices.
            SagaArgumentsError: the step or its new arguments do not fit.
        """
        saga = self._store.get(saga_id)
        question = self._question(saga, version, choice)
        detail: Json = {"choice": str(choice), "step": step}
        record = Record(event="decided", who=who, why=why, detail=detail)
        if choice is Choice.COMPENSATE:
            return self._driver.turn_back(saga, record, owner=None)
        if choice is Choice.REPLACE:
            return self._replace(saga, _stuck_step(question, step), arguments, record)
        chosen = [s for s in question.stuck if step is None or step in (s.step, s.operation)]
        if step is not None and not chosen:
            _stuck_step(question, step)
        if choice is Choice.ACCEPT:
            given: Json = {"accepted_by": who, "why": why} if receipt is None else receipt
            plan = self._accepting(saga.plan, chosen, given)
        else:
            plan = self._retrying(saga.plan, self._driver.facts(saga), chosen)
        return self._go_on(saga, plan, record)

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

    def _question(self, saga: Saga, version: int, choice: Choice) -> Question:
        if saga.question is None:
            message = f"saga {saga.saga_id} is {saga.status}: there is nothing to decide"
            raise SagaStateError(message)
        if saga.version != version:
            message = (
                f"saga {saga.saga_id} is at version {saga.version}, and {version} was looked at; "
                "look at it again"
            )
            raise SagaVersionError(message)
        if choice not in saga.question.choices:
            message = (
                f"saga {saga.saga_id}: {choice} is not possible; "
                f"there is {', '.join(saga.question.choices)}"
            )
            raise SagaStateError(message)
        return saga.question

    def _replace(self, saga: Saga, step: str, arguments: Json, record: Record) -> Saga:
        plan = saga.plan
        old = plan.entry(step)
        if old.step.kind is Kind.IRREVERSIBLE:
            message = f"step {step!r} is irreversible: retry it, or accept that it is done"
            raise SagaStateError(message)
        replaced = plan.with_replaced(step, arguments)
        _ = replaced.locks  # refused now if a lock cannot be named
        operation = operation_of(plan, old, Direction.DO)
        reason = f"replaced by {record.who}: {record.why}"

        def seal(connection: psycopg.Connection) -> None:
            self._log.seal(operation, saga.saga_id, reason=reason, connection=connection)

        return self._go_on(saga, replaced, record, also=seal)

    def _retrying(
        self, plan: SagaPlan, facts: Mapping[str, OperationFacts], stuck: Collection[Stuck]
    ) -> SagaPlan:
        for one in stuck:
            known = facts.get(one.operation)
            entry, direction = _entry_of(plan, one)
            step = entry.step
            retries = step.retries if direction is Direction.DO else step.undo_retries
            allowance = Allowance(
                attempts=(known.spent if known else 0) + retries.max_attempts,
                forgiven=known.attempt if known else 0,
            )
            plan = plan.with_allowance(one.operation, allowance)
        return plan

    def _accepting(self, plan: SagaPlan, stuck: Collection[Stuck], receipt: Json) -> SagaPlan:
        for one in stuck:
            plan = plan.with_accepted(one.operation, receipt)
        return plan

    def _go_on(
        self,
        saga: Saga,
        plan: SagaPlan,
        record: Record,
        *,
        also: Callable[[psycopg.Connection], object] | None = None,
    ) -> Saga:
        now = self._clock()
        moving = SagaStatus.COMPENSATING if saga.is_turned_back else SagaStatus.RUNNING
        going_on = replace(
            saga,
            status=moving,
            stored_plan=plan_facts(plan),
            question=None,
            due_at=now,
            faults=0,
            fault=None,
        )
        return self._store.save(going_on, now, record=record, also=also)


def _operations(saga: Saga) -> list[str]:
    """Return the names of a saga's operations; none where its plan cannot be read."""
    try:
        entries = saga.plan.every_entry
    except UNREADABLE:
        return []
    return [entry.operation(direction) for entry in entries for direction in Direction]


def _stuck_step(question: Question, step: str | None) -> str:
    """Return the step that a decision is about.

    Raises:
        SagaArgumentsError: it is not one of those that are stuck, or none is named.
    """
    stuck = [one.step.partition("@")[0] for one in question.stuck]
    if step not in stuck:
        found = "none is named" if step is None else f"{step!r} is not stuck"
        raise SagaArgumentsError(f"{found}; name one of {', '.join(stuck) or 'no step'}")
    return step


def _entry_of(plan: SagaPlan, stuck: Stuck) -> tuple[Entry, Direction]:
    entry = plan.entry_titled(stuck.step)
    is_do = stuck.operation == entry.operation(Direction.DO)
    return entry, Direction.DO if is_do else Direction.UNDO
