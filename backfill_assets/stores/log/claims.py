"""The log for many operations of a name at once: claim them, complete or fail their attempts."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backfill_assets.core.operations import (
    Claimed,
    Done,
    FailedAttempt,
    Outcome,
    Status,
)
from backfill_assets.stores.log.alerts import write_alert
from backfill_assets.stores.log.answers import answer_at_once, answer_to
from backfill_assets.stores.log.ledger import Ledger
from backfill_assets.stores.log.results import digest, fingerprint, result_text
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import Attempt, Claim, Json, Operation
    from backfill_assets.stores.log.ledger import LateAttempt, StoredResult
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
        for key, found in stored.items():
            answer = answer_at_once(operation, key, prints[key], found)
            if answer is not None and not _is_disproved(key, answer, disproved):
                answers[key] = answer
        if disproved:
            self._disprove(operation, stored, disproved)
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
        operation = next(iter(results)).operation
        rows = [(a, text, digest(text)) for a, text in _texts(results).items()]
        owned = self._ledger.complete(operation, rows, connection)
        left = [attempt for attempt in results if attempt.key not in owned]
        fenced = self._without_own(operation, left, Status.COMPLETED)
        if fenced and connection is None:
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
        operation = attempts[0].operation
        retries = {a: retry_at or self._retry_at(a, error, outcome) for a in attempts}
        owned = self._ledger.fail(
            operation, retries, error, outcome, given_back=0 if is_spent else 1
        )
        left = [attempt for attempt in attempts if attempt.key not in owned]
        fenced = self._without_own(operation, left, Status.FAILED)
        if fenced:
            self._record_late(operation, dict.fromkeys(fenced), error)
        return {attempt: at for attempt, at in retries.items() if attempt not in fenced}

    def note_late(self, results: Mapping[Attempt, Json]) -> None:
        """Write down attempts that were fenced, and raise an alert where other content stands."""
        operation = next(iter(results)).operation
        digests = {attempt: digest(text) for attempt, text in _texts(results).items()}
        self._record_late(operation, digests, None)

    def renew(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Lengthen the leases of attempts at one operation; return those that were fenced."""
        if not attempts:
            return []
        owned = self._ledger.renew(attempts[0].operation, attempts)
        return [attempt for attempt in attempts if attempt.key not in owned]

    @contextmanager
    def kept_alive(self, attempts: Sequence[Attempt]) -> Iterator[None]:
        """Renew the leases of attempts at one operation from a thread, while the body runs."""
        ended = threading.Event()
        period = attempts[0].operation.policy.lease.total_seconds() / 3

        def renew() -> None:
            while not ended.wait(period):
                try:
                    self.renew(attempts)
                except PostgresError:
                    continue  # the lease may run out: then the token decides
            self._sessions.close()

        thread = threading.Thread(target=renew, name="leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def settle(self, attempt: Attempt) -> None:
        """Let it be known that nothing of earlier attempts happened, or will."""
        self._ledger.settle(attempt)

    def _claim_open(self, operation: Operation, prints: Mapping[str, str]) -> dict[str, Claim]:
        claimed = self._ledger.claim(operation, prints)
        answers: dict[str, Claim] = {key: Claimed(attempt) for key, attempt in claimed.items()}
        left = [key for key in prints if key not in claimed]
        now = self._clock()
        for state in self._ledger.states(left, [operation.name]) if left else []:
            answers[state.key] = answer_to(operation, prints[state.key], state, now)
        return answers

    def _disprove(
        self,
        operation: Operation,
        stored: Mapping[str, StoredResult],
        disproved: Mapping[str, int],
    ) -> None:
        false = {
            key: attempt
            for key, attempt in disproved.items()
            if key in stored and stored[key].status == Status.COMPLETED
        }
        if false:
            self._ledger.disprove(operation, false)

    def _without_own(
        self, operation: Operation, attempts: Sequence[Attempt], status: Status
    ) -> list[Attempt]:
        """Return the attempts that were fenced: not those whose end stands already.

        It stands when the answer to its commit was lost and the statement was executed again.
        """
        if not attempts:
            return []
        states = {
            s.key: s for s in self._ledger.states([a.key for a in attempts], [operation.name])
        }
        return [
            attempt
            for attempt in attempts
            if (state := states.get(attempt.key)) is None
            or (state.attempt, state.status) != (attempt.number, status)
        ]

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
                        _alert_of_difference(connection, late)

        self._sessions.execute(record)

    def _retry_at(
        self, attempt: Attempt, error: BaseException, outcome: Outcome
    ) -> datetime | None:
        policy = attempt.operation.policy
        failed = FailedAttempt(attempt.number, outcome, type(error).__name__, str(error))
        if policy.is_spent(attempt.spent) or policy.is_final(failed):
            return None
        return self._clock() + policy.wait_after(attempt.spent, self._chance())


def _texts(results: Mapping[Attempt, Json]) -> dict[Attempt, str]:
    return {attempt: result_text(result) for attempt, result in results.items()}


def _is_disproved(key: str, answer: Claim, disproved: Mapping[str, int] | None) -> bool:
    return (
        disproved is not None and isinstance(answer, Done) and disproved.get(key) == answer.attempt
    )


def _alert_of_difference(connection: psycopg.Connection, late: LateAttempt) -> None:
    write_alert(
        connection,
        f"late_result:{late.operation}:{late.key}:{late.attempt}",
        f"A late result of {late.operation} {late.key} differs from the one that stands",
        {
            "key": late.key,
            "operation": late.operation,
            "late_attempt": late.attempt,
            "late_digest": late.digest,
            "committed_attempt": late.winner,
            "committed_digest": late.winner_digest,
        },
        late.ended_at,
    )
