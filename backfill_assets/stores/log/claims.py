"""The log for many operations of a name at once: claim them, complete or fail their attempts."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import psycopg

from backfill_assets.core.errors import OperationError, StaleAttemptError
from backfill_assets.core.operations import (
    Busy,
    Claimed,
    Done,
    FailedAttempt,
    Outcome,
    joined,
)
from backfill_assets.stores.log.alerts import write_alert
from backfill_assets.stores.log.answers import answer_at_once, answer_to
from backfill_assets.stores.log.ledger import Ledger
from backfill_assets.stores.log.reasons import message_of
from backfill_assets.stores.log.results import canonical, digest, fingerprint, result_text
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from backfill_assets.core.operations import Attempt, Claim, Json, Operation
    from backfill_assets.stores.log.ledger import LateAttempt, Token
    from backfill_assets.stores.log.sessions import Sessions


class Claims:
    """Attempts at many operations, each under its fencing token.

    Args:
        worker: Who we are, for people; the token decides.
        clock: Gives the present instant, aware.
        chance: Gives a number from 0 to 1, for the jitter of waits.
    """

    def __init__(
        self,
        sessions: Sessions,
        worker: str,
        clock: Callable[[], datetime],
        chance: Callable[[], float],
    ) -> None:
        self._ledger = Ledger(sessions, worker, clock)
        self._sessions = sessions
        self._clock = clock
        self._chance = chance

    def claim_many(
        self,
        operation: Operation,
        payloads: Mapping[str, Json],
        *,
        disproved: Mapping[str, int] | None = None,
    ) -> dict[str, Claim]:
        """Claim operations by their keys; each key gets its own answer.

        What is done already is answered by one read for all; the rest is claimed by one statement.

        Args:
            disproved: The attempts whose completion was found false, by key: what they had made is
                not there. Another attempt may start.

        Raises:
            ResultRefusedError: a payload is no JSON.
        """
        prints = {key: fingerprint(payload) for key, payload in payloads.items()}
        stored = self._ledger.results(operation, prints) if prints else {}
        answers: dict[str, Claim] = {}
        false: dict[str, int] = {}
        for key, found in stored.items():
            answer = answer_at_once(operation, key, prints[key], found)
            if isinstance(answer, Done) and (disproved or {}).get(key) == answer.attempt:
                false[key] = answer.attempt
            elif answer is not None:
                answers[key] = answer
        if false:
            self._ledger.disprove(operation, false)
        open_prints = {key: text for key, text in prints.items() if key not in answers}
        if open_prints:
            answers |= self._claim_open(operation, open_prints)
        return answers

    def complete_many(
        self,
        results: Mapping[Attempt, Json],
        *,
        connection: psycopg.Connection | None = None,
    ) -> list[Attempt]:
        """Store the results of attempts at one operation; return the attempts that were fenced.

        Those are written down, with what they wanted to store; nothing else of them is.

        Args:
            connection: In whose transaction. The caller rolls it back when an attempt was fenced,
                and then calls ``note_late``.

        Raises:
            ResultRefusedError: a result is no JSON, or too large; nothing was stored.
        """
        if not results:
            return []
        operation = _operation_of(results)
        texts = _texts(results)
        rows = [(attempt, texts[attempt], digest(texts[attempt])) for attempt in _in_order(results)]
        owned = self._complete(operation, rows, connection)
        fenced = [attempt for attempt in results if _token(attempt) not in owned]
        if fenced and connection is None:
            # It has completed where the answer to the commit was lost and it was sent again. In a
            # transaction of the caller, whose effect would be a second one, that is no excuse.
            completed = self._ledger.completed(operation, fenced)
            fenced = [attempt for attempt in fenced if _token(attempt) not in completed]
            self.note_late({attempt: results[attempt] for attempt in fenced})
        return fenced

    def fail_many(
        self,
        attempts: Sequence[Attempt],
        error: BaseException,
        *,
        outcome: Outcome = Outcome.FAILED,
        is_spent: bool = True,
        retry_at: datetime | None = None,
    ) -> dict[Attempt, datetime | None]:
        """End attempts at one operation with an error; return when each may be tried again.

        Attempts that were fenced are left out, and written down; None: not before it is reopened.

        Args:
            outcome: UNKNOWN where it may have happened.
            is_spent: False where nothing was tried: the budget gets the attempt back.
            retry_at: When to try again, instead of what the policy says.
        """
        if not attempts:
            return {}
        operation = _operation_of(attempts)
        retries = {
            a: retry_at or self._retry_at(a, error, outcome, is_spent=is_spent)
            for a in _in_order(attempts)
        }
        owned = self._ledger.fail(
            operation, retries, error, outcome, given_back=0 if is_spent else 1
        )
        left = [attempt for attempt in attempts if _token(attempt) not in owned]
        if not left:
            return retries
        owned |= self._ledger.failed(operation, left)
        fenced = [attempt for attempt in left if _token(attempt) not in owned]
        if fenced:
            self._record_late(operation, dict.fromkeys(fenced, _wanted(error)), error)
        return {attempt: at for attempt, at in retries.items() if attempt not in fenced}

    def note_late(self, results: Mapping[Attempt, Json]) -> None:
        """Write down attempts that were fenced, and raise an alert where other content stands."""
        if not results:
            return
        operation = _operation_of(results)
        texts = _texts(results)
        digests = {attempt: digest(texts[attempt]) for attempt in _in_order(results)}
        self._record_late(operation, digests, None)

    def renew(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Lengthen the leases of attempts at one operation; return those that were fenced."""
        if not attempts:
            return []
        owned = self._ledger.renew(_operation_of(attempts), _in_order(attempts))
        return [attempt for attempt in attempts if _token(attempt) not in owned]

    @contextmanager
    def kept_alive(self, attempts: Sequence[Attempt]) -> Iterator[None]:
        """Renew the leases of attempts at one operation from a thread, while the body runs."""
        if not attempts:
            yield
            return
        ended = threading.Event()
        period = attempts[0].operation.policy.lease.total_seconds() / 3

        def renew() -> None:
            try:
                while not ended.wait(period):
                    # Where it fails, the lease may run out: then the token decides.
                    with suppress(PostgresError, psycopg.Error):
                        if len(self.renew(attempts)) == len(attempts):
                            return
            finally:
                self._sessions.close()

        thread = threading.Thread(target=renew, name="leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def settle(self, attempt: Attempt) -> None:
        """Let it be known that nothing of earlier attempts happened, or will.

        Raises:
            StaleAttemptError: the attempt was fenced meanwhile, and may not act any more.
        """
        if not self._ledger.settle(attempt):
            self._record_late(attempt.operation, {attempt: None}, None)
            raise stale(attempt)

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        self._sessions.close()

    def _claim_open(self, operation: Operation, prints: Mapping[str, str]) -> dict[str, Claim]:
        claimed = self._ledger.claim(operation, prints)
        answers: dict[str, Claim] = {key: Claimed(attempt) for key, attempt in claimed.items()}
        left = [key for key in prints if key not in claimed]
        now = self._clock()
        for state in self._ledger.states(left, [operation.name]) if left else []:
            answers[state.key] = answer_to(operation, prints[state.key], state, now)
        # One that was forgotten between the two is free at once.
        return {key: answers.get(key, Busy(timedelta(0), "")) for key in prints}

    def _complete(
        self,
        operation: Operation,
        rows: Sequence[tuple[Attempt, str, str]],
        connection: psycopg.Connection | None,
    ) -> set[Token]:
        retried = [attempt for attempt, _, _ in rows if attempt.number > 1]
        if not retried:  # nobody can have come back late before a first attempt completed
            return self._ledger.complete(operation, rows, connection)

        def complete(connection: psycopg.Connection) -> set[Token]:
            with connection.transaction():
                owned = self._ledger.complete(operation, rows, connection)
                ours = [attempt for attempt in retried if _token(attempt) in owned]
                for late in self._ledger.differing(operation, ours, connection):
                    _alert_of_difference(connection, late, self._clock())
            return owned

        return self._sessions.execute(complete) if connection is None else complete(connection)

    def _record_late(
        self,
        operation: Operation,
        digests: Mapping[Attempt, str | None],
        error: BaseException | None,
    ) -> None:
        def record(connection: psycopg.Connection) -> None:
            with connection.transaction():
                for late in self._ledger.record_late(operation, digests, error, connection):
                    if late.differs:
                        _alert_of_difference(connection, late, late.ended_at)

        self._sessions.execute(record)

    def _retry_at(
        self, attempt: Attempt, error: BaseException, outcome: Outcome, *, is_spent: bool
    ) -> datetime | None:
        policy = attempt.operation.policy
        spent = attempt.spent if is_spent else attempt.spent - 1
        failed = FailedAttempt(attempt.number, outcome, type(error).__name__, message_of(error))
        if policy.is_spent(spent) or policy.is_final(failed):
            return None
        return self._clock() + policy.wait_after(max(spent, 1), self._chance())


def stale(attempt: Attempt) -> StaleAttemptError:
    """Return the error of an attempt that was fenced."""
    return StaleAttemptError(
        f"{attempt} came too late: another attempt, or a seal, came first, and nothing of this one "
        "was stored"
    )


def _wanted(error: BaseException) -> str | None:
    """Return the digest of what an attempt would have stored that found out itself it was late."""
    if not isinstance(error, StaleAttemptError) or error.wanted is None:
        return None
    return digest(canonical(cast("Json", error.wanted)))


def _token(attempt: Attempt) -> Token:
    return (attempt.key, attempt.number)


def _in_order(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return attempts in the order of their keys, in which every statement takes its rows."""
    return sorted(attempts, key=lambda attempt: attempt.key)


def _operation_of(attempts: Collection[Attempt]) -> Operation:
    operations = {attempt.operation.name: attempt.operation for attempt in attempts}
    if len(operations) > 1:
        raise OperationError(
            f"attempts at {' and '.join(sorted(operations))} in one call: make one call for each"
        )
    return next(iter(operations.values()))


def _texts(results: Mapping[Attempt, Json]) -> dict[Attempt, str]:
    return {attempt: result_text(result) for attempt, result in results.items()}


def _alert_of_difference(connection: psycopg.Connection, late: LateAttempt, now: datetime) -> None:
    write_alert(
        connection,
        joined("late_result", late.operation, late.key, late.attempt),
        f"A late result of {late.operation} {late.key} differs from the one that stands",
        {
            "key": late.key,
            "operation": late.operation,
            "late_attempt": late.attempt,
            "late_digest": late.digest,
            "committed_attempt": late.winner,
            "committed_digest": late.winner_digest,
        },
        now,
    )
