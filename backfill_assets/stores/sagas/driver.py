"""Driving a saga: look at the log, decide, act, until it ends, asks, or must wait.

Every write is a compare-and-set on the saga's version, so a driver that was taken for dead changes
nothing any more; what it still does to the world is fenced step by step in the idempotency log.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from backfill_assets.core.errors import SagaStateError, UnreadableSagaError
from backfill_assets.core.operations import Kind
from backfill_assets.core.saga_decisions import (
    Act,
    Ask,
    Finish,
    Question,
    TurnBack,
    Wait,
    next_of,
    still_applied,
)
from backfill_assets.core.sagas import Choice, Direction, SagaStatus
from backfill_assets.core.step_states import facts_of, step_states
from backfill_assets.stores.log.alerts import write_alert
from backfill_assets.stores.sagas.case_files import CaseFile
from backfill_assets.stores.sagas.execution import Execution, operation_of
from backfill_assets.stores.sagas.locks import holders, release_locks, take_locks
from backfill_assets.stores.sagas.store import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import psycopg

    from backfill_assets.core.saga_decisions import Next, Task
    from backfill_assets.core.saga_plans import SagaPlan
    from backfill_assets.core.step_states import OperationFacts, StepState
    from backfill_assets.stores.log.log import IdempotencyLog
    from backfill_assets.stores.sagas.actions import SagaRegistry
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets.stores.sagas.store import SagaStore

GRACE = timedelta(seconds=5)  # between a step's deadline and the takeover of its saga
LEASE = timedelta(seconds=30)  # to look and decide; a step brings a lease of its own
SHORTEST_WAIT = timedelta(seconds=1)
LONGEST_LOCK_WAIT = timedelta(seconds=2)  # a lock that is let go early is noticed so soon
SYSTEM = "the saga itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What is needed to drive sagas.

    Args:
        worker: Who we are; unique to this process.
        chance: Gives a number from 0 to 1, for the jitter of waits.
    """

    store: SagaStore
    log: IdempotencyLog
    registry: SagaRegistry
    worker: str
    clock: Callable[[], datetime]
    chance: Callable[[], float]

    def drive(self, saga: Saga) -> Saga:
        """Drive a saga that this worker has claimed, and return it where it rests.

        Raises:
            SagaVersionError: somebody else has changed it.
        """
        while saga.owner == self.worker and saga.status.is_moving:
            facts = self.facts(saga)
            now = self.clock()
            states = self.states(saga.plan, facts, now)
            saga = self._take(saga, next_of(saga.plan, saga.status, states, now), states, facts)
        return saga

    def facts(self, saga: Saga) -> dict[str, OperationFacts]:
        """Return what the log says about a saga's operations."""
        return {s.operation: facts_of(s) for s in self.log.states([saga.saga_id])}

    def states(
        self, plan: SagaPlan, facts: dict[str, OperationFacts], now: datetime
    ) -> list[StepState]:
        """Return how far each entry of a plan is."""
        known, verifiable = self.registry.names, self.registry.verify
        return step_states(plan, facts, now, known=known, verifiable=verifiable)

    def turn_back(self, saga: Saga, record: Record, *, owner: str | None) -> Saga:
        """Turn a saga round: from here on nothing of it can be done any more.

        Every step is sealed in the transaction that says so, what never began included.

        Raises:
            SagaStateError: an irreversible step has happened, or may have.
            SagaVersionError: somebody else has changed the saga.
        """
        now = self.clock()
        turned = replace(
            saga,
            status=SagaStatus.COMPENSATING,
            is_turned_back=True,
            question=None,
            lock_wait_since=None,
            faults=0,
            fault=None,
            owner=owner,
            due_at=now if owner is None else now + LEASE,
        )
        return self.store.save(
            turned,
            now,
            record=record,
            also=lambda connection: self._seal(saga, record.why, connection),
        )

    def ask(self, saga: Saga, question: Question, record: Record) -> Saga:
        """Have a saga wait for a person; the alert is written in the same transaction."""
        now = self.clock()
        asking = replace(
            saga,
            status=SagaStatus.AWAITING_DECISION,
            question=question,
            lock_wait_since=None,
            owner=None,
            due_at=None,
        )
        # As it will be when this is stored: the commands in it name that version.
        body = self._alert_body(replace(asking, version=saga.version + 1))
        subject = f"Saga {saga.saga_id} waits for a decision: {question.reason}"

        def also(connection: psycopg.Connection) -> None:
            release_locks(connection, saga.saga_id)
            self.write_alert(connection, f"saga:{saga.saga_id}:{saga.version + 1}", subject, body)

        return self.store.save(asking, now, record=record, also=also)

    def write_alert(
        self, connection: psycopg.Connection, dedup_key: str, subject: str, body: dict[str, Any]
    ) -> None:
        """Raise an alert in the transaction of the change that it is about."""
        write_alert(connection, dedup_key, subject, body, self.clock())

    def case_file(self, saga: Saga) -> CaseFile:
        """Return everything that is known of a saga."""
        now = self.clock()
        plan = saga.plan
        return CaseFile(
            saga=saga,
            states=self.states(plan, self.facts(saga), now),
            trails=self.log.trail(saga.saga_id),
            locks=self.store.execute(lambda c: holders(c, saga.saga_id, plan.locks, now)),
            journal=self.store.journal(saga.saga_id),
            current=self.registry.find(saga.name),
        )

    def _alert_body(self, saga: Saga) -> dict[str, Any]:
        try:
            return self.case_file(saga).facts()
        except UnreadableSagaError as error:  # which is what a person must be told
            return {"saga": saga.saga_id, "version": saga.version, "question": str(error)}

    def _take(
        self,
        saga: Saga,
        step: Next,
        states: Sequence[StepState],
        facts: dict[str, OperationFacts],
    ) -> Saga:
        match step:
            case Act(tasks):
                return self._act(saga, tasks, states, facts)
            case Wait(until):
                return self._rest(saga, until)
            case TurnBack(reason):
                return self._turn_back_by_itself(saga, reason)
            case Ask(question):
                record = Record(event="asked", who=SYSTEM, why=question.reason)
                return self.ask(saga, question, record)
            case Finish(status):
                return self._finish(saga, status)
            case _:
                assert_never(step)

    def _act(
        self,
        saga: Saga,
        tasks: Sequence[Task],
        states: Sequence[StepState],
        facts: dict[str, OperationFacts],
    ) -> Saga:
        now = self.clock()
        until = now + max(task.entry.step.timeout for task in tasks) + GRACE
        resources = saga.plan.locks
        is_doing = any(task.direction is Direction.DO for task in tasks)
        # A step starts only under locks that outlive its timeout.
        if is_doing and resources and not self._lock(saga, resources, now, until):
            return self._wait_for_locks(saga, states)
        saga = self.store.save(replace(saga, due_at=until, lock_wait_since=None), now)
        execution = Execution(
            log=self.log,
            registry=self.registry,
            clock=self.clock,
            chance=self.chance,
            saga_id=saga.saga_id,
            plan=saga.plan,
            facts=facts,
        )
        if any(self._run_all(execution, tasks)):
            return saga
        # Another process is at it, or was: look again in a moment.
        return self._rest(saga, self.clock() + SHORTEST_WAIT)

    def _run_all(self, execution: Execution, tasks: Sequence[Task]) -> list[bool]:
        """Run tasks at the same time; each thread brings a connection and takes it along."""
        if len(tasks) == 1:
            return [execution.run(tasks[0])]

        def run(task: Task) -> bool:
            try:
                return execution.run(task)
            finally:
                self.log.close()

        with ThreadPoolExecutor(len(tasks), thread_name_prefix="saga") as pool:
            return list(pool.map(run, tasks))

    def _lock(self, saga: Saga, resources: Sequence[str], now: datetime, until: datetime) -> bool:
        return self.store.execute(lambda c: take_locks(c, saga.saga_id, resources, now, until))

    def _wait_for_locks(self, saga: Saga, states: Sequence[StepState]) -> Saga:
        now = self.clock()
        since = saga.lock_wait_since or now
        held = self.store.execute(lambda c: holders(c, saga.saga_id, saga.plan.locks, now))
        others = [lock for lock in held if lock.saga_id != saga.saga_id]
        if now - since < saga.plan.definition.lock_patience:
            free_at = min((lock.expires_at for lock in others), default=now)
            until = min(max(free_at, now + SHORTEST_WAIT), now + LONGEST_LOCK_WAIT)
            return self._rest(replace(saga, lock_wait_since=since), until)
        names = ", ".join(f"{lock.resource} is {lock.saga_id}'s" for lock in others)
        reason = f"its locks were not free for {saga.plan.definition.lock_patience}: {names}"
        if not still_applied(states):
            return self._turn_back_by_itself(saga, reason)
        question = Question(reason, (), (Choice.RETRY, Choice.COMPENSATE))
        return self.ask(saga, question, Record(event="asked", who=SYSTEM, why=reason))

    def _rest(self, saga: Saga, until: datetime) -> Saga:
        resting = replace(saga, owner=None, due_at=until, faults=0, fault=None)
        return self.store.save(resting, self.clock())

    def _turn_back_by_itself(self, saga: Saga, reason: str) -> Saga:
        record = Record(event="turned back", who=SYSTEM, why=reason)
        try:
            return self.turn_back(saga, record, owner=self.worker)
        except SagaStateError:
            return self._rest(saga, self.clock() + SHORTEST_WAIT)  # it is past the pivot by now

    def _finish(self, saga: Saga, status: SagaStatus) -> Saga:
        ended = replace(saga, status=status, owner=None, due_at=None, lock_wait_since=None)
        return self.store.save(
            ended,
            self.clock(),
            record=Record(event=status.lower(), who=SYSTEM, why=""),
            also=lambda connection: release_locks(connection, saga.saga_id),
        )

    def _seal(self, saga: Saga, reason: str, connection: psycopg.Connection) -> None:
        plan = saga.plan
        # In one order for all, so that two who turn it back never wait in a circle.
        for entry in sorted(plan.every_entry, key=lambda entry: entry.title):
            operation = operation_of(plan, entry, Direction.DO)
            stood = self.log.seal(operation, saga.saga_id, reason=reason, connection=connection)
            may_stand = stood.is_completed or stood.in_doubt
            if entry.step.kind is Kind.IRREVERSIBLE and may_stand:
                message = (
                    f"saga {saga.saga_id}: {entry.step.name} is irreversible, and has happened or "
                    "may have; it can only go forward"
                )
                raise SagaStateError(message)
