"""One attempt at doing or undoing a step, under its fencing token.

An attempt is never kept alive: its lease is the step's timeout, so that one that hangs is fenced
without its own help. What may follow an attempt is decided in ``core.saga_decisions``; here every
failed operation stays claimable, and the log's own budget is the one of the plan.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import (
    ConflictError,
    KeyReusedError,
    NotAppliedError,
    ResultRefusedError,
    StepRefusedError,
    TryAgainError,
)
from backfill_assets.core.operations import (
    Attempt,
    Claimed,
    Done,
    Found,
    Kind,
    Operation,
    Outcome,
    Policy,
    Refused,
)
from backfill_assets.core.sagas import Direction
from backfill_assets.core.step_states import FINAL_ERRORS
from backfill_assets.stores.log.log import WRITE_TRIES
from backfill_assets.stores.log.sessions import RIVALS
from backfill_assets.stores.sagas.actions import DoCall, UndoCall
from backfill_assets.stores.sagas.locks import keep_until_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import Json
    from backfill_assets.core.saga_decisions import Task
    from backfill_assets.core.saga_plans import Entry, SagaPlan
    from backfill_assets.core.sagas import Retries
    from backfill_assets.core.step_states import OperationFacts
    from backfill_assets.stores.log.log import IdempotencyLog
    from backfill_assets.stores.sagas.actions import SagaRegistry


def operation_of(plan: SagaPlan, entry: Entry, direction: Direction) -> Operation:
    """Return the operation of the log behind one direction of a step."""
    step = entry.step
    is_undo = direction is Direction.UNDO
    kind = (step.undo_kind or step.kind) if is_undo else step.kind
    retries = step.undo_retries if is_undo else step.retries
    name = entry.operation(direction)
    allowance = plan.allowances.get(name)
    allowed = allowance.attempts if allowance else retries.max_attempts
    return Operation(
        name=name,
        kind=kind,
        policy=Policy(
            # Writing down what a person vouches for is not trying.
            max_attempts=None if name in plan.accepted else allowed,
            lease=step.timeout,
            first_wait=retries.first_wait,
            longest_wait=retries.longest_wait,
            jitter=retries.jitter,
        ),
        # An undo is an idempotent command by contract.
        is_deduplicated=kind is Kind.REMOTE and (is_undo or step.is_deduplicated),
    )


@dataclass(frozen=True, slots=True)
class Execution:
    """Runs the tasks of one saga.

    Args:
        facts: What the log said when the tasks were decided, by operation.
        chance: Gives a number from 0 to 1, for the jitter of waits.
    """

    log: IdempotencyLog
    registry: SagaRegistry
    clock: Callable[[], datetime]
    chance: Callable[[], float]
    saga_id: str
    plan: SagaPlan
    facts: Mapping[str, OperationFacts]

    def run(self, task: Task) -> bool:
        """Make one attempt; return whether one was made.

        None is made where another process has it, where it is over, or where it was sealed. What
        the step raises is written into the log, and not raised here.

        Raises:
            KeyReusedError: the log has the operation with other arguments.
            PostgresError: the database was lost; the attempt's lease decides what becomes of it.
        """
        operation = operation_of(self.plan, task.entry, task.direction)
        payload = {self.saga_id: task.entry.arguments}
        claim = self.log.claim_many(operation, payload)[self.saga_id]
        if isinstance(claim, Claimed):
            self._attempt(task, claim.attempt)
            return True
        if isinstance(claim, Refused) and isinstance(claim.error, KeyReusedError):
            raise claim.error
        return isinstance(claim, Done)

    def _attempt(self, task: Task, attempt: Attempt) -> None:
        if task.operation in self.plan.accepted:
            self.log.complete_many({attempt: self.plan.accepted[task.operation]})
        elif attempt.operation.kind is Kind.TRANSACTIONAL:
            self._write(task, attempt)
        else:
            self._act(task, attempt)

    def _act(self, task: Task, attempt: Attempt) -> None:
        with self._failing(task, attempt):
            found = self._found(task, attempt) if attempt.in_doubt else None
            result = self._call(task, attempt, None) if found is None else found.result
            self.log.complete_many({attempt: result})  # one that is late is written down by it

    def _write(self, task: Task, attempt: Attempt) -> None:
        with self._failing(task, attempt):
            for _ in range(WRITE_TRIES - 1):
                with suppress(*RIVALS):  # PostgreSQL asks to try again; all was rolled back
                    self._write_once(task, attempt)
                    return
            self._write_once(task, attempt)

    def _write_once(self, task: Task, attempt: Attempt) -> None:
        with self.log.writing(attempt) as work:
            work.result = self._call(task, attempt, work.connection)
            if task.direction is Direction.DO and task.entry.locks:
                # Last, so that others wait for this commit only.
                keep_until_commit(work.connection, self.saga_id, task.entry.locks, self.clock())

    def _found(self, task: Task, attempt: Attempt) -> Found | None:
        """Return what an earlier attempt did, or None where this one may act."""
        verify = self.registry.verify.get(task.entry.step.do)
        if task.direction is Direction.UNDO or verify is None:
            self._refuse_repeating(task, attempt)
            return None
        found = verify(self._do_call(task, attempt, None))
        if found is None:
            self.log.settle(attempt)
        return found

    def _refuse_repeating(self, task: Task, attempt: Attempt) -> None:
        """Refuse what may have happened since it was decided to do it, and would happen twice.

        Raises:
            TryAgainError: this attempt did nothing; what follows is decided with all attempts seen.
        """
        allowance = self.plan.allowances.get(task.operation)
        is_vouched = allowance is not None and allowance.forgiven >= attempt.number - 1
        if not attempt.operation.may_repeat_in_doubt and not is_vouched:
            raise TryAgainError(f"{attempt} did nothing: an earlier one may have happened")

    def _call(self, task: Task, attempt: Attempt, opened: psycopg.Connection | None) -> Json:
        step = task.entry.step
        if task.direction is Direction.DO:
            return self.registry.do[step.do](self._do_call(task, attempt, opened))
        return self.registry.undo[str(step.undo)](self._undo_call(task, attempt, opened))

    def _do_call(self, task: Task, attempt: Attempt, opened: psycopg.Connection | None) -> DoCall:
        before = self.plan.definition.ancestors(task.entry.step.name)
        done = {e.step.name: e.operation(Direction.DO) for e in self.plan.entries}
        return DoCall(
            **self._common(task, attempt, opened),
            results={name: self.facts[done[name]].result for name in sorted(before)},
        )

    def _undo_call(
        self, task: Task, attempt: Attempt, opened: psycopg.Connection | None
    ) -> UndoCall:
        entry = task.entry
        do = self.facts.get(entry.operation(Direction.DO))
        sent = Attempt(
            operation=operation_of(self.plan, entry, Direction.DO),
            key=self.saga_id,
            number=do.attempt if do else 0,
            generation=1,  # a saga's operations are never reopened
            spent=0,
            in_doubt=False,
            lease_until=attempt.lease_until,
        )
        return UndoCall(
            **self._common(task, attempt, opened),
            receipt=do.result if do else None,
            has_receipt=do is not None and do.is_completed,
            do_key=sent.remote_key,
        )

    def _common(
        self, task: Task, attempt: Attempt, opened: psycopg.Connection | None
    ) -> dict[str, Any]:
        return {
            "saga": self.saga_id,
            "step": task.entry.step.name,
            "arguments": task.entry.arguments,
            "attempt": attempt,
            "deadline": attempt.lease_until,
            "opened": opened,
        }

    @contextmanager
    def _failing(self, task: Task, attempt: Attempt) -> Iterator[None]:
        """Write what goes wrong into the log; raise only what ends this process."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a step may raise anything; the log keeps it
            # One that was fenced is not changed any more, and written down as late.
            self._fail(task, attempt, error)
        except BaseException as error:
            self._fail(task, attempt, error)
            raise

    def _fail(self, task: Task, attempt: Attempt, error: BaseException) -> None:
        step = task.entry.step
        retries = step.undo_retries if task.direction is Direction.UNDO else step.retries
        recorded = _recorded(error)
        self.log.fail_many(
            [attempt],
            recorded,
            outcome=_outcome(attempt, error),
            retry_at=self._retry_at(attempt, recorded, retries),
        )

    def _retry_at(self, attempt: Attempt, error: BaseException, retries: Retries) -> datetime:
        """Return when it is tried again; at once where that is for a person to say."""
        policy = attempt.operation.policy
        if type(error).__name__ in FINAL_ERRORS or policy.is_spent(attempt.spent):
            return self.clock()
        counted = min(attempt.spent, retries.max_attempts)
        return self.clock() + policy.wait_after(counted, self.chance())


def _outcome(attempt: Attempt, error: BaseException) -> Outcome:
    is_definite = attempt.operation.kind is Kind.TRANSACTIONAL or isinstance(error, NotAppliedError)
    return Outcome.FAILED if is_definite else Outcome.UNKNOWN


def _recorded(error: BaseException) -> BaseException:
    """Return the error as it is recorded; its class says whether trying again helps."""
    is_final = isinstance(error, NotAppliedError | ResultRefusedError)
    if not is_final or isinstance(error, TryAgainError | ConflictError):
        return error
    recorded = StepRefusedError(f"{type(error).__name__}: {error}")
    recorded.__cause__ = error
    recorded.__traceback__ = error.__traceback__
    return recorded
