"""Rows of the log as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backfill_assets.core.operations import (
    AttemptRecord,
    FailedAttempt,
    OperationState,
    Outcome,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def operation_state(row: Sequence[Any]) -> OperationState:
    """Return a row of the statements ``read`` and ``read_open``."""
    (key, name, status, fingerprint, attempt, generation, spent, outcome, in_doubt) = row[:9]
    (worker, lease_until, retry_at, result, sealed, error_type, message, created, updated) = row[9:]
    return OperationState(
        key=key,
        operation=name,
        status=Status(status),
        fingerprint=fingerprint,
        attempt=attempt,
        generation=generation,
        spent=spent,
        outcome=None if outcome is None else Outcome(outcome),
        in_doubt=in_doubt,
        worker=worker,
        lease_until=lease_until,
        retry_at=retry_at,
        result=result,
        sealed_reason=sealed,
        error=failed_attempt(attempt, outcome, error_type, message),
        created_at=created,
        updated_at=updated,
    )


def failed_attempt(
    number: int, outcome: str | None, error_type: str | None, message: str | None
) -> FailedAttempt | None:
    """Return why an attempt did not succeed, or None where it has no such end."""
    if outcome not in {Outcome.FAILED, Outcome.UNKNOWN, Outcome.FENCED}:
        return None
    return FailedAttempt(number, Outcome(outcome), error_type or "", message or "")


def attempt_record(row: Sequence[Any]) -> AttemptRecord:
    """Return a row of the statement ``attempts``, without its operation's name."""
    (number, generation, worker, outcome, started_at, ended_at, *rest) = row
    (error_type, error_message, error_trace, result_digest, result, note) = rest
    return AttemptRecord(
        number=number,
        generation=generation,
        worker=worker,
        outcome=Outcome(outcome),
        started_at=started_at,
        ended_at=ended_at,
        error_type=error_type,
        error_message=error_message,
        error_trace=error_trace,
        result_digest=result_digest,
        result=result,
        note=note,
    )
