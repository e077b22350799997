"""The log's statements as functions: values in, values out, one round trip each.

What an answer means, and what follows from it, is in ``log``.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.operations import Attempt, Json, Operation, Status
from backfill_assets.stores.log.reasons import message_of, trace_of
from backfill_assets.stores.log.rows import attempt_record, failed_attempt, operation_state
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import (
        AttemptRecord,
        FailedAttempt,
        OperationState,
        Outcome,
    )
    from backfill_assets.stores.log.sessions import Sessions

_STATEMENTS = load_statements("backfill_assets.stores.log", "statements.sql")

Token = tuple[str, int]  # a key, and the number of an attempt at its operation


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What a duplicate needs to know of an operation."""

    status: str
    fingerprint: str
    attempt: int
    is_sealed: bool
    result: Json


@dataclass(frozen=True, slots=True)
class LateAttempt:
    """An attempt that came back when its operation was no longer its own, and changed nothing.

    Attributes:
        digest: Of what it wanted to store; None where it had failed.
        winner: The attempt that stands completed, or None where none does.
        winner_digest: Of what stands.
    """

    key: str
    operation: str
    attempt: int
    worker: str
    ended_at: datetime
    digest: str | None
    winner: int | None
    winner_digest: str | None

    @property
    def differs(self) -> bool:
        """Whether it wanted to store something else than what stands."""
        return None not in (self.digest, self.winner_digest) and self.digest != self.winner_digest


@dataclass(frozen=True, slots=True)
class SealedState:
    """What stood when an operation was sealed.

    Attributes:
        attempt: The newest attempt; 0 where none ever started.
        in_doubt: Whether an attempt may have happened; none can land any more through the log.
    """

    is_completed: bool
    attempt: int
    in_doubt: bool
    result: Json
    reason: str

    @property
    def never_ran(self) -> bool:
        """Whether no attempt ever started."""
        return self.attempt == 0


class Ledger:
    """The rows of the log.

    Args:
        worker: Who we are, for people; the token decides.
        clock: Gives the present instant, aware.
    """

    def __init__(self, sessions: Sessions, worker: str, clock: Callable[[], datetime]) -> None:
        self.sessions = sessions
        self.worker = worker
        self._clock = clock

    def states(
        self, keys: Collection[str], operations: Collection[str] | None = None
    ) -> list[OperationState]:
        """Return where operations stand; those that nothing ever claimed are left out."""
        values = {
            "keys": list(keys),
            "operations": None if operations is None else list(operations),
        }
        return [operation_state(row) for row in self.sessions.rows(_STATEMENTS["read"], values)]

    def open_states(self, operation: str, prefix: str) -> list[OperationState]:
        """Return the operations of a name that are not completed, by the beginning of their key."""
        values = {"operation": operation, "prefix": prefix}
        rows = self.sessions.rows(_STATEMENTS["read_open"], values)
        return [operation_state(row) for row in rows]

    def results(self, operation: Operation, keys: Collection[str]) -> dict[str, StoredResult]:
        """Return what stands stored, by key: one read for many."""
        values = {"keys": list(keys), "operation": operation.name}
        rows = self.sessions.rows(_STATEMENTS["read_results"], values)
        return {key: StoredResult(*rest) for key, *rest in rows}

    def claim(self, operation: Operation, fingerprints: Mapping[str, str]) -> dict[str, Attempt]:
        """Start an attempt of each operation that may be started; return those, by key."""
        now = self._clock()
        claim, lease_until = uuid.uuid4(), now + operation.policy.lease
        values = {
            "operation": operation.name,
            "kind": operation.kind.value,
            "worker": self.worker,
            "claim": claim,
            "keys": sorted(fingerprints),
            "fingerprints": [fingerprints[key] for key in sorted(fingerprints)],
            "max_attempts": operation.policy.max_attempts,
            "now": now,
            "lease_until": lease_until,
        }
        rows = self._claimed(values)
        retried = {row[0]: row[1] - 1 for row in rows if row[1] > 1}
        previous = self._ends(operation, retried) if retried else {}
        return {
            key: Attempt(
                operation=operation,
                key=key,
                number=number,
                generation=generation,
                spent=spent,
                in_doubt=in_doubt,
                lease_until=lease_until,
                taken_from=taken_from,
                previous=previous.get(key),
                claim=claim,
            )
            for key, number, generation, spent, in_doubt, taken_from in rows
        }

    def _claimed(self, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        tries = 0

        def work(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
            nonlocal tries
            tries += 1
            granted = connection.execute(_STATEMENTS["claim"], values).fetchall()
            if tries == 1:
                return granted
            # It may have been granted before, and the answer lost.
            return connection.execute(_STATEMENTS["claimed"], values).fetchall()

        return self.sessions.execute(work)

    def _ends(self, operation: Operation, numbers: Mapping[str, int]) -> dict[str, FailedAttempt]:
        """Return why attempts did not succeed, by key."""
        values = {
            "operation": operation.name,
            "keys": list(numbers),
            "attempts": list(numbers.values()),
        }
        found = {
            key: failed_attempt(number, outcome, error_type, message or note)
            for key, number, outcome, error_type, message, note in self._rows("ends", values, None)
        }
        return {key: failed for key, failed in found.items() if failed is not None}

    def complete(
        self,
        operation: Operation,
        results: Sequence[tuple[Attempt, str, str]],
        connection: psycopg.Connection | None = None,
    ) -> set[Token]:
        """Store results, as (attempt, text, digest); return the attempts that were still owners.

        Args:
            connection: In whose transaction; one of its own where it is None.
        """
        values = _attempts(operation, [attempt for attempt, _, _ in results]) | {
            "results": [text for _, text, _ in results],
            "digests": [digest for _, _, digest in results],
            "now": self._clock(),
        }
        return self._tokens("complete", values, connection)

    def fail(
        self,
        operation: Operation,
        retries: Mapping[Attempt, datetime | None],
        error: BaseException,
        outcome: Outcome,
        *,
        given_back: int,
    ) -> set[Token]:
        """End attempts with an error; return the attempts that were still owners.

        Args:
            retries: When each may be tried again; None: not before a person reopens it.
            given_back: How many of the budget each gives back: 1 where nothing was tried.
        """
        values = _attempts(operation, list(retries)) | {
            "retries": list(retries.values()),
            "outcome": outcome.value,
            "given_back": given_back,
            "now": self._clock(),
            **_error(error),
        }
        return self._tokens("fail", values)

    def completed(self, operation: Operation, attempts: Sequence[Attempt]) -> set[Token]:
        """Return those of the attempts that have completed, whatever became of it later."""
        return self._tokens("completed", _attempts(operation, attempts))

    def failed(self, operation: Operation, attempts: Sequence[Attempt]) -> set[Token]:
        """Return those of the attempts that have said themselves why they failed."""
        return self._tokens("failed", _attempts(operation, attempts))

    def stand(self, attempt: Attempt) -> Status | None:
        """Return where an attempt's operation stands, or None where it is not its own any more.

        Whoever is changing it is waited for: be it the server, at work on what we sent to it.
        """
        values = {"operation": attempt.operation.name, "keys": [attempt.key]}
        for _, number, claim, status in self._rows("stand", values, None):
            if (number, claim) == (attempt.number, attempt.claim):
                return Status(status)
        return None

    def record_late(
        self,
        operation: Operation,
        digests: Mapping[Attempt, str | None],
        error: BaseException | None,
        connection: psycopg.Connection,
    ) -> list[LateAttempt]:
        """Write down attempts that came back too late; return those not written down before."""
        values = _attempts(operation, list(digests)) | {
            "digests": list(digests.values()),
            "now": self._clock(),
            **_error(error),
        }
        # One of them may be about to be replaced by a result: either it is seen here, or whoever
        # stores it sees what is written here.
        connection.execute(_STATEMENTS["stand"], values)
        return [LateAttempt(*row) for row in self._rows("record_late", values, connection)]

    def differing(
        self,
        operation: Operation,
        attempts: Sequence[Attempt],
        connection: psycopg.Connection,
    ) -> list[LateAttempt]:
        """Return those fenced before these attempts completed that wanted something else."""
        values = _attempts(operation, attempts)
        return [LateAttempt(*row) for row in self._rows("differing", values, connection)]

    def renew(self, operation: Operation, attempts: Sequence[Attempt]) -> set[Token]:
        """Lengthen leases; return the attempts that are still owners."""
        now = self._clock()
        until = {"now": now, "lease_until": now + operation.policy.lease}
        return self._tokens("renew", _attempts(operation, attempts) | until)

    def settle(self, attempt: Attempt) -> bool:
        """Let it be known that nothing of earlier attempts happened; return whether it may be."""
        values = {
            "key": attempt.key,
            "operation": attempt.operation.name,
            "attempt": attempt.number,
            "claim": attempt.claim,
            "now": self._clock(),
        }
        return bool(self._rows("settle", values, None))

    def disprove(self, operation: Operation, attempts: Mapping[str, int]) -> set[str]:
        """Take back completions of the given attempts, by key; return those taken back."""
        values = {
            "operation": operation.name,
            "keys": sorted(attempts),
            "attempts": [attempts[key] for key in sorted(attempts)],
            "now": self._clock(),
        }
        return self._keys("disprove", values)

    def prove(self, operation: Operation, keys: Collection[str]) -> set[str]:
        """Complete failed operations whose artifact stands; return those that were failed."""
        values = {"operation": operation.name, "keys": sorted(keys), "now": self._clock()}
        return self._keys("prove", values)

    def correct(
        self, operation: Operation, found: Mapping[str, tuple[int, str]], reason: str
    ) -> set[str]:
        """Store other results, as (attempt, text) by key; return those that were corrected."""
        values = {
            "operation": operation.name,
            "keys": sorted(found),
            "attempts": [found[key][0] for key in sorted(found)],
            "results": [found[key][1] for key in sorted(found)],
            "reason": reason,
            "now": self._clock(),
        }
        return self._keys("correct", values)

    def reopen(
        self,
        operation: Operation,
        fingerprints: Mapping[str, str],
        reason: str,
        *,
        is_settled: bool,
    ) -> set[str]:
        """Let attempts start again; return the keys that were reopened."""
        states = self.states(fingerprints, [operation.name])
        values = {
            "operation": operation.name,
            "keys": [state.key for state in states],
            "fingerprints": [fingerprints[state.key] for state in states],
            "attempts": [state.attempt for state in states],
            "generations": [state.generation for state in states],
            "statuses": [state.status.value for state in states],
            "reason": reason,
            "is_settled": is_settled,
            "now": self._clock(),
        }
        return self._keys("reopen", values)

    def seal(
        self, operation: Operation, key: str, reason: str, connection: psycopg.Connection | None
    ) -> SealedState:
        """Let no attempt start or complete any more; return what stood."""
        values = {
            "key": key,
            "operation": operation.name,
            "kind": operation.kind.value,
            "worker": self.worker,
            "reason": reason,
            "now": self._clock(),
        }
        ((status, attempt, in_doubt, result, stands),) = self._rows("seal", values, connection)
        return SealedState(status == "COMPLETED", attempt, in_doubt, result, stands)

    def supervise(
        self, before: datetime, operations: Collection[str] | None
    ) -> list[tuple[str, str]]:
        """End attempts whose lease ran out before an instant; return (key, operation) of each."""
        values = {
            "before": before,
            "now": self._clock(),
            "operations": None if operations is None else list(operations),
        }
        return [(key, name) for key, name in self._rows("supervise", values, None)]

    def end_worker(self, operation: Operation, worker: str) -> set[str]:
        """End the attempts of a worker that is known to be dead; return their keys."""
        values = {"operation": operation.name, "worker": worker, "now": self._clock()}
        return self._keys("end_worker", values)

    def attempts(self, key: str) -> dict[str, list[AttemptRecord]]:
        """Return every attempt at the operations of a key, by the operation's name."""
        found: dict[str, list[AttemptRecord]] = {}
        for name, *row in self._rows("attempts", {"key": key}, None):
            found.setdefault(name, []).append(attempt_record(row))
        return found

    def late(self, operations: Iterable[str], prefix: str) -> list[LateAttempt]:
        """Return what came back late, by the beginning of its key, oldest first."""
        values = {"operations": list(operations), "prefix": prefix}
        return [LateAttempt(*row) for row in self._rows("late", values, None)]

    def prune(self, before: datetime) -> int:
        """Forget operations that ended before an instant; return how many."""
        ((count,),) = self._rows("prune", {"before": before}, None)
        return int(count)

    def _keys(self, name: str, values: dict[str, Any]) -> set[str]:
        return {row[0] for row in self._rows(name, values, None)}

    def _tokens(
        self, name: str, values: dict[str, Any], connection: psycopg.Connection | None = None
    ) -> set[Token]:
        return {(key, number) for key, number in self._rows(name, values, connection)}

    def _rows(
        self, name: str, values: dict[str, Any], connection: psycopg.Connection | None
    ) -> list[tuple[Any, ...]]:
        if connection is None:
            return self.sessions.rows(_STATEMENTS[name], values)
        return connection.execute(_STATEMENTS[name], values).fetchall()


def _attempts(operation: Operation, attempts: Sequence[Attempt]) -> dict[str, Any]:
    return {
        "operation": operation.name,
        "keys": [attempt.key for attempt in attempts],
        "attempts": [attempt.number for attempt in attempts],
        "claims": [attempt.claim for attempt in attempts],
    }


def _error(error: BaseException | None) -> dict[str, str | None]:
    if error is None:
        return {"error_type": None, "error_message": None, "error_trace": None}
    return {
        "error_type": type(error).__name__,
        "error_message": message_of(error),
        "error_trace": trace_of(error),
    }
