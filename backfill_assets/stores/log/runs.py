"""Doing an operation from its claim to its end, and what the caller is told."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from backfill_assets.core.errors import (
    BudgetSpentError,
    BusyError,
    NotAppliedError,
    OperationError,
    OperationFailedError,
    OutcomeUnknownError,
    ResultRefusedError,
)
from backfill_assets.core.operations import Busy, Done, Kind, Outcome, Refused, joined
from backfill_assets.stores.log.alerts import write_alert
from backfill_assets.stores.log.answers import busy_error, outcome_unknown
from backfill_assets.stores.log.claims import stale
from backfill_assets.stores.log.reasons import message_of, storable
from backfill_assets.stores.log.results import as_stored, result_text
from backfill_assets.stores.log.sessions import RIVALS, Sessions
from backfill_assets.stores.log.transactions import Transactions
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from backfill_assets.core.operations import Attempt, Found, Json, Operation
    from backfill_assets.stores.log.transactions import Transaction

WRITE_TRIES = 5  # PostgreSQL asks to try again when two transactions stand in each other's way
NO_PATIENCE = timedelta(0)


class EndedError(Exception):
    """The attempt was ended where its fault was found; never leaves this module.

    Attributes:
        error: What the caller is told.
    """

    def __init__(self, error: OperationError) -> None:
        super().__init__(str(error))
        self.error = error


class Runs(Transactions):
    """Operations that are done as far as they have to be.

    Args:
        worker: Who we are, for people; the token decides.
        clock: Gives the present instant, aware.
        sleep: Waits so many seconds.
        chance: Gives a number from 0 to 1, for the jitter of waits.
    """

    def __init__(
        self,
        sessions: Sessions,
        worker: str,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None],
        chance: Callable[[], float],
    ) -> None:
        super().__init__(sessions, worker, clock, chance)
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
        except Exception as error:
            failed = self._failure(claim, error)
            if isinstance(failed, OperationFailedError):
                raise  # the body's own error says more
            if failed is not None:
                raise failed from error
        except BaseException as error:
            self._interrupted(claim, error)
            raise

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
        except EndedError as ended:
            raise ended.error from ended.error.__cause__
        except Exception as error:
            failed = self._failure(attempt, error)
            if failed is None:  # the answer was lost, not what it answered
                return self._result_of(attempt)
            raise failed from error
        except BaseException as error:
            self._interrupted(attempt, error)
            raise

    def _interrupted(self, attempt: Attempt, error: BaseException) -> None:
        """End an attempt whose process is about to end, and may have acted."""
        with suppress(PostgresError, psycopg.Error):  # then its lease ends it
            self._failure(attempt, error)

    def _act(
        self,
        attempt: Attempt,
        act: Callable[[Attempt], Json],
        verify: Callable[[Attempt], Found | None] | None,
    ) -> Json:
        with self.kept_alive([attempt]):
            found = self._look_for_effect(attempt, verify) if attempt.in_doubt else None
            result = act(attempt) if found is None else found.result
        self._check_storable(attempt, result)
        if self.complete_many({attempt: result}):
            raise stale(attempt)
        return as_stored(result)

    def _check_storable(self, attempt: Attempt, result: Json) -> None:
        try:
            result_text(result)
        except ResultRefusedError as error:
            # Its act would give the same again: no attempt may follow by itself. One that has
            # happened outside of our transaction has happened.
            is_undone = attempt.operation.kind is Kind.TRANSACTIONAL
            outcome = Outcome.FAILED if is_undone else Outcome.UNKNOWN
            raise self._given_up(attempt, error, outcome) from error

    def _look_for_effect(
        self, attempt: Attempt, verify: Callable[[Attempt], Found | None] | None
    ) -> Found | None:
        """Return what an earlier attempt did, or None where this one may act."""
        if verify is not None:
            found = verify(attempt)
            if found is None:
                self.settle(attempt)
            return found
        if attempt.operation.may_repeat_in_doubt:
            return None
        error = outcome_unknown(attempt.operation, attempt.key)
        raise self._given_up(attempt, error, Outcome.FAILED)

    def _write(
        self, attempt: Attempt, write: Callable[[Attempt, psycopg.Connection], Json]
    ) -> Json:
        def write_and_check(connection: psycopg.Connection) -> Json:
            result = write(attempt, connection)
            try:
                result_text(result)
            except ResultRefusedError as error:
                raise EndedError(error) from error  # rolls back
            return result

        for number in range(WRITE_TRIES):
            try:
                with self.writing(attempt) as work:
                    work.result = write_and_check(work.connection)
            except RIVALS:
                if number + 1 == WRITE_TRIES:
                    raise
            except EndedError as ended:
                raise self._given_up(attempt, ended.error, Outcome.FAILED) from ended
            else:
                return as_stored(work.result)
        raise AssertionError  # the loop returns or raises

    def _failure(self, attempt: Attempt, error: BaseException) -> OperationError | None:
        """End an attempt with its error, and return what the caller is told.

        None where it had completed all the same: the answer to that was lost.
        """
        is_definite = attempt.operation.kind is Kind.TRANSACTIONAL
        is_definite = is_definite or isinstance(error, NotAppliedError)
        outcome = Outcome.FAILED if is_definite else Outcome.UNKNOWN
        retries = self.fail_many([attempt], error, outcome=outcome)
        if attempt not in retries:
            return None if self._ledger.completed(attempt.operation, [attempt]) else stale(attempt)
        retry_at = retries[attempt]
        after = "no other may start" if retry_at is None else f"the next one after {retry_at}"
        message = f"{attempt} is {outcome}: {message_of(error)}; {after}"
        failed = OperationFailedError(message, retry_at)
        if retry_at is None:
            self._alert(attempt.operation, attempt.key, failed)
        return failed

    def _result_of(self, attempt: Attempt) -> Json:
        stored = self._ledger.results(attempt.operation, [attempt.key])
        if attempt.key in stored and stored[attempt.key].attempt == attempt.number:
            return stored[attempt.key].result
        raise stale(attempt)  # it was disproved, or reopened, since

    def _given_up(
        self, attempt: Attempt, error: OperationError, outcome: Outcome
    ) -> EndedError | OperationError:
        """End an attempt after which no other may start by itself; return what to raise."""
        owned = self._ledger.fail(attempt.operation, {attempt: None}, error, outcome, given_back=0)
        if not owned and not self._ledger.failed(attempt.operation, [attempt]):
            return error  # it was fenced, and is written down as late
        self._alert(attempt.operation, attempt.key, error)
        return EndedError(error)

    def _alert(self, operation: Operation, key: str, error: Exception) -> None:
        """Raise an alert; once, and again by whoever asks next where this process dies first."""
        body: Json = {
            "key": key,
            "operation": operation.name,
            "error": storable(str(error)),
        }
        states = self._ledger.states([key], [operation.name])
        number = states[0].attempt if states else 0
        dedup_key = joined("needs_person", operation.name, key, number)
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
