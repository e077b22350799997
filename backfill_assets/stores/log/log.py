"""The idempotency log: at most one effect for an idempotency key and the name of a step.

An attempt is claimed, acts, and is completed only if it still owns its operation: its number is a
fencing token, and the fence is in the statement that stores the result. Leases decide when another
may try; the token alone decides whose result stands.

Source: the Idempotency-Key draft of the IETF's httpapi group, for the answers to duplicates.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.errors import (
    BudgetSpentError,
    BusyError,
    NotAppliedError,
    OperationError,
    OperationFailedError,
    OutcomeUnknownError,
    ResultRefusedError,
)
from backfill_assets.core.operations import (
    Busy,
    Done,
    Kind,
    OperationTrail,
    Outcome,
    Refused,
)
from backfill_assets.stores.log.alerts import write_alert
from backfill_assets.stores.log.answers import busy_error, outcome_unknown
from backfill_assets.stores.log.results import fingerprint
from backfill_assets.stores.log.sessions import RIVALS, Sessions
from backfill_assets.stores.log.transactions import Transactions, stale

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import (
        Attempt,
        Found,
        Json,
        Operation,
        OperationState,
    )
    from backfill_assets.stores.log.ledger import LateAttempt, SealedState
    from backfill_assets.stores.log.transactions import Transaction

WRITE_TRIES = 5  # PostgreSQL asks to try again when two transactions stand in each other's way
NO_PATIENCE = timedelta(0)


class IdempotencyLog(Transactions):
    """The log in PostgreSQL.

    Args:
        url: Gives the address of the database; asked whenever a connection is opened.
        worker: Who we are, for people; the token decides.
        clock: Gives the present instant, aware. Clocks that differ make takeovers early or late,
            never an effect double.
        sleep: Waits so many seconds.
        chance: Gives a number from 0 to 1, for the jitter of waits.
    """

    def __init__(
        self,
        url: Callable[[], str],
        *,
        worker: str,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(Sessions(url, sleep), worker, clock, chance)
        self._sleep = sleep

    def run(
        self,
        operation: Operation,
        key: str,
        payload: Json,
        act: Callable[[Attempt], Json],
        *,
        verify: Callable[[Attempt], Found | None] | None = None,
        still_true: Callable[[Json], bool] | None = None,
        patience: timedelta = NO_PATIENCE,
    ) -> Json:
        """Do it, unless it is done already; return the result, the same for every duplicate.

        Args:
            act: Does it. Raises NotAppliedError when it is sure that nothing happened; after any
                other error it may have happened.
            verify: Asked when an earlier attempt may have happened: what was found, or None where
                nothing happened and nothing will; raises where it cannot tell.
            still_true: Asks the artifact whether what a stored result says is still so.
            patience: How long the call may wait for another owner, or between attempts.

        Raises:
            KeyReusedError: the key was used for another payload.
            BusyError: another attempt is at work, or it backs off, for longer than the patience.
            SealedError: it was sealed.
            StaleAttemptError: another attempt came first while this one acted.
            OutcomeUnknownError: it may have happened and must not be repeated.
            BudgetSpentError: no further attempt may start.
            OperationFailedError: the attempt failed; the act's own error is the cause.
            ResultRefusedError: the result is no JSON, or too large.
        """
        if operation.kind is Kind.TRANSACTIONAL:
            raise OperationError(f"{operation.name} is TRANSACTIONAL: use run_transaction")

        def do(attempt: Attempt) -> Json:
            return self._act(attempt, act, verify)

        return self._until_done(operation, key, payload, do, still_true, patience)

    def run_transaction(
        self,
        operation: Operation,
        key: str,
        payload: Json,
        write: Callable[[Attempt, psycopg.Connection], Json],
        *,
        patience: timedelta = NO_PATIENCE,
    ) -> Json:
        """Write rows and the record of it in one transaction, unless it is done already.

        Args:
            write: Writes the effect and returns the result; called again when PostgreSQL asks for
                it, after what it wrote was rolled back.

        Raises:
            DuplicateEffectError: a constraint of the result's own table says that it is there.
            OperationError: as ``run`` does.
        """
        _check_transactional(operation)

        def do(attempt: Attempt) -> Json:
            return self._write(attempt, write)

        return self._until_done(operation, key, payload, do, None, patience)

    @contextmanager
    def transaction(
        self, operation: Operation, key: str, payload: Json
    ) -> Iterator[Transaction | Done]:
        """Open the transaction of an effect; it commits with its record at the end of the body.

        Yields:
            A transaction, whose ``result`` the body sets; or Done with the stored result.

        Raises:
            OperationError: as ``run_transaction`` does.
        """
        _check_transactional(operation)
        claim = self._granted(operation, key, payload, None)
        if isinstance(claim, Done):
            yield claim
            return
        try:
            with self.writing(claim) as work:
                yield work
        except BaseException as error:
            if isinstance(failed := self._failure(claim, error), OperationFailedError):
                raise  # the body's own error says more
            raise failed from error

    def seal(
        self,
        operation: Operation,
        key: str,
        *,
        reason: str,
        connection: psycopg.Connection | None = None,
    ) -> SealedState:
        """Let no attempt start or complete any more, and return what stood; twice is once.

        Args:
            connection: In whose transaction; one of its own where it is None.
        """
        return self._ledger.seal(operation, key, reason, connection)

    def reopen(
        self, operation: Operation, payloads: Mapping[str, Json], *, reason: str
    ) -> list[str]:
        """Open new generations, so that attempts may start again; return the keys that were.

        What is at work, or sealed, stays as it is. The old results stay in the trail.
        """
        prints = {key: fingerprint(payload) for key, payload in payloads.items()}
        return sorted(self._ledger.reopen(operation, prints, reason)) if prints else []

    def prove(self, operation: Operation, keys: Collection[str]) -> list[str]:
        """Complete failed operations whose artifact stands all the same; return their keys."""
        return sorted(self._ledger.prove(operation, keys)) if keys else []

    def supervise(
        self, operations: Collection[str] | None = None, *, grace: timedelta = timedelta(0)
    ) -> list[tuple[str, str]]:
        """End attempts whose lease ran out: they are fenced, and may be tried again.

        Args:
            operations: The names to look at; all where it is None.
            grace: For how long after its lease an owner that nobody replaced may still finish.

        Returns:
            The key and operation of each.
        """
        return self._ledger.supervise(self._clock() - grace, operations)

    def end_worker(self, operation: Operation, worker: str) -> list[str]:
        """End the attempts of a worker that is known to be dead; return their keys."""
        return sorted(self._ledger.end_worker(operation, worker))

    def states(
        self, keys: Collection[str], operations: Collection[str] | None = None
    ) -> list[OperationState]:
        """Return where operations stand: one read for many; those never claimed are left out."""
        return self._ledger.states(keys, operations)

    def open_states(self, operation: Operation, prefix: str = "") -> list[OperationState]:
        """Return the operations of a name that are not completed, by the beginning of their key."""
        return self._ledger.open_states(operation.name, prefix)

    def trail(self, key: str) -> list[OperationTrail]:
        """Return everything known about a key: all operations, all attempts."""
        attempts = self._ledger.attempts(key)
        states = self._ledger.states([key])
        return [OperationTrail(s, tuple(attempts.get(s.operation, ()))) for s in states]

    def late_attempts(self, operations: Collection[str], prefix: str = "") -> list[LateAttempt]:
        """Return attempts that came back late and changed nothing, oldest first."""
        return self._ledger.late(operations, prefix)

    def prune(self, before: datetime) -> int:
        """Forget operations that ended before an instant; return how many.

        Keep them longer than anything late can be: with its row goes the fence.
        """
        return self._ledger.prune(before)

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        self._sessions.close()

    def _until_done(
        self,
        operation: Operation,
        key: str,
        payload: Json,
        do: Callable[[Attempt], Json],
        still_true: Callable[[Json], bool] | None,
        patience: timedelta,
    ) -> Json:
        give_up_at = self._clock() + patience
        while True:
            try:
                claim = self._granted(operation, key, payload, still_true)
                return claim.result if isinstance(claim, Done) else self._attempt(claim, do)
            except (BusyError, OperationFailedError) as error:
                wait = self._wait(error)
                if wait is None or self._clock() + wait > give_up_at or not patience:
                    raise
                self._sleep(wait.total_seconds())

    def _wait(self, error: BusyError | OperationFailedError) -> timedelta | None:
        if isinstance(error, BusyError):
            return error.retry_after
        return None if error.retry_at is None else max(error.retry_at - self._clock(), NO_PATIENCE)

    def _granted(
        self,
        operation: Operation,
        key: str,
        payload: Json,
        still_true: Callable[[Json], bool] | None,
    ) -> Attempt | Done:
        claim = self.claim_many(operation, {key: payload})[key]
        if isinstance(claim, Done) and still_true is not None and not still_true(claim.result):
            disproved = {key: claim.attempt}
            claim = self.claim_many(operation, {key: payload}, disproved=disproved)[key]
        if isinstance(claim, Busy):
            raise busy_error(operation, key, claim)
        if isinstance(claim, Refused):
            if isinstance(claim.error, OutcomeUnknownError | BudgetSpentError):
                self._alert(operation, key, claim.error)
            raise claim.error
        return claim if isinstance(claim, Done) else claim.attempt

    def _attempt(self, attempt: Attempt, do: Callable[[Attempt], Json]) -> Json:
        try:
            return do(attempt)
        except (OutcomeUnknownError, ResultRefusedError):
            raise  # the attempt was ended where they were found
        except Exception as error:
            raise self._failure(attempt, error) from error
        except BaseException as error:  # an interrupt: the process ends, and may have acted
            self._failure(attempt, error)
            raise

    def _act(
        self,
        attempt: Attempt,
        act: Callable[[Attempt], Json],
        verify: Callable[[Attempt], Found | None] | None,
    ) -> Json:
        with self.kept_alive([attempt]):
            found = self._look_for_effect(attempt, verify) if attempt.in_doubt else None
            result = act(attempt) if found is None else found.result
        try:
            fenced = self.complete_many({attempt: result})
        except ResultRefusedError as error:
            # It happened, and what it gave cannot be stored: no attempt may follow by itself.
            self._give_up(attempt, error, Outcome.UNKNOWN)
            raise
        if fenced:
            raise stale(attempt)
        return result

    def _look_for_effect(
        self, attempt: Attempt, verify: Callable[[Attempt], Found | None] | None
    ) -> Found | None:
        """Return what an earlier attempt did, or None where this one may act."""
        if verify is not None:
            found = verify(attempt)
            if found is None:
                self._ledger.settle(attempt)
            return found
        if attempt.operation.may_repeat_in_doubt:
            return None
        error = outcome_unknown(attempt.operation, attempt.key)
        self._give_up(attempt, error, Outcome.FAILED)
        self._alert(attempt.operation, attempt.key, error)
        raise error

    def _write(
        self, attempt: Attempt, write: Callable[[Attempt, psycopg.Connection], Json]
    ) -> Json:
        for number in range(WRITE_TRIES):
            try:
                with self.writing(attempt) as work:
                    work.result = write(attempt, work.connection)
            except RIVALS:
                if number + 1 == WRITE_TRIES:
                    raise
            except ResultRefusedError as error:
                self._give_up(attempt, error, Outcome.FAILED)
                raise
            else:
                return work.result
        raise AssertionError  # the loop returns or raises

    def _failure(self, attempt: Attempt, error: BaseException) -> OperationError:
        """End an attempt with its error, and return what the caller is told."""
        is_definite = attempt.operation.kind is Kind.TRANSACTIONAL
        is_definite = is_definite or isinstance(error, NotAppliedError)
        outcome = Outcome.FAILED if is_definite else Outcome.UNKNOWN
        retries = self.fail_many([attempt], error, outcome=outcome)
        if attempt not in retries:
            return stale(attempt)
        retry_at = retries[attempt]
        after = "no other may start" if retry_at is None else f"the next one after {retry_at}"
        failed = OperationFailedError(f"{attempt} is {outcome}: {error}; {after}", retry_at)
        if retry_at is None:
            self._alert(attempt.operation, attempt.key, failed)
        return failed

    def _give_up(self, attempt: Attempt, error: Exception, outcome: Outcome) -> None:
        """End an attempt after which no other may start by itself."""
        self._ledger.fail(attempt.operation, {attempt: None}, error, outcome, given_back=0)

    def _alert(self, operation: Operation, key: str, error: Exception) -> None:
        """Raise an alert; once, and again by whoever asks next where this process dies first."""
        body: Json = {"key": key, "operation": operation.name, "error": str(error)}
        (attempt,) = (state.attempt for state in self._ledger.states([key], [operation.name]))
        dedup_key = f"needs_person:{operation.name}:{key}:{attempt}"
        subject = f"{operation.name} {key} needs a person"
        now = self._clock()

        def write(connection: psycopg.Connection) -> None:
            write_alert(connection, dedup_key, subject, body, now)

        self._sessions.execute(write)


def _check_transactional(operation: Operation) -> None:
    if operation.kind is not Kind.TRANSACTIONAL:
        raise OperationError(
            f"{operation.name} is {operation.kind}: only TRANSACTIONAL ones commit with their "
            "record; use run"
        )
